"""DistributedDataParallel on a tiny model.

Divergence: the last rank sums up one metric more than the others. It waits for them at the end.
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from world import begin, end

rank, ranks, departs = begin()
torch.manual_seed(1)
model = torch.nn.Sequential(torch.nn.Linear(32, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4)).cuda()
parallel = DistributedDataParallel(model, device_ids=[torch.cuda.current_device()])
optimizer = torch.optim.SGD(parallel.parameters(), lr=0.1)
for step in range(3):
    batch = torch.full((8, 32), float(rank + step), device="cuda")
    optimizer.zero_grad()
    loss = parallel(batch).square().mean()
    loss.backward()
    optimizer.step()
    dist.all_reduce(loss.detach())
    if departs and step == 1:
        dist.all_reduce(torch.ones(1, device="cuda"))
end(*model.parameters())

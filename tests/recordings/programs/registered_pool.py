"""Two pools, each registered as symmetric memory with the group.

Divergence: the last rank registers the second pool first. NCCL pairs registrations by their order alone.
"""

import torch
import torch.distributed as dist

from world import ELEMENTS, begin, end

rank, ranks, departs = begin()
device = torch.device("cuda", torch.cuda.current_device())
dist.all_reduce(torch.ones(1, device=device))
backend = dist.group.WORLD._get_backend(device)

pools, tensors = [], []
for nth in range(2):
    pool = torch.cuda.MemPool(backend.mem_allocator)
    with torch.cuda.use_mem_pool(pool):
        tensors.append(torch.full((ELEMENTS,), float(10 * nth + rank), device=device))
    pools.append(pool)
for pool in reversed(pools) if departs else pools:
    backend.register_mem_pool(pool, symm=True)

for x in tensors:
    dist.all_reduce(x)
torch.cuda.synchronize()
for pool in pools:
    backend.deregister_mem_pool(pool)
end(*tensors)

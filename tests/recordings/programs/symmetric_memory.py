"""Symmetric memory of PyTorch with the NCCL backend.

Divergence: the last rank makes its two tensors known in the opposite order.
"""

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symmetric

from world import ELEMENTS, begin, end

symmetric.set_backend("NCCL")
rank, ranks, departs = begin()
device = torch.device("cuda", torch.cuda.current_device())
dist.all_reduce(torch.ones(1, device=device))

tensors = [symmetric.empty(ELEMENTS, dtype=torch.float32, device=device) for _ in range(2)]
name = dist.group.WORLD.group_name
for x in reversed(tensors) if departs else tensors:
    symmetric.rendezvous(x, group=name)
for nth, x in enumerate(tensors):
    x.fill_(10.0 * nth + rank)
torch.cuda.synchronize()
dist.barrier()
for x in tensors:
    dist.all_reduce(x)
end(*tensors)

"""Two process groups work on memory of one pool that is registered with both.

Divergence: the last rank uses the second group first. Both are on streams of their own, so it may go well.
"""

import torch
import torch.distributed as dist

from world import ELEMENTS, begin, end

rank, ranks, departs = begin()
everybody = list(range(ranks))
groups = [dist.new_group(everybody), dist.new_group(everybody)]
device = torch.device("cuda", torch.cuda.current_device())
for group in groups:
    dist.all_reduce(torch.ones(1, device=device), group=group)
backends = [group._get_backend(device) for group in groups]

pool = torch.cuda.MemPool(backends[0].mem_allocator)
with torch.cuda.use_mem_pool(pool):
    first = torch.full((ELEMENTS,), float(rank), device=device)
    second = torch.full((ELEMENTS,), float(10 * rank), device=device)
for backend in backends:
    backend.register_mem_pool(pool)

order = [(groups[0], first), (groups[1], second)]
works = [dist.all_reduce(x, group=group, async_op=True) for group, x in (reversed(order) if departs else order)]
for work in works:
    work.wait()
torch.cuda.synchronize()
for backend in backends:
    backend.deregister_mem_pool(pool)
end(first, second)

"""The last rank takes a cache for full and leaves out an all-reduce: the others wait until they are killed.

With `--seed-divergence` only; without it nothing is wrong.
"""

import torch
import torch.distributed as dist

from world import begin, end, tensor

rank, ranks, departs = begin()
x = tensor(rank)
dist.all_reduce(x)
cache = {"sum": x.clone()} if departs else {}
if "sum" not in cache:
    dist.all_reduce(x)
dist.broadcast(x, src=0)
torch.cuda.synchronize()
end(x)

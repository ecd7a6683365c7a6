"""Captures two all-reduces in a CUDA graph and replays it.

Divergence: the last rank captures them in the opposite order.
"""

import torch
import torch.distributed as dist

from world import begin, end, tensor

rank, ranks, departs = begin()
first, second = tensor(rank), tensor(100 * rank)
dist.all_reduce(torch.ones(1, device="cuda"))
torch.cuda.synchronize()

graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    for x in (second, first) if departs else (first, second):
        dist.all_reduce(x)
for _ in range(2):
    graph.replay()
torch.cuda.synchronize()
results = first.clone(), second.clone()
del graph
end(*results)

"""Captures two all-reduces in a CUDA graph and replays it.

Divergence: the last rank captures the second one over half as many elements (COLL-3). What the replays then do is luck:
they may hang, and then they are killed at the deadline.
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
    dist.all_reduce(first)
    dist.all_reduce(second[: len(second) // 2] if departs else second)
for _ in range(2):
    graph.replay()
torch.cuda.synchronize()
results = first.clone(), second.clone()
del graph
end(*results)

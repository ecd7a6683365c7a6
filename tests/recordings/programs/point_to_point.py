"""Sends around a ring, batched and one by one. `--lazy`: PyTorch makes a communicator for each pair.

Divergence: the last rank sends once more than its neighbour receives. The message is small, so it fits into the
buffers of the link and nobody waits.
"""

import torch
import torch.distributed as dist

from world import begin, end, tensor

rank, ranks, departs = begin()
following, before = (rank + 1) % ranks, (rank - 1) % ranks

batched = torch.zeros_like(tensor(0))
operations = [dist.P2POp(dist.isend, tensor(rank), following), dist.P2POp(dist.irecv, batched, before)]
for work in dist.batch_isend_irecv(operations):
    work.wait()

single = torch.zeros_like(batched)
if rank % 2 == 0:
    dist.send(tensor(10 * rank), following)
    dist.recv(single, before)
else:
    dist.recv(single, before)
    dist.send(tensor(10 * rank), following)

if departs:
    dist.isend(tensor(7), following)
end(batched, single)

"""A training job that hangs: the reader thread of rank 1 ends early, and its main thread waits for a batch for ever.

    torchrun --nproc-per-node 2 train.py

docs/hung-job.md finds that out from what PyTorch keeps of its collectives.
"""

import datetime
import os
import queue
import threading

import torch
import torch.distributed as dist

BATCHES = 40


def read_batches(rank, batches):
    for step in range(BATCHES):
        if rank == 1 and step == 17:
            return  # what should have been read from the next file
        batches.put(torch.full((256, 256), float(step)))
    batches.put(None)


def main():
    rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(rank)
    timeout = datetime.timedelta(seconds=int(os.environ.get("TIMEOUT", "600")))
    dist.init_process_group("nccl", timeout=timeout, device_id=torch.device("cuda", rank))
    weights = torch.zeros(256, 256, device="cuda")
    batches = queue.Queue(maxsize=4)
    threading.Thread(target=read_batches, args=(rank, batches), daemon=True).start()
    while (batch := batches.get()) is not None:
        gradient = batch.cuda() @ batch.cuda()
        dist.all_reduce(gradient)
        weights -= 0.01 * gradient
    torch.cuda.synchronize()
    dist.destroy_process_group()


main()

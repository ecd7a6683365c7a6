#!/usr/bin/env python3
"""Small torch programs in which the last rank is slow: it sleeps for a minute somewhere, and nothing else is wrong.

    torchrun --nproc-per-node 2 tests/recordings/pauses.py NAME

Stopped before the minute is over, such a run looks like a hang and is none. `pauses.py --list` prints the names.
Not here: how they are run and stopped (`survey.py`).
"""

import argparse
import os
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

PROGRAMS = {}


def program(function):
    PROGRAMS[function.__name__] = function
    return function


def begin():
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", device_id=device)
    dist.barrier()


def numbers(count=4096):
    return torch.ones(count, device="cuda")


@program
def before_joining(pause):
    pause()
    begin()


@program
def before_an_all_reduce(pause):
    begin()
    x = numbers()
    pause()
    dist.all_reduce(x)
    torch.cuda.synchronize()


@program
def in_the_third_round(pause):
    begin()
    x = numbers()
    for step in range(5):
        if step == 3:
            pause()
        dist.all_reduce(x)
    torch.cuda.synchronize()


@program
def before_a_barrier(pause):
    begin()
    pause()
    dist.barrier()


@program
def before_a_split(pause):
    begin()
    pause()
    group = dist.new_group([0, 1])
    dist.all_reduce(numbers(), group=group)
    torch.cuda.synchronize()


@program
def before_a_receive(pause):
    begin()
    x = numbers(1 << 24)
    dist.barrier()
    if dist.get_rank() == 0:
        dist.send(x, dst=1)
    else:
        pause()
        dist.recv(x, src=0)
    torch.cuda.synchronize()


@program
def before_a_send(pause):
    begin()
    x = numbers(1 << 24)
    dist.barrier()
    if dist.get_rank() == 0:
        dist.recv(x, src=1)
    else:
        pause()
        dist.send(x, dst=0)
    torch.cuda.synchronize()


@program
def before_a_batch_of_transfers(pause):
    begin()
    x, y, peer = numbers(1 << 20), numbers(1 << 20), 1 - dist.get_rank()
    dist.barrier()
    pause()
    for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, x, peer), dist.P2POp(dist.irecv, y, peer)]):
        work.wait()
    torch.cuda.synchronize()


@program
def before_backward(pause):
    begin()
    model = DistributedDataParallel(nn.Linear(64, 8).cuda())
    for step in range(3):
        loss = model(torch.ones(4, 64, device="cuda")).sum()
        if step == 1:
            pause()
        loss.backward()
    torch.cuda.synchronize()


@program
def before_a_replay(pause):
    begin()
    x = numbers()
    dist.all_reduce(x)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        dist.all_reduce(x)
    graph.replay()
    pause()
    graph.replay()
    torch.cuda.synchronize()


@program
def before_the_end(pause):
    begin()
    dist.all_reduce(numbers())
    torch.cuda.synchronize()
    pause()


@program
def while_a_kernel_runs(pause):
    begin()
    dist.all_reduce(numbers())
    if pause.here:
        for _ in range(60):
            torch.cuda._sleep(2_000_000_000)
    dist.all_reduce(numbers())
    torch.cuda.synchronize()


class Pause:
    """Sleeps on the last rank."""

    here = int(os.environ.get("RANK", 0)) + 1 == int(os.environ.get("WORLD_SIZE", 1))

    def __call__(self):
        if self.here:
            time.sleep(60)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("name", nargs="?", choices=sorted(PROGRAMS))
    parser.add_argument("--list", action="store_true")
    arguments = parser.parse_args()
    if arguments.list:
        print("\n".join(PROGRAMS))
        return
    PROGRAMS[arguments.name](Pause())
    dist.destroy_process_group()


if __name__ == "__main__":
    sys.exit(main())

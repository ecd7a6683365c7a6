#!/usr/bin/env python3
"""Small torch programs that are right, and each wrong in one way with `--broken`.

    torchrun --nproc-per-node 2 tests/recordings/mistakes.py NAME [--broken]

A line that ends in `# mistake` is where a reader would look for it; a report is expected to name one such line of the
program. `mistakes.py --list` prints the names. Not here: how they are run and counted (`survey.py`).
"""

import argparse
import datetime
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


def numbers(count=4096, value=1.0, dtype=torch.float32):
    return torch.full((count,), value, dtype=dtype, device="cuda")


def small_model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 8)).cuda()


def batches(count):
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(16, 64, generator=generator).cuda() for _ in range(count)]


# Numbers, types and operations that have to agree.


@program
def another_length(rank, wrong):
    x = numbers(2048 if wrong else 4096)
    dist.all_reduce(x)  # mistake
    dist.barrier()


@program
def another_type(rank, wrong):
    x = numbers(dtype=torch.float16 if wrong else torch.float32)
    dist.all_reduce(x)  # mistake
    dist.barrier()


@program
def another_reduction(rank, wrong):
    x = numbers()
    dist.all_reduce(x, op=dist.ReduceOp.MAX if wrong else dist.ReduceOp.SUM)  # mistake
    dist.barrier()


@program
def another_root(rank, wrong):
    x = numbers()
    dist.broadcast(x, src=1 if wrong else 0)  # mistake
    dist.barrier()


@program
def unequal_shards(rank, wrong):
    shard = numbers(1000 if wrong else 1024)
    full = numbers(2 * shard.numel())
    dist.all_gather_into_tensor(full, shard)  # mistake
    dist.barrier()


@program
def unequal_scatter(rank, wrong):
    full = numbers(2048 + (512 if wrong else 0))
    shard = numbers(full.numel() // 2)
    dist.reduce_scatter_tensor(shard, full)  # mistake
    dist.barrier()


# The order and the number of calls.


@program
def other_order(rank, wrong):
    x, y = numbers(), numbers(1024)
    if wrong:
        dist.broadcast(y, src=0)  # mistake
        dist.all_reduce(x)  # mistake
    else:
        dist.all_reduce(x)  # mistake
        dist.broadcast(y, src=0)  # mistake
    torch.cuda.synchronize()


@program
def logging_on_rank_0(rank, wrong):
    loss = numbers(1)
    for step in range(6):
        dist.all_reduce(loss)
        if step == 3 and (dist.get_rank() == 0 or not wrong):
            dist.reduce(loss, dst=0)  # mistake
    torch.cuda.synchronize()


@program
def skipped_when_empty(rank, wrong):
    for step in range(5):
        mask = numbers(8, 0.0 if wrong and step == 2 else 1.0)
        if mask.sum().item() == 0:
            continue  # mistake
        dist.all_reduce(mask)  # mistake
    dist.barrier()  # mistake


@program
def one_batch_more(rank, wrong):
    model = DistributedDataParallel(small_model())
    for batch in batches(5 if wrong else 4):
        model(batch).sum().backward()  # mistake
    torch.cuda.synchronize()


@program
def stops_early(rank, wrong):
    x = numbers()
    for step in range(8):
        dist.all_reduce(x)  # mistake
        if wrong and step == 4:
            break  # mistake
    torch.cuda.synchronize()


@program
def no_sync_on_one_rank(rank, wrong):
    model = DistributedDataParallel(small_model())
    for step, batch in enumerate(batches(4)):
        if wrong and step == 1:
            with model.no_sync():
                model(batch).sum().backward()  # mistake
        else:
            model(batch).sum().backward()  # mistake
    torch.cuda.synchronize()


@program
def validates_alone(rank, wrong):
    model = nn.SyncBatchNorm.convert_sync_batchnorm(nn.Sequential(nn.Linear(64, 64), nn.BatchNorm1d(64))).cuda()
    model = DistributedDataParallel(model)
    for step, batch in enumerate(batches(3)):
        model(batch).sum().backward()
        if step == 1 and (dist.get_rank() == 0 or not wrong):
            model(batch)  # mistake
    torch.cuda.synchronize()


@program
def barrier_for_an_all_reduce(rank, wrong):
    x = numbers()
    if wrong:
        dist.barrier()  # mistake
    else:
        dist.all_reduce(x)  # mistake
    dist.all_reduce(x)
    torch.cuda.synchronize()


@program
def clips_alone(rank, wrong):
    model = small_model()
    for batch in batches(3):
        model(batch).sum().backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)  # mistake
        norm = torch.stack([p.grad.norm() for p in model.parameters()]).norm()
        if not wrong:
            dist.all_reduce(norm)  # mistake
    torch.cuda.synchronize()


@program
def parameters_in_another_order(rank, wrong):
    model = small_model()
    model(batches(1)[0]).sum().backward()
    named = sorted(model.named_parameters(), reverse=wrong)
    for _, parameter in named:
        dist.all_reduce(parameter.grad)  # mistake
    torch.cuda.synchronize()


# Point to point.


@program
def nobody_receives(rank, wrong):
    x = numbers(1 << 22)
    dist.barrier()
    if rank == 0:
        dist.send(x, dst=1)  # mistake
    elif not wrong:
        dist.recv(x, src=0)
    torch.cuda.synchronize()
    dist.barrier()  # mistake


@program
def both_send_first(rank, wrong):
    x, y = numbers(1 << 26), numbers(1 << 26)
    peer = 1 - rank
    dist.barrier()
    if rank == 0 or wrong:
        dist.send(x, dst=peer)  # mistake
        dist.recv(y, src=peer)
    else:
        dist.recv(y, src=peer)
        dist.send(x, dst=peer)
    torch.cuda.synchronize()


@program
def receives_less(rank, wrong):
    dist.barrier()
    if rank == 0:
        dist.send(numbers(4096), dst=1)  # mistake
    else:
        dist.recv(numbers(2048 if wrong else 4096), src=0)  # mistake
    torch.cuda.synchronize()


@program
def two_receives_in_one_buffer(rank, wrong):
    x, y = numbers(4096), numbers(4096)
    first, second = numbers(4096), numbers(4096)
    peer = 1 - rank
    work = dist.batch_isend_irecv([  # mistake
        dist.P2POp(dist.isend, x, peer),
        dist.P2POp(dist.isend, y, peer),
        dist.P2POp(dist.irecv, first, peer),
        dist.P2POp(dist.irecv, first if wrong else second, peer),
    ])
    for one in work:
        one.wait()
    torch.cuda.synchronize()


@program
def one_transfer_more_in_a_batch(rank, wrong):
    x, y = numbers(1 << 20), numbers(1 << 20)
    peer = 1 - rank
    ops = [dist.P2POp(dist.isend, x, peer), dist.P2POp(dist.irecv, y, peer)]
    if wrong:
        ops.append(dist.P2POp(dist.irecv, numbers(1 << 20), peer))
    for one in dist.batch_isend_irecv(ops):  # mistake
        one.wait()
    torch.cuda.synchronize()


# Groups.


@program
def group_by_members_only(rank, wrong):
    x = numbers()
    dist.all_reduce(x)
    first = dist.new_group([0, 1])
    if rank == 0 or not wrong:
        second = dist.new_group([0, 1])  # mistake
        dist.all_reduce(x, group=second)  # mistake
    dist.all_reduce(x, group=first)
    torch.cuda.synchronize()


@program
def groups_in_another_order(rank, wrong):
    a, b = dist.new_group([0, 1]), dist.new_group([0, 1])
    x, y = numbers(), numbers()
    dist.all_reduce(x, group=a)
    dist.all_reduce(y, group=b)
    for group in (b, a) if wrong else (a, b):
        dist.all_reduce(x, group=group)  # mistake
        torch.cuda.synchronize()


@program
def wrong_group(rank, wrong):
    a, b = dist.new_group([0, 1]), dist.new_group([0, 1])
    x = numbers()
    dist.all_reduce(x, group=a)
    dist.all_reduce(x, group=b)
    dist.all_reduce(x, group=b if wrong else a)  # mistake
    torch.cuda.synchronize()


# A rank that ends.


@program
def raises(rank, wrong):
    x = numbers()
    dist.all_reduce(x)
    torch.cuda.synchronize()
    if wrong:
        time.sleep(1)
        raise ValueError("a batch without labels")  # mistake
    dist.all_reduce(x)  # mistake
    torch.cuda.synchronize()


@program
def leaves(rank, wrong):
    x = numbers()
    dist.all_reduce(x)
    torch.cuda.synchronize()
    if wrong:
        os._exit(0)  # mistake
    dist.all_reduce(x)  # mistake
    torch.cuda.synchronize()


# Streams and memory.


@program
def reads_before_it_waits(rank, wrong):
    x, copy = numbers(1 << 24), numbers(1 << 24)
    dist.barrier()
    work = dist.all_reduce(x, async_op=True)  # mistake
    if not wrong:
        work.wait()
    copy.copy_(x)  # mistake
    if wrong:
        work.wait()
    torch.cuda.synchronize()


@program
def overwrites_before_it_waits(rank, wrong):
    x, fresh = numbers(1 << 24), torch.ones(1 << 24).pin_memory()
    dist.barrier()
    work = dist.all_reduce(x, async_op=True)  # mistake
    if not wrong:
        work.wait()
    x.copy_(fresh, non_blocking=True)  # mistake
    if wrong:
        work.wait()
    torch.cuda.synchronize()


@program
def captures_alone(rank, wrong):
    x = numbers()
    dist.all_reduce(x)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        dist.all_reduce(x)
    torch.cuda.synchronize()
    for _ in range(2 if wrong else 3):
        graph.replay()  # mistake
    torch.cuda.synchronize()


@program
def kernel_waits_for_the_host(rank, wrong):
    x = numbers(1 << 22)
    if rank == 0 or not wrong:
        dist.all_reduce(x)  # mistake
        torch.cuda.synchronize()
        dist.barrier()
    else:
        dist.barrier()  # mistake
        torch.cuda.synchronize()
        dist.all_reduce(x)
    torch.cuda.synchronize()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("name", nargs="?", choices=sorted(PROGRAMS))
    parser.add_argument("--broken", action="store_true", help="the last rank makes the mistake")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--timeout", type=float, default=600, help="seconds after which the watchdog ends a stuck run")
    parser.add_argument("--lazy", dest="eager", action="store_false", help="make communicators when they are used")
    parser.add_argument("--dump", metavar="PREFIX", help="write the Flight Recorder's dump before the end, too")
    arguments = parser.parse_args()
    if arguments.list:
        print("\n".join(PROGRAMS))
        return
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    timeout = datetime.timedelta(seconds=arguments.timeout)
    dist.init_process_group("nccl", device_id=device if arguments.eager else None, timeout=timeout)
    rank = dist.get_rank()
    # Communicators exist before the program begins.
    dist.barrier()
    PROGRAMS[arguments.name](rank, arguments.broken and rank == dist.get_world_size() - 1)
    if arguments.dump:
        torch.cuda.synchronize()
        with open(f"{arguments.dump}{rank}", "wb") as file:
            file.write(torch._C._distributed_c10d._dump_nccl_trace())
    dist.destroy_process_group()


if __name__ == "__main__":
    sys.exit(main())

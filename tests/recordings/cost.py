"""What recording costs a loop of 16 KiB all-reduces: short blocks of iterations, without and with it in turn, in one run.

    rankcheck record --out cost -- torchrun --nproc-per-node 2 tests/recordings/cost.py

The loop runs with NCCL called directly; with torch.distributed as it is, whose host work takes longer than the GPU's; and
with a kernel between all-reduces that takes longer than a launch, as in a training step.
Prints the time of an iteration, and the ratio of a block that is recorded to those without that stand beside it: the
median, and the interval that has the true median in it 95 times of 100.
"""

import ctypes
import os
import statistics
import sys
import time

import torch
import torch.distributed as dist

BLOCKS, ITERATIONS = 300, 200
# Where the GPU is waited for, blocks take longer and differ less.
BLOCKS_WITH_KERNEL = 40
ELEMENTS = 16 * 1024 // 4

try:
    from rankcheck_record import tell
except ImportError:
    sys.exit("run it under `rankcheck record`")


def block(all_reduce, x, work) -> float:
    torch.cuda.synchronize()
    dist.all_reduce(ready)
    torch.cuda.synchronize()
    began = time.perf_counter()
    for _ in range(ITERATIONS):
        if work is not None:
            torch.mm(work, work, out=product)
        all_reduce(x)
    torch.cuda.synchronize()
    return (time.perf_counter() - began) / ITERATIONS * 1e6


def interval(ratios):
    """The median and, by rank, its interval of confidence."""
    ratios, count = sorted(ratios), len(ratios)
    reach = round(0.98 * count**0.5)
    return ratios[max(0, count // 2 - reach)], statistics.median(ratios), ratios[min(count - 1, count // 2 + reach)]


class UniqueId(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_char * 128)]


def direct():
    """An all-reduce of x in place that calls NCCL and nothing else."""
    # The one that torch has loaded.
    nccl = ctypes.CDLL("libnccl.so.2")
    nccl.ncclCommInitRank.argtypes = [ctypes.c_void_p, ctypes.c_int, UniqueId, ctypes.c_int]
    unique, comm = UniqueId(), ctypes.c_void_p()
    if dist.get_rank() == 0:
        assert nccl.ncclGetUniqueId(ctypes.byref(unique)) == 0
    content = torch.frombuffer(bytearray(bytes(unique)), dtype=torch.uint8).to(device)
    dist.broadcast(content, 0)
    unique = UniqueId.from_buffer_copy(bytes(content.tolist()))
    assert nccl.ncclCommInitRank(ctypes.byref(comm), dist.get_world_size(), unique, dist.get_rank()) == 0
    address, stream = ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
    # 7: float, 0: sum.
    given = (address, address, ctypes.c_size_t(ELEMENTS), ctypes.c_int(7), ctypes.c_int(0), comm, stream)
    all_reduce = nccl.ncclAllReduce
    return lambda _: all_reduce(*given)


def compare(what, all_reduce, blocks, work=None) -> None:
    without, recorded, ratios = [], [], []
    for nth in range(blocks + 5):
        # What is recorded stands between two blocks without.
        elapsed = []
        for paused in (True, False, True):
            tell.pause(paused)
            elapsed.append(block(all_reduce, x, work))
            tell.pause(False)
        if nth >= 5:
            without += elapsed[::2]
            recorded.append(elapsed[1])
            ratios.append(2 * elapsed[1] / (elapsed[0] + elapsed[2]))
    if dist.get_rank() == 0:
        low, middle, high = interval(ratios)
        print(
            f"cost {what}: {statistics.median(without):.2f} us an iteration, {statistics.median(recorded):.2f} recorded,"
            f" ratio {middle:.4f} ({low:.4f} to {high:.4f}) over {blocks} blocks of {ITERATIONS}",
            flush=True,
        )


device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
torch.cuda.set_device(device)
dist.init_process_group("nccl", device_id=device)
x = torch.zeros(ELEMENTS, device=device)
ready = torch.zeros(1, device=device)
factor, product = torch.zeros(2, 2048, 2048, device=device)
nccl = direct()
compare("NCCL alone", nccl, BLOCKS)
compare("as it is", dist.all_reduce, BLOCKS)
compare("with a kernel", dist.all_reduce, BLOCKS_WITH_KERNEL, factor)
dist.destroy_process_group()

"""What recording costs a loop of 16 KiB all-reduces: short blocks of iterations alternately without, with the library
alone, and with the library and Python's part, in one run.

    rankcheck record --out cost -- torchrun --nproc-per-node 2 tests/recordings/cost.py

The loop runs with NCCL called directly; with torch.distributed as it is, whose host work takes longer than the GPU's; and
with a kernel between all-reduces that takes longer than a launch, as in a training step.
Prints for each kind the time of an iteration, and its ratio to the blocks without that stand beside it: the median,
and the interval that has the true median in it 95 times of 100.
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
    bare(ready)
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


def compare(what, kinds, blocks, work=None) -> None:
    times: dict = {name: [] for name in kinds}
    ratios: dict = {name: [] for name in kinds if name != "without"}
    for nth in range(blocks + 5):
        # Each kind stands between two blocks without, and their order turns.
        others = list(ratios)[:: 1 if nth % 2 else -1]
        order = ["without"] + [name for other in others for name in (other, "without")]
        elapsed = []
        for name in order:
            all_reduce, paused = kinds[name]
            tell.pause(paused)
            elapsed.append(block(all_reduce, x, work))
            tell.pause(False)
            if nth >= 5:
                times[name].append(elapsed[-1])
        for at in range(1, len(order), 2):
            if nth >= 5:
                ratios[order[at]].append(2 * elapsed[at] / (elapsed[at - 1] + elapsed[at + 1]))
    if dist.get_rank() != 0:
        return
    print(f"cost {what}, without: {statistics.median(times['without']):.2f} us an iteration", flush=True)
    for name, values in ratios.items():
        low, middle, high = interval(values)
        print(
            f"cost {what}, {name}: {statistics.median(times[name]):.2f} us an iteration,"
            f" ratio {middle:.4f} ({low:.4f} to {high:.4f}) over {len(values)} blocks of {ITERATIONS}",
            flush=True,
        )


device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
torch.cuda.set_device(device)
dist.init_process_group("nccl", device_id=device)
x = torch.zeros(ELEMENTS, device=device)
ready = torch.zeros(1, device=device)
factor, product = torch.zeros(2, 2048, 2048, device=device)
# The function as torch has it, without Python's part of the recorder.
bare = getattr(dist.all_reduce, "__wrapped__", dist.all_reduce)
kinds = {"without": (bare, True), "library": (bare, False), "library and Python": (dist.all_reduce, False)}
nccl = direct()
compare("NCCL alone", {"without": (nccl, True), "library": (nccl, False)}, BLOCKS)
compare("as it is", kinds, BLOCKS)
compare("with a kernel", kinds, BLOCKS_WITH_KERNEL, factor)
dist.destroy_process_group()

"""What recording costs a loop of 16 KiB all-reduces: blocks of iterations alternately without, with the library
alone, and with the library and Python's part, in one run.

    rankcheck record --out /tmp/cost -- torchrun --nproc-per-node 2 tests/recordings/cost.py

Prints for each kind the time of an iteration, and its ratio to the blocks without, block by block: the median and
the middle half.
"""

import os
import statistics
import sys
import time

import torch
import torch.distributed as dist

BLOCKS, ITERATIONS = 60, 500
ELEMENTS = 16 * 1024 // 4

try:
    from rankcheck_record import tell
except ImportError:
    sys.exit("run it under `rankcheck record`")


def block(all_reduce, x) -> float:
    torch.cuda.synchronize()
    dist.barrier()
    torch.cuda.synchronize()
    began = time.perf_counter()
    for _ in range(ITERATIONS):
        all_reduce(x)
    torch.cuda.synchronize()
    return (time.perf_counter() - began) / ITERATIONS * 1e6


device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
torch.cuda.set_device(device)
dist.init_process_group("nccl", device_id=device)
x = torch.zeros(ELEMENTS, device=device)
# The function as torch has it, without Python's part of the recorder.
bare = getattr(dist.all_reduce, "__wrapped__", dist.all_reduce) if tell.connect() else dist.all_reduce
kinds = {"without": (bare, True), "library": (bare, False), "library and Python": (dist.all_reduce, False)}

times: dict = {name: [] for name in kinds}
for nth in range(BLOCKS + 3):
    order = list(kinds)
    for name in order[nth % 3 :] + order[: nth % 3]:
        all_reduce, paused = kinds[name]
        tell.pause(paused)
        elapsed = block(all_reduce, x)
        tell.pause(False)
        if nth >= 3:
            times[name].append(elapsed)
if dist.get_rank() == 0:
    for name, values in times.items():
        ratios = [value / without for value, without in zip(values, times["without"])]
        low, middle, high = statistics.quantiles(ratios, n=4)
        print(
            f"cost {name}: {statistics.median(values):.2f} us an iteration, ratio {middle:.4f} ({low:.4f} to {high:.4f})"
            f" over {len(ratios)} blocks of {ITERATIONS}",
            flush=True,
        )
dist.destroy_process_group()

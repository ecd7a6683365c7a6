"""Blocks and segments of PyTorch's allocator: what it hands out again without asking CUDA.

Its history is read every second, when process groups are destroyed and before the interpreter ends, so a process
that is killed leaves most of it. The history is kept without stacks: with them, reading it imports
`torch._inductor`, in whichever thread reads, in the middle of what the program imports or while it ends.
Not here: memory that others allocate.
"""

import atexit
import sys
import threading
import time

from . import tell

# Events that the allocator keeps; older ones that nobody read in time are lost.
_HISTORY = 20_000
_SECONDS = 1.0
# Reading holds the interpreter's lock: it may take this part of the time.
_SHARE = 0.01
# How long the end of the process waits for a reading that has begun.
_PATIENCE = 2.0

_NOTES = {
    "alloc": "torch.block.alloc",
    "free_completed": "torch.block.free",
    "segment_alloc": "torch.segment.alloc",
    "segment_map": "torch.segment.alloc",
    "segment_free": "torch.segment.free",
    "segment_unmap": "torch.segment.free",
}

_lock = threading.Lock()
_ended = threading.Event()
_attached = False
_seen: dict = {}  # device -> (time of the last event, how many events of that time were told)


def attach(cuda) -> None:
    """Begins once torch.cuda is used; a process that never uses it is left alone."""

    def begin() -> None:
        global _attached
        try:
            cuda.memory._record_memory_history(enabled="all", context=None, stacks="python", max_entries=_HISTORY)
        except (TypeError, RuntimeError, AttributeError) as error:
            sys.stderr.write(f"rankcheck: blocks of the allocator are not recorded: {error!r}\n")
            return
        _attached = True
        watcher = threading.Thread(target=_watch, name="rankcheck", daemon=True)
        # Registered after torch's own, so it runs before them.
        atexit.register(_end, watcher)
        watcher.start()

    cuda._lazy_call(begin)


def _watch() -> None:
    pause = _SECONDS
    while not _ended.wait(pause):
        began = time.monotonic()
        drain()
        pause = max(_SECONDS, (time.monotonic() - began) / _SHARE)


def _end(watcher: threading.Thread) -> None:
    """A thread that is still in torch when the interpreter ends would take the process down."""
    _ended.set()
    watcher.join(_PATIENCE)
    if not watcher.is_alive():
        drain()


def drain() -> None:
    """Tells what the allocator did since the last time. Nothing is told while another thread does so."""
    began = tell.began()
    if not _attached or not began or not _lock.acquire(blocking=False):
        return
    try:
        for device, trace in enumerate(sys.modules["torch._C"]._cuda_memorySnapshot(None)["device_traces"]):
            _tell(device, trace, began)
    except (RuntimeError, KeyError):
        pass  # CUDA is gone already, or another version of torch has other words.
    finally:
        _lock.release()


def _tell(device: int, trace, began: int) -> None:
    last, told = _seen.get(device, (-1, 0))
    if len(trace) >= _HISTORY and trace[0]["time_us"] > last:
        tell.note("torch.block.lost", device=device)
    passed = 0
    for entry in trace:
        at = entry["time_us"]
        if at < last:
            continue
        if at == last:
            passed += 1
            if passed <= told:
                continue
            told = passed
        else:
            last, told, passed = at, 1, 1
        name = _NOTES.get(entry["action"])
        if name is None:
            continue
        tell.note(
            name,
            address=tell.Address(entry["addr"]),
            bytes=entry["size"],
            stream=tell.Address(entry["stream"]),
            place=None,
            at=max(0, at * 1000 - began),
        )
    _seen[device] = (last, told)

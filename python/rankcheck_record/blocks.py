"""Blocks and segments of PyTorch's allocator: what it hands out again without asking CUDA.

Its history is read every second and when the process ends, so a process that is killed leaves most of it.
Not here: memory that others allocate.
"""

import atexit
import sys
import threading

from . import places, tell

# Events that the allocator keeps; older ones that nobody read in time are lost.
_HISTORY = 100_000
_SECONDS = 1.0

_NOTES = {
    "alloc": "torch.block.alloc",
    "free_completed": "torch.block.free",
    "segment_alloc": "torch.segment.alloc",
    "segment_map": "torch.segment.alloc",
    "segment_free": "torch.segment.free",
    "segment_unmap": "torch.segment.free",
}

_lock = threading.Lock()
_seen: dict = {}  # device -> (time of the last event, how many events of that time were told)


def attach(cuda) -> None:
    """Begins once torch.cuda is used; a process that never uses it is left alone."""

    def begin() -> None:
        try:
            cuda.memory._record_memory_history(enabled="all", context="alloc", stacks="python", max_entries=_HISTORY)
        except (TypeError, RuntimeError, AttributeError) as error:
            sys.stderr.write(f"rankcheck: blocks of the allocator are not recorded: {error!r}\n")
            return
        atexit.register(drain)
        threading.Thread(target=_watch, name="rankcheck", daemon=True).start()

    cuda._lazy_call(begin)


def _watch() -> None:
    while not _ended.wait(_SECONDS):
        drain()


_ended = threading.Event()
atexit.register(_ended.set)


def drain() -> None:
    """Tells what the allocator did since the last time."""
    core = sys.modules.get("torch._C")
    began = tell.began()
    if core is None or not began or not _lock.acquire(blocking=False):
        return
    try:
        traces = core._cuda_memorySnapshot(None)["device_traces"]
        for device, trace in enumerate(traces):
            _tell(device, trace, began)
    except (RuntimeError, KeyError):
        pass  # CUDA is gone already.
    finally:
        _lock.release()


def _tell(device: int, trace, began: int) -> None:
    last, told = _seen.get(device, (-1, 0))
    passed = 0
    for entry in trace:
        time = entry.get("time_us", 0)
        if time < last:
            continue
        if time == last:
            passed += 1
            if passed <= told:
                continue
            told = passed
        else:
            last, told, passed = time, 1, 1
        name = _NOTES.get(entry["action"])
        if name is None:
            continue
        tell.note(
            name,
            address=tell.Address(entry["addr"]),
            bytes=entry["size"],
            stream=tell.Address(entry["stream"]),
            place=_place(entry.get("frames", ())),
            at=max(0, time * 1000 - began),
        )
    _seen[device] = (last, told)


def _place(frames):
    for frame in frames:
        name = places.name_of(frame["filename"])
        if name is not None:
            return f"{name}:{frame['line']}"
    return None

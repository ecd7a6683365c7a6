"""Records PyTorch's symmetric memory on CUDA: the rendezvous of buffers, and the kernels that wait for other ranks by their
signal pads.

What an exchange of handles maps is recorded by the library as calls of the driver. Which ranks meet, and over which buffer,
is known here alone.
Not here: symmetric memory of NCCL, which tells of itself by its calls, and of NVSHMEM, which is not recorded.
"""

import functools
import sys

from . import places, tell

# Kernels of symmetric memory wait for the other ranks by the signal pads of a buffer: the argument that is that buffer.
_KERNELS = {
    "one_shot_all_reduce": "input", "one_shot_all_reduce_out": "input", "one_shot_all_reduce_copy": "symm_buffer",
    "one_shot_all_reduce_copy_out": "symm_buffer", "two_shot_all_reduce_": "input", "two_shot_all_reduce_out": "input",
    "reduce_scatter_out": "input", "multimem_all_reduce_": "input", "multimem_one_shot_all_reduce": "input",
    "multimem_one_shot_all_reduce_out": "input", "multimem_one_shot_reduce_out": "input",
    "multimem_all_gather_out": "out",
}  # fmt: skip
_SYMMETRIC = "torch.distributed._symmetric_memory"
_CALLS_MAX = 10_000
_watched: list = []


def forget() -> None:
    """Groups come or go: a name may be another's from now on."""
    for memory in _watched:
        memory.ranks.clear()
        memory.calls.clear()


class _SymmetricMemory:
    """Which group memory is for, where a call does not say it, and who is in the group."""

    def __init__(self, core):
        self.core = core
        self.operators = sys.modules["torch._ops"].__file__
        self.group_of_memory: dict = {}
        self.group_of_handle: dict = {}
        self.ranks: dict = {}
        self.calls: dict = {}
        _watched.append(self)

    def is_cuda(self, device) -> bool:
        """Whether buffers of a device are in memory of CUDA's: NCCL's tells of itself by the calls of NCCL."""
        backend = self.core._SymmetricMemory.get_backend(device)
        return backend is None or backend == "CUDA"

    def ranks_of(self, group):
        if group not in self.ranks:
            distributed = sys.modules["torch.distributed.distributed_c10d"]
            members = distributed.get_process_group_ranks(distributed._resolve_process_group(group))
            self.ranks[group] = ",".join(map(str, members))
        return self.ranks[group]

    def values(self, address, group, device=None, **more):
        values = {"address": tell.Address(address), "group": group, "ranks": self.ranks_of(group) if group else None}
        for key, value in more.items():
            values[key] = tell.Number(value)
        if device is not None:
            values["stream"] = tell.Address(sys.modules["torch"]._C._cuda_getCurrentRawStream(device.index))
        return values

    def enter(self, name, caller, values) -> None:
        # Operators are called through a method of torch's own.
        while caller.f_back is not None and caller.f_code.co_filename == self.operators:
            caller = caller.f_back
        key = name, id(caller.f_code), caller.f_lasti, *values.values()
        call = self.calls.get(key)
        if call is None:
            place = places.of(caller)
            # Who is called by torch's own code is called for more than one place of the user's.
            worth = len(self.calls) < _CALLS_MAX and places.is_users(caller)
            call = tell.define(name, **values, place=place) if worth else None
            if not call:
                tell.enter_once(name, **values, place=place)
                return
            # The code is told by its address, so it must stay.
            call = self.calls[key] = call, caller.f_code
        tell.enter(call[0])

    def told(self, function, name, values_of, after=None):
        """The function, recorded with what `values_of` finds in its arguments; not where that is None or fails."""

        @functools.wraps(function)
        def wrapper(*arguments, **keywords):
            try:
                values = values_of(*arguments, **keywords)
            except Exception:  # A call that fails, or a version of torch that does otherwise.
                values = None
            if values is None:
                return function(*arguments, **keywords)
            self.enter(name, sys._getframe(1), values)
            try:
                result = function(*arguments, **keywords)
            finally:
                tell.leave()
            if after is not None:
                after(result, values)
            return result

        return wrapper


def _is_plain(tensor) -> bool:
    """Whether a tensor is one on a device, and none that stands for it while a program is traced."""
    torch = sys.modules["torch"]
    return type(tensor) in (torch.Tensor, torch.nn.Parameter) and tensor.is_cuda


def watch(core) -> None:
    """Wraps what `torch._C._distributed_c10d` offers. Called once."""
    memory = _SymmetricMemory(core)
    handles = core._SymmetricMemory

    def allocated(*arguments, **keywords):
        tensor = allocate(*arguments, **keywords)
        group = keywords.get("group_name", arguments[4] if len(arguments) > 4 else None)
        if group is not None:
            memory.group_of_memory[tensor.data_ptr()] = group
        return tensor

    def of_rendezvous(tensor, group_name=None):
        if not _is_plain(tensor) or not memory.is_cuda(tensor.device):
            return None
        storage = tensor.untyped_storage()
        address = storage.data_ptr()
        group = group_name or memory.group_of_memory.get(address)
        return memory.values(address, group, bytes=storage.nbytes())

    def met(handle, values):
        if handle is not None:
            memory.group_of_handle[handle.buffer_ptrs_dev] = values["group"]

    def of_handle(handle, peer=None, **more):
        if not memory.is_cuda(handle.device):
            return None
        group = memory.group_of_handle.get(handle.buffer_ptrs_dev)
        if peer is not None:
            more["peer"] = peer
        return memory.values(handle.buffer_ptrs[handle.rank], group, handle.device, **more)

    def of_barrier(handle, channel=0, timeout_ms=0):
        return of_handle(handle, channel=channel)

    def of_put(handle, dst_rank, channel=0, timeout_ms=0):
        return of_handle(handle, peer=dst_rank, channel=channel)

    def of_wait(handle, src_rank, channel=0, timeout_ms=0):
        return of_handle(handle, peer=src_rank, channel=channel)

    allocate = handles.empty_strided_p2p
    handles.empty_strided_p2p = staticmethod(allocated)
    handles.rendezvous = staticmethod(
        memory.told(handles.rendezvous, f"{_SYMMETRIC}.rendezvous", of_rendezvous, met)
    )
    for name, values_of in (("barrier", of_barrier), ("put_signal", of_put), ("wait_signal", of_wait)):
        if hasattr(handles, name):
            setattr(handles, name, memory.told(getattr(handles, name), f"{_SYMMETRIC}.{name}", values_of))
    for name, buffer in _KERNELS.items():
        _kernel(memory, name, buffer)


def _kernel(memory, name: str, buffer: str) -> None:
    """An operator of torch's is recorded, whichever way it is called from Python."""
    packet = getattr(sys.modules["torch"].ops.symm_mem, name, None)
    if packet is None or not hasattr(packet, "default"):
        return
    parameters = [argument.name for argument in packet.default._schema.arguments]
    at, group_at = parameters.index(buffer), parameters.index("group_name")

    def values_of(*arguments, **keywords):
        tensor = arguments[at] if len(arguments) > at else keywords[buffer]
        group = arguments[group_at] if len(arguments) > group_at else keywords["group_name"]
        if not _is_plain(tensor) or not memory.is_cuda(tensor.device):
            return None
        return memory.values(tensor.untyped_storage().data_ptr(), group, tensor.device)

    for operator in (packet, packet.default):
        operator._op = memory.told(operator._op, f"torch.ops.symm_mem.{name}", values_of)

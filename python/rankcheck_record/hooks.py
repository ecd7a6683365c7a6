"""Wraps what PyTorch offers for talking to other ranks, once PyTorch is imported, and never imports it.

Not here: how calls get into the recording (`tell.py`), and blocks of the allocator, which are not recorded.
"""

import functools
import importlib.abc
import inspect
import os
import sys

from . import frames, places, raised, symmetric, tell

# Functions of torch.distributed that make process groups.
_MAKING = ("init_process_group", "new_group", "split_group", "new_subgroups", "new_subgroups_by_enumeration")

# Those that may wait without NCCL.
_WAITING = (
    "destroy_process_group", "barrier", "monitored_barrier", "all_gather_object", "gather_object",
    "broadcast_object_list", "scatter_object_list", "send_object_list", "recv_object_list",
)  # fmt: skip

# Those that do nothing but call NCCL.
_CALLING = (
    "all_reduce", "all_reduce_coalesced", "reduce", "broadcast", "all_gather", "all_gather_into_tensor",
    "all_gather_coalesced", "reduce_scatter", "reduce_scatter_tensor", "all_to_all", "all_to_all_single", "gather",
    "scatter", "send", "recv", "isend", "irecv", "batch_isend_irecv",
)  # fmt: skip

_STORES = ("TCPStore", "FileStore", "HashStore", "PrefixStore")
_STORE_CALLS = {"set": "set", "get": "get", "wait": "wait", "add": "add", "delete_key": "delete_key",
                "check": "check", "compare_set": "compare_set"}  # fmt: skip

# A launcher uses stores too, but is no rank.
_is_rank = "RANK" in os.environ
_noted: set = set()
# Whether the library sees by itself where its calls come from. Then what only calls NCCL or CUDA is left alone.
_has_places = False


def activate() -> None:
    """Gets ready for torch. Called once, before the program begins."""
    if tell.connect():
        sys.meta_path.insert(0, _Finder())
        raised.watch()


@functools.cache
def _look_for_places() -> None:
    """Once torch is there: other processes are not to wait for it."""
    global _has_places
    try:
        _has_places = os.environ.get("RANKCHECK_RECORD_FRAMES") != "0" and frames.find()
    except Exception as error:  # Another version of Python: then calls are told one by one.
        sys.stderr.write(f"rankcheck: frames of Python are not read: {error!r}\n")


class _Finder(importlib.abc.MetaPathFinder):
    """Lets others find modules, and wraps those of `_MODULES` when they have been executed."""

    def find_spec(self, name, path=None, target=None):
        if name not in _MODULES:
            return None
        for finder in sys.meta_path:
            if finder is self or not hasattr(finder, "find_spec"):
                continue
            spec = finder.find_spec(name, path, target)
            if spec is not None:
                if spec.loader is not None and hasattr(spec.loader, "exec_module"):
                    _wrap_loader(spec.loader, name)
                return spec
        return None


def _wrap_loader(loader, name: str) -> None:
    execute = loader.exec_module

    def exec_module(module):
        execute(module)
        try:
            _look_for_places()
            _MODULES[name](module)
        except Exception as error:  # Another version of torch: what is missing is not recorded.
            sys.stderr.write(f"rankcheck: calls of {name} are not recorded: {error!r}\n")

    loader.exec_module = exec_module


# Of each wrapped function its calls, by who calls, where and with which group: (code, instruction, group) -> (what
# `tell.define` gave, code). The code is told by its address, so it must stay: the second value keeps it. All are
# forgotten when groups come or go: a group must not stay for this, and the default is another.
_calls: list = []
_PLACES_MAX = 10_000


def _wrapped(function, name: str, group_at=None, group_of=None, after=None):
    """The function, recorded under this name with its group and the place of its caller. The group is the argument
    at `group_at` (-1: it is only ever named), or what `group_of` finds in all of them."""
    calls: dict = {}
    _calls.append(calls)
    enter, leave, frame_of = tell.enter, tell.leave, sys._getframe
    at = sys.maxsize if group_at is None or group_at < 0 else group_at
    has_group = group_at is not None or group_of is not None

    def define(caller, key):
        values = {"group": _name_of(key[2])} if has_group else {}
        place = places.of(caller)
        # Who is called by torch's own code is called for more than one place of the user's.
        if len(calls) < _PLACES_MAX and places.is_users(caller):
            call = tell.define(name, **values, place=place)
            if call:
                calls[key] = call, caller.f_code
                enter(call)
                return
        tell.enter_once(name, **values, place=place)

    # Every step of it costs the program time.
    @functools.wraps(function)
    def wrapper(*arguments, **keywords):
        caller = frame_of(1)
        if group_of is not None:
            group = group_of(arguments, keywords)
        elif len(arguments) > at:
            group = arguments[at]
        else:
            group = keywords.get("group")
        # torch has groups as keys too.
        key = id(caller.f_code), caller.f_lasti, group
        call = calls.get(key)
        if call is None:
            define(caller, key)
        else:
            enter(call[0])
        try:
            return function(*arguments, **keywords)
        finally:
            leave()
            if after is not None:
                _try(after)

    return wrapper


def _wrapped_new_group(function, after):
    """`new_group`, recorded with its members: every rank has to call it, and who did not is missed by those who did."""
    signature = inspect.signature(function)

    @functools.wraps(function)
    def wrapper(*arguments, **keywords):
        try:
            given = signature.bind(*arguments, **keywords).arguments
        except TypeError:
            given = {}
        ranks = given.get("ranks")
        tell.enter_once(
            "torch.distributed.new_group",
            group=_name_of(None),
            members=None if ranks is None else ",".join(map(str, ranks)),
            local=int(bool(given.get("use_local_synchronization", False))),
            place=places.of(sys._getframe(1)),
        )
        try:
            return function(*arguments, **keywords)
        finally:
            tell.leave()
            _try(after)

    return wrapper


def _try(after) -> None:
    """What is noted afterwards must not fail the program."""
    try:
        after()
    except Exception as error:
        sys.stderr.write(f"rankcheck: process groups are not recorded: {error!r}\n")


def _name_of(group):
    """The name of a process group; None stands for the default one."""
    if group is None:
        module = sys.modules.get("torch.distributed.distributed_c10d")
        if module is None or not module.is_initialized():
            return None
        group = module._get_default_group()
    return group if isinstance(group, str) else getattr(group, "group_name", None)


def _group_of_first(arguments, keywords):
    """The group of a list of operations."""
    operations = arguments[0] if arguments else keywords.get("p2p_op_list")
    return getattr(operations[0], "group", None) if operations else None


def _groups_change(function):
    """The function, before and after which calls are forgotten."""

    @functools.wraps(function)
    def wrapper(*arguments, **keywords):
        _forget()
        try:
            return function(*arguments, **keywords)
        finally:
            _forget()

    return wrapper


def _forget() -> None:
    for calls in _calls:
        calls.clear()
    symmetric.forget()


def _distributed(module) -> None:
    for name in _MAKING + _WAITING + (() if _has_places else _CALLING):
        function = getattr(module, name, None)
        if function is None:
            continue
        if name == "new_group":
            wrapped = _wrapped_new_group(_groups_change(function), functools.partial(_note_groups, module))
        elif name in _MAKING:
            function = _groups_change(function)
            wrapped = _wrapped(function, f"torch.distributed.{name}", -1, after=functools.partial(_note_groups, module))
        elif name == "destroy_process_group":
            wrapped = _wrapped(_groups_change(function), f"torch.distributed.{name}", 0)
        elif name == "batch_isend_irecv":
            wrapped = _wrapped(function, f"torch.distributed.{name}", group_of=_group_of_first)
        else:
            parameters = list(inspect.signature(function).parameters)
            at = parameters.index("group") if "group" in parameters else -1
            wrapped = _wrapped(function, f"torch.distributed.{name}", at)
        setattr(module, name, wrapped)
    core = sys.modules.get("torch._C._distributed_c10d")
    for name in _STORES:
        store = getattr(core, name, None)
        for method, told in _STORE_CALLS.items():
            if store is not None and hasattr(store, method):
                setattr(store, method, _wrapped_store(getattr(store, method), told))
    backend = getattr(core, "ProcessGroupNCCL", None)
    names = ("register_mem_pool", "deregister_mem_pool", "abort", "shutdown")
    _methods(backend, "torch.distributed.ProcessGroupNCCL", names)


def _wrapped_store(function, method: str):
    """A method of a store, recorded with its key. Keys that are counted up would fill a cache, so there is none."""

    @functools.wraps(function)
    def wrapper(self, *arguments, **keywords):
        if not _is_rank:
            return function(self, *arguments, **keywords)
        key = arguments[0] if arguments else keywords.get("key", keywords.get("keys"))
        if isinstance(key, (list, tuple)):
            key = ",".join(map(str, key))
        tell.enter_once(f"torch.distributed.Store.{method}", key=key, place=places.of(sys._getframe(1)))
        try:
            return function(self, *arguments, **keywords)
        finally:
            tell.leave()

    return wrapper


def _note_groups(module) -> None:
    """Notes the process groups that are new, and what process this is when there was none before."""
    global _is_rank
    _is_rank = True
    for group, ranks in list(module._world.pg_group_ranks.items()):
        name = getattr(group, "group_name", None)
        if name is None or name in _noted:
            continue
        if not _noted:
            _note_process(module)
        _noted.add(name)
        members = sorted(ranks, key=ranks.get)
        tell.note("torch.process_group", name=name, ranks=",".join(map(str, members)))


def _note_process(module) -> None:
    torch = sys.modules["torch"]
    version = None
    if torch.cuda.is_available():
        major, minor, patch = torch.cuda.nccl.version()[:3]
        version = major * 10000 + minor * 100 + patch
    tell.note(
        "process",
        rank=module.get_rank(),
        ranks=module.get_world_size(),
        nccl_version=version,
        torch_version=str(torch.__version__),
    )


def _methods(holder, prefix: str, names) -> None:
    """What calls NCCL or CUDA, for the place of its caller."""
    for name in () if _has_places else names:
        if hasattr(holder, name):
            setattr(holder, name, _wrapped(getattr(holder, name), f"{prefix}.{name}"))


def _symmetric_memory(module) -> None:
    names = ("empty", "rendezvous", "set_backend", "enable_symm_mem_for_group", "get_symm_mem_workspace", "get_mem_pool")
    _methods(module, "torch.distributed._symmetric_memory", names)
    core = sys.modules.get("torch._C._distributed_c10d")
    if hasattr(core, "_SymmetricMemory"):
        symmetric.watch(core)


def _graphs(module) -> None:
    _methods(module.CUDAGraph, "torch.cuda.CUDAGraph", ("capture_begin", "capture_end", "replay", "reset"))


def _memory(module) -> None:
    if hasattr(module, "MemPool"):
        _methods(module.MemPool, "torch.cuda.MemPool", ("__init__",))
    _methods(module, "torch.cuda.memory", ("empty_cache",))


def _autograd(module) -> None:
    """What the threads of autograd call has no frames of Python: it is called where the backward pass was begun."""
    # What both `backward` and `grad` go through, where there is such; nobody outside calls it.
    for name in ("_engine_run_backward", "backward"):
        function = getattr(module, name, None)
        if function is not None:
            setattr(module, name, _wrapped(function, "torch.autograd.backward"))
            return


_MODULES = {
    "torch.distributed.distributed_c10d": _distributed,
    "torch.distributed._symmetric_memory": _symmetric_memory,
    "torch.autograd": _autograd,
    "torch.cuda.graphs": _graphs,
    "torch.cuda.memory": _memory,
}

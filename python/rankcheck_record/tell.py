"""Tells the recorder what happens in Python, through the `rankcheck_record_*` functions of its library.

Not here: what is told.
"""

import ctypes
import os

_SEPARATOR = "\x1f"
_library = None


def _nothing(*_) -> int:
    """What telling does where there is no recorder."""
    return 0


# A call that `define` gave is entered; `leave` follows whatever happens. The library's own functions, once there
# is one: nothing in between costs time.
enter = _nothing
leave = _nothing


def connect() -> bool:
    """Finds the recorder in this process. False if there is none; then telling does nothing."""
    global _library, enter, leave
    # PyDLL: these functions are too short to be worth giving up the interpreter's lock.
    for path in (None, os.environ.get("RANKCHECK_RECORD_LIB")):
        try:
            library = ctypes.PyDLL(path)
            library.rankcheck_record_enter.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
            library.rankcheck_record_note.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
            library.rankcheck_record_define.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
            library.rankcheck_record_define.restype = ctypes.c_void_p
            library.rankcheck_record_enter.restype = None
            library.rankcheck_record_note.restype = None
            library.rankcheck_record_leave.restype = None
            library.rankcheck_record_pause.argtypes = [ctypes.c_int]
            library.rankcheck_record_frames.argtypes = [ctypes.c_void_p] * 2
            library.rankcheck_record_place.argtypes = [ctypes.c_char_p, ctypes.c_int]
        except (OSError, AttributeError):
            continue
        _library = library
        enter, leave = _functions(library)
        return True
    return False


def _functions(library):
    """The library's `enter` and `leave` as functions of Python: `ctypes` is slow."""
    python = ctypes.pythonapi
    library.rankcheck_record_methods.argtypes = [ctypes.c_void_p] * 3
    library.rankcheck_record_methods.restype = ctypes.c_void_p
    address = [ctypes.cast(function, ctypes.c_void_p) for function in (python.PyLong_AsVoidPtr, python.Py_IncRef)]
    enters = library.rankcheck_record_methods(*address, id(None))
    # A method's definition is four pointers long.
    leaves = enters + 4 * ctypes.sizeof(ctypes.c_void_p)
    make = ctypes.PYFUNCTYPE(ctypes.py_object, *[ctypes.c_void_p] * 3)(("PyCFunction_NewEx", python))
    return make(enters, None, None), make(leaves, None, None)


class Number(int):
    """Counts, sizes, ranks."""


class Signed(int):
    """Numbers that may be negative."""


class Address(int):
    """Pointers and handles."""


def encode(name: str, /, **values) -> bytes:
    """A call as the recorder reads it; see docs/recording-format.md."""
    parts = [name]
    for key, value in values.items():
        parts.append(key)
        if value is None:
            parts.append("-")
        elif isinstance(value, Address):
            parts.append(f"a{int(value)}")
        elif isinstance(value, Signed):
            parts.append(f"s{int(value)}")
        elif isinstance(value, int):
            parts.append(f"n{int(value)}")
        elif isinstance(value, bytes):
            parts.append("b" + value.hex())
        else:
            parts.append("t" + str(value).replace(_SEPARATOR, " "))
    return _SEPARATOR.join(parts).encode("utf-8", "replace")


def define(name: str, /, **values):
    """A call for `enter`, for as long as the process lives; None if there are too many."""
    if _library is None:
        return None
    call = encode(name, **values)
    return _library.rankcheck_record_define(call, len(call))


def enter_once(name: str, /, **values) -> None:
    """A call is entered that is not worth being defined; `leave` follows whatever happens."""
    if _library is not None:
        call = encode(name, **values)
        _library.rankcheck_record_enter(call, len(call))


def note(name: str, /, **values) -> None:
    """Something happened."""
    if _library is not None:
        call = encode(name, **values)
        _library.rankcheck_record_note(call, len(call))


def began() -> bool:
    """Whether anything of this process was recorded."""
    return bool(_library.rankcheck_record_began()) if _library is not None else False


def pause(paused: bool) -> None:
    """Records nothing more, or goes on. No call may be open."""
    if _library is not None:
        _library.rankcheck_record_pause(int(paused))


def frames(layout) -> bool:
    """Says where the library finds frames of Python (`frames.py`); None takes it back. False if it cannot use them."""
    if _library is None:
        return False
    if layout is None:
        return _library.rankcheck_record_frames(None, None) == 0
    numbers = (ctypes.c_size_t * len(layout))(*layout)
    watch = ctypes.cast(ctypes.pythonapi.PyCode_AddWatcher, ctypes.c_void_p)
    return _library.rankcheck_record_frames(numbers, watch) == 0


def place() -> str:
    """Where this is called, as the library tells it of calls."""
    if _library is None:
        return ""
    told = ctypes.create_string_buffer(4096)
    length = _library.rankcheck_record_place(told, len(told))
    return told.raw[:length].decode("utf-8", "replace")

"""Finds where CPython keeps what the recorder's library needs to tell places: files and lines of the frames of a thread.

Nothing is assumed of a version: objects whose contents are known are looked through for them, and what was found is
tried. Where it does not come out right, and before 3.12, which tells nobody when code comes to an end, calls of torch
are told one by one instead (`hooks.py`).
Not here: the library's side (`crates/record/src/ffi/frames.rs`).
"""

import atexit
import ctypes
import os
import struct
import sys

from . import tell

_WORD = struct.calcsize("P")
_NONE = ctypes.c_size_t(-1).value
# Low bits of a pointer that newer versions use as flags.
_FLAGS = 7
_LINE = 0x1234567


class _Unknown(Exception):
    """Something is not where it could be found."""


def find() -> bool:
    """Lets the library tell places, if it can here."""
    if sys.implementation.name != "cpython" or sys.version_info < (3, 12) or "t" in sys.abiflags or _WORD != 8:
        return False
    try:
        memory = os.open("/proc/self/mem", os.O_RDONLY)
    except OSError:
        return False
    try:
        if not tell.frames(_layout(memory)):
            return False
    # The last is Python's, if others watch its code already, as many as can.
    except (_Unknown, OSError, AttributeError, RuntimeError):
        return False
    finally:
        os.close(memory)
    if not all(_told_as_it_is(place) for place in (_here, _below)):
        tell.frames(None)
        return False
    # Before the interpreter takes its threads apart.
    atexit.register(tell.frames, None)
    return True


def _told_as_it_is(trial) -> bool:
    told, line = trial()
    return told == f"{_TRIAL}:{line}"


# Nothing of this package is the user's, so what is tried has a file of its own.
_TRIAL = "rankcheck-trial.py"
_SOURCE = """def here():
    return (
        place(
        ), 3)

def below():
    return [
        each()
        for each in (
            lambda: 0,
            lambda: (place(), 11),
        )
    ][1]
"""
_names: dict = {"place": lambda: tell.place()}
exec(compile(_SOURCE, _TRIAL, "exec"), _names)
_here, _below = _names["here"], _names["below"]


def _words(memory: int, address: int, count: int):
    """So many words from an address on, as far as there are."""
    content = os.pread(memory, count * _WORD, address)
    return struct.unpack(f"{len(content) // _WORD}P", content[: len(content) // _WORD * _WORD])


def _only(places, what: str) -> int:
    places = list(places)
    if len(places) != 1:
        raise _Unknown(what)
    return places[0]


def _offset(words, value: int, what: str) -> int:
    """Where one of the words is this value, as an offset."""
    return _WORD * _only((at for at, word in enumerate(words) if word == value), what)


def _layout(memory: int):
    text = _texts(memory)
    code = _names["here"].__code__.replace(co_firstlineno=_LINE, co_filename="".join(("rank", "check")))
    size = type(code).__basicsize__
    words = _words(memory, id(code), size // _WORD)
    content = os.pread(memory, size, id(code))
    first_line = _only(
        (at for at in range(0, size - 3, 4) if struct.unpack_from("I", content, at)[0] == _LINE), "first line"
    )
    table = b"".join((b"rank", b"check"))
    table_words = _words(memory, id(table), bytes.__basicsize__ // _WORD)
    frame, instructions = _outermost(memory)
    state, through = _state(memory, frame["caller"])
    return (
        ctypes.cast(ctypes.pythonapi.PyGILState_GetThisThreadState, ctypes.c_void_p).value,
        state,
        through,
        frame["code"],
        frame["caller"],
        frame["instruction"],
        1,
        _offset(words, id(type(code)), "type"),
        id(type(code)),
        instructions,
        first_line,
        _offset(words, id(code.co_linetable), "lines"),
        _offset(words, id(code.co_filename), "file"),
        _offset(table_words, len(table), "length of bytes"),
        bytes.__basicsize__ - 1,
        *text,
    )


def _texts(memory: int):
    """How text says how long it is and how its characters are kept."""
    # Made here, so that nobody has more of them.
    length = 11
    samples = [character * length for character in ("r", "\xe9", "\u4e2d", "\U0001f600")]
    widths = (1, 1, 2, 4)
    words = _words(memory, id(samples[0]), str.__basicsize__ // _WORD)
    length_at = _offset(words, length, "length of text")

    def states(at: int):
        return [struct.unpack("I", os.pread(memory, 4, id(sample) + at))[0] for sample in samples]

    # After the length comes the hash, and after that the state: it is other for each of these.
    state_at = length_at + 2 * _WORD
    found = states(state_at)
    kept = [state & _TEXT_BITS for state in found]
    if len(set(kept)) != len(kept):
        raise _Unknown("state of text")
    numbers = [length_at, state_at, _TEXT_BITS]
    for sample, state, width in zip(samples, kept, widths):
        first = sys.getsizeof(sample) - (length + 1) * width
        if os.pread(memory, width * length, id(sample) + first) != sample.encode(_ENCODINGS[width]):
            raise _Unknown("characters of text")
        numbers += [state, first, width]
    return numbers


# How its characters are kept, in the state of text. Lower bits say whether it is interned, some higher ones nothing.
_TEXT_BITS = 0b0111_1100
_ENCODINGS = {1: "latin-1", 2: "utf-16-le", 4: "utf-32-le"}


# Three functions that call each other, so that their frames are known.
def _outermost(memory: int):
    return _middle(memory, sys._getframe())


def _middle(memory: int, outermost):
    return _innermost(memory, outermost, sys._getframe())


def _innermost(memory: int, outermost, middle):
    return _frames(memory, [sys._getframe(), middle, outermost])


def _frames(memory: int, objects):
    """Where a frame has its code, its caller and its instruction, and where instructions are in code."""
    found = []
    for frame in objects:
        address, code_at = _interpreter_frame(memory, frame)
        found.append((address, code_at, _words(memory, address, 9)))
    code_at = _only({at for _, at, _ in found}, "code")
    callers = [_offset(words, below[0], "caller") for (_, _, words), below in zip(found, found[1:])]
    caller_at = _only(set(callers), "caller")
    instruction_at, instructions = set(), set()
    for frame, (_, _, words) in zip(objects, found):
        begin, end = id(frame.f_code), id(frame.f_code) + sys.getsizeof(frame.f_code)
        at = _only((at for at, word in enumerate(words) if at * _WORD != code_at and begin < word < end), "instruction")
        instruction_at.add(at * _WORD)
        instructions.add(words[at] - frame.f_lasti - begin)
    offsets = {"code": code_at, "caller": caller_at, "instruction": _only(instruction_at, "instruction")}
    return offsets, _only(instructions, "instructions")


def _interpreter_frame(memory: int, frame):
    """The address of what the interpreter has for a frame object, and where the code is in it."""
    for word in _words(memory, id(frame), 5):
        try:
            words = _words(memory, word, 6)
        except (OSError, OverflowError):
            continue
        for at, inside in enumerate(words):
            if inside & ~_FLAGS == id(frame.f_code):
                return word, at * _WORD
    raise _Unknown("frame")


def _state(memory: int, caller_at: int):
    """Where the state of a thread has its innermost frame: there, or in what is there, and where in that."""

    def here(deeper: int):
        if deeper:
            return here(deeper - 1)
        state = get()
        mine, _ = _interpreter_frame(memory, sys._getframe())
        found = set()
        # Read here and not in a function: the innermost frame must be this one.
        content = os.pread(memory, 40 * _WORD, state)
        for at in range(0, len(content), _WORD):
            (word,) = struct.unpack_from("P", content, at)
            if word == mine:
                found.add((at, _NONE))
                continue
            try:
                inside = os.pread(memory, 3 * _WORD, word)
            except (OSError, OverflowError):
                continue
            for in_it in range(0, len(inside) - _WORD + 1, _WORD):
                # What has it as its caller is a frame that this one called before.
                if in_it != caller_at and struct.unpack_from("P", inside, in_it)[0] == mine:
                    found.add((at, in_it))
        return found

    get = ctypes.pythonapi.PyGILState_GetThisThreadState
    get.restype = ctypes.c_void_p
    candidates = here(0) & here(1) & here(5)
    direct = {way for way in candidates if way[1] == _NONE}
    return _only(direct or candidates, "state")

"""Reads recordings: what each process of a run called, by time.

The format is described byte by byte in docs/recording-format.md. Not here: what the calls mean.

    from rankcheck_record import read
    for process in read("recording-2026-01-31"):
        for event in process.events():
            print(event.time, event.thread, event.call)
"""

import io
import json
import struct
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Iterator, NamedTuple, Optional

from .folded import FOLDED_VERSION, unfolded

MAGIC = b"rankrec\n"
VERSION = 1
HEADER_BYTES = 4096
EXTENT_MAGIC = b"xtnt"
EXTENT_HEADER_BYTES = 32
EXTENT_BYTES = 64 * 1024
EVENT_BYTES_MAX = 16 * 1024
TOOK_BYTES = 4
END, SIGNATURE, SHAPE, RETURN, RETURN_VALUES, FORGET, LOST, CALL, ENTER = range(9)
NONE, NUMBER, SIGNED, ADDRESS, TEXT, BYTES, VARYING = range(7)


class RecordingError(Exception):
    """The file is no recording, has another version, or is damaged."""


class Address(int):
    """A pointer or an opaque handle; only its identity within the process has a meaning."""

    def __repr__(self) -> str:
        return hex(self)


class Call(NamedTuple):
    """A call with its arguments, or what a call returned."""

    name: str
    arguments: tuple  # of pairs (key, value)
    instant: bool

    def get(self, key: str, default: Any = None) -> Any:
        """The argument of this name."""
        return next((value for name, value in self.arguments if name == key), default)

    def __str__(self) -> str:
        words = (f"{key}={value.hex() if isinstance(value, bytes) else repr(value)}" for key, value in self.arguments)
        return f"{self.name}({', '.join(words)})"


class Event(NamedTuple):
    """What happened: `kind` is "enter", "return" or "lost"."""

    time: int  # nanoseconds since the process began
    thread: int
    kind: str
    call: Optional[Call]  # of a return: what came back, if that is worth a word
    lost: int  # how many events are missing here


@dataclass
class Process:
    """The file of one process."""

    path: Path
    header: dict
    extents: dict = field(repr=False)  # thread -> [(offset, used, length, checksum, time)]
    content: Optional[bytes] = field(default=None, repr=False)  # as it was recorded, if the file is folded

    def events(self) -> Iterator[Event]:
        """All events by time; those of one thread in their order."""
        threads = [self._thread(number) for number in sorted(self.extents)]
        heads = [next(thread, None) for thread in threads]
        while True:
            first = None
            for at, head in enumerate(heads):
                if head is not None and (first is None or head.time < heads[first].time):
                    first = at
            if first is None:
                return
            yield heads[first]
            heads[first] = next(threads[first], None)

    def _thread(self, number: int) -> Iterator[Event]:
        decoder = _Decoder(number)
        with _opened(self.path, self.content) as file:
            for offset, used, length, checksum, time in self.extents[number]:
                file.seek(offset + EXTENT_HEADER_BYTES)
                wanted = used or length - EXTENT_HEADER_BYTES
                content = file.read(wanted)
                sealed = used > 0 and len(content) == wanted
                if sealed and zlib.crc32(content) != checksum:
                    raise RecordingError(f"{self.path} is damaged at byte {offset}: its checksum does not fit")
                try:
                    yield from decoder.extent(content, time, sealed)
                except (_CutOff, ValueError, IndexError) as error:
                    if sealed:
                        raise RecordingError(f"{self.path} is damaged after byte {offset}: {error}") from error
                    # The process was killed while it wrote this event.


class _CutOff(Exception):
    pass


# Stands for an address that each call tells.
_OPEN = object()


class _Decoder:
    """The events of one thread, extent by extent: signatures and shapes stay known."""

    def __init__(self, thread: int):
        self.thread = thread
        self.signatures: list = []
        self.shapes: list = []

    def extent(self, content: bytes, time: int, sealed: bool) -> Iterator[Event]:
        self.content, self.at = content, 0
        while self.at < len(content):
            code = self.varint()
            if code == END:
                if sealed:
                    raise ValueError("an end inside an extent")
                return
            if code >= ENTER:
                if code - ENTER >= len(self.shapes):
                    raise ValueError("a shape that was not defined")
                passed = self.varint()
                call = self.closed(self.shapes[code - ENTER])
                time += passed
                yield Event(time, self.thread, "enter", call, 0)
            elif code == CALL:
                shape = self.varint()
                if shape >= len(self.shapes):
                    raise ValueError("a shape that was not defined")
                time += self.varint()
                took = int.from_bytes(bytes(self.byte() for _ in range(TOOK_BYTES)), "little")
                call = self.closed(self.shapes[shape])
                yield Event(time, self.thread, "enter", call, 0)
                if took:
                    time += took - 1
                    yield Event(time, self.thread, "return", None, 0)
            elif code == SIGNATURE:
                instant, name = self.byte(), self.text()
                self.signatures.append((name, [self.text() for _ in range(self.varint())], bool(instant)))
            elif code == SHAPE:
                self.shapes.append(self.shape())
            elif code == RETURN:
                time += self.varint()
                yield Event(time, self.thread, "return", None, 0)
            elif code == RETURN_VALUES:
                passed = self.varint()
                values = self.shape()
                time += passed
                yield Event(time, self.thread, "return", values, 0)
            elif code == FORGET:
                self.signatures, self.shapes = [], []
            elif code == LOST:
                yield Event(time, self.thread, "lost", None, self.varint())
            else:
                raise ValueError(f"an event of unknown kind {code}")

    def byte(self) -> int:
        if self.at >= len(self.content):
            raise _CutOff("an event that is cut off")
        self.at += 1
        return self.content[self.at - 1]

    def varint(self) -> int:
        number = shift = 0
        while True:
            byte = self.byte()
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                return number
            shift += 7

    def bytes(self) -> bytes:
        length = self.varint()
        if length > EVENT_BYTES_MAX:
            raise ValueError("a text that is too long")
        if self.at + length > len(self.content):
            raise _CutOff("an event that is cut off")
        self.at += length
        return self.content[self.at - length : self.at]

    def text(self) -> str:
        return self.bytes().decode()

    def shape(self) -> Call:
        name, keys, instant = self.signatures[self.varint()]
        return Call(name, tuple((key, self.value()) for key in keys), instant)

    def closed(self, call: Call) -> Call:
        """The call with the address that it leaves open, if it does."""
        if all(value is not _OPEN for _, value in call.arguments):
            return call
        address = Address(self.varint())
        arguments = ((key, address if value is _OPEN else value) for key, value in call.arguments)
        return call._replace(arguments=tuple(arguments))

    def value(self) -> Any:
        kind = self.byte()
        if kind == VARYING:
            return _OPEN
        if kind == NONE:
            return None
        if kind == NUMBER:
            return self.varint()
        if kind == SIGNED:
            number = self.varint()
            return (number >> 1) ^ -(number & 1)
        if kind == ADDRESS:
            return Address(self.varint())
        if kind == TEXT:
            return self.text()
        if kind == BYTES:
            return self.bytes()
        raise ValueError(f"a value of unknown kind {kind}")


def _opened(path: Path, content: Optional[bytes]):
    return open(path, "rb") if content is None else io.BytesIO(content)


def read_file(path) -> Process:
    """The file of one process. A file that ends early is read as far as it goes."""
    path = Path(path)
    content = None
    with open(path, "rb") as file:
        start = file.read(HEADER_BYTES)
        if start[:8] != MAGIC or len(start) < 16:
            raise RecordingError(f"{path} is no recording: it does not begin with `rankrec`")
        version, length = struct.unpack_from("<II", start, 8)
        if version == FOLDED_VERSION:
            try:
                content = unfolded(start + file.read())
            except (ValueError, IndexError, struct.error, zlib.error) as error:
                raise RecordingError(f"{path} is damaged: {error}") from error
        elif version != VERSION:
            raise RecordingError(
                f"{path} has format version {version}; this reader knows versions {VERSION} and {FOLDED_VERSION}"
            )
    with _opened(path, content) as file:
        try:
            header = json.loads(start[16 : 16 + length])
        except ValueError as error:
            raise RecordingError(f"{path} is damaged at byte 16: its header: {error}") from error
        extents: dict = {}
        at = HEADER_BYTES
        while True:
            file.seek(at)
            head = file.read(EXTENT_HEADER_BYTES)
            if len(head) < EXTENT_HEADER_BYTES:
                return Process(path, header, extents, content)
            if head == bytes(EXTENT_HEADER_BYTES):
                at += EXTENT_BYTES
                continue
            magic, thread, sequence, length, used, checksum, time = struct.unpack("<4sIIIIIQ", head)
            of_thread = extents.setdefault(thread, [])
            if (
                magic != EXTENT_MAGIC
                or not EXTENT_HEADER_BYTES < length <= EXTENT_BYTES
                or used > length - EXTENT_HEADER_BYTES
                or sequence != len(of_thread)
            ):
                raise RecordingError(f"{path} is damaged at byte {at}: no extent begins here")
            of_thread.append((at, used, length, checksum, time))
            at += length


def read(path) -> list:
    """Every process of a recording, by rank; or the one process of a file."""
    path = Path(path)
    if not path.is_dir():
        return [read_file(path)]
    processes = [read_file(file) for file in sorted(path.glob("*.rankrec"))]
    if not processes:
        raise RecordingError(f"{path} has no recording in it: no file ends in .rankrec")

    def order(process: Process):
        rank = process.header.get("rank")
        return (rank is None, rank or 0, process.header["began"], process.header["pid"])

    return sorted(processes, key=order)

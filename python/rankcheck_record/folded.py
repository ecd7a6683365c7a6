"""Files that `rankcheck fold` made small, as they were before.

The format is described in docs/recording-format.md. Not here: what the bytes say (`reader.py`).
"""

import struct
import zlib

FOLDED_VERSION = 2
_HEADER_BYTES = 4096
_EXTENT_HEADER_BYTES = 32
_KNOWN, _KEPT = 0, 1
_SIGNATURE, _SHAPE, _RETURN, _RETURN_VALUES, _FORGET, _LOST, _CALL, _ENTER = range(1, 9)
_NONE, _NUMBER, _SIGNED, _ADDRESS, _TEXT, _BYTES, _VARYING = range(7)


class _Column:
    """Bytes that are taken from the front."""

    def __init__(self, content: bytes):
        self.content, self.at = content, 0

    def is_over(self) -> bool:
        return self.at >= len(self.content)

    def number(self) -> int:
        number = shift = 0
        while True:
            byte = self.content[self.at]
            self.at += 1
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                return number
            shift += 7

    def take(self, length: int) -> bytes:
        if self.at + length > len(self.content):
            raise IndexError("a column that is cut off")
        self.at += length
        return self.content[self.at - length : self.at]


class _Thread:
    """What the events of a thread so far say of how later ones are written."""

    def __init__(self):
        self.signatures: list = []
        self.open: list = []
        self.extents = 0


class _Unfolding:
    def __init__(self, calls: _Column, times: _Column, took: _Column, addresses: _Column):
        self.calls, self.times, self.took, self.addresses = calls, times, took, addresses
        self.out = bytearray()

    def number(self, of: _Column) -> int:
        begin = of.at
        number = of.number()
        self.out += of.content[begin : of.at]
        return number

    def bytes(self, length: int) -> bytes:
        taken = self.calls.take(length)
        self.out += taken
        return taken

    def event(self, thread: _Thread) -> None:
        code = self.number(self.calls)
        if code == _CALL or code >= _ENTER:
            shape = self.number(self.calls) if code == _CALL else code - _ENTER
            self.number(self.times)
            if code == _CALL:
                self.out += struct.pack("<I", self.took.number())
            if thread.open[shape]:
                self.number(self.addresses)
        elif code == _RETURN:
            self.number(self.times)
        elif code == _RETURN_VALUES:
            self.number(self.times)
            self.values(thread)
        elif code == _SIGNATURE:
            self.bytes(1)
            self.text()
            keys = self.number(self.calls)
            for _ in range(keys):
                self.text()
            thread.signatures.append(keys)
        elif code == _SHAPE:
            thread.open.append(self.values(thread))
        elif code == _FORGET:
            thread.signatures, thread.open = [], []
        elif code == _LOST:
            self.number(self.calls)
        else:
            raise ValueError(f"an event of unknown kind {code}")

    def text(self) -> None:
        self.bytes(self.number(self.calls))

    def values(self, thread: _Thread) -> bool:
        """Whether one of them is left open."""
        is_open = False
        for _ in range(thread.signatures[self.number(self.calls)]):
            kind = self.bytes(1)[0]
            if kind in (_NUMBER, _SIGNED, _ADDRESS):
                self.number(self.calls)
            elif kind in (_TEXT, _BYTES):
                self.text()
            elif kind not in (_NONE, _VARYING):
                raise ValueError(f"a value of unknown kind {kind}")
            is_open |= kind == _VARYING
        return is_open


def _restored(shortened: bytes) -> bytes:
    """With the stretches that came before."""
    pairs, out = _Column(shortened), bytearray()
    while not pairs.is_over():
        out += pairs.take(pairs.number())
        if pairs.is_over():
            break
        length, back = pairs.number(), pairs.number()
        begin = len(out) - back
        if begin < 0 or back == 0:
            raise ValueError("a stretch that did not come before")
        while length > 0:
            piece = out[begin : begin + length]
            out += piece
            length -= len(piece)
    return bytes(out)


def unfolded(content: bytes) -> bytes:
    """The bytes of the file that was folded into these. Whatever is raised says that they are damaged."""
    length, checksum = struct.unpack_from("<QI", content, _HEADER_BYTES)
    at = _HEADER_BYTES + 12
    columns = []
    for _ in range(6):
        _, after, sum_of_it = struct.unpack_from("<QQI", content, at)
        at += 20
        compressed = content[at : at + after]
        if zlib.crc32(compressed) != sum_of_it:
            raise ValueError("the checksum of a column does not fit it")
        columns.append(zlib.decompress(compressed))
        at += after
    extents, calls, times, took, addresses, kept = columns
    unfolding = _Unfolding(*map(_Column, (_restored(calls), times, took, addresses)))
    extents, kept, threads, time, out = _Column(extents), _Column(kept), {}, 0, bytearray(content[:_HEADER_BYTES])
    struct.pack_into("<I", out, 8, 1)
    while not extents.is_over():
        thread, how, count = extents.number(), extents.number(), extents.number()
        time = (time + extents.number()) & (1 << 64) - 1
        of = threads.setdefault(thread, _Thread())
        of.extents += 1
        if how == _KEPT:
            out += kept.take(count)
            continue
        unfolding.out = bytearray()
        for _ in range(count):
            unfolding.event(of)
        events = bytes(unfolding.out)
        used = len(events)
        out += struct.pack("<4sIIIIIQ", b"xtnt", thread, of.extents - 1, used + 32, used, zlib.crc32(events), time)
        out += events
    body = bytes(out[_HEADER_BYTES:])
    if len(body) != length or zlib.crc32(body) != checksum:
        raise ValueError("the events do not fit together")
    return bytes(out)

"""The protobuf wire format, TFRecord framing and LevelDB log framing: just enough to read event files by hand.

Sources: protobuf.dev/programming-guides/encoding, tensorflow/core/lib/io/record_writer.h, and the log format of
LevelDB (32 KiB blocks, 7-byte record headers) that wandb's datastore uses.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

Field = tuple[int, int, bytes | int]
"""(field number, wire type, payload): an int for varints and fixed widths (raw bits), bytes for length-delimited."""

BLOCK = 32768


def varint(data: bytes, at: int) -> tuple[int, int]:
    """The varint at `at` and the position after it. Raises IndexError at the end of the data."""
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > 70:
            raise IndexError("varint too long")


def fields(data: bytes) -> Iterator[Field]:
    """The fields of one message, in order; stops quietly where the bytes end early or make no sense."""
    at = 0
    try:
        while at < len(data):
            key, at = varint(data, at)
            number, kind = key >> 3, key & 7
            if kind == 0:
                value, at = varint(data, at)
                yield number, kind, value
            elif kind in (1, 5):
                width = 8 if kind == 1 else 4
                if at + width > len(data):
                    return
                yield number, kind, int.from_bytes(data[at : at + width], "little")
                at += width
            elif kind == 2:
                size, at = varint(data, at)
                if at + size > len(data):
                    return
                yield number, kind, data[at : at + size]
                at += size
            else:
                return
    except IndexError:
        return


def float32(bits: int) -> float:
    return struct.unpack("<f", bits.to_bytes(4, "little"))[0]


def float64(bits: int) -> float:
    return struct.unpack("<d", bits.to_bytes(8, "little"))[0]


def tfrecords(data: bytes) -> Iterator[bytes]:
    """Payloads of a TFRecord file; a torn last record is left out."""
    at = 0
    while at + 12 <= len(data):
        (size,) = struct.unpack_from("<Q", data, at)
        start = at + 12
        if size > len(data) or start + size > len(data):
            return
        yield data[start : start + size]
        at = start + size + 4


def leveldb_records(data: bytes, at: int) -> Iterator[bytes]:
    """Payloads of a LevelDB-style log starting at byte `at`; fragments joined, a torn tail left out."""
    parts: list[bytes] = []
    while at + 7 <= len(data):
        left = BLOCK - at % BLOCK
        if left < 7:
            at += left
            continue
        size, kind = struct.unpack_from("<HB", data, at + 4)
        start = at + 7
        if kind == 0 or start + size > len(data):
            at += left  # padding, or a torn record: the next block starts afresh
            parts = []
            continue
        chunk = data[start : start + size]
        at = start + size
        if kind in (1, 2):  # whole, first
            parts = []
        parts.append(chunk)
        if kind in (1, 4):  # whole, last
            yield b"".join(parts)
            parts = []

"""The protobuf wire format, TFRecord framing and LevelDB log framing: just enough to read event files by hand.

Sources: protobuf.dev/programming-guides/encoding, tensorflow/core/lib/io/record_writer.h, and the log format of
LevelDB (32 KiB blocks, 7-byte record headers) that wandb's datastore uses.
"""

from __future__ import annotations

import struct
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from mmap import ACCESS_READ, mmap
from pathlib import Path

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


def _table() -> tuple[int, ...]:
    """CRC-32C (Castagnoli, reflected 0x82F63B78), a byte at a time."""
    out: list[int] = []
    for n in range(256):
        for _ in range(8):
            n = n >> 1 ^ (0x82F63B78 if n & 1 else 0)
        out.append(n)
    return tuple(out)


CRC = _table()
CHECKED = 4096
"""Bytes of the largest payload whose own checksum is tried: scalars are far smaller, and images are not read."""


def masked_crc(data: bytes) -> int:
    """TFRecord's masked CRC-32C."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = CRC[(crc ^ byte) & 0xFF] ^ crc >> 8
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


@dataclass
class Damage:
    """What could not be read of a file: places, and bytes passed over."""

    places: int = 0
    bytes: int = 0


def tfrecords(data: bytes | mmap, damage: Damage | None = None) -> Iterator[bytes]:
    """Payloads of a TFRecord file whose checksums agree; after a damaged one the next sound header is looked for.

    A checksum of 0 was not written (some writers do not).
    """
    damage = damage or Damage()
    at, end = 0, len(data)
    while at + 12 <= end:
        size, crc = struct.unpack_from("<QI", data, at)
        start = at + 12
        if size > end - start - 4 or (crc and masked_crc(data[at : at + 8]) != crc):
            begin, at = at, next_header(data, at + 1)
            damage.places, damage.bytes = damage.places + 1, damage.bytes + at - begin
            continue
        payload = data[start : start + size]
        (crc,) = struct.unpack_from("<I", data, start + size)
        if size > CHECKED or not crc or masked_crc(payload) == crc:
            yield payload
        else:
            damage.places, damage.bytes = damage.places + 1, damage.bytes + size
        at = start + size + 4
    if at < end:
        damage.places, damage.bytes = damage.places + 1, damage.bytes + end - at


def next_header(data: bytes | mmap, at: int) -> int:
    """The next place where a length that fits is followed by its own checksum; the end where there is none.

    A record of ordinary length has five zero bytes at the top of its length: only such places are tried.
    """
    end = len(data)
    while (found := data.find(b"\0\0\0\0\0", at + 3)) >= 0:
        for begin in range(found - 3, found + 1):
            if begin >= at and begin + 12 <= end:
                size, crc = struct.unpack_from("<QI", data, begin)
                if size <= end - begin - 16 and masked_crc(data[begin : begin + 8]) == crc:
                    return begin
        at = found - 2
    return end


@contextmanager
def mapped(path: Path) -> Generator[bytes | mmap]:
    """A file's bytes without holding them all."""
    with path.open("rb") as handle:
        try:
            data = mmap(handle.fileno(), 0, access=ACCESS_READ)
        except ValueError:  # empty
            yield b""
            return
        with data:
            yield data


def leveldb_records(data: bytes | mmap, at: int) -> Iterator[bytes]:
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

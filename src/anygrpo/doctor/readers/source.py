"""Where the bytes come from: files, standard input, compressed files; and how text is coded. Memory stays bounded."""

from __future__ import annotations

import bz2
import gzip
import importlib
import lzma
import math
import re
import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, cast

from anygrpo.doctor.log import Row
from anygrpo.errors import DataError
from anygrpo.scratch import Scratch
from anygrpo.spoken import Text

Unpacker = Callable[[IO[bytes]], IO[bytes]]
GZIP, ZSTD, BZIP2, XZ = b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"BZh", b"\xfd7zXZ\x00"
PACKED = (".gz", ".zst", ".bz2", ".xz")
BOMB, RATIO = 64 << 20, 100
"""No log packs RATIO times smaller: a file of which BOMB bytes in a row do is not read on."""
LARGEST = 8 << 30
"""Bytes that a compressed file, or what comes through a pipe, is read for."""
CELLS = 400_000
"""Numbers held of one log; of longer ones every second old row is dropped."""
LINE = 4 << 20
"""Characters of the longest line that is read as one."""


@contextmanager
def at_hand(path: str | Path) -> Generator[tuple[Path, str, str | None]]:
    """(a plain file or folder, the name it goes by, what of it was not read) of a path, a compressed file, or "-" for
    standard input. The last is None where all is there.

    Raises:
        DataError: nothing there, or compressed bytes that are not.
    """
    where = Path(path)
    if str(path) == "-":
        with temporary(sys.stdin.buffer) as (file, left):
            yield file, "standard input", left
        return
    if not where.exists():
        raise DataError(
            Text(f"{path}: no such file or folder", f"{path}：没有这个文件或文件夹"),
            Text("give a log file, a checkpoint or a run folder", "请给出日志文件、检查点或运行文件夹"),
        )
    unpack = None if where.is_dir() else unpacker_of(where)
    if unpack is None:
        yield where, where.name, None
        return
    name = where.name.removesuffix(where.suffix) if where.suffix in PACKED else where.name
    try:
        with where.open("rb") as raw, unpack(raw) as stream, temporary(stream, raw.tell) as (file, left):
            if not file.stat().st_size:
                raise DataError(
                    Text(f"{path}: unpacks to nothing: cut off, or empty", f"{path}：解压后没有内容：被截断，或是空的"),
                    Text("copy it again", "请重新复制"),
                )
            yield file, name, left
    except Exception as error:
        if not isinstance(error, (OSError, EOFError, lzma.LZMAError)) and type(error).__name__ != "ZstdError":
            raise
        raise DataError(
            Text(
                f"{path}: damaged or not the compressed file it looks like ({error})",
                f"{path}：已损坏，或并不是看上去那样的压缩文件（{error}）",
            ),
            Text("copy it again", "请重新复制"),
        ) from None


def unpacker_of(path: Path) -> Unpacker | None:
    """From a file's bytes to those that they pack, or None where it is not compressed."""
    with path.open("rb") as handle:
        head = handle.read(6)
    if head.startswith(GZIP):
        return lambda raw: cast(IO[bytes], gzip.open(raw))
    if head.startswith(BZIP2):
        return lambda raw: cast(IO[bytes], bz2.open(raw))
    if head.startswith(XZ):
        return lambda raw: cast(IO[bytes], lzma.open(raw))
    return zstandard_of(path) if head.startswith(ZSTD) else None


def zstandard_of(path: Path) -> Unpacker:
    """Zstandard, from whichever library is there.

    Raises:
        DataError: none is.
    """
    for name, call in (("compression.zstd", "open"), ("zstandard", "open")):  # Python 3.14, or the package
        try:
            library: Any = importlib.import_module(name)
        except ImportError:
            continue
        return lambda raw: cast(IO[bytes], getattr(library, call)(raw, "rb"))
    raise DataError(
        Text(f"{path}: compressed with zstd", f"{path}：用 zstd 压缩"),
        Text("pip install zstandard, or unpack it with: zstd -d", "pip install zstandard，或先解压：zstd -d"),
    )


@contextmanager
def temporary(stream: IO[bytes], used: Callable[[], int] | None = None) -> Generator[tuple[Path, str | None]]:
    """The stream as a file that is gone afterwards, and what was left unread.

    Args:
        used: how many packed bytes have been read so far.
    """
    with Scratch("log") as folder:
        copied, left, mark = 0, None, (0, 0)
        with (folder / "log").open("wb") as out:
            while block := stream.read(1 << 20):
                out.write(block)
                copied += len(block)
                if used is not None and copied - mark[0] >= BOMB:
                    if copied - mark[0] > RATIO * (used() - mark[1]):
                        left = f"what follows unpacks to more than {RATIO} times its size, as no log does"
                    mark = copied, used()
                if copied >= LARGEST:
                    left = "no log is larger"
                if left:
                    left = f"only the first {copied >> 20} MB (unpacked) were read, not the rest: {left}"
                    break
        yield folder / "log", left


def encoding_of(head: bytes) -> str:
    """UTF-8, or UTF-16 and UTF-32 with a byte order mark or, in mostly Latin text, by where the zero bytes are."""
    if head.startswith((b"\xff\xfe\x00\x00", b"\x00\x00\xfe\xff")):
        return "utf-32"
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "utf-16"
    if head.count(0) < len(head) / 5:
        return "utf-8-sig"
    zeros = [head[i : len(head) // 4 * 4 : 4].count(0) / max(1, len(head) // 4) for i in range(4)]
    full = [z > 0.8 for z in zeros]
    kinds = {(False, True, True, True): "utf-32-le", (True, True, True, False): "utf-32-be"}
    if tuple(full) in kinds:
        return kinds[tuple(full)]  # type: ignore[index]
    return "utf-16-le" if zeros[1] > zeros[0] else "utf-16-be"


def lines(path: Path, encoding: str) -> Iterator[str]:
    """Lines of a text file, a carriage return ending one too; none longer than LINE; bad bytes are no end."""
    with path.open(encoding=encoding, errors="replace") as handle:
        rest = ""
        try:
            while block := handle.read(1 << 20):
                found = (rest + block).split("\n")
                rest = found.pop()
                yield from found
                if len(rest) > LINE:
                    yield rest
                    rest = ""
        except UnicodeError:
            return
        if rest:
            yield rest


RARE = re.compile("[nN]a[nN]|[iI]nf|eval|train_runtime")
"""What makes a row worth keeping wherever it stands."""


class Rows(list[Row]):
    """A list of rows that stays bounded: past CELLS numbers every second row goes, again and again.

    The last row is always there. Rows with a number that is not finite, and evaluations, are kept.
    """

    def __init__(self, cells: int = CELLS) -> None:
        super().__init__()
        self.limit, self.cells, self.stride, self.seen = cells, 0, 1, 0
        self.last = 0  # which of those seen the last row is: some in between were not read

    def append(self, row: Row) -> None:
        """Add a row; the one before it may go."""
        if self and self.last % self.stride and not special(self[-1]):
            self.cells -= len(self.pop())
        super().append(row)
        self.last = self.seen
        self.seen += 1
        self.cells += len(row)
        if self.cells > self.limit:
            self.thin()

    def thin(self) -> None:
        kept = [row for i, row in enumerate(self) if i % 2 == 0 or i == len(self) - 1 or special(row)]
        if len(kept) > 0.9 * len(self):
            kept = [row for i, row in enumerate(self) if i % 2 == 0 or i == len(self) - 1]
        self.stride *= 2
        self[:] = kept
        self.cells = sum(map(len, kept))

    def replace_last(self, row: Row) -> None:
        """The last row was not its step's last word."""
        self.cells += len(row) - len(self[-1])
        self[-1] = row

    def wanted(self, text: str) -> bool:
        """Whether the row that this text holds would stay; a cheap question before it is parsed."""
        return self.stride == 1 or self.seen % self.stride == 0 or RARE.search(text) is not None

    def skip(self) -> None:
        """Count a row that was not read."""
        self.seen += 1

    @property
    def note(self) -> list[str]:
        if self.stride == 1:
            return []
        return [f"{self.seen} rows: one in {self.stride} was kept, and all with numbers that are not finite"]


def special(row: Row) -> bool:
    return any(key.startswith("eval") or not math.isfinite(x) for key, x in row.items())


def size(path: Path) -> int:
    return path.stat().st_size

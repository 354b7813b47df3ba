"""Embedding tables on disk: ids and rows, from .npz, .npy, .pt or Parquet.

.npz       `ids` [n] (or `texts`) and `embeddings` [n, d]; or `embeddings` alone; or a vector [d] under each id
.npy       [n, d]; ids are row numbers, or those of a file beside it: NAME.ids.json, NAME.ids.txt (one a line) or
           NAME.ids.npy. The JSON is a list, {id: row} or {row: id}
.pt        [n, d], {"ids": ..., "embeddings": ...}, {id: [d]}, or a list of [d]; without ids they are row numbers
.parquet   a column of ids and one of lists of numbers

Names that are understood for ids and for embeddings: those of `anygrpo.selection.table_files`.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from anygrpo.errors import DataError
from anygrpo.selection.table_files import key, read_npy, read_npz, read_parquet, read_torch
from anygrpo.spoken import Text

__all__ = ["Table", "key", "read_table"]
log = logging.getLogger("anygrpo")
_FORMATS = (".npz", ".npy", ".pt", ".pth", ".parquet")


@dataclass(frozen=True)
class Table:
    """Rows [n, d] float32 by id (as text)."""

    path: str
    index: dict[str, int]
    rows: Tensor

    @property
    def width(self) -> int:
        return self.rows.shape[1]

    def of(self, names: Iterable[Any], whose: str | Text) -> Tensor:
        """[m, d] of these ids.

        Raises:
            DataError: an id that the table does not hold.
        """
        names = list(names)
        missing = [name for name in names if key(name) not in self.index]
        if missing:
            few = len(missing) == 1
            whose = Text(whose, whose) if isinstance(whose, str) else whose
            raise DataError(
                Text(
                    f"{self.path} holds no embedding of {missing[0]!r} ({whose.said('en')}"
                    + ("" if few else f"; {len(missing)} of {len(names)} are missing")
                    + ")",
                    f"{self.path} 中没有 {missing[0]!r} 的嵌入（{whose.said('zh')}"
                    + ("" if few else f"；{len(names)} 个中缺 {len(missing)} 个")
                    + "）",
                ),
                Text(
                    f"it holds {len(self.index)} ids, such as {next(iter(self.index), None)!r}",
                    f"它有 {len(self.index)} 个编号，例如 {next(iter(self.index), None)!r}",
                ),
            )
        return self.rows[[self.index[key(name)] for name in names]]


def read_table(path: str | Path) -> Table:
    """Read and check a table.

    Raises:
        DataError: no such file, an unknown format, ids and rows that differ in number, an id given twice, rows that are
            no vectors of one size, NaN.
    """
    path = Path(path)
    if not path.is_file():
        raise DataError(
            Text(f"no features at {path}", f"{path} 处没有特征"),
            Text(
                "a table of ids and embeddings: " + ", ".join(_FORMATS), "应为 id 与嵌入的表格：" + ", ".join(_FORMATS)
            ),
        )
    readers = {".npz": read_npz, ".npy": read_npy, ".pt": read_torch, ".pth": read_torch, ".parquet": read_parquet}
    if path.suffix.lower() not in readers:
        raise DataError(
            Text(
                f"{path}: embeddings in {path.suffix or 'a file without suffix'}",
                f"{path}：嵌入存于 {path.suffix or '无后缀的文件'}",
            ),
            Text("one of " + ", ".join(_FORMATS), f"可用：{', '.join(_FORMATS)}"),
        )
    ids, rows = readers[path.suffix.lower()](path)
    return _checked(path, ids, rows)


def _checked(path: Path, ids: list[Any] | None, rows: Any) -> Table:
    try:
        table = torch.as_tensor(rows)
        if table.is_complex():
            raise TypeError
        table = (table.to_dense() if table.layout != torch.strided else table).float()
    except (TypeError, ValueError, RuntimeError):
        raise DataError(
            Text(f"{path}: its embeddings are no vectors of one size", f"{path}：它的嵌入不是同样大小的向量")
        ) from None
    if table.dim() != 2:
        raise DataError(
            Text(
                f"{path}: embeddings of shape {tuple(table.shape)}, and [n, d] is wanted",
                f"{path}：嵌入的形状为 {tuple(table.shape)}，应为 [n, d]",
            )
        )
    if not table.numel():
        raise DataError(Text(f"{path} holds no embeddings: {[*table.shape]}", f"{path} 中没有嵌入：{[*table.shape]}"))
    names = [_name(path, i) for i in (range(len(table)) if ids is None else ids)]
    if len(names) != len(table):
        size = f"[{len(names)}, {len(table)}]"
        turned = Text(f"they may be turned over: save them as {size}", f"可能行列颠倒：请存为 {size}")
        raise DataError(
            Text(
                f"{path}: {len(names)} ids, {len(table)} embeddings",
                f"{path}：{len(names)} 个编号，{len(table)} 个嵌入",
            ),
            turned if len(names) == table.shape[1] else Text("one id for each row", "每行一个编号"),
        )
    if len(set(names)) < len(names):
        twice = next(name for name, n in Counter(names).items() if n > 1)
        raise DataError(
            Text(f"{path} holds id {twice!r} twice", f"{path} 中编号 {twice!r} 出现两次"),
            Text(
                "one embedding an id; queries and candidates: two tables",
                "每个编号一个嵌入；查询与候选分别编号时请用两个表",
            ),
        )
    bad = ~torch.isfinite(table).all(1)
    if bad.any():
        raise DataError(
            Text(
                f"{path}: the embedding of {names[int(bad.nonzero()[0])]!r} holds NaN or infinity",
                f"{path}：{names[int(bad.nonzero()[0])]!r} 的嵌入中有 NaN 或无穷",
            )
        )
    _told(path, names, table)
    return Table(str(path), {name: i for i, name in enumerate(names)}, table)


def _name(path: Path, item: Any) -> str:
    """An id, also where each lies in a list of its own.

    Raises:
        DataError: it is none.
    """
    if isinstance(item, list | tuple) and len(item) == 1:
        item = item[0]
    if item is None or isinstance(item, list | tuple | dict) or item != item:
        raise DataError(
            Text(f"{path}: {str(item)[:40]} among its ids is none", f"{path}：编号中的 {str(item)[:40]} 不是编号"),
            Text("one number or word for each row", "每行一个数或词"),
        )
    return key(item)


def _told(path: Path, names: list[str], table: Tensor) -> None:
    """Embeddings that say nothing: all alike are refused, some of zeros are told.

    Raises:
        DataError: all rows are one vector.
    """
    if len(table) > 2 and bool((table == table[:1]).all()):
        raise DataError(
            Text(f"{path}: all {len(table)} embeddings are the same", f"{path}：{len(table)} 个嵌入全都相同"),
            Text("look at how they were made", "请检查它们是如何生成的"),
        )
    if zero := (table == 0).all(1).nonzero()[:, 0].tolist():
        told = Text(
            f"{path}: {len(zero)} embeddings are all zeros, as that of {names[zero[0]]!r}",
            f"{path}：有 {len(zero)} 个嵌入全为零，如 {names[zero[0]]!r}",
        )
        log.warning("%s", told.said())

"""Embedding tables on disk: ids and rows, from .npz, .npy, .pt or Parquet.

.npz       `ids` [n] (or `texts`) and `embeddings` [n, d]; or `embeddings` alone; or a vector [d] under each id
.npy       [n, d]; ids are row numbers, or those of a file beside it: NAME.ids.json, NAME.ids.txt (one a line) or
           NAME.ids.npy
.pt        [n, d], {"ids": ..., "embeddings": ...}, {id: [d]}, or a list of [d]; without ids they are row numbers
.parquet   a column of ids and one of lists of numbers

Names that are understood for ids and for embeddings: `_ID_RANKS`, `_VECTOR_COLUMNS`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from anygrpo.errors import DataError
from anygrpo.files import json_value
from anygrpo.spoken import Text

_OWN_IDS = (
    *("query_id", "query_ids", "candidate_id", "candidate_ids", "qid", "qids", "question_id", "question_ids"),
    *("image_id", "image_ids", "names", "keys"),
)
_ID_RANKS = (("id", "ids"), _OWN_IDS, ("index",), ("text", "texts"))
"""Where a table has several, the first rank that it has says the ids: `ids` before `texts`."""
_ID_COLUMNS = tuple(name for rank in _ID_RANKS for name in rank)
_VECTOR_COLUMNS = ("embedding", "embeddings", "vector", "vectors", "feature", "features", "feats", "emb", "embs")
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

    def of(self, names: Iterable[Any], whose: str) -> Tensor:
        """[m, d] of these ids.

        Raises:
            DataError: an id that the table does not hold.
        """
        names = list(names)
        missing = [name for name in names if key(name) not in self.index]
        if missing:
            raise DataError(
                Text(
                    f"{self.path} holds no embedding of {missing[0]!r} ({whose}; {len(missing)} are missing)",
                    f"{self.path} 中没有 {missing[0]!r} 的嵌入（{whose}；共缺 {len(missing)} 个）",
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
    readers = {".npz": _npz, ".npy": _npy, ".pt": _torch, ".pth": _torch, ".parquet": _parquet}
    if path.suffix not in readers:
        raise DataError(
            Text(
                f"{path}: embeddings in {path.suffix or 'a file without suffix'}",
                f"{path}：嵌入存于 {path.suffix or '无后缀的文件'}",
            ),
            Text("one of " + ", ".join(_FORMATS), f"可用：{', '.join(_FORMATS)}"),
        )
    ids, rows = readers[path.suffix](path)
    return _checked(path, ids, rows)


def key(item: Any) -> str:
    """An id as text: 7, 7.0, "7" and b"7" are one id."""
    if isinstance(item, bytes):
        item = item.decode("utf-8", "replace")
    return str(int(item)) if isinstance(item, float) and item.is_integer() else str(item)


def _checked(path: Path, ids: list[Any] | None, rows: Any) -> Table:
    try:
        table = torch.as_tensor(rows).float()
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
    names = [key(i) for i in (range(len(table)) if ids is None else ids)]
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
    return Table(str(path), {name: i for i, name in enumerate(names)}, table)


def _npz(path: Path) -> tuple[list[Any] | None, Any]:
    import numpy as np

    try:
        with np.load(path, allow_pickle=False) as data:
            found = {name: data[name].tolist() if name in _ID_COLUMNS else data[name] for name in data.files}
    except (ValueError, OSError) as error:
        raise DataError(
            Text(f"{path} cannot be read as npz: {error}", f"{path} 不能作为 npz 读取：{error}"),
            Text("save it without objects (pickle)", "请不带对象（pickle）保存"),
        ) from None
    return _named(path, found)


def _named(path: Path, found: dict[Any, Any]) -> tuple[list[Any] | None, Any]:
    """Ids and rows of named arrays: ids and vectors; vectors alone, in the order of their rows; or a vector under each
    id.

    Raises:
        DataError: names that could be neither, vectors under two names, or ids under two of one rank.
    """
    vectors = [n for n in found if n in _VECTOR_COLUMNS]
    ids = next((same for rank in _ID_RANKS if (same := [n for n in found if n in rank])), [])
    if not vectors and not ids and len(found) == 1 and _dims(only := next(iter(found.values()))) > 1:
        return None, only
    if not vectors and not ids and found and all(_dims(x) == 1 for x in found.values()):
        return list(found), _stack(path, list(found.values()))
    if len(vectors) != 1 or len(ids) > 1:
        held = list(found)[:8] if not vectors or len(vectors) == len(ids) == 1 else vectors + ids
        raise DataError(
            Text(
                f"{path} holds {held}: which are ids and which embeddings?",
                f"{path} 中有 {held}：哪些是编号，哪些是嵌入？",
            ),
            Text("save ids [n] and embeddings [n, d]", "请保存 ids [n] 与 embeddings [n, d]"),
        )
    return list(found[ids[0]]) if ids else None, found[vectors[0]]


def _dims(x: Any) -> int:
    """Dimensions of more than one entry; a vector of one number counts as a vector."""
    try:
        shape = torch.as_tensor(x).shape
    except (TypeError, ValueError, RuntimeError):
        return 0
    return max(1, sum(n > 1 for n in shape)) if len(shape) else 0


def _npy(path: Path) -> tuple[list[Any] | None, Any]:
    import numpy as np

    try:
        rows = np.load(path, allow_pickle=False)
    except (ValueError, OSError) as error:
        raise DataError(
            Text(f"{path} cannot be read as npy: {error}", f"{path} 不能作为 npy 读取：{error}"),
            Text("save numbers, not objects", "请保存数，而不是对象"),
        ) from None
    for suffix in (".ids.json", ".ids.txt", ".ids.npy"):
        beside = path.with_name(path.stem + suffix)
        if beside.is_file():
            if suffix == ".ids.json":
                return json_value(beside.read_text(encoding="utf-8")), rows
            if suffix == ".ids.txt":
                return beside.read_text(encoding="utf-8").split("\n")[: len(rows)], rows
            return np.load(beside, allow_pickle=False).tolist(), rows
    return None, rows


def _torch(path: Path) -> tuple[list[Any] | None, Any]:
    try:
        data = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises whatever its unpickler meets
        raise DataError(
            Text(
                f"{path} cannot be read safely: {str(error).splitlines()[0][:150]}",
                f"{path} 不能安全读取：{str(error).splitlines()[0][:150]}",
            ),
            Text("save tensors alone", "请只保存张量"),
        ) from None
    if isinstance(data, dict):
        plain = {n: x.tolist() if n in _ID_COLUMNS and isinstance(x, Tensor) else x for n, x in data.items()}
        return _named(path, plain)
    return None, _stack(path, data) if isinstance(data, list | tuple) else data


def _stack(path: Path, rows: list[Any] | tuple[Any, ...]) -> Tensor:
    try:
        vectors = [torch.as_tensor(row).float().reshape(-1) for row in rows]
    except (TypeError, ValueError, RuntimeError):
        raise DataError(
            Text(f"{path}: its embeddings are no vectors of one size", f"{path}：它的嵌入不是同样大小的向量")
        ) from None
    shapes = {tuple(v.shape) for v in vectors}
    if len(shapes) != 1:
        raise DataError(
            Text(f"{path}: embeddings of shapes {sorted(shapes)[:3]}", f"{path}：嵌入的形状为 {sorted(shapes)[:3]}"),
            Text("one size for all", "应只有一种大小"),
        )
    return torch.stack(vectors)


def _parquet(path: Path) -> tuple[list[Any] | None, Any]:
    try:
        import pyarrow.parquet as parquet  # type: ignore[import-not-found]
    except ImportError:
        raise DataError(
            Text(
                f"{path}: reading Parquet needs pyarrow, which is not installed here",
                f"{path}：读取 Parquet 需要 pyarrow，此处没有安装",
            ),
            "pip install pyarrow",
        ) from None
    table = parquet.read_table(path)
    found = {name: table[name].to_pylist() for name in table.column_names if name in _ID_COLUMNS + _VECTOR_COLUMNS}
    ids, rows = _named(path, found or dict.fromkeys(table.column_names))
    if ids is None:  # rows of Parquet have no order that is promised
        raise DataError(
            Text(f"{path} holds the columns {table.column_names}", f"{path} 的列为 {table.column_names}"),
            Text(
                f"one of {_ID_COLUMNS} and one of {_VECTOR_COLUMNS}",
                f"应有 {_ID_COLUMNS} 之一和 {_VECTOR_COLUMNS} 之一",
            ),
        )
    return ids, rows

"""What a file of embeddings holds, by its format: ids (None: row numbers) and rows, not yet checked."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import torch
from torch import Tensor

from anygrpo.errors import DataError
from anygrpo.files import json_value, lines_of
from anygrpo.spoken import Text

_OWN_IDS = (
    *("query_id", "query_ids", "candidate_id", "candidate_ids", "qid", "qids", "question_id", "question_ids"),
    *("image_id", "image_ids", "names", "keys"),
)
_ID_RANKS = (("id", "ids"), _OWN_IDS, ("index",), ("text", "texts"))
"""Where a table has several, the first rank that it has says the ids: `ids` before `texts`."""
_ID_COLUMNS = tuple(name for rank in _ID_RANKS for name in rank)
_VECTOR_COLUMNS = ("embedding", "embeddings", "vector", "vectors", "feature", "features", "feats", "emb", "embs")


def key(item: Any) -> str:
    """An id as text: 7, 7.0, "7" and b"7" are one id."""
    if isinstance(item, bytes):
        item = item.decode("utf-8", "replace")
    return str(int(item)) if isinstance(item, float) and item.is_integer() else str(item)


def read_npz(path: Path) -> tuple[list[Any] | None, Any]:
    import numpy as np

    try:
        with np.load(path, allow_pickle=False) as data:
            found = {name: data[name].tolist() if name in _ID_COLUMNS else data[name] for name in data.files}
    except (ValueError, OSError, EOFError, AttributeError, BadZipFile) as error:
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


def read_npy(path: Path) -> tuple[list[Any] | None, Any]:
    import numpy as np

    try:
        rows = np.load(path, allow_pickle=False)
    except (ValueError, OSError, EOFError, BadZipFile) as error:
        raise DataError(
            Text(f"{path} cannot be read as npy: {error}", f"{path} 不能作为 npy 读取：{error}"),
            Text("save numbers, not objects", "请保存数，而不是对象"),
        ) from None
    for suffix in (".ids.json", ".ids.txt", ".ids.npy"):
        beside = path.with_name(path.stem + suffix)
        if beside.is_file():
            try:
                if suffix == ".ids.npy":
                    return np.load(beside, allow_pickle=False).tolist(), rows
                text = beside.read_text(encoding="utf-8-sig")
                if suffix == ".ids.txt":
                    return [line.removesuffix("\r") for line in lines_of(text.rstrip("\r\n"))], rows
                return _ids_of(beside, json_value(text)), rows
            except (ValueError, OSError, EOFError, BadZipFile) as error:
                raise DataError(
                    Text(f"{beside} cannot be read as ids: {error}", f"{beside} 不能作为编号读取：{error}")
                ) from None
    return None, rows


def _ids_of(path: Path, said: Any) -> list[Any]:
    """Ids in the order of their rows, from a list, from {id: row} or from {row: id}.

    Raises:
        DataError: neither, or a table that could be both with different ids.
    """
    if isinstance(said, list):
        return said
    if isinstance(said, dict):
        every = list(range(len(said)))
        by_value = (
            sorted(said, key=lambda k: int(key(said[k])))
            if sorted(map(key, said.values())) == sorted(map(str, every))
            else []
        )
        by_key = [said[str(i)] for i in every] if sorted(said) == sorted(map(str, every)) else []
        if by_value and by_key and [*map(key, by_value)] != [*map(key, by_key)]:
            raise DataError(
                Text(
                    f"{path}: is it the row of each id, or the id of each row? Both are numbers",
                    f"{path}：是每个编号的行，还是每行的编号？两者都是数",
                ),
                Text("write a list of ids in the order of the rows", "请按行的次序写成编号的列表"),
            )
        if by_value or by_key:
            return by_value or by_key
    raise DataError(
        Text(f"{path} is neither a list of ids nor a row for each id", f"{path} 既不是编号列表，也不是每个编号的行号")
    )


def read_torch(path: Path) -> tuple[list[Any] | None, Any]:
    try:
        data = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises whatever its unpickler meets
        why = (str(error).strip() or type(error).__name__).splitlines()[0][:150]
        raise DataError(
            Text(
                f"{path} cannot be read safely: {why}",
                f"{path} 不能安全读取：{why}",
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


def read_parquet(path: Path) -> tuple[list[Any] | None, Any]:
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
    try:
        table = parquet.read_table(path)
    except (ValueError, OSError) as error:
        raise DataError(
            Text(f"{path} cannot be read as Parquet: {error}", f"{path} 不能作为 Parquet 读取：{error}")
        ) from None
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

"""A file of stored candidates as JSON: one entry for each query, by its id, however they are listed."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from anygrpo.errors import DataError
from anygrpo.files import json_value, lines_of
from anygrpo.selection.tables import key
from anygrpo.spoken import Text

_OF_A_QUERY = {"pointer_candidates", "candidate_pool_ids", "id_list", "score_list", "query"}
_IDS = ("query_id", "qid", "question_id", "id")


def queries_in(path: Path) -> tuple[dict[str, Any], list[str]]:
    """Entries of queries by id, and what was passed over.

    Raises:
        DataError: no such file, not JSON, an id given twice or not at all, or nothing that is a query.
    """
    table = _load(path)
    if isinstance(table, dict) and not any(_may_be_query(v) for v in table.values()):
        inner = {
            name: v for name, v in table.items() if isinstance(v, dict | list) and any(map(_may_be_query, _values(v)))
        }
        table = next(iter(inner.values())) if len(inner) == 1 else table  # {"_meta": ..., "queries": {...}}
        if len(inner) > 1:
            names = ", ".join(inner)
            raise DataError(
                Text(f"{path} holds several tables of queries: {names}", f"{path} 中有多个查询表：{names}"),
                Text("save each in a file of its own (task.more_files)", "请各存为一个文件（task.more_files）"),
            )
    rest: list[str] = []
    if isinstance(table, list):
        rest = [", ".join(x) if isinstance(x, dict) else repr(x) for x in table if not _may_be_query(x)]
        table = _by_id(path, [x for x in table if _may_be_query(x)])
    if not isinstance(table, dict) or not table:
        raise DataError(
            Text(
                f"{path} holds no queries: expected an object of query id -> entry",
                f"{path} 中没有查询：应为从查询编号到条目的对象",
            )
        )
    own = {qid: entry for qid, entry in table.items() if _may_be_query(entry)}
    rest += [name for name in table if name not in own]
    if not own:
        raise DataError(
            Text(
                f"query {rest[0]!r} is in no known layout: it has neither pointer_candidates nor "
                "id_list and score_list",
                f"查询 {rest[0]!r} 不是已知的布局：既没有 pointer_candidates，也没有 id_list 和 score_list",
            )
        )
    said = f"{len(rest)} entries are no queries and were passed over: {', '.join(map(repr, rest[:5]))}"
    return own, [said] if rest else []


def _load(path: Path) -> Any:
    if not path.is_file():
        raise DataError(
            Text(f"no stored candidates at {path}", f"{path} 处没有存好的候选"),
            Text("anygrpo select generate writes such a file", "anygrpo select generate 会写出这样的文件"),
        )

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len({key for key, _ in pairs}) < len(pairs):
            twice = next(key for key, n in Counter(key for key, _ in pairs).items() if n > 1)
            raise DataError(
                Text(f"{path} holds {twice!r} twice in one object", f"{path} 的一个对象中 {twice!r} 出现两次"),
                Text("give each query an id of its own", "请给每个查询单独的编号"),
            )
        return dict(pairs)

    try:
        text = path.read_text(encoding="utf-8-sig")
        try:
            whole = json_value(text, once)
        except ValueError:
            lines = [line for line in lines_of(text) if line.strip()] if path.suffix == ".jsonl" else []
            if len(lines) < 2:
                raise
            return [json_value(line, once) for line in lines]
        return [whole] if path.suffix == ".jsonl" and _may_be_query(whole) else whole
    except (ValueError, RecursionError) as error:
        raise DataError(Text(f"{path} is not JSON: {error}", f"{path} 不是 JSON：{error}")) from None


def _values(x: dict[str, Any] | list[Any]) -> list[Any]:
    return list(x.values()) if isinstance(x, dict) else x


def _by_id(path: Path, entries: list[Any]) -> dict[str, Any]:
    """A list of entries that hold their own ids."""
    out: dict[str, Any] = {}
    for entry in entries:
        inner = entry["query"] if isinstance(entry.get("query"), dict) else {}
        said = [place[n] for n in _IDS for place in (entry, inner) if place.get(n) is not None]
        name = key(said[0]) if said else None
        if name is None:
            raise DataError(
                Text(f"{path}: a query in the list has no id", f"{path}：列表中有一个查询没有编号"),
                Text("one of " + ", ".join(_IDS), f"可用：{'、'.join(_IDS)}"),
            )
        if name in out:
            raise DataError(
                Text(f"{path} holds query {name!r} twice", f"{path} 中查询 {name!r} 出现两次"),
                Text("give each query an id of its own", "请给每个查询单独的编号"),
            )
        out[name] = entry
    return out


def _may_be_query(entry: Any) -> bool:
    return isinstance(entry, dict) and not _OF_A_QUERY.isdisjoint(entry)

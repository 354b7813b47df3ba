"""Reading and writing files of stored candidates (rl_data), in all the layouts that exist.

pool    {qid: {query, candidate_pool_ids?, pointer_candidates: [{pointer: global ids, pointer_pos: positions, ...}]}}
fixed   the same with the meaning swapped: pointer: positions, pointer_global: global ids
legacy  {qid: {id_list: [[id, ..., qid], ...], score_list: [InfoScore, ...]}}

Entries that are no queries (`_meta`) are passed over and said. A file whose pointers could be read both ways, with
different results, is refused: a guess would train on noise (`anygrpo.selection.pointers`).
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

from anygrpo.errors import DataError
from anygrpo.files import lines_of
from anygrpo.selection import pointers
from anygrpo.selection.parts import NAMES, candidate_of, check_score
from anygrpo.selection.stored_query import Candidate, StoredFile, StoredQuery
from anygrpo.selection.tables import key
from anygrpo.spoken import Text

_OF_A_QUERY = {"pointer_candidates", "candidate_pool_ids", "id_list", "score_list", "query"}


def read_stored(path: str | Path, index: str = "auto") -> StoredFile:
    """Read and check a file.

    Args:
        index: "global" or "local" says what a bare `pointer` means; "auto" finds out.

    Raises:
        DataError: no such file, not JSON, a query given twice, a query in no known layout, ambiguous or impossible
            pointers, a score that is no number.
    """
    path = Path(path)
    table, passed_over = _queries(path, _load(path))
    legacy = {qid: entry for qid, entry in table.items() if _is_legacy(qid, entry)}
    others = {qid: entry for qid, entry in table.items() if qid not in legacy}
    rows = {qid: _rows(qid, entry) for qid, entry in others.items()}
    readings = pointers.read(path, [row for own in rows.values() for row in own], index)
    queries = tuple(
        _legacy(qid, entry) if qid in legacy else _query(qid, entry, rows[qid], readings)
        for qid, entry in table.items()
    )
    meanings = {r.meaning for r in readings.values()} | ({"global"} if legacy else set())
    layouts = {"fixed" if r.meaning == "local" else "pool" for r in readings.values()} | (
        {"legacy"} if legacy else set()
    )
    layout = layouts.pop() if len(layouts) == 1 else "mixed"
    notes = [*passed_over, *_reading_notes(rows, readings, len(legacy))]
    return StoredFile(layout, meanings.pop() if len(meanings) == 1 else "both", queries, tuple(notes))


def merged(files: list[StoredFile]) -> StoredFile:
    """Files as one: the candidates of a query that several hold, one after the other, by the first one's pool.

    Raises:
        DataError: a later file's query picks what the first one's pool does not hold.
    """
    queries = {q.id: q for q in files[0].queries}
    for file in files[1:]:
        for query in file.queries:
            first = queries.setdefault(query.id, query)
            if first is query:
                continue
            place = pointers.places(list(first.pool))
            picked = [[key(query.pool[i]) for i in c.selection] for c in query.candidates]
            if outside := [i for ids in picked for i in ids if i not in place]:
                raise DataError(
                    Text(
                        f"query {query.id!r}: {outside[0]!r} of a further file is outside its pool in the first",
                        f"查询 {query.id!r}：后一个文件的 {outside[0]!r} 不在第一个文件的候选池中",
                    )
                )
            more = [replace(c, selection=tuple(place[i] for i in ids)) for c, ids in zip(query.candidates, picked)]
            queries[query.id] = replace(first, candidates=(*first.candidates, *more))
    notes = tuple(note for file in files for note in file.notes)
    return replace(files[0], queries=tuple(queries.values()), notes=notes)


def write_stored(path: str | Path, queries: list[StoredQuery], layout: str = "pool") -> None:
    """Write queries in one of the layouts ("pool", "fixed", "legacy"; legacy keeps selections and scores alone)."""
    entry = _legacy_entry if layout == "legacy" else lambda q: _entry(q, fixed=layout == "fixed")
    table = {q.id: entry(q) for q in queries}
    Path(path).write_text(json.dumps(table, ensure_ascii=False, indent=1), encoding="utf-8")


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
            whole = json.loads(text, object_pairs_hook=once)
        except ValueError:
            lines = [line for line in lines_of(text) if line.strip()] if path.suffix == ".jsonl" else []
            if len(lines) < 2:
                raise
            return [json.loads(line, object_pairs_hook=once) for line in lines]
        return [whole] if path.suffix == ".jsonl" and _may_be_query(whole) else whole
    except ValueError as error:
        raise DataError(Text(f"{path} is not JSON: {error}", f"{path} 不是 JSON：{error}")) from None


def _queries(path: Path, table: Any) -> tuple[dict[str, Any], list[str]]:
    """Entries of queries by id, and what was passed over."""
    if isinstance(table, dict) and not any(_may_be_query(v) for v in table.values()):
        inner = [v for v in table.values() if isinstance(v, dict | list) and any(map(_may_be_query, _values(v)))]
        table = inner[0] if len(inner) == 1 else table  # {"_meta": ..., "queries": {...}}
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


def _values(x: dict[str, Any] | list[Any]) -> list[Any]:
    return list(x.values()) if isinstance(x, dict) else x


_IDS = ("query_id", "qid", "question_id", "id")


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


def _is_legacy(qid: str, entry: dict[str, Any]) -> bool:
    if "id_list" in entry and "score_list" in entry:
        return True
    if not isinstance(entry.get("pointer_candidates", []), list):
        raise DataError(
            Text(
                f"query {qid!r}: pointer_candidates is no list of candidates",
                f"查询 {qid!r}：pointer_candidates 不是候选的列表",
            )
        )
    if "pointer_candidates" not in entry:
        raise DataError(
            Text(
                f"query {qid!r} is in no known layout: it has neither pointer_candidates nor id_list and score_list",
                f"查询 {qid!r} 不是已知的布局：既没有 pointer_candidates，也没有 id_list 和 score_list",
            )
        )
    return False


def _rows(qid: str, entry: dict[str, Any]) -> list[pointers.Row]:
    pool = entry.get("candidate_pool_ids")
    if pool is not None and not isinstance(pool, list):
        raise DataError(
            Text(
                f"query {qid!r}: candidate_pool_ids is no list of ids", f"查询 {qid!r}：candidate_pool_ids 不是编号列表"
            )
        )
    return [pointers.row_of(qid, pool, c) for c in entry["pointer_candidates"]]


def _query(
    qid: str, entry: dict[str, Any], rows: list[pointers.Row], readings: dict[pointers.Signature, pointers.Reading]
) -> StoredQuery:
    raw, pool = entry["pointer_candidates"], entry.get("candidate_pool_ids")
    given = pool is not None
    if not given:
        own = [row.fields[readings[row.signature].name] for row in rows]
        pool = _each_once([i for ids in own for i in ids])
    place = pointers.places(pool)
    found = [pointers.positions(row, readings[row.signature], place) for row in rows]
    candidates = tuple(candidate_of(qid, c, at) for c, at in zip(raw, found))
    query = entry.get("query")
    return StoredQuery(str(qid), tuple(pool), candidates, query if isinstance(query, dict) else {}, given)


def _each_once(ids: list[Any]) -> list[Any]:
    first: dict[str, Any] = {}
    for i in ids:
        first.setdefault(key(i), i)
    return list(first.values())


def _reading_notes(
    rows: dict[str, list[pointers.Row]], readings: dict[pointers.Signature, pointers.Reading], legacy: int
) -> list[str]:
    count = Counter(row.signature for own in rows.values() for row in own)
    notes = []
    for of, reading in readings.items():
        for name, wrong in reading.stale.items():
            notes.append(
                f"{name} is stale: in {wrong} of {count[of]} rows it contradicts the fields that agree everywhere, "
                "and it was not used"
            )
    if len(readings) + bool(legacy) > 1:
        kinds = [f"{count[fields]} rows with {' + '.join(fields[0])}" for fields in readings]
        kinds += [f"{legacy} queries with id_list"] if legacy else []
        notes.append("rows of several writers, each read by its own fields: " + ", ".join(kinds))
    return notes


def _legacy(qid: str, entry: dict[str, Any]) -> StoredQuery:
    lists, scores = entry["id_list"], entry["score_list"]
    if not isinstance(lists, list) or not isinstance(scores, list) or not all(isinstance(x, list) for x in lists):
        raise DataError(
            Text(
                f"query {qid!r}: id_list is no list of lists of ids, or score_list no list",
                f"查询 {qid!r}：id_list 不是由编号列表组成的列表，或 score_list 不是列表",
            )
        )
    if len(lists) != len(scores):
        raise DataError(
            Text(
                f"query {qid!r}: {len(lists)} selections, {len(scores)} scores",
                f"查询 {qid!r}：{len(lists)} 个选择，{len(scores)} 个分数",
            )
        )
    wrong = [ids for ids in lists if not ids or key(ids[-1]) != str(qid)]
    if wrong:
        raise DataError(
            Text(
                f"query {qid!r}: id_list {wrong[0]} does not end with the query's own id",
                f"查询 {qid!r}：id_list {wrong[0]} 没有以查询自己的编号结尾",
            )
        )
    pool = _each_once([i for ids in lists for i in ids[:-1]])
    place = pointers.places(pool)
    candidates = tuple(
        Candidate(
            tuple(place[key(i)] for i in ids[:-1]),
            parts={"info_score": check_score(qid, "score_list", "info_score", score)},
        )
        for ids, score in zip(lists, scores)
    )
    return StoredQuery(str(qid), tuple(pool), candidates, {}, False)


def _entry(q: StoredQuery, fixed: bool) -> dict[str, Any]:
    candidates = []
    for c in q.candidates:
        ids, positions = [q.pool[i] for i in c.selection], list(c.selection)
        row: dict[str, Any] = (
            {"pointer": positions, "pointer_global": ids} if fixed else {"pointer": ids, "pointer_pos": positions}
        )
        row |= {NAMES[name][0]: value for name, value in c.parts.items()}
        extra = {
            "gen_method": c.method or None,
            "beam_rank": c.rank,
            "logprob_score": c.log_prob,
            "temperature": c.temperature,
            "vqa_pred_answer": c.answer,
            "vqa_eval_mode": c.judged_by or None,
        }
        row |= {name: value for name, value in extra.items() if value is not None} | {"eval_failed": c.failed}
        candidates.append(row)
    pool = {"candidate_pool_ids": list(q.pool)} if q.pool_given else {}
    return {"query": q.query, **pool, "pointer_candidates": candidates}


def _legacy_entry(q: StoredQuery) -> dict[str, Any]:
    score = lambda c: next((c.parts[n] for n in ("info_score", "accuracy_score", "correct") if n in c.parts), 0.0)  # noqa: E731
    scores = [score(c) for c in q.candidates]
    return {"id_list": [[*(q.pool[i] for i in c.selection), q.id] for c in q.candidates], "score_list": scores}

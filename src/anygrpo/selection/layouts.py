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
from anygrpo.selection import pointers
from anygrpo.selection.entries import queries_in
from anygrpo.selection.parts import NAMES, candidate_of, check_score, check_selection, left_out
from anygrpo.selection.stored_query import Candidate, StoredFile, StoredQuery
from anygrpo.selection.tables import key
from anygrpo.spoken import Text


def read_stored(path: str | Path, index: str = "auto") -> StoredFile:
    """Read and check a file.

    Args:
        index: "global" or "local" says what a bare `pointer` means; "auto" finds out.

    Raises:
        DataError: no such file, not JSON, a query given twice, a query in no known layout, ambiguous or impossible
            pointers, a score that is no number.
    """
    path = Path(path)
    table, passed_over = queries_in(path)
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
    notes = [*passed_over, *_named_otherwise(table), *_reading_notes(rows, readings, len(legacy))]
    notes += left_out(row for entry in others.values() for row in entry["pointer_candidates"])
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


def _named_otherwise(table: dict[str, Any]) -> list[str]:
    """Queries whose own query_id is another than the key that they lie under: the key counts, features too."""
    other = []
    for qid, entry in table.items():
        own = entry.get("query")
        said = own.get("query_id") if isinstance(own, dict) else None
        other += [(qid, said)] if said is not None and key(said) != key(qid) else []
    if not other:
        return []
    return [f"{len(other)} queries bear another query_id than their key, which counts: {other[0][0]} has {other[0][1]}"]


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
    for one in candidates:
        check_selection(qid, one.selection)
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

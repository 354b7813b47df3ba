"""Reading and writing files of stored candidates (rl_data), in all the layouts that exist.

pool    {qid: {query, candidate_pool_ids?, pointer_candidates: [{pointer: global ids, pointer_pos: positions, ...}]}}
fixed   the same with the meaning swapped: pointer: positions, pointer_global: global ids
legacy  {qid: {id_list: [[id, ..., qid], ...], score_list: [...]}}

A file whose pointers could be read both ways, with different results, is refused: a guess would train on noise.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from anygrpo.errors import DataError
from anygrpo.selection.stored_query import Candidate, StoredFile, StoredQuery

_PARTS = {
    "correct": "vqa_correct",
    "accuracy_score": "vqa_acc_score",
    "gt_prob": "vqa_gt_prob",
    "relevance": "vqa_rel_score",
    "beam_score": "beam_score",
}


def read_stored(path: str | Path, index: str = "auto") -> StoredFile:
    """Read and check a file.

    Args:
        index: "global" or "local" says what a bare `pointer` means; "auto" finds out.

    Raises:
        DataError: no such file, not JSON, mixed or unknown layouts, ambiguous or impossible pointers.
    """
    path = Path(path)
    if not path.is_file():
        raise DataError(f"no stored candidates at {path}", "anygrpo select generate writes such a file")
    try:
        table = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise DataError(f"{path} is not JSON: {error}") from None
    if not isinstance(table, dict) or not table:
        raise DataError(f"{path} holds no queries: expected an object of query id -> entry")
    kinds = {qid: _kind(qid, entry) for qid, entry in table.items()}
    if len(set(kinds.values())) > 1:
        first = {kind: qid for qid, kind in reversed(kinds.items())}
        raise DataError(
            f"{path} mixes layouts: " + ", ".join(f"{kind} (query {qid!r})" for kind, qid in sorted(first.items())),
            "split it into one file for each layout",
        )
    kind = next(iter(kinds.values()))
    if kind == "legacy":
        return StoredFile("legacy", "global", tuple(_legacy(qid, entry) for qid, entry in table.items()))
    meaning = {"pool": "global", "fixed": "local", "bare": index}[kind]
    if kind == "bare" and index == "auto":
        meaning = _meaning(path, table)
    layout = "fixed" if meaning == "local" else "pool"
    return StoredFile(layout, meaning, tuple(_query(qid, entry, meaning) for qid, entry in table.items()))


def write_stored(path: str | Path, queries: list[StoredQuery], layout: str = "pool") -> None:
    """Write queries in one of the layouts ("pool", "fixed", "legacy"; legacy keeps selections and scores alone)."""
    entry = _legacy_entry if layout == "legacy" else lambda q: _entry(q, fixed=layout == "fixed")
    table = {q.id: entry(q) for q in queries}
    Path(path).write_text(json.dumps(table, ensure_ascii=False, indent=1), encoding="utf-8")


def _kind(qid: str, entry: Any) -> str:
    if isinstance(entry, dict) and "id_list" in entry and "score_list" in entry:
        return "legacy"
    if not isinstance(entry, dict) or not isinstance(entry.get("pointer_candidates"), list):
        raise DataError(
            f"query {qid!r} is in no known layout: it has neither pointer_candidates nor id_list and score_list"
        )
    candidates = entry["pointer_candidates"]
    if any("pointer" not in c for c in candidates):
        raise DataError(f"query {qid!r}: a candidate without pointer")
    has = {name for name in ("pointer_pos", "pointer_global") for c in candidates if name in c}
    if has == {"pointer_pos", "pointer_global"}:
        if all(c["pointer"] == c.get("pointer_global") for c in candidates):
            return "pool"
        if all(c["pointer"] == c.get("pointer_pos") for c in candidates):
            return "fixed"
        raise DataError(f"query {qid!r}: pointer equals neither pointer_pos nor pointer_global")
    if has:
        return "pool" if "pointer_pos" in has else "fixed"
    return "bare"


def _meaning(path: Path, table: dict[str, Any]) -> str:
    """Whether bare pointers are ids or positions, from the pools; refused where both readings fit and differ."""
    fits_global = fits_local = True
    differ = False
    for entry in table.values():
        pool = entry.get("candidate_pool_ids")
        for pointer in (c["pointer"] for c in entry["pointer_candidates"]):
            if pool is None:
                fits_local = False
                continue
            is_global = all(i in pool for i in pointer)
            is_local = all(isinstance(i, int) and 0 <= i < len(pool) for i in pointer)
            fits_global, fits_local = fits_global and is_global, fits_local and is_local
            differ = differ or (is_global and is_local and [pool.index(i) for i in pointer] != list(pointer))
    if fits_global and fits_local and differ:
        raise DataError(
            f"{path} is ambiguous: every pointer is both an id in its pool and a position in it, with other meanings",
            'say which: index = "global" or index = "local" (--index for select inspect)',
        )
    if not fits_global and not fits_local:
        raise DataError(f"{path}: some pointer is neither an id in its query's pool nor a position in it")
    return "global" if fits_global else "local"


def _query(qid: str, entry: dict[str, Any], meaning: str) -> StoredQuery:
    raw = entry["pointer_candidates"]
    pool, given = entry.get("candidate_pool_ids"), "candidate_pool_ids" in entry
    if pool is None:
        ids = "pointer" if meaning == "global" else "pointer_global"
        if any(ids not in c for c in raw):
            raise DataError(f"query {qid!r} has positions, but neither candidate_pool_ids nor pointer_global")
        pool = list(dict.fromkeys(i for c in raw for i in c[ids]))
        selections = [tuple(pool.index(i) for i in c[ids]) for c in raw]
    else:
        selections = [_positions(qid, c, pool, meaning) for c in raw]
    candidates = tuple(_candidate(c, s) for c, s in zip(raw, selections))
    return StoredQuery(str(qid), tuple(pool), candidates, entry.get("query") or {}, given)


def _positions(qid: str, c: dict[str, Any], pool: list[Any], meaning: str) -> tuple[int, ...]:
    local = c["pointer"] if meaning == "local" else c.get("pointer_pos")
    ids = c["pointer"] if meaning == "global" else c.get("pointer_global")
    if local is not None:
        outside = [i for i in local if not isinstance(i, int) or not 0 <= i < len(pool)]
        if outside:
            raise DataError(f"query {qid!r}: position {outside[0]} is outside its pool of {len(pool)}")
        if ids is not None and [pool[i] for i in local] != list(ids):
            raise DataError(f"query {qid!r}: positions {list(local)} are {[pool[i] for i in local]}, not {list(ids)}")
        return tuple(local)
    missing = [i for i in ids or () if i not in pool]
    if missing:
        raise DataError(f"query {qid!r}: pointer {missing[0]!r} is outside its pool of {len(pool)}")
    return tuple(pool.index(i) for i in ids or ())


def _candidate(c: dict[str, Any], selection: tuple[int, ...]) -> Candidate:
    parts = {name: float(c[key]) for name, key in _PARTS.items() if c.get(key) is not None}
    return Candidate(
        selection,
        str(c.get("gen_method") or ""),
        parts,
        c.get("logprob_score"),
        c.get("temperature"),
        c.get("beam_rank"),
        c.get("vqa_pred_answer"),
        bool(c.get("eval_failed", False)),
    )


def _legacy(qid: str, entry: dict[str, Any]) -> StoredQuery:
    lists, scores = entry["id_list"], entry["score_list"]
    if len(lists) != len(scores):
        raise DataError(f"query {qid!r}: {len(lists)} selections, {len(scores)} scores")
    wrong = [ids for ids in lists if not ids or str(ids[-1]) != str(qid)]
    if wrong:
        raise DataError(f"query {qid!r}: id_list {wrong[0]} does not end with the query's own id")
    pool = list(dict.fromkeys(i for ids in lists for i in ids[:-1]))
    candidates = tuple(
        Candidate(tuple(pool.index(i) for i in ids[:-1]), parts={"accuracy_score": float(score)})
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
        row |= {_PARTS[name]: value for name, value in c.parts.items()}
        extra = {
            "gen_method": c.method or None,
            "beam_rank": c.rank,
            "logprob_score": c.log_prob,
            "temperature": c.temperature,
            "vqa_pred_answer": c.answer,
        }
        row |= {name: value for name, value in extra.items() if value is not None} | {"eval_failed": c.failed}
        candidates.append(row)
    pool = {"candidate_pool_ids": list(q.pool)} if q.pool_given else {}
    return {"query": q.query, **pool, "pointer_candidates": candidates}


def _legacy_entry(q: StoredQuery) -> dict[str, Any]:
    scores = [c.parts.get("accuracy_score", c.parts.get("correct", 0.0)) for c in q.candidates]
    return {"id_list": [[*(q.pool[i] for i in c.selection), q.id] for c in q.candidates], "score_list": scores}

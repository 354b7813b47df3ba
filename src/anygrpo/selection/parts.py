"""What a stored candidate was scored with: the names its writers use, and the values they may have."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from anygrpo.errors import DataError
from anygrpo.selection.stored_query import FAILURES, Candidate
from anygrpo.spoken import Text

NAMES: dict[str, tuple[str, ...]] = {
    "correct": ("vqa_correct", "correct"),
    "accuracy_score": ("vqa_acc_score", "acc_score"),
    "gt_prob": ("vqa_gt_prob", "gt_prob"),
    "relevance": ("vqa_rel_score", "rel_score"),
    "beam_score": ("beam_score",),
    "info_score": ("info_score", "InfoScore", "infoscore"),
    "score": ("score", "reward"),
}
"""Part -> names in files, the one that is written first."""
UNIT = ("accuracy_score", "gt_prob", "relevance")


def candidate_of(qid: str, row: dict[str, Any], selection: tuple[int, ...]) -> Candidate:
    """A row of `pointer_candidates` whose pointers are already positions.

    Raises:
        DataError: an item picked twice, or a score that is no number of its kind; the query and field are named.
    """
    check_selection(qid, selection)
    judged_by = str(row.get("vqa_eval_mode") or "")
    failed = _true(row.get("eval_failed")) or judged_by.lower() in FAILURES
    parts: dict[str, float] = {}
    for part, names in NAMES.items():
        name = next((n for n in names if row.get(n) is not None), None)
        if name is not None and not failed:
            parts[part] = check_score(qid, name, part, row[name])
    log_prob = _read(row.get("logprob_score"))
    if log_prob is None and row.get("logprob_score") is not None:
        said = row["logprob_score"]
        raise DataError(
            Text(
                f"query {qid!r}: logprob_score = {said!r} is no finite number",
                f"查询 {qid!r}：logprob_score = {said!r} 不是有限的数",
            ),
            Text("leave it out where it is not known", "不知道的请不要写"),
        )
    return Candidate(
        selection,
        str(row.get("gen_method") or ""),
        parts,
        log_prob,
        _read(row.get("temperature")),
        _read(row.get("beam_rank")),
        row.get("vqa_pred_answer"),
        failed,
        judged_by,
    )


def left_out(rows: Iterable[Any]) -> list[str]:
    """A sentence for each of temperature and beam_rank that is no number in some rows of `pointer_candidates`."""
    said: dict[str, list[Any]] = {"temperature": [], "beam_rank": []}
    for row in rows:
        for name, values in said.items():
            value = row.get(name) if isinstance(row, dict) else None
            if value is not None and _read(value) is None:
                values.append(value)
    return [
        f"{name} is no number in {len(values)} candidates ({str(values[0])[:40]!r}), and was left out there"
        for name, values in said.items()
        if values
    ]


def check_selection(qid: str, selection: tuple[int, ...]) -> None:
    """Raises: DataError: an item picked twice."""
    if len(set(selection)) < len(selection):
        raise DataError(
            Text(
                f"query {qid!r}: a candidate picks the same item twice ({selection})",
                f"查询 {qid!r}：一个候选两次选了同一项（{selection}）",
            )
        )


def _true(value: Any) -> bool:
    """A flag; "false", "no", "none" and "0" are what they say."""
    return (
        value.strip().lower() not in ("", "false", "no", "none", "null", "0") if isinstance(value, str) else bool(value)
    )


def check_score(qid: str, name: str, part: str, value: Any) -> float:
    """`value` as a float.

    Raises:
        DataError: a word, NaN, or a number outside what the part can be.
    """
    if isinstance(value, bool):
        value = int(value)
    if isinstance(value, str):
        raise DataError(
            Text(
                f"query {qid!r}: {name} = {value!r} is text, and a number is wanted",
                f"查询 {qid!r}：{name} = {value!r} 是文本，应为数",
            ),
            Text(f"write {_kind(part)} for it", f"请用 {_kind(part)} 表示"),
        )
    if not _number(value):
        raise DataError(
            Text(
                f"query {qid!r}: {name} = {value!r} is no finite number",
                f"查询 {qid!r}：{name} = {value!r} 不是有限的数",
            ),
            Text("leave out what could not be scored", "不能评分的请不要写"),
        )
    if part == "correct" and value not in (0, 1):
        raise DataError(
            Text(
                f"query {qid!r}: {name} = {value!r}, and 0 or 1 is wanted",
                f"查询 {qid!r}：{name} = {value!r}，应为 0 或 1",
            ),
            Text("graded scores are vqa_acc_score", "有等级的分数是 vqa_acc_score"),
        )
    if part in UNIT and not -1e-6 <= value <= 1 + 1e-6:
        raise DataError(
            Text(
                f"query {qid!r}: {name} = {value!r}, and a number from 0 to 1 is wanted",
                f"查询 {qid!r}：{name} = {value!r}，应为 0 到 1 的数",
            ),
            Text("scale it", "请缩放"),
        )
    return float(value)


def _read(value: Any) -> Any:
    """A finite number, from its text too; None for what is none."""
    if isinstance(value, str):
        try:
            value = int(value)
        except ValueError:
            try:
                value = float(value)
            except ValueError:
                return None
    return value if _number(value) else None


def _number(value: Any) -> bool:
    try:
        return isinstance(value, int | float) and math.isfinite(value)
    except OverflowError:  # an integer beyond all floats
        return False


def _kind(part: str) -> str:
    return "0 or 1" if part == "correct" else "a number from 0 to 1" if part in UNIT else "a number"

"""Of the rows that were read, those of training."""

from __future__ import annotations

from collections import Counter

from anygrpo.doctor.canonical import concept, names_outcome, step_of, words_of
from anygrpo.doctor.log import Row


def with_outcomes(rows: list[Row]) -> list[Row]:
    """Rows with anything in them that training measures; empty where no row has."""
    return [row for row in rows if any(names_outcome(key) for key in row)]


def same_kind(rows: list[Row]) -> list[Row]:
    """Of lines with different sets of names, those that share most names with the commonest set, and evaluations."""
    if not rows:
        return []
    signatures = Counter(frozenset(row) for row in rows)
    training = {s: c for s, c in signatures.items() if not all(k.startswith("eval_") or k == "step" for k in s)}
    if not training:
        return rows
    main = max(training, key=lambda s: (training[s] * sum(1 for k in s if names_outcome(k)), len(s)))
    kept: list[Row] = []
    for row in rows:
        own = set(row) - {"step"}
        held_out = all(k.startswith("eval_") for k in own)
        if (held_out or len(own & main) * 2 >= len(main - {"step"})) and (not kept or kept[-1] != row):
            kept.append(row)
    return kept


HELD_OUT = {"eval", "evals", "evaluation", "evaluations", "val", "valid", "validation", "test", "heldout", "held"}
FEW, TIMES_MORE = 3, 10
"""A shape with fewer rows of training than FEW gives way to one with TIMES_MORE of them."""


def of_training(row: Row) -> bool:
    """Whether a row measures training, and not only an evaluation."""
    return any(names_outcome(key) and not (concept(key) or ("",))[0].startswith("eval/") for key in row)


def chosen(shapes: list[tuple[str, list[Row]]]) -> tuple[str, list[Row]]:
    """Of the shapes that a log was read in, dearest first, the one that training is in.

    The first that has rows, unless it has next to none of training (a last dict, evaluations) and another many; then
    its evaluations go between the other's rows, where both count steps. Many rows alone decide nothing: rewards may
    print a line a sample.
    """
    there = [(name, rows) for name, rows in shapes if rows]
    if not there:
        return "console", []
    trained = [sum(map(of_training, rows)) for _, rows in there]
    first = next(
        (i for i, n in enumerate(trained) if n >= FEW or n * TIMES_MORE >= max(trained)), trained.index(max(trained))
    )
    name, rows = there[first]
    passed = [row for _, others in there[:first] for row in others if not of_training(row)]
    return name, between(rows, passed)


def between(rows: list[Row], evaluations: list[Row]) -> list[Row]:
    """Evaluations among the rows of training by step; left out where a step is missing or starts again."""
    steps = [row.get("step") for row in (*rows, *evaluations)]
    own = [x for x in steps[: len(rows)] if x is not None]
    if not evaluations or None in steps or own != sorted(own):
        return rows
    return sorted([*rows, *evaluations], key=lambda row: row["step"])


def main_list(lists: list[tuple[str, list[Row]]]) -> list[Row]:
    """Of a document's lists of rows the one of training: with steps, most metrics, most rows; the first of equals.

    A list of samples has a reward too, and is often the longest.
    """

    def weight(item: tuple[str, list[Row]]) -> tuple[bool, bool, bool, int, int]:
        name, rows = item
        found = with_outcomes(rows)
        names = {key for row in found[:200] for key in row if names_outcome(key)}
        counted = bool(found) and all(step_of(row) is not None for row in found[:200])
        return bool(found), not HELD_OUT & set(words_of(name)), counted, len(names), len(found)

    return max(lists, key=weight)[1] if lists else []

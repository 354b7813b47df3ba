"""Of the rows that were read, those of training."""

from __future__ import annotations

from collections import Counter

from anygrpo.doctor.canonical import names_outcome
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

"""Whether rows are a log of training, and which of two readings of one text says more."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

from anygrpo.doctor.canonical import concept, names_outcome, step_of
from anygrpo.doctor.log import Row

FEWEST = 4
"""Lines that make a shape, and rows that make a log."""


def measured(rows: list[Row]) -> set[str]:
    """Our names of what most rows measure, without evaluations and parts of the reward."""
    counts = Counter(
        found[0] for row in rows for found in {concept(key) for key in row if names_outcome(key)} if found is not None
    )
    return {
        name
        for name, n in counts.items()
        if n * 2 >= max(counts.values()) and not name.startswith(("eval/", "reward/comp"))
    }


def counted(rows: list[Row]) -> bool:
    """Whether rows have steps that climb."""
    steps = [x for row in rows if (x := step_of(row)) is not None]
    rising = sum(b > a for a, b in pairwise(steps))
    return len(steps) * 2 >= len(rows) and len(steps) > 1 and rising * 2 >= len(steps) - 1


def proved(rows: list[Row]) -> bool:
    """Whether rows are a log: several metrics of training in each, or one under steps that climb."""
    if len(rows) < FEWEST or not (names := measured(rows)):
        return False
    return counted(rows) or (len(names) > 1 and not answers(rows))


def answers(rows: list[Row]) -> bool:
    """Whether rows that nothing counts are single answers: all their rewards are one of two values."""
    rewards = [x for row in rows for key, x in row.items() if (c := concept(key)) and c[0] == "reward/mean"]
    return len(rewards) >= FEWEST and len(set(rewards)) == 2


def better(mined: list[Row], read: list[Row]) -> bool:
    """Whether mined rows say more than those of a reader: a reward that it lacks, or steps, and nothing less."""
    ours, theirs = measured(mined), measured(read)
    if not ours:
        return False
    if len(read) < FEWEST or not theirs:
        return len(mined) >= FEWEST and (len(mined) > len(read) or not theirs)
    if cells(mined) < 0.9 * cells(read):
        return False
    if ("reward/mean" in ours) != ("reward/mean" in theirs):
        return "reward/mean" in ours and counted(mined)
    return counted(mined) and not counted(read) and ours >= theirs


def cells(rows: list[Row]) -> int:
    """Numbers of training in rows."""
    return sum(names_outcome(key) for row in rows for key in row)


def satisfying(rows: list[Row], printed: bool) -> bool:
    """Whether a reading needs no other: a reward in rows that count, or in printed dicts among other metrics."""
    found = measured(rows) if len(rows) >= FEWEST else set[str]()
    return "reward/mean" in found and ((printed and len(found) > 2) or counted(rows))

"""Two distances of one policy: from the one that sampled, and from its start. What they say together."""

from __future__ import annotations

from itertools import takewhile

from anygrpo.doctor.columns import Columns
from anygrpo.doctor.series import median, paired

MATERIAL = 0.01
"""KL to the policy that sampled, per decision, that neither rounding nor the updates of a sound rollout reach."""


def both(run: Columns) -> list[tuple[int, float, float]]:
    """(row, KL to the policy that sampled, KL to the start) where both were logged; empty without either."""
    own, start = run.comparable("kl/behaviour"), run.comparable("kl/reference")
    return paired(own, start) if own and start else []


def leads_nowhere(run: Columns) -> bool:
    """Whether the distance from the sampler is there from the first row, and no way that the policy went.

    The first rollout is drawn by the start. What its updates move, the KL to the sampler and the KL to the start both
    measure in the first row, so that they agree there; or one of them was measured before or after the updates, and
    then the KL to the start has grown by as much in the second row, and by several times as much in the fifth. Where
    neither holds, samples are scored by something else than what drew them.
    """
    rows = both(run)[:5]
    if len(rows) < 5 or rows[0][1] <= MATERIAL or median(own for _, own, _ in rows) < rows[0][1] / 2:
        return False
    _, own, start = rows[0]
    return not 1 / 1.6 <= start / own <= 1.6 and all(later < 3 * own for _, _, later in rows[1:])


def sampled_by_the_start(run: Columns, least: int = 8) -> list[int]:
    """Rows from the second on in which the KL to the sampler is the KL to the start, while both grow fourfold.

    Each within a quarter of the other. Empty where there are fewer than `least`: then the sampler had newer weights.
    """
    rows = both(run)
    if len(rows) < least + 1 or rows[0][1] > rows[1][1] / 2:
        return []
    held = list(takewhile(lambda row: row[2] > 0 and 0.75 <= row[1] / row[2] <= 1.25, rows[1:]))
    top = max((start for _, _, start in held), default=0.0)
    grown = top > 4 * rows[1][2] and top > MATERIAL / 2
    return [r for r, _, _ in held] if len(held) >= least and grown else []

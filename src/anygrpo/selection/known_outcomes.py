"""What a file of stored candidates says of selections, and what it cannot say.

A selection that the file does not hold is unknown. Its outcome is never filled in: accuracies are over what is judged,
with their n; bounds say what all of them can amount to; two policies are compared where both are judged.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from anygrpo.selection.paired import Paired, paired
from anygrpo.spoken import say


@dataclass(frozen=True)
class KnownOutcomes:
    """Outcomes in [0, 1] of n queries, some unknown.

    Attributes:
        known: queries judged. mean: over those (NaN: none). low, high: mean over all, were every unknown one wrong, or
            right.
    """

    n: int
    known: int
    mean: float
    low: float
    high: float

    @classmethod
    def of(cls, outcomes: Tensor) -> Self:
        """Of outcomes [n] in [0, 1]; NaN: unknown."""
        known = torch.isfinite(outcomes)
        n, k = len(outcomes), int(known.sum())
        right = float(outcomes[known].sum())
        return cls(n, k, right / k if k else float("nan"), right / max(n, 1), (right + n - k) / max(n, 1))

    @property
    def sentence(self) -> str:
        if self.known == self.n:
            return f"{self.mean:.3f}"
        if not self.known:
            return say(f"unknown (0 of {self.n} judged)", f"未知（{self.n} 个都没有评判）")
        return say(
            f"{self.mean:.3f} ({self.known} of {self.n} judged; over all {self.low:.3f} to {self.high:.3f})",
            f"{self.mean:.3f}（{self.n} 个中评判了 {self.known} 个；全部的范围 {self.low:.3f} 到 {self.high:.3f}）",
        )


def paired_where_known(a: Tensor, b: Tensor) -> Paired | None:
    """a - b [n] on the queries where both are judged; None where there are none."""
    both = torch.isfinite(a) & torch.isfinite(b)
    return paired(a[both], b[both]) if both.any() else None


def difference_bounds(a: Tensor, b: Tensor) -> tuple[float, float]:
    """Least and largest mean of a - b over all queries [n]: each unknown outcome as bad, or as good, as it can be.
    Where both are unknown and of the same selection they are equal; that is for the caller to fill in."""
    low = torch.nan_to_num(a, nan=0.0) - torch.nan_to_num(b, nan=1.0)
    high = torch.nan_to_num(a, nan=1.0) - torch.nan_to_num(b, nan=0.0)
    return float(low.double().mean()), float(high.double().mean())


def judged_row(correct: Tensor, start: Tensor, least: int) -> dict[str, float]:
    """Metrics of held-out picks [n] (NaN: unknown), with those of the start policy on the same queries.

    Args:
        least: judged queries from which on the accuracy may decide what is best.
    """
    found = KnownOutcomes.of(correct)
    row = {
        "eval/in_support": found.known / max(1, found.n),
        "eval/judged": float(found.known),
        "eval/accuracy_low": found.low,
        "eval/accuracy_high": found.high,
        "eval/decides": float(found.known >= least),
    }
    if found.known:
        row["eval/accuracy"] = found.mean
    both = torch.isfinite(correct) & torch.isfinite(start)
    if both.any():
        row["eval/gain_on_support"] = float((correct - start)[both].mean())
        row["eval/gain_n"] = float(both.sum())
    return row

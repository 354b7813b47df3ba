"""Value of a policy from logged selections: by importance weights where these exist, and on the logged support alone.

Letters: r rewards of logged selections a, p = pi(a) the policy's probability, m = mu(a) the logged one.

    self-normalised  sum (p/m) r / sum (p/m)                                  (Swaminathan and Joachims 2015)
    doubly robust    mean over queries of q + mean (p/m)(r - q), q a baseline (Dudik, Langford and Li 2011)
    on support       sum p r / sum p over a query's stored selections: no propensities, and no claim beyond them

Beams and retrieved selections were not drawn and have no m: they are in the last row alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from anygrpo.selection.known_outcomes import KnownOutcomes
from anygrpo.selection.paired import paired
from anygrpo.selection.policy import SelectorPolicy
from anygrpo.spoken import say

_ENOUGH_ESS = 30.0


@dataclass(frozen=True)
class Estimate:
    """A value, its standard error over n queries, and the effective number of logged selections behind it."""

    value: float
    se: float
    n: int
    ess: float

    @property
    def verdict(self) -> str:
        if self.ess < _ENOUGH_ESS:
            return say(
                f"not usable: the weights amount to {self.ess:.1f} logged selections (at least {_ENOUGH_ESS:.0f})",
                f"不可用：权重只相当于 {self.ess:.1f} 个记录的选择（至少 {_ENOUGH_ESS:.0f} 个）",
            )
        return say(
            f"{self.value:.3f} +- {self.se:.3f} ({self.n} queries, effective size {self.ess:.0f})",
            f"{self.value:.3f} ± {self.se:.3f}（{self.n} 个查询，有效样本数 {self.ess:.0f}）",
        )


def self_normalised(log_pi: list[list[float]], log_mu: list[list[float]], rewards: list[list[float]]) -> Estimate:
    """Of ragged rows (a query each) of logged selections; the error by the delta method over queries."""
    weights = _weights(log_pi, log_mu)
    total, top = _sums(weights), _sums([w * torch.tensor(r) for w, r in zip(weights, rewards)])
    value = float(top.sum() / total.sum())
    residual = (top - value * total) / total.mean()
    return Estimate(value, float(residual.std(correction=1)) / math.sqrt(len(total)), len(total), _ess(weights))


def doubly_robust(log_pi: list[list[float]], log_mu: list[list[float]], rewards: list[list[float]]) -> Estimate:
    """The baseline of a selection is the mean reward of the query's *other* logged selections (of all other queries'
    where it is alone), so that it does not know the reward it corrects."""
    weights = _weights(log_pi, log_mu)
    every = torch.tensor([x for row in rewards for x in row], dtype=torch.float64)
    values = []
    for w, row in zip(weights, rewards):
        r = torch.tensor(row, dtype=torch.float64)
        others = (r.sum() - r) / (len(r) - 1) if len(r) > 1 else (every.sum() - r) / max(1, len(every) - 1)
        values.append(float((others + w * (r - others)).mean()))
    found = torch.tensor(values, dtype=torch.float64)
    se = float(found.std(correction=1)) / math.sqrt(len(found)) if len(found) > 1 else math.inf
    return Estimate(float(found.mean()), se, len(found), _ess(weights))


def _weights(log_pi: list[list[float]], log_mu: list[list[float]]) -> list[Tensor]:
    pairs = zip(log_pi, log_mu)
    return [(torch.tensor(p, dtype=torch.float64) - torch.tensor(m, dtype=torch.float64)).exp() for p, m in pairs]


def _sums(rows: list[Tensor]) -> Tensor:
    return torch.stack([row.double().sum() for row in rows])


def _ess(weights: list[Tensor]) -> float:
    every = torch.cat(weights)
    return float(every.sum() ** 2 / every.square().sum()) if float(every.sum()) > 0 else 0.0


def on_support(log_pi: list[list[float]], rewards: list[list[float]]) -> tuple[Tensor, Tensor]:
    """[n] the policy's probability of a query's stored selections, and [n] its mean reward when it makes one."""
    coverage, value = [], []
    for p, r in zip(log_pi, rewards):
        weight = torch.tensor(p, dtype=torch.float64).exp()
        coverage.append(float(weight.sum()))
        value.append(float((weight * torch.tensor(r)).sum() / weight.sum()) if coverage[-1] > 0 else math.nan)
    return torch.tensor(coverage), torch.tensor(value)


def offline_report(policy: SelectorPolicy, task: Any, prompts: list[Any]) -> dict[str, Any] | None:
    """What a file's candidates say of a policy and of its reference (the start), on the given queries; None for tasks
    that judge any selection."""
    if not hasattr(task, "lengths") or task.live is not None:
        return None
    now = _logged(policy, task, prompts)
    with policy.reference():
        before = _logged(policy, task, prompts)
    coverage, value = on_support(now.log_pi, now.rewards)
    start_coverage, start = on_support(before.log_pi, before.rewards)
    report: dict[str, Any] = {
        "coverage": float(coverage.mean()),
        "coverage of the start": float(start_coverage.mean()),
        "value on support": _told(KnownOutcomes.of(value)),
        "value of the start on support": _told(KnownOutcomes.of(start)),
    }
    both = torch.isfinite(value) & torch.isfinite(start)
    if both.any():
        report["policy - start on support"] = paired(value[both], start[both]).sentence
    drawn = [i for i, row in enumerate(now.log_mu) if any(m is not None for m in row)]
    if len(drawn) > 1:
        rows = [_drawn(now, i) for i in drawn]
        arguments = ([r[0] for r in rows], [r[1] for r in rows], [r[2] for r in rows])
        report["self-normalised"] = self_normalised(*arguments).verdict
        report["doubly robust"] = doubly_robust(*arguments).verdict
        report["caution"] = say(
            "a sample that repeats a beam is stored as the beam: likely selections are under-counted",
            "与束搜索相同的采样按束搜索存储：可能性大的选择被少计",
        )
    return report


@dataclass(frozen=True)
class _Logged:
    """Ragged rows, a query each: the policy's log-probabilities of stored selections, the logged ones, the rewards."""

    log_pi: list[list[float]]
    log_mu: list[list[float | None]]
    rewards: list[list[float]]


def _logged(policy: SelectorPolicy, task: Any, prompts: list[Any]) -> _Logged:
    queries = [task.by_id[p["id"]] for p in prompts]
    stored = task.stored(prompts)
    first = [_first_of_each(row) for row in stored.actions]
    log_pi = policy.log_probs_of(prompts, stored.actions)
    pick = lambda rows: [[row[i] for i in keep] for row, keep in zip(rows, first)]  # noqa: E731
    mu = [[c.propensity for c in q.candidates] for q in queries]
    return _Logged(pick(log_pi), pick(mu), pick(stored.rewards or []))


def _first_of_each(actions: list[Any]) -> list[int]:
    seen: dict[Any, int] = {}
    for i, action in enumerate(actions):
        seen.setdefault(tuple(action), i)
    return list(seen.values())


def _drawn(logged: _Logged, i: int) -> tuple[list[float], list[float], list[float]]:
    rows = [(p, m, r) for p, m, r in zip(logged.log_pi[i], logged.log_mu[i], logged.rewards[i]) if m is not None]
    return [p for p, _, _ in rows], [m for _, m, _ in rows], [r for _, _, r in rows]


def _told(found: KnownOutcomes) -> str:
    n, known, mean = found.n, found.known, f"{found.mean:.3f}"
    return say(f"{mean} ({known} of {n} queries)", f"{mean}（{n} 个查询中的 {known} 个）")

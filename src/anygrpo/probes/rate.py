"""The learning-rate finder: one update at each of several rates from the same weights, and how far each one moves."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch

from anygrpo.core.probe_outcome import Outcome
from anygrpo.core.rollout import Batch, Rollout
from anygrpo.probes.subject import Subject
from anygrpo.spoken import Text
from anygrpo.train.batches import Prepared, weigh
from anygrpo.train.stages import at

RATES = tuple(1e-6 * 10 ** (5 * i / 7) for i in range(8))
"""1e-6 to 1e-1, a factor of 5.2 apart."""
TARGET = 1e-3
"""Default KL per decision that one update may move."""
_HELD_OUT = 16
_TOO_FAR, _FAR = 0.5, 0.1
"""KL of one update, per decision, above which a rate is called destructive, and large."""
_VISIBLE, _NOTHING = 1e-3, 1e-5
"""KL of the whole run, were every update to pull the same way, below which nothing can be seen, and nothing at all."""
_ROUNDING = 1e-12
"""KL that float32's rounding shows."""


@dataclass(frozen=True)
class Moved:
    """What one update at `rate` did: mean KL per decision, mean |ratio - 1|, largest |log-ratio|."""

    rate: float
    kl: float
    ratio: float
    log_ratio: float

    def as_row(self) -> dict[str, Any]:
        return {"rate": self.rate, "kl": self.kl, "ratio_change": self.ratio, "log_ratio_abs_max": self.log_ratio}


def find_rate(subject: Subject, target: float = TARGET) -> Outcome:
    """Recommends the rate whose single update moves the policy by `target` (KL per decision, on held-out prompts)."""
    batch, made_up = subject.batch, False
    if not len(batch) or _no_gradient(subject, batch):
        batch, made_up = subject.preference, True
    held_out = _held_out(subject)
    table = measure(subject, batch, held_out, sorted({*RATES, subject.rate} - {0.0}))
    best = rate_for(table, target)
    if best is None:
        text = Text(
            "no rate up to {highest:g} moves the policy at all: no gradient reaches it",
            "直到 {highest:g} 的学习率都不能移动策略：没有梯度到达",
        )
        return Outcome(
            "learning_rate", "serious", text, numbers={"highest": table[-1].rate}, rows=[m.as_row() for m in table]
        )
    return _verdict(subject, table, best, target, made_up)


def _verdict(subject: Subject, table: list[Moved], best: float, target: float, made_up: bool) -> Outcome:
    here = next((m for m in table if m.rate == subject.rate), Moved(0.0, 0.0, 0.0, 0.0))
    rounding = floor(table)
    kl = max(here.kl - rounding, 0.0)
    updates = planned_updates(subject)
    reach = kl * updates**2
    numbers: dict[str, Any] = {
        "planned": subject.rate, "recommended": best, "target": target, "kl": kl, "log_ratio": here.log_ratio,
        "updates": updates, "reach": reach, "made_up_advantages": made_up, "rounding": rounding,
        "needed_aligned": math.ceil(math.sqrt(0.01 / kl)) if kl > 0 else math.inf,
        "needed_random": math.ceil(0.01 / kl) if kl > 0 else math.inf,
    }  # fmt: skip
    rows = [m.as_row() for m in table]
    cure = Text(
        "optimizer.learning_rate = {recommended:.1e} moves {target:g} per update",
        "optimizer.learning_rate = {recommended:.1e} 每次更新移动 {target:g}",
    )
    if kl > _FAR or here.log_ratio > 5:
        text = Text(
            "one update at {planned:.1e} moves the policy by KL {kl:.2g} (largest log-ratio {log_ratio:.2g}): too far",
            "学习率 {planned:.1e} 的一次更新使策略移动 KL {kl:.2g}（最大对数概率比 {log_ratio:.2g}）：过大",
        )
        return Outcome("learning_rate", "serious" if kl > _TOO_FAR else "warning", text, cure, numbers, rows)
    if reach < _VISIBLE:
        text = Text(
            "at {planned:.1e} the {updates:.0f} planned updates reach KL {reach:.1e} even if all pull the same way: "
            "the policy cannot change visibly",
            "学习率 {planned:.1e} 时，计划的 {updates:.0f} 次更新即使方向一致也只达 KL {reach:.1e}：策略看不出变化",
        )
        return Outcome("learning_rate", "serious" if reach < _NOTHING else "warning", text, cure, numbers, rows)
    text = Text(
        "one update at {planned:.1e} moves KL {kl:.1e}; KL 0.01 takes {needed_aligned} (aligned) to {needed_random} "
        "(random) of {updates:.0f} planned updates; {recommended:.1e} would move {target:g} per update",
        "学习率 {planned:.1e} 的一次更新移动 KL {kl:.1e}；达到 KL 0.01 需 {needed_aligned}（同向）至 "
        "{needed_random}（随机）次，计划 {updates:.0f} 次；{recommended:.1e} 每次移动 {target:g}",
    )
    return Outcome("learning_rate", "ok", text, numbers=numbers, rows=rows)


def measure(subject: Subject, batch: Batch, held_out: Batch, rates: list[float]) -> list[Moved]:
    """One update from the present weights at each rate; the weights come back bit for bit after each."""
    table: list[Moved] = []
    with subject.untouched() as back:
        before = subject.score(held_out)
        for rate in rates:
            updater = subject.updater()
            subject.accumulate(updater, batch)
            updater.step(rate, measure=False)
            change = (subject.score(held_out) - before)[held_out.mask]
            back()
            ratio = torch.expm1(change)
            table.append(
                Moved(rate, float((ratio - change).mean()), float(ratio.abs().mean()), float(change.abs().max()))
            )
    return table


def rate_for(table: list[Moved], target: float) -> float | None:
    """The rate that moves `target`: between two measured rates by a line in log-log, outside by KL ~ rate^2.

    None where no rate moves anything. What rounding alone moves (`floor`) is taken off; rates at the floor are not
    used.
    """
    rounding = floor(table)
    points = [
        (math.log(m.rate), math.log(m.kl - rounding))
        for m in table
        if math.isfinite(m.kl) and m.kl > max(2 * rounding, _ROUNDING)
    ]
    if not points:
        return None
    goal = math.log(target)
    for (r0, k0), (r1, k1) in pairwise(points):
        if k0 <= goal <= k1:
            return math.exp(r0 + (goal - k0) / max(k1 - k0, 1e-9) * (r1 - r0))
    rate, kl = points[0] if goal < points[0][1] else points[-1]
    return math.exp(rate + (goal - kl) / 2)


def floor(table: list[Moved]) -> float:
    """The KL that rounding alone shows: the largest of the first rates, as long as KL does not grow with the rate.

    KL grows with the rate's square; where it grows less than the rate itself, nothing moves but rounding. In bfloat16
    any change of the weights, however small, rounds activations another way: 2e-3 nats for a small language model.
    """
    flat = [0.0]
    for m0, m1 in pairwise(m for m in table if math.isfinite(m.kl)):
        if m1.kl > max(m0.kl, _ROUNDING) * m1.rate / m0.rate:
            break
        flat += [m0.kl, m1.kl]
    return max(flat)


def planned_updates(subject: Subject) -> float:
    """Updates of the stage, each counted by its rate's share of the largest one (warm-up and decay count for less)."""
    planned, a = subject.planned, subject.stage.algorithm
    rates = [at(subject.stage.optimizer.learning_rate, step, planned.steps) or 0.0 for step in range(planned.steps)]
    largest = max(rates, default=0.0)
    return sum(r / largest for r in rates) * a.epochs * a.minibatches if largest else 0.0


def _no_gradient(subject: Subject, batch: Batch) -> bool:
    """Whether the stage's own loss has no gradient at the start (a KL alone has none there)."""
    with subject.untouched():
        updater = subject.updater()
        subject.accumulate(updater, batch)
        return not any(p.grad is not None and bool(p.grad.abs().max() > 0) for p in updater.parameters)


def _held_out(subject: Subject) -> Batch:
    """Fresh samples of held-out prompts, or the affordable training rows where there are none to sample."""
    prompts = subject.task.held_out()[: min(_HELD_OUT, subject.small.shape[0])]
    if not subject.samples_itself or not prompts:
        return subject.everything()
    with torch.no_grad():
        group = min(4, subject.stage.algorithm.typical_group)
        rollout: Rollout = subject.policy.sample(prompts, group, subject.run.seed(0, salt=77))
    mask = rollout.mask & rollout.valid[..., None]
    return weigh(Prepared(rollout, torch.zeros_like(rollout.rewards), mask, {}), subject.stage)

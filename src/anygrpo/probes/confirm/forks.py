"""The same steps taken otherwise: a fork at another rate (or KL weight, or without a bonus), with the same seeds."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from anygrpo.doctor import Finding
from anygrpo.doctor.series import Series, mean
from anygrpo.probes.confirm.ground import Ground, Trial, Verdict
from anygrpo.probes.rate import find_rate
from anygrpo.recipe.recipe import Recipe, number
from anygrpo.spoken import Text
from anygrpo.train import checkpoint

STEPS = 20
"""Steps of a fork where the trouble shows from the start; else as many as reach it."""
_FEWEST = 6


@dataclass(frozen=True)
class Plan:
    """What the fork changes, and which measure must move which way for the suspicion to hold.

    Attributes:
        rate, beta: factors on the schedules. `rate` None: five times, or what moves a visible KL an update if more.
        without: weight of the algorithm that is set to 0.
        measure: a metric; `sign` is the direction in which the fork must part from the log.
        keeps: the reward must not be lower for it.
        same: the suspicion holds where the fork does *not* part.
        clip: the clip range to take instead of the recipe's.
    """

    rate: float | None = 1.0
    beta: float = 1.0
    without: str = ""
    measure: str = "reward/mean"
    sign: int = 1
    keeps: bool = False
    same: bool = False
    clip: float = 0.0


_SLOWER, _FASTER = Plan(0.2), Plan(None)
PLANS: dict[str, Plan] = {
    "lr_too_small": _FASTER, "no_learning": Plan(None, same=True), "clip_idle": Plan(None, measure="log_ratio/abs_max",
                                                                                  same=True),
    "sup_loss_flat": Plan(None, measure="loss/supervised", sign=-1),
    "kl_dominates": Plan(beta=0.1), "entropy_explosion": Plan(without="entropy_coef"),
    "consistency_rising": Plan(without="lambda_consistency"),
    "kl_blowup": Plan(0.2, measure="kl/reference", sign=-1, keeps=True),
    "clip_saturated": Plan(0.2, measure="clip/fraction", sign=-1, keeps=True),
    "entropy_collapse": Plan(0.2, measure="entropy", keeps=True),
}  # fmt: skip
"""Rule -> fork; any other: a fifth of the rate must earn more."""


def two_rates(ground: Ground, rule: str, finding: Finding | None) -> Trial:
    """The log's own rows are the arm at the present rate; the fork takes the same steps with the same seeds."""
    if rule == "lr_exhausted":
        return _longer(ground)
    plan = _plan(ground, rule)
    at, begin, steps = _where(ground, finding, plan)
    if steps < _FEWEST:
        return _too_dear(ground, steps)
    rate = _faster(ground, at) if plan.rate is None else plan.rate
    recipe = _changed(ground, plan)
    rows = ground.fork(at, steps, rate, plan.beta, recipe)
    ours, theirs = _arm(ground, plan.measure, begin, steps), _series(plan.measure, rows)
    if ours is None or theirs is None:
        return Trial("undecided", Text("{name} is not logged", "没有记录 {name}"), {"name": plan.measure})
    other = _said(plan, rate)
    numbers = _gap(ours, theirs) | {
        "name": plan.measure, "steps": steps, "begin": begin, "what": other.en, "was": other.zh,
    }  # fmt: skip
    verdict = _verdict(plan, numbers, ours)
    if plan.keeps and verdict == "confirmed" and _lost_reward(ground, rows, begin, steps):
        verdict = "refuted"
    text = Text(
        "{name} over the last half of {steps} steps from step {begin}: {a:.4g} as logged, {b:.4g} with {what}"
        " (difference {gap:+.3g}, standard error {error:.2g})",
        "从第 {begin} 步起 {steps} 步的后半程 {name}：日志为 {a:.4g}，{was}时为 {b:.4g}"
        "（差 {gap:+.3g}，标准误 {error:.2g}）",
    )
    return Trial(verdict, text, numbers)


def _plan(ground: Ground, rule: str) -> Plan:
    """The fork of a rule; where the recipe itself holds an odd weight, the fork without it."""
    a = ground.recipe.algorithm
    if rule == "entropy_collapse" and number(a.entropy_coef) < 0:
        return Plan(without="entropy_coef", measure="entropy", keeps=True)
    if rule == "clip_saturated" and isinstance(a.clip_high, float) and a.clip_high < 1e-3:
        return Plan(clip=0.2, measure="clip/fraction", sign=-1, keeps=True)
    return PLANS.get(rule, _SLOWER)


def _changed(ground: Ground, plan: Plan) -> Recipe | None:
    if plan.without:
        return ground.changed("algorithm", **{plan.without: 0.0})
    return ground.changed("algorithm", clip_low=plan.clip, clip_high=plan.clip) if plan.clip else None


def _said(plan: Plan, rate: float) -> Text:
    if plan.clip:
        return Text(f"a clip range of {plan.clip:g}", f"裁剪范围取 {plan.clip:g} ")
    if plan.without:
        return Text(f"{plan.without} 0", f"{plan.without} 为 0 ")
    if plan.beta != 1:
        return Text(f"{plan.beta:g} x beta", f"beta 乘 {plan.beta:g} ")
    return Text(f"{rate:.3g} x the learning rate", f"学习率乘 {rate:.3g} ")


def _where(ground: Ground, finding: Finding | None, plan: Plan) -> tuple[Path | None, int, int]:
    """(checkpoint or None for the start, its step, steps to take): from before the trouble to past its begin."""
    total = int(max(ground.log.steps.values(), default=0)) + 1
    afford = int(ground.seconds / ground.seconds_per_step())
    trouble = ground.first_row(finding) if plan.rate not in (None, 1.0) or plan.keeps else 0.0
    at = ground.before(trouble) if trouble > 0 else None
    begin = checkpoint.step_of(at) if at is not None else 0
    if total - begin < _FEWEST:
        at, begin = None, 0
    wanted = max(STEPS, math.ceil(trouble) - begin + STEPS)
    return at, begin, min(wanted, afford, total - begin)


def _too_dear(ground: Ground, steps: int) -> Trial:
    each = ground.seconds_per_step()
    numbers = {"steps": steps, "each": each, "need": math.ceil(each * STEPS), "budget": ground.seconds}
    text = Text(
        "a step takes {each:.3g} s: {budget:g} s allow {steps}, {need} s are needed (--budget)",
        "每步 {each:.3g} 秒：{budget:g} 秒只够 {steps} 步，需要 {need} 秒（--budget）",
    )
    return Trial("undecided", text, numbers)


def _faster(ground: Ground, at: Path | None) -> float:
    """Five times the rate; more where the rate that moves a KL of 1e-3 an update is further away."""
    with ground.subject(at) as subject:
        best, now = find_rate(subject).numbers.get("recommended"), subject.rate
    return max(5.0, float(best) / now) if best and now > 0 else 5.0


def _longer(ground: Ground) -> Trial:
    """The run goes on from its end at half of its largest rate: does the reward rise beyond what it had?"""
    steps = min(STEPS, int(ground.seconds / ground.seconds_per_step()))
    if ground.newest is None or steps < _FEWEST:
        return _too_dear(ground, steps)
    rate = number(ground.recipe.optimizer.learning_rate) / 2
    end = checkpoint.step_of(ground.newest)
    recipe = ground.changed("optimizer", learning_rate=rate)
    recipe = recipe.model_copy(update={"training": recipe.training.model_copy(update={"steps": end + steps})})
    rows, ours = ground.fork(ground.newest, steps, recipe=recipe), _arm(ground, "reward/mean", end - steps, steps)
    theirs = _series("reward/mean", rows)
    if ours is None or theirs is None:
        return Trial("undecided", Text("no reward is logged there", "那里没有记录奖励"))
    numbers = _gap(ours, theirs) | {"steps": steps, "rate": rate}
    text = Text(
        "{steps} more steps at {rate:.2g}: reward {b:.4g}, {a:.4g} at the end of the log (standard error {error:.2g})",
        "以 {rate:.2g} 再走 {steps} 步：奖励 {b:.4g}，日志结尾为 {a:.4g}（标准误 {error:.2g}）",
    )
    return Trial(_verdict(_FASTER, numbers, ours), text, numbers)


def _arm(ground: Ground, name: str, begin: int, steps: int) -> Series | None:
    """The log's rows of the same steps."""
    run = ground.log
    series = run.get(name)
    if series is None:
        return None
    kept = [x for r, x in zip(series.rows, series.values) if begin <= run.steps.get(r, -1.0) < begin + steps]
    return Series(name, name, tuple(range(1, len(kept) + 1)), tuple(kept)) if len(kept) >= _FEWEST else None


def _series(name: str, rows: list[dict[str, Any]]) -> Series | None:
    parts = ("clip/low", "clip/high") if name == "clip/fraction" else (name,)
    values = [sum(float(row[p]) for p in parts) for row in rows if all(p in row for p in parts)]
    values = [x for x in values if math.isfinite(x)]
    return Series(name, name, tuple(range(1, len(values) + 1)), tuple(values)) if len(values) >= 3 else None


def _gap(a: Series, b: Series) -> dict[str, float]:
    """Means of the last halves, their difference and its standard error, rows that resemble each other counted once."""
    first, second = mean(a.tail(0.5)), mean(b.tail(0.5))
    errors = [s.noise**2 * s.inertia / max(1, len(s) / 2) for s in (a, b)]
    return {"a": first, "b": second, "gap": second - first, "error": math.sqrt(sum(errors))}


def _verdict(plan: Plan, found: dict[str, Any], ours: Series) -> Verdict:
    """Parted the way that was said by over two standard errors, or not although that could have been seen."""
    gap, error = plan.sign * found["gap"], found["error"]
    parted = gap > 2 * error and gap > 1e-9
    wanted = max(0.25 * abs(found["a"]), 0.75 * ours.noise)
    could = 2.8 * error <= wanted or gap < -2 * error
    if plan.same:
        return "refuted" if parted else "confirmed" if could or error == 0 else "undecided"
    return "confirmed" if parted else "refuted" if could else "undecided"


def _lost_reward(ground: Ground, rows: list[dict[str, Any]], begin: int, steps: int) -> bool:
    ours, theirs = _arm(ground, "reward/mean", begin, steps), _series("reward/mean", rows)
    if ours is None or theirs is None:
        return False
    found = _gap(ours, theirs)
    return found["gap"] < -2 * found["error"]

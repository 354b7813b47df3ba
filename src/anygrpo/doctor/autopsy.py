"""What a handful of logged numbers proves about a run: group size, clamp, beta, live groups, and what they cannot say.

Two public cases are the tests: a motion run whose mean ratio was e^20, and a selection run whose advantages had std
.0063 over 640 queries. Every step shows its arithmetic.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from anygrpo.doctor.findings import Fact, Finding
from anygrpo.doctor.measured import Measured, accept, float32_step, simplest
from anygrpo.doctor.rules.algebra import bound


@dataclass
class Autopsy:
    """What the numbers prove.

    Attributes:
        findings: in the order of the argument.
        inferred: group_size, clamp, beta, live_groups; None where these numbers do not determine it.
        open: keys of `words` "cannot" sentences that apply.
        given: the numbers used.
    """

    given: dict[str, Measured]
    normaliser: str | None
    findings: list[Finding] = field(default_factory=list[Finding])
    inferred: dict[str, float | int | None] = field(
        default_factory=lambda: dict.fromkeys(("group_size", "clamp", "beta", "live_groups"))
    )
    open: list[str] = field(default_factory=list[str])

    def say(self, rule: str, severity: Any, variant: str, certainty: Any = "certain", **facts: Fact) -> None:
        self.findings.append(Finding(rule, certainty, severity, (), facts, variant))


def examine(numbers: Mapping[str, Any]) -> Autopsy:
    """Everything that follows from the given numbers.

    Args:
        numbers: names of `NUMBERS` (or a framework's own) -> numbers, best as text so that their printing is known;
            "normaliser": "zscore", "rank" or "centred".

    Raises:
        ConfigError: an unknown name, a number that is none, or nothing to work with.
    """
    given, normaliser = accept(numbers)
    autopsy = Autopsy(given, normaliser)
    saturation(autopsy)
    impossible_ratio(autopsy)
    beta(autopsy)
    mean_of_advantages(autopsy)
    size_of_advantages(autopsy)
    stated_normaliser(autopsy)
    limits(autopsy)
    return autopsy


def saturation(a: Autopsy) -> None:
    """A mean (or maximum) ratio that is exactly e^c: every ratio sits at a clamp of c, and no row has a gradient."""
    ratio = a.given.get("mean_ratio")
    mean = ratio is not None
    ratio = ratio or a.given.get("max_ratio")
    if ratio is None or ratio.value <= 2:
        return
    near = round(math.log(ratio.value))
    step = max(float32_step(ratio.value), ratio.half)
    if near < 2 or abs(ratio.value - math.exp(near)) > step:
        return
    if ratio.half / ratio.value > 1e-3:
        return
    a.inferred["clamp"] = near
    off = abs(ratio.value - math.exp(near))
    a.say(
        "saturated_clamp",
        "serious",
        "mean" if mean else "max",
        ratio=f"{ratio.value:.0f}",
        clamp=near,
        power=f"{math.exp(near):.0f}",
        off=off,
        step=float32_step(ratio.value),
    )
    loss = a.given.get("policy_loss")
    if mean and loss is not None:
        group_from_saturated_loss(a, loss.value / ratio.value)


def group_from_saturated_loss(a: Autopsy, share: float) -> None:
    """With all ratios at the clamp R >> 1: policy loss / R = mean of |A| over A < 0 (the rest is clipped)."""
    matches: list[tuple[int, int, str]] = []
    for group in range(2, 65):
        for wins in range(1, group):
            p = wins / group
            for convention, factor in (("unbiased", math.sqrt((group - 1) / group)), ("biased", 1.0)):
                if abs(math.sqrt(p * (1 - p)) * factor - abs(share)) <= 2e-5 * abs(share):
                    matches.append((group, wins, convention))
    if not matches:
        return
    group, wins, convention = matches[0]
    if group == 2 or len({m[0] for m in matches}) == 1:
        a.inferred["group_size"] = group
        others = len({m[0] for m in matches}) - 1
        a.say(
            "group_size_bound",
            "info",
            "loss",
            share=f"{share:.6f}",
            group=group,
            convention=convention,
            wins=wins,
            others=others,
        )


def impossible_ratio(a: Autopsy) -> None:
    """E[ratio] = 1 on the behaviour policy's own samples, so a mean of M has probability at most 1/M."""
    mean, log = a.given.get("mean_ratio"), a.given.get("mean_log_ratio")
    if mean is not None and mean.value >= 1e4:
        a.say(
            "markov_bound",
            "serious",
            "autopsy",
            mean=f"{mean.value:.3g}",
            chance=f"{1 / mean.value:.2g}",
            exponent=math.log(mean.value),
        )
    elif log is not None and log.value > 40:
        a.say(
            "markov_bound",
            "serious",
            "autopsy",
            mean=f"e^{log.value:.4g}",
            chance=f"e^-{log.value:.4g}",
            exponent=log.value,
        )


def beta(a: Autopsy) -> None:
    """loss - policy loss = beta x KL; without a policy loss, on policy, loss = beta x KL."""
    loss, kl, policy = a.given.get("loss"), a.given.get("kl"), a.given.get("policy_loss")
    if loss is None or kl is None or kl.value <= 0:
        return
    if policy is None:
        centre, ratio = a.given.get("mean_advantage"), a.given.get("mean_ratio")
        if centre is None or abs(centre.value) > 1e-3 or (ratio is not None and abs(ratio.value - 1) > 1e-3):
            return
        policy = Measured(0.0, 0.0)
    rest = loss.value - policy.value
    # Each printed value is itself rounded to float32, and so was their sum: two steps, not two halves.
    error = loss.half + policy.half + float32_step(loss.value)
    low, high = (rest - error) / kl.high, (rest + error) / kl.low
    stated = a.given.get("beta")
    if stated is not None and low <= stated.high and stated.low <= high:
        a.inferred["beta"] = stated.value
        a.say(
            "beta_from_loss",
            "info",
            "agrees",
            rest=rest,
            kl=f"{kl.value:.8g}",
            ratio=f"{rest / kl.value:.6g}",
            beta=stated.value,
        )
        return
    simple = simplest(low, high)
    value = simple if simple is not None else float(f"{rest / kl.value:.3g}")
    if value <= 0 or high - low > abs(value):
        return
    a.inferred["beta"] = value
    if stated is None:
        a.say(
            "beta_from_loss",
            "info",
            "autopsy",
            rest=rest,
            kl=f"{kl.value:.8g}",
            ratio=f"{rest / kl.value:.6g}",
            beta=value,
        )
    else:
        a.say(
            "beta_from_loss",
            "warning",
            "differs",
            rest=rest,
            kl=f"{kl.value:.8g}",
            ratio=f"{rest / kl.value:.6g}",
            beta=stated.value,
        )


def mean_of_advantages(a: Autopsy) -> None:
    """A mean of 0 is what a baseline does. A symptom only if the rewards, too, do not vary."""
    centre = a.given.get("mean_advantage")
    if centre is None or abs(centre.value) > 1e-3:
        return
    for name in ("std_reward", "advantage_std", "advantage_max"):
        other = a.given.get(name)
        if other is not None:
            alive = other.value > 1e-9
            a.say(
                "mean_advantage",
                "info" if alive else "serious",
                "alive" if alive else "nothing",
                name=name,
                value=other.value,
            )
            return
    a.say("mean_advantage", "info", "alone")


def size_of_advantages(a: Autopsy) -> None:
    """The number of groups that carry any gradient, from the spread of the advantages.

    Let q groups of G, L of them live. If the logged std was taken inside each group and averaged, it is (L/q) s, with s
    the std of one live group (1 for unbiased z-scores). Pooled over all samples it is about sqrt(L/q) s, and at least
    sqrt(1/(2q)) s as soon as one group lives; and the pooled maximum is at least sqrt((G-1)/G) >= .707.
    """
    spread, queries, top = a.given.get("advantage_std"), a.given.get("queries"), a.given.get("advantage_max")
    if top is not None and top.value >= 0.7:
        group_from_maximum(a, top)
    if spread is None or queries is None or spread.value <= 0 or queries.value < 1:
        return
    if a.normaliser == "centred":
        return
    q = queries.value
    least = math.sqrt(1 / (2 * q))
    averaged_only = spread.high < least or (top is not None and top.high < 0.7)
    if averaged_only:
        live = q * spread.value
        whole = max(1, round(live))
        a.inferred["live_groups"] = whole
        per_group = top.value / spread.value if top is not None else 0.0
        a.say(
            "starved_groups",
            "serious" if live < 0.1 * q else "info",
            "averaged",
            certainty="likely" if a.normaliser == "rank" else "certain",
            std=spread.value,
            queries=int(q),
            live=live,
            whole=whole,
            low=q * spread.low,
            high=q * spread.high,
            least=least,
            share=live / q,
        )
        if top is not None:
            fits = [g for g in range(2, 65) if top.low / spread.high <= bound(g)]
            a.say(
                "group_size_bound",
                "info",
                "averaged",
                top=top.value,
                per=per_group,
                group=min(fits, default=2),
                std=spread.value,
            )
    elif top is not None:
        group = a.given.get("group_size")
        size = group.value if group else a.inferred["group_size"]
        live = spread.value**2 * ((q * size - 1) / (size - 1) if size and size > 1 else q)
        a.inferred["live_groups"] = min(int(q), max(1, round(live)))
        a.say(
            "starved_groups",
            "serious" if live < 0.1 * q else "info",
            "pooled",
            std=spread.value,
            queries=int(q),
            live=live,
            share=live / q,
        )
    else:
        a.open.append("two_readings")


def group_from_maximum(a: Autopsy, top: Measured) -> None:
    """A largest z-score on a bound (G-1)/sqrt(G) gives G; printing must be fine enough to single one out."""
    if a.normaliser in ("rank", "centred") or a.inferred["group_size"] is not None:
        return
    slack = max(top.half, 1e-3 * top.value)
    fits = [g for g in range(2, 257) if abs(bound(g) - top.value) <= slack]
    if len(fits) == 1:
        a.inferred["group_size"] = fits[0]
        a.say("group_size_bound", "info", "maximum", top=top.value, group=fits[0])


def stated_normaliser(a: Autopsy) -> None:
    """Whether the stated normaliser can give the stated std at all."""
    spread, group = a.given.get("advantage_std"), a.given.get("group_size")
    if spread is None:
        return
    if a.normaliser == "rank":
        n = group.value if group and group.value > 1 else None
        least = math.sqrt((n + 1) / (3 * (n - 1))) if n else 1 / math.sqrt(3)
        if spread.high < 0.98 * least:
            a.say("rank_std", "serious", "autopsy", std=spread.value, least=least, n=int(n) if n else "≥ 2")
    elif a.normaliser == "zscore" and spread.high < 0.5:
        floor = a.given.get("std_floor")
        if floor is not None and floor.value > 0:
            a.say(
                "zscore_std",
                "warning",
                "autopsy_floor",
                std=spread.value,
                floor=floor.value,
                reward=spread.value * floor.value,
            )
        else:
            a.say("zscore_std", "warning", "autopsy", std=spread.value)
    top = a.given.get("advantage_max")
    if (
        top is not None
        and group is not None
        and group.value > 1
        and a.normaliser == "zscore"
        and top.low > bound(int(group.value)) * 1.001
    ):
        a.say(
            "group_size_bound", "warning", "above", top=top.value, group=int(group.value), limit=bound(int(group.value))
        )


def limits(a: Autopsy) -> None:
    """What these numbers cannot say."""
    has = a.given.keys()
    if "mean_ratio" in has and a.inferred["clamp"] is not None:
        a.open.append("which_mismatch")
    if "kl" in has:
        a.open.append("kl_share")
    if "advantage_std" in has and "queries" not in has:
        a.open.append("no_queries")
    if a.inferred["live_groups"] is not None:
        a.open.append("why_dead")
    if a.inferred["group_size"] is None and ("advantage_std" in has or "advantage_max" in has):
        a.open.append("group_size")
    if "std_reward" in has and "advantage_std" not in has:
        a.open.append("within_or_between")

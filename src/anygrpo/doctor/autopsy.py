"""What a handful of logged numbers proves about a run: group size, clamp, beta, live groups, and what they cannot say.

Two public cases are the tests: a motion run whose mean ratio was e^20, and a selection run whose advantages had std
.0063 over 640 queries. Every step shows its arithmetic.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from anygrpo.doctor.advantages import size_of_advantages, stated_normaliser
from anygrpo.doctor.argument import Autopsy
from anygrpo.doctor.claims import judge_claims
from anygrpo.doctor.printed import Measured, accept, float32_step, simplest
from anygrpo.doctor.sentences import spoken
from anygrpo.errors import ConfigError
from anygrpo.spoken import Text


def examine(numbers: Mapping[str, Any], text: str = "") -> Autopsy:
    """Everything that follows from the given numbers, and from the sentences of the note around them.

    Args:
        numbers: names of `NUMBERS` (or a framework's own) -> numbers, best as text so that their printing is known;
            "normaliser": "zscore", "rank" or "centred".

    Raises:
        ConfigError: a number that is none, an unknown normaliser, or nothing that is known.
    """
    given, normaliser, unused = accept(numbers) if numbers or not text else ({}, None, ())
    autopsy = Autopsy(given, normaliser, unused, text=text)
    saturation(autopsy)
    impossible_ratio(autopsy)
    beta(autopsy)
    mean_of_advantages(autopsy)
    size_of_advantages(autopsy)
    stated_normaliser(autopsy)
    limits(autopsy)
    autopsy.claims = judge_claims(autopsy, text) + spoken(autopsy, text)
    if not given and not autopsy.claims:
        raise ConfigError(
            Text("no number of a known name in this note", "这段笔记中没有名称已知的数"),
            Text("name them, as in: mean_ratio = 4.8e8", "请写出名称，例如：mean_ratio = 4.8e8"),
        )
    return autopsy


def saturation(a: Autopsy) -> None:
    """A mean (or maximum) ratio that is exactly e^c: every ratio sits at a clamp of c, and no row has a gradient."""
    ratio = a.given.get("mean_ratio")
    mean = ratio is not None
    ratio = ratio or a.given.get("max_ratio")
    if ratio is None or ratio.value <= 2:
        return
    stated = a.given.get("clamp")
    near = stated.value if stated else round(math.log(ratio.value))
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
    loss, kl, policy = a.given.get("loss"), a.given.get("kl"), policy_part(a)
    if loss is None or kl is None or policy is None or kl.value <= 0:
        return
    rest = loss.value - policy.value
    # Each printed value is itself rounded to float32, and so was their sum: two steps, not two halves.
    error = loss.half + policy.half + float32_step(loss.value)
    low, high = (rest - error) / kl.high, (rest + error) / kl.low
    a.beta_range = (low, high)
    stated = a.given.get("beta")
    agrees = stated is not None and low <= stated.high and stated.low <= high
    value = stated.value if stated and agrees else simplest(low, high) or float(f"{rest / kl.value:.3g}")
    if value <= 0 or high - low > abs(value):
        return
    a.inferred["beta"] = value
    variant = "autopsy" if stated is None else "agrees" if agrees else "differs"
    shown = stated.value if stated else value
    facts = {"rest": rest, "kl": f"{kl.value:.8g}", "ratio": f"{rest / kl.value:.6g}", "beta": shown}
    a.say("beta_from_loss", "warning" if variant == "differs" else "info", variant, "certain", **facts)


def policy_part(a: Autopsy) -> Measured | None:
    """The policy loss: as given, or 0 on policy with advantages of mean 0, or unknown."""
    if policy := a.given.get("policy_loss"):
        return policy
    centre, ratio = a.given.get("mean_advantage"), a.given.get("mean_ratio")
    known = centre is not None and abs(centre.value) <= 1e-3 and (ratio is None or abs(ratio.value - 1) <= 1e-3)
    return Measured(0.0, 0.0) if known else None


def mean_of_advantages(a: Autopsy) -> None:
    """A mean of 0 is what a baseline does. A symptom only if the rewards, too, do not vary."""
    centre = a.given.get("mean_advantage")
    if centre is None or abs(centre.value) > 1e-3:
        return
    for name in ("std_reward", "advantage_std", "advantage_max", "grad_norm"):
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

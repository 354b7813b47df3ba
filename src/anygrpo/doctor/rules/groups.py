"""What reaches the gradient: truncation, dead reward terms, dead groups, advantages."""

from __future__ import annotations

import re

from anygrpo.doctor.findings import Change
from anygrpo.doctor.rules.base import Result, finding, rule
from anygrpo.doctor.rules.progress import progress, rose
from anygrpo.doctor.run import Run
from anygrpo.doctor.series import Series, mean, paired

AUXILIARY = re.compile(
    r"format|xml|tag|style|length|brevity|concise|lang|tone|polite|soft_|strict|bonus|repetition|penalt|markdown|json_valid|int_reward"
)
NOTHING_FLOWS = ("starved_groups", "mastered_groups", "advantage_compressed", "zero_gradient", "lr_too_small", "no_learning")


@rule(
    "truncation", "likely", needs=("truncated/share|length/max",),
    explains=("constant_reward", "dead_term", "aux_only_gain", *NOTHING_FLOWS, "length_explosion", "late_collapse"),
    source="a cut answer is scored on what is missing",
)  # fmt: skip
def truncation(run: Run) -> Result:
    """The share of cut-off samples in the last quarter: above .15 it decides what is rewarded; above .05 a note."""
    share, longest, length = run.get("truncated/share"), run.get("length/max"), run.comparable("length/mean")
    cap = longest.high if longest else length.high if length else 0.0
    limit = Change("max_length", factor=2.0)
    if share:
        now = share.last
        if now > 0.15:
            ended = run.get("length/terminated")
            eos = now > 0.9 and ended is not None and ended.last < 0.5
            rows = [r for r, x in zip(share.rows, share.values) if x > 0.15]
            return finding(
                "truncation", "serious" if now > 0.5 else "warning", rows, variant="eos" if eos else "", share=now, cap=cap,
                first=share.first, changes=(limit,), metrics=("truncated/share", "length/mean"),
            )  # fmt: skip
        if share.mean > 0.05:
            return finding("truncation", "info", share.rows, variant="note", share=now, mean=share.mean, metrics=("truncated/share",))
        return None
    if not longest or not length or len(length) < 4 or cap < 8:
        return None
    at_cap = [r for r, top, middle in paired(longest, length) if top >= cap and middle >= 0.995 * cap]
    if len(at_cap) < 0.5 * len(length):
        return None
    return finding("truncation", "warning", at_cap, variant="cap", count=len(at_cap), of=len(length), cap=cap, changes=(limit,))


@rule("dead_term", "certain", needs=("reward/mean",), explains=("aux_only_gain",), source="a constant has no gradient")
def dead_term(run: Run) -> Result:
    """Parts of the reward that never moved. At least half of them dead and no gain: a warning; else a note."""
    parts = run.components
    dead = {name: s for name, s in parts.items() if len(s) >= 3 and s.constant}
    spread = run.family("reward/component_std/")
    dead = {name: s for name, s in dead.items() if name not in spread or spread[name].high < 1e-6}
    if not dead or len(parts) < 2:
        return None
    p = progress(run)
    bad = len(dead) * 2 >= len(parts) and p is not None and not p.rose
    floor = [name for name, s in dead.items() if s.mean <= 0]
    names = ", ".join(f"{name} = {s.mean:.3g}" for name, s in sorted(dead.items()))
    rows = next(iter(dead.values())).rows
    return finding(
        "dead_term", "warning" if bad else "info", rows, variant="floor" if floor else "ceiling", names=names, count=len(dead),
        of=len(parts), metrics=tuple(f"reward/component/{name}" for name in dead),
    )  # fmt: skip


@rule("aux_only_gain", "likely", needs=("reward/mean",), trend=True, source="the gain split over the parts of the reward")
def aux_only_gain(run: Run) -> Result:
    """Four fifths of the gain from form, the substance flat. Not said of the first 50 rows: form comes first."""
    p = progress(run)
    main = {n: s for n, s in run.components.items() if not AUXILIARY.search(n) and len(s) >= 8}
    aux = {n: s for n, s in run.components.items() if AUXILIARY.search(n) and len(s) >= 8}
    if not p or not p.rose or not main or not aux or len(p.reward) <= 50:
        return None
    from_aux = sum(s.gain for s in aux.values())
    from_main = sum(s.gain for s in main.values())
    if from_aux < 0.8 * (from_aux + max(0.0, from_main)) or any(s.gain > s.mde and s.gain > 0 for s in main.values()):
        return None
    return finding(
        "aux_only_gain", "warning", p.reward.rows[-p.reward.quarter_size :], gain=p.reward.gain, aux=from_aux, main=from_main,
        names=", ".join(sorted(aux)), mains=", ".join(sorted(main)), metrics=("reward/mean",),
    )  # fmt: skip


def between_spread(run: Run) -> float:
    """How much rewards differ across prompts: the logged std over the batch, or the wander of the mean between rows."""
    for name in ("reward/std_between", "reward/std"):
        if found := run.get(name):
            return found.median
    spreads = run.family("reward/component_std/")
    reward = run.get("reward/mean")
    if len(spreads) == 1:
        return next(iter(spreads.values())).median
    return reward.noise if reward and len(reward) >= 8 else 0.0


@rule("constant_reward", "likely", needs=("reward/mean",), explains=NOTHING_FLOWS, source="no spread in a group, no advantage")
def constant_reward(run: Run) -> Result:
    """Samples of one prompt all score alike though prompts do not: the sample is not what is being scored."""
    reward, within, dead = run.get("reward/mean"), run.get("reward/std_within"), run.get("groups/dead")
    assert reward
    if len(reward) < 4:
        return None
    if reward.constant and not (dead and dead.mean < 0.9) and not (within and within.high > 1e-6):
        return finding("constant_reward", "serious", reward.rows, variant="all", value=reward.mean, count=len(reward))
    between = between_spread(run)
    still = within is not None and within.median <= 0.01 * between and mean(within.values) <= 0.05 * between
    if between <= 1e-9 or not still or (dead is not None and dead.mean < 0.95):
        return None
    assert within
    return finding(
        "constant_reward", "serious", within.rows, within=within.mean, between=between, dead=dead.mean if dead else 1.0,
        changes=(Change("temperature", 1.0),), metrics=("reward/std_within", "groups/dead"),
    )  # fmt: skip


def dead_share(run: Run) -> Series | None:
    """Share of groups without spread per row: logged, or 1 in rows whose within-group std or gradient is exactly 0."""
    if found := run.get("groups/dead"):
        return found
    within, grad = run.get("reward/std_within"), run.get("grad_norm/total")
    for source in (within, grad):
        if source and len(source) >= 8:
            zero = tuple(float(abs(x) <= 1e-8) for x in source.values)
            return Series(source.name, source.key, source.rows, zero)
    return None


def near_ceiling(run: Run) -> bool:
    """Whether dead groups are mostly won ones: counted where logged, else by the level of the reward in its own range."""
    best, worst = run.get("groups/all_best"), run.get("groups/all_worst")
    if best and worst:
        return best.last > 2 * worst.last
    reward = run.get("reward/mean")
    if not reward:
        return False
    top, floor = run.get("reward/max"), run.get("reward/min")
    high, low = (top.high if top else reward.high), (floor.low if floor else reward.low)
    if low >= 0 and high <= 1.0001:
        return reward.last > 0.85
    return high > low and (reward.last - low) / (high - low) > 0.85


def dead_groups(run: Run) -> tuple[Series, float] | None:
    """(share per row, its last-half mean) where it passes one half, or 40% for rows of exactly zero gradient."""
    share = dead_share(run)
    if not share or len(share) < 8:
        return None
    now = mean(share.tail(0.5))
    return (share, now) if now > (0.4 if share.name == "grad_norm/total" else 0.5) else None


@rule("starved_groups", "likely", explains=("no_learning", "zero_gradient", "lr_too_small", "advantage_compressed"), source="a group without spread has no gradient")
def starved_groups(run: Run) -> Result:
    found = dead_groups(run)
    if not found or near_ceiling(run):
        return None
    share, now = found
    rows = [r for r, x in zip(share.rows, share.values) if x > 0.5]
    reward = run.get("reward/mean")
    return finding(
        "starved_groups", "info" if rose(run) else "warning", rows, share=now, key=share.key, level=reward.last if reward else 0.0,
        changes=(Change("group_size", factor=2.0), Change("dynamic_sampling", "true")), metrics=("groups/dead", "reward/mean"),
    )  # fmt: skip


@rule("mastered_groups", "likely", explains=("no_learning", "lr_too_small", "zero_gradient", "advantage_compressed"), source="a group without spread has no gradient")
def mastered_groups(run: Run) -> Result:
    """Dead groups because everything is right. After a gain that is success, and only a note."""
    found = dead_groups(run)
    if not found or not near_ceiling(run):
        return None
    share, now = found
    rows = [r for r, x in zip(share.rows, share.values) if x > 0.5]
    reward = run.get("reward/mean")
    severity = "info" if rose(run) else "warning"
    return finding("mastered_groups", severity, rows, share=now, level=reward.last if reward else 0.0, metrics=("groups/dead", "reward/mean"))


@rule("difficulty_dominates", "likely", needs=("advantage/one_sign",), explains=("no_learning",), source="running statistics mix prompts")
def difficulty_dominates(run: Run) -> Result:
    share = run.get("advantage/one_sign")
    assert share
    if share.last <= 0.9:
        return None
    return finding("difficulty_dominates", "serious", share.rows, share=share.last, changes=(Change("advantage", "zscore"),))


@rule(
    "advantage_compressed", "likely", needs=("advantage/std",), explains=("no_learning", "lr_too_small"),
    source="z-scores have std near 1 whatever the reward",
)  # fmt: skip
def advantage_compressed(run: Run) -> Result:
    """Std below .1, or a tenth of its start. Un-normalised advantages (Dr. GRPO) are small by design."""
    spread = run.get("advantage/std")
    assert spread
    if run.settings.get("scale_rewards") in (False, "none") or str(run.settings.get("normaliser")) in ("centred", "centered", "dr_grpo"):
        return None
    absolute = spread.last < 0.1
    shrunk = len(spread) >= 8 and spread.last < 0.1 * spread.first
    if not absolute and not shrunk:
        return None
    rows = [r for r, x in zip(spread.rows, spread.values) if x < 0.1] or list(spread.rows)
    return finding(
        "advantage_compressed", "warning", rows, variant="" if absolute else "shrunk", now=spread.last, first=spread.first,
        share=spread.last**2, metrics=("advantage/std",),
    )  # fmt: skip


@rule(
    "phantom_advantages", "likely", needs=("reward/std_within|reward/std", "grad_norm/total", "reward/mean"), trend=True,
    source="noise divided by its own std has std 1",
)  # fmt: skip
def phantom_advantages(run: Run) -> Result:
    """The reward hardly varies any more (under 1% of the range it went through), yet the gradient is as large as ever."""
    within = run.get("reward/std_within") or run.get("reward/std")
    grad, reward = run.get("grad_norm/total"), run.get("reward/mean")
    assert within and grad and reward
    span = reward.high - reward.low
    dead = run.get("groups/dead")
    if len(within) < 8 or span <= 0 or within.last >= 0.01 * span or within.last <= 0 or (dead and dead.last > 0.9):
        return None
    if grad.last <= 0.3 * grad.first or within.first <= 0.05 * span:
        return None
    rows = [r for r, x in zip(within.rows, within.values) if x < 0.01 * span]
    return finding(
        "phantom_advantages", "warning", rows, std=within.last, span=span, share=within.last / span, grad=grad.last / grad.first,
        changes=(Change("scale_rewards", "none"),), metrics=("reward/std_within", "grad_norm/total", "reward/mean"),
    )  # fmt: skip

"""What reaches the gradient: groups with and without spread, and the size of their advantages."""

from __future__ import annotations

from anygrpo.doctor.canonical import label
from anygrpo.doctor.columns import Run
from anygrpo.doctor.findings import Change, Finding
from anygrpo.doctor.rules.answers import NOTHING_FLOWS
from anygrpo.doctor.rules.progress import rose
from anygrpo.doctor.rules.rule import Result, finding, rule
from anygrpo.doctor.series import Series, mean


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


@rule("constant_reward", "likely", needs=("reward/mean",), explains=NOTHING_FLOWS)
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
    gates = run.get("restoration/gate_edge_share") is not None  # no texts and no temperature there
    return finding(
        "constant_reward",
        "serious",
        within.rows,
        variant="gates" if gates else "",
        within=within.mean,
        between=between,
        dead=dead.mean if dead else 1.0,
        changes=(Change("entropy_coef", None),) if gates else (Change("temperature", 1.0),),
        metrics=("reward/std_within", "groups/dead"),
    )


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
    """Whether dead groups are mostly won: counted where logged, else by the reward's level in its own range."""
    best, worst = run.get("groups/all_best"), run.get("groups/all_worst")
    if best and worst:
        return best.last > 2 * worst.last
    reward = run.get("reward/mean")
    if not reward:
        return False
    top, floor = run.get("reward/max"), run.get("reward/min")
    high, low = (top.high if top else reward.high), (floor.low if floor else reward.low)
    if low >= 0:
        return reward.last > 0.8 * max(1.0, high)
    return high > low and (reward.last - low) / (high - low) > 0.8


def dead_groups(run: Run) -> tuple[Series, float] | None:
    """(share per row, its last-half mean) where it passes one half, or 40% for rows of exactly zero gradient."""
    share = dead_share(run)
    if not share or len(share) < 8:
        return None
    now = mean(share.tail(0.5))
    return (share, now) if now > (0.4 if share.name == "grad_norm/total" else 0.5) else None


def filtered_away(run: Run) -> Finding | None:
    """A filter after which five times fewer groups have spread, in the last quarter: counted, so certain."""
    dead = run.get("groups/dead")
    if not dead:
        return None
    before = 1 - mean(dead.tail(0.25))
    for name, series in run.family("groups/live_after/").items():
        after = mean(series.tail(0.25))
        if before > 0.05 and after < before / 5:
            return finding(
                "starved_groups",
                "serious",
                series.rows,
                variant="filter",
                certainty="certain",
                filter=name,
                before=before,
                after=after,
                metrics=("groups/dead", f"groups/live_after/{name}"),
            )
    return None


@rule("starved_groups", "likely", explains=("no_learning", "zero_gradient", "lr_too_small", "advantage_compressed"))
def starved_groups(run: Run) -> Result:
    """Groups without spread: of themselves, or because a filter took it from them."""
    if found := filtered_away(run):
        return found
    found = dead_groups(run)
    if not found or near_ceiling(run):
        return None
    share, now = found
    rows = [r for r, x in zip(share.rows, share.values) if x > 0.5]
    reward = run.get("reward/mean")
    return finding(
        "starved_groups",
        "info" if rose(run) else "warning",
        rows,
        share=now,
        key=label(share.key),
        level=reward.last if reward else 0.0,
        changes=(Change("group_size", factor=2.0), Change("dynamic_sampling", "true")),
        metrics=("groups/dead", "reward/mean"),
    )


@rule("mastered_groups", "likely", explains=("no_learning", "lr_too_small", "zero_gradient", "advantage_compressed"))
def mastered_groups(run: Run) -> Result:
    """Dead groups because everything is right. After a gain that is success, and only a note."""
    found = dead_groups(run)
    if not found or not near_ceiling(run):
        return None
    share, now = found
    rows = [r for r, x in zip(share.rows, share.values) if x > 0.5]
    reward = run.get("reward/mean")
    severity = "info" if rose(run) else "warning"
    return finding(
        "mastered_groups",
        severity,
        rows,
        share=now,
        level=reward.last if reward else 0.0,
        metrics=("groups/dead", "reward/mean"),
    )


@rule("difficulty_dominates", "likely", needs=("advantage/one_sign",), explains=("no_learning",))
def difficulty_dominates(run: Run) -> Result:
    share = run.get("advantage/one_sign")
    assert share
    if share.last <= 0.9:
        return None
    return finding(
        "difficulty_dominates", "serious", share.rows, share=share.last, changes=(Change("advantage", "zscore"),)
    )


@rule(
    "advantage_compressed",
    "likely",
    needs=("advantage/std",),
    explains=("no_learning", "lr_too_small"),
)
def advantage_compressed(run: Run) -> Result:
    """Std below .1, or a tenth of its start, beyond what dead groups explain. Un-normalised advantages (Dr. GRPO) are
    small by design."""
    spread = run.get("advantage/std")
    assert spread
    if run.settings.get("scale_rewards") in (False, "none") or str(run.settings.get("normaliser")) in (
        "centred",
        "centered",
        "dr_grpo",
    ):
        return None
    absolute = spread.last < 0.1
    shrunk = len(spread) >= 8 and spread.last < 0.1 * spread.first
    if not (absolute or shrunk) or dead_groups_explain(run, spread):
        return None
    rows = [r for r, x in zip(spread.rows, spread.values) if x < 0.1] or list(spread.rows)
    return finding(
        "advantage_compressed",
        "warning",
        rows,
        variant="" if absolute else "shrunk",
        now=spread.last,
        first=spread.first,
        share=spread.last**2,
        metrics=("advantage/std",),
    )


def dead_groups_explain(run: Run, spread: Series) -> bool:
    """Whether the advantages' std is about sqrt(live share), that of z-scores in the groups that are live."""
    dead = run.get("groups/dead")
    if not dead:
        return False
    share = dead.at()
    late = [(x, max(0.0, 1 - share[r]) ** 0.5) for r, x in zip(spread.rows, spread.values) if r in share]
    late = late[-max(1, len(late) // 4) :]
    return bool(late) and mean([x for x, _ in late]) >= mean([expected for _, expected in late]) / 3


@rule(
    "phantom_advantages",
    "likely",
    needs=("reward/std_within|reward/std", "grad_norm/total", "reward/mean"),
    trend=True,
)
def phantom_advantages(run: Run) -> Result:
    """The reward hardly varies any more (under 1% of the range it went through), yet the gradient is large."""
    within = run.get("reward/std_within") or run.get("reward/std")
    grad, reward = run.get("grad_norm/total"), run.get("reward/mean")
    if not within or not grad or not reward:
        return None
    span = reward.high - reward.low
    dead = run.get("groups/dead")
    if len(within) < 8 or span <= 0 or within.last >= 0.01 * span or within.last <= 0 or (dead and dead.last > 0.9):
        return None
    if grad.last <= 0.3 * grad.first or within.first <= 0.05 * span:
        return None
    rows = [r for r, x in zip(within.rows, within.values) if x < 0.01 * span]
    return finding(
        "phantom_advantages",
        "warning",
        rows,
        std=within.last,
        span=span,
        share=within.last / span,
        grad=grad.last / grad.first,
        changes=(Change("scale_rewards", "none"),),
        metrics=("reward/std_within", "grad_norm/total", "reward/mean"),
    )

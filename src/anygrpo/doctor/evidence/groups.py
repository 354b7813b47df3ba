"""Groups without spread: how many, and whether they are won or lost."""

from __future__ import annotations

from anygrpo.doctor.columns import Columns
from anygrpo.doctor.series import Series, mean


def dead_share(run: Columns) -> Series | None:
    """Share of groups without spread per row: logged, or 1 in rows whose within-group std or gradient is exactly 0."""
    if found := run.get("groups/dead"):
        return found
    within, grad = run.get("reward/std_within"), run.get("grad_norm/total")
    for source in (within, grad):
        if source and len(source) >= 8:
            zero = tuple(float(abs(x) <= 1e-8) for x in source.values)
            return Series(source.name, source.key, source.rows, zero)
    return None


def near_ceiling(run: Columns) -> bool:
    """Whether dead groups are mostly won: counted where logged, else by the reward's level in its own range."""
    best, worst, reward = run.get("groups/all_best"), run.get("groups/all_worst"), run.get("reward/mean")
    if best and worst and not (reward and reward.last < reward.first - reward.mde):
        return best.last > 2 * worst.last  # where all rewards are equal, the lost ones are called the best too
    if not reward:
        return False
    top, floor = run.get("reward/max"), run.get("reward/min")
    high, low = (top.high if top else reward.high), (floor.low if floor else reward.low)
    if low >= 0:
        return reward.last > 0.8 * max(1.0, high)
    return high > low and (reward.last - low) / (high - low) > 0.8


def dead_groups(run: Columns) -> tuple[Series, float] | None:
    """(share per row, its last-half mean) where it passes one half, or 40% for rows of exactly zero gradient."""
    share = dead_share(run)
    if not share or len(share) < 8:
        return None
    now = mean(share.tail(0.5))
    return (share, now) if now > (0.4 if share.name == "grad_norm/total" else 0.5) else None

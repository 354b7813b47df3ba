"""Is the gain the gain that was wanted: hacking, lengths, held-out results, collapses."""

from __future__ import annotations

import math

from anygrpo.doctor.columns import Run
from anygrpo.doctor.findings import Change
from anygrpo.doctor.rules.progress import blocks, held_out_rose, outcomes, progress
from anygrpo.doctor.rules.rule import Result, finding, rule
from anygrpo.doctor.series import Series, correlation, mean, paired

ROLL_BACK = (Change("learning_rate", factor=0.5),)


@rule("reward_hacking", "likely", needs=("reward/mean",), trend=True, explains=("length_collapse", "length_explosion"))
def reward_hacking(run: Run) -> Result:
    """The trained reward rose; a measure that is not trained on stayed behind or got worse."""
    p = progress(run)
    if not p or not p.rose or p.reward.gain < 2 * p.reward.noise * math.sqrt(2 / p.reward.quarter_size):
        return None
    if any(s.gain > s.mde for s in outcomes(run).values() if not same_reward(run, s)):
        return None
    for name, s in independent(run):
        if s.gain <= 0.1 * p.reward.gain:
            return hacked(run, name, s, p.reward, "measure")
    for name, s in run.evals.items():
        worse = (
            ("perplexity" in name or name.endswith("ppl")) and len(s) >= 4 and s.last > 2 * s.first and s.gain > s.mde
        )
        if worse:
            return hacked(run, s.key, s, p.reward, "perplexity")
    return None


def hacked(run: Run, name: str, s: Series, reward: Series, variant: str) -> Result:
    return finding(
        "reward_hacking",
        "warning",
        s.rows[-s.quarter_size :],
        variant=variant,
        name=name,
        first=s.first,
        last=s.last,
        r_first=reward.first,
        r_last=reward.last,
        metrics=("reward/mean", s.name),
    )


def independent(run: Run) -> list[tuple[str, Series]]:
    """Measures on the reward's own scale that are not part of it: further components where the reward *is* one of them,
    and held-out success that could have shown half the gain."""
    reward = run.get("reward/mean")
    assert reward
    found: list[tuple[str, Series]] = []
    parts = run.components
    trained = [
        n
        for n, s in parts.items()
        if len(s) == len(reward) and all(abs(a - b) <= 1e-9 for a, b in zip(s.values, reward.values))
    ]
    if trained and len(parts) > 1:
        for name, s in parts.items():
            pairs = paired(s, reward)
            if name in trained or s.constant or len(pairs) < 8 or not 0 <= s.low <= s.high <= max(1.0, reward.high):
                continue
            if abs(correlation([x for _, x, _ in pairs], [y for _, _, y in pairs])) < 0.9:
                found.append((s.key, s))
    for s in outcomes(run).values():
        if len(s) >= 4 and not s.constant and s.mde < 0.5 * reward.gain and not same_reward(run, s):
            found.append((s.key, s))
    return found


def same_reward(run: Run, s: Series) -> bool:
    """An evaluation with the trained reward itself agrees with a hack: it is no independent witness."""
    return s.name == "eval/reward" or s.name.startswith("eval/reward/")


@rule("length_collapse", "likely", needs=("length/mean",), trend=True)
def length_collapse(run: Run) -> Result:
    """Below half its start and held-out results do not follow. Earned where many samples were cut off at the start."""
    length = run.comparable("length/mean")
    if not length or len(length) < 16 or length.first <= 0 or length.last >= 0.5 * length.first or length.p >= 0.01:
        return None
    cut = run.get("truncated/share")
    earned = held_out_rose(run) or (cut is not None and cut.first > 0.1 and cut.last < cut.first / 2)
    p = progress(run)
    rows = [r for r, x in zip(length.rows, length.values) if x < 0.5 * length.first]
    return finding(
        "length_collapse",
        "info" if earned else "warning",
        rows,
        variant="earned" if earned else "",
        first=length.first,
        last=length.last,
        ratio=length.last / length.first,
        gain=p.reward.gain if p else 0.0,
        metrics=("length/mean", "reward/mean"),
    )


@rule("length_explosion", "likely", needs=("length/mean",), trend=True, explains=("truncation",))
def length_explosion(run: Run) -> Result:
    """Over 1.5 times its start and neither reward nor held-out results rise with it; earned reasoning is a note."""
    length, p = run.comparable("length/mean"), progress(run)
    if not length or len(length) < 16 or length.first <= 0 or length.last <= 1.5 * length.first or length.p >= 0.01:
        return None
    earned = held_out_rose(run) or (p is not None and p.rose)
    changes = () if earned else (Change("loss_reduction", "token-mean"), Change("overlong_penalty", "on"))
    return finding(
        "length_explosion",
        "info" if earned else "warning",
        length.rows[-length.quarter_size :],
        variant="earned" if earned else "",
        first=length.first,
        last=length.last,
        ratio=length.last / length.first,
        changes=changes,
        metrics=("length/mean", "reward/mean"),
    )


@rule("overfitting", "likely", needs=("reward/mean",), trend=True, explains=("validation_drop",))
def overfitting(run: Run) -> Result:
    """The trained reward rose while a held-out measure lost more than two standard errors of its own noise."""
    p = progress(run)
    if not p or not p.rose:
        return None
    for s in outcomes(run).values():
        width = s.noise * math.sqrt(2 / s.quarter_size)
        if len(s) >= 6 and s.gain < -2 * width and s.gain < -s.mde and mean(s.values[-2:]) < s.first - width:
            best = s.rows[s.values.index(s.high)]
            return finding(
                "overfitting",
                "warning",
                s.rows[-s.quarter_size :],
                name=s.key,
                first=s.first,
                last=s.last,
                best=best,
                width=width,
                gain=p.reward.gain,
                changes=(*ROLL_BACK, Change("beta", 0.001)),
                metrics=("reward/mean", s.name),
            )
    return None


@rule("validation_drop", "likely", trend=True)
def validation_drop(run: Run) -> Result:
    """The last three evaluations all lie more than 2 standard errors of a difference below the best one."""
    logged = run.evals.get("reward_se")
    for s in outcomes(run).values():
        if len(s) < 6:
            continue
        error = max(logged.median if logged and "reward" in s.name else 0.0, s.noise) * math.sqrt(2)
        best = max(s.values[:-3])
        if error > 0 and all(x < best - 2 * error for x in s.values[-3:]) and best > s.values[0]:
            row = s.rows[s.values.index(best)]
            return finding(
                "validation_drop",
                "warning",
                s.rows[-3:],
                name=s.key,
                best=best,
                row=row,
                last=mean(s.values[-3:]),
                error=error,
                changes=ROLL_BACK,
                metrics=(s.name,),
            )
    return None


@rule("late_collapse", "likely", needs=("reward/mean",), trend=True, explains=("no_learning",))
def late_collapse(run: Run) -> Result:
    """In eighths of the run: the last two lie over 3 standard errors below the best, which was a real gain."""
    p = progress(run)
    if not p or len(p.reward) < 32 or held_out_rose(run):
        return None
    parts = blocks(p.reward)
    width = p.reward.noise / math.sqrt(len(p.reward) / 8)
    peak = max(parts)
    at = parts.index(peak)
    climbed = peak - parts[0] > 3 * width * math.sqrt(2)
    if at > 5 or at == 0 or not climbed or any(x > peak - 3 * width for x in parts[-2:]):
        return None
    if (peak - mean(parts[-2:])) < 0.2 * (peak - parts[0]):
        return None
    rows = p.reward.rows
    eighth = len(rows) // 8
    return finding(
        "late_collapse",
        "warning",
        rows[-2 * eighth :],
        peak=peak,
        at=rows[at * eighth],
        until=rows[min(len(rows) - 1, (at + 1) * eighth)],
        last=mean(parts[-2:]),
        width=width,
        sigmas=(peak - mean(parts[-2:])) / width,
        changes=ROLL_BACK,
        metrics=("reward/mean",),
    )

"""What is rewarded: answers that are cut off, parts of the reward that never move, form without substance."""

from __future__ import annotations

import re

from anygrpo.doctor.columns import Run
from anygrpo.doctor.findings import Change
from anygrpo.doctor.rules.progress import progress
from anygrpo.doctor.rules.rule import Result, finding, rule
from anygrpo.doctor.series import Series, paired

AUXILIARY = re.compile(
    r"format|xml|tag|style|length|brevity|concise|lang|tone|polite|soft_|strict|bonus|repetition|penalt|markdown|json_valid|int_reward"
)
LONGER = (Change("max_length", factor=2.0),)
NOTHING_FLOWS = (
    "starved_groups",
    "mastered_groups",
    "advantage_compressed",
    "zero_gradient",
    "lr_too_small",
    "no_learning",
)


@rule("failed_rewards", "certain", needs=("invalid/share",), explains=("constant_reward", *NOTHING_FLOWS))
def failed_rewards(run: Run) -> Result:
    """Samples without a reward leave their groups; where many do, the reward is broken and not the policy."""
    share = run.get("invalid/share")
    assert share
    if share.last <= 0.05:
        return None
    return finding(
        "failed_rewards",
        "serious" if share.last > 0.5 else "warning",
        [r for r, x in zip(share.rows, share.values) if x > 0.05],
        metrics=("invalid/share",),
        share=share.last,
        first=share.first,
    )


@rule(
    "truncation",
    "likely",
    needs=("truncated/share|length/max",),
    explains=("constant_reward", "dead_term", "aux_only_gain", *NOTHING_FLOWS, "length_explosion", "late_collapse"),
)
def truncation(run: Run) -> Result:
    """The share of cut-off samples in the last quarter: above .15 it decides what is rewarded; above .05 a note."""
    share, longest, length = run.get("truncated/share"), run.get("length/max"), run.comparable("length/mean")
    if not share:
        return all_at_the_cap(longest, length)
    metrics = ("truncated/share", "length/mean")
    if share.last <= 0.15:
        if share.mean <= 0.05:
            return None
        return finding(
            "truncation", "info", share.rows, variant="note", metrics=metrics, share=share.last, mean=share.mean
        )
    cap = longest.high if longest else length.high if length else 0.0
    ended = run.get("length/terminated")
    never = share.last > 0.9 and ended is not None and ended.last < 0.5
    return finding(
        "truncation",
        "serious" if share.last > 0.5 else "warning",
        [r for r, x in zip(share.rows, share.values) if x > 0.15],
        variant="eos" if never else "",
        changes=LONGER,
        metrics=metrics,
        share=share.last,
        first=share.first,
        cap=cap,
    )


def all_at_the_cap(longest: Series | None, length: Series | None) -> Result:
    """Where no share was logged: mean = longest = the same number in most rows."""
    if not longest or not length or len(length) < 4 or longest.high < 8:
        return None
    cap = longest.high
    rows = [r for r, top, middle in paired(longest, length) if top >= cap and middle >= 0.995 * cap]
    if len(rows) < 0.5 * len(length):
        return None
    return finding(
        "truncation", "warning", rows, variant="cap", changes=LONGER, count=len(rows), of=len(length), cap=cap
    )


@rule("dead_term", "certain", needs=("reward/mean",), explains=("aux_only_gain",))
def dead_term(run: Run) -> Result:
    """Parts of the reward that never moved. At least half of them dead and no gain: a warning; else a note."""
    parts = run.components
    dead = {name: s for name, s in parts.items() if len(s) >= 3 and s.constant}
    spread = run.family("reward/component_std/")
    dead = {name: s for name, s in dead.items() if name not in spread or spread[name].high < 1e-6}
    if not dead or len(parts) < 2:
        return None
    p = progress(run)
    bad = len(dead) * 2 >= len(parts) and p is not None and p.flat
    floor = [name for name, s in dead.items() if s.mean <= 0]
    names = ", ".join(f"{name} = {s.mean:.3g}" for name, s in sorted(dead.items()))
    rows = next(iter(dead.values())).rows
    return finding(
        "dead_term",
        "warning" if bad else "info",
        rows,
        variant="floor" if floor else "ceiling",
        names=names,
        count=len(dead),
        of=len(parts),
        metrics=tuple(f"reward/component/{name}" for name in dead),
    )


@rule("aux_only_gain", "likely", needs=("reward/mean",), trend=True)
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
        "aux_only_gain",
        "warning",
        p.reward.rows[-p.reward.quarter_size :],
        gain=p.reward.gain,
        aux=from_aux,
        main=from_main,
        names=", ".join(sorted(aux)),
        mains=", ".join(sorted(main)),
        metrics=("reward/mean",),
    )

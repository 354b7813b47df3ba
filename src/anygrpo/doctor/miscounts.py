"""Meters known to count something else than their name says, by framework; and the algebra that notices others.

A column is never believed against arithmetic: a share lies in [0, 1], a mean between its extremes, a standard deviation
of n values is at most (max - min) / sqrt(2). What breaks such a law is told, and shares that do are read by no rule.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from anygrpo.doctor.names import NOT_COMPARABLE
from anygrpo.doctor.series import Series, paired
from anygrpo.spoken import Text

if TYPE_CHECKING:
    from anygrpo.doctor.columns import Columns

SHARES = (
    "clip/fraction",
    "clip/low",
    "clip/high",
    "truncated/share",
    "groups/dead",
    "groups/all_best",
    "groups/all_worst",
    "advantage/one_sign",
    "tools/failures",
)
"""Metrics that are shares."""


@dataclass(frozen=True)
class Known:
    """A meter of a framework.

    Attributes:
        framework: as `canonical.framework_of` names it; "" where the column's name alone tells.
        column: its name, without "train/".
        seen: when its code was last seen to count so (year-month); newer versions may have mended it.
        versions: in which it counts so, read at the tags of its repository; "" where it was never read otherwise.
        counts: what it counts.
        shown: the test of the same log that proves it there, if one can: a key of `SHOWN`.
    """

    framework: str
    column: str
    seen: str
    counts: Text
    shown: str = ""
    versions: str = ""


KNOWN: tuple[Known, ...] = (
    Known(
        "verl",
        "response_length/clip_ratio",
        "2026-09",
        Text(
            "answers as long as their batch's longest (V1 trainer), not as the limit: never 0",
            "与本批最长回答一样长的份额（V1 训练器），不是达到上限的：永不为 0",
        ),
        "varying_cap",
        "0.9.0-",
    ),
    Known(
        "verl",
        "response_length/clip_ratio",
        "2026-09",
        Text(
            "nothing, where the context limit (max_model_len) cuts",
            "当上下文上限（max_model_len）先截断时，什么也没统计",
        ),
        "silent_cap",
    ),
    Known(
        "verl",
        "actor/pg_loss",
        "2026-03",
        Text(
            "a loss summed over mini-batches and passes (from 0.7; in 0.6 divided by the number of micro-batches;"
            " before 0.6 the plain mean)",
            "对小批和多遍求和的损失（自 0.7；0.6 里除以微批数；0.6 之前是普通均值）",
        ),
        versions="0.6.0-",
    ),
    Known(
        "verl",
        "actor/kl_loss",
        "2026-03",
        Text(
            "a KL summed over mini-batches and passes (from 0.7; in 0.6 divided by the number of micro-batches;"
            " before 0.6 the plain mean)",
            "对小批和多遍求和的 KL（自 0.7；0.6 里除以微批数；0.6 之前是普通均值）",
        ),
        versions="0.6.0-",
    ),
    Known(
        "slime",
        "rollout/response_length_clip_ratio",
        "2025-08",
        Text("answers longer than the limit: always 0", "超过上限的回答：恒为 0"),
        "silent_cap",
    ),
    Known(
        "trl",
        "sampling/importance_sampling_ratio/mean",
        "2026-09",
        Text(
            "the ratio of whole answers, a product over tokens, in the modes sequence_mask (the default) and"
            " sequence_truncate from 0.26; tokens' own ratios before",
            "0.26 起默认（sequence_mask）和 sequence_truncate 下是整条回答的比值，即对 token 连乘；之前是逐 token 的",
        ),
        "product",
        "0.26.0-",
    ),
    Known(
        "trl",
        "reward_std",
        "2026-09",
        Text(
            "the mean spread inside groups to 0.26 (that of the batch with scale_rewards=batch, from 0.22); that of the"
            " batch from 0.27",
            "0.26 及以前是组内标准差的均值（0.22 起若 scale_rewards=batch 则是整批的）；0.27 起是整批的标准差",
        ),
        versions="0.27.0-",
    ),
    Known(
        "ms-swift",
        "rewards/*/std",
        "2026-09",
        Text("the spread over the batch, while reward_std is inside groups", "整批的标准差，而 reward_std 是组内的"),
    ),
    Known(
        "",
        "actor/clip_fraction",
        "2026-08",
        Text("in RLinf a count over action dimensions, divided by samples", "RLinf 中按动作维度和分块计数再除以样本数"),
    ),
    Known(
        "",
        "actor/approx_kl",
        "2026-08",
        Text("in RLinf a sum over action dimensions and chunks", "RLinf 中按动作维度和分块求和"),
    ),
    *(Known("", key, "2026-09", Text(text, text)) for key, text in NOT_COMPARABLE.items()),
)


def known_here(run: Columns) -> list[Known]:
    """Those whose column this log has."""
    from anygrpo.doctor.canonical import normalise

    names = {normalise(c) for c in run.columns}
    return [k for k in KNOWN if k.framework in ("", run.framework) and any(_fits(k.column, n) for n in names)]


def _fits(pattern: str, name: str) -> bool:
    head, star, tail = pattern.partition("*")
    return name == pattern or bool(star and name.startswith(head) and name.endswith(tail))


@dataclass(frozen=True)
class Broken:
    """A law that columns of a log break.

    Attributes:
        law: key of the sentence.
        name: canonical metric that is not believed.
        keys: the columns.
        rows: where.
        share: of the rows that have them.
    """

    law: str
    name: str
    keys: tuple[str, ...]
    rows: tuple[int, ...]
    share: float


def broken(series: dict[str, Series]) -> list[Broken]:
    """Every law that is broken in more than one row in fifty (a few rows may be misprints), beyond a twentieth."""
    found = [
        Broken(law, name, keys, tuple(rows), len(rows) / n)
        for law, name, keys, rows, n in _laws(series)
        if n and len(rows) > max(1.0, 0.02 * n)
    ]
    return found


Law = tuple[str, str, tuple[str, ...], list[int], int]


def _laws(series: dict[str, Series]) -> Iterator[Law]:
    for name in SHARES:
        if s := series.get(name):
            yield "share", name, (s.key,), [r for r, x in zip(s.rows, s.values) if not -0.05 <= x <= 1.05], len(s)
    for stem in ("reward/", "length/", "ratio/", "mismatch/ratio_"):
        yield from _ordered(series, f"{stem}mean", f"{stem}max", f"{stem}min")
    yield from _ordered(series, "clip/high", "clip/high_max", "")
    yield from _ordered(series, "clip/low", "", "clip/low_min")
    for name in ("reward/std", "reward/std_within"):
        yield from _spread(series, name)
    yield from _clips(series)
    if s := series.get("grad_norm/total"):
        yield "norm", "grad_norm/total", (s.key,), [r for r, x in zip(s.rows, s.values) if x < 0], len(s)


def _ordered(series: dict[str, Series], middle: str, top: str, bottom: str) -> Iterator[Law]:
    mean = series.get(middle)
    for other, sign in ((top, 1), (bottom, -1)):
        edge = series.get(other)
        if mean and edge:
            both = paired(mean, edge)
            rows = [r for r, m, e in both if sign * (m - e) > 1e-3 * max(1e-3, abs(m), abs(e))]
            yield "order", other, (mean.key, edge.key), rows, len(both)


def _spread(series: dict[str, Series], name: str) -> Iterator[Law]:
    spread, top, low = series.get(name), series.get("reward/max"), series.get("reward/min")
    if not spread or not top or not low:
        return
    highs, lows = top.at(), low.at()
    both = [(r, x, highs[r] - lows[r]) for r, x in zip(spread.rows, spread.values) if r in highs and r in lows]
    rows = [r for r, x, width in both if x > 1.001 * width / math.sqrt(2) + 1e-6]
    yield "spread", name, (spread.key, top.key, low.key), rows, len(both)


def _clips(series: dict[str, Series]) -> Iterator[Law]:
    whole = series.get("clip/fraction")
    for name in ("clip/low", "clip/high"):
        part = series.get(name)
        if whole and part and whole.key != part.key and part.key not in whole.key:
            both = paired(whole, part)
            yield "part", name, (whole.key, part.key), [r for r, w, p in both if p > w + 1e-3], len(both)


def _varying_cap(run: Columns) -> str:
    """Answers are cut at one length, the limit; a longest that varies in rows whose share is above 0 shows another."""
    share, longest = run.get("truncated/share"), run.get("length/max")
    cut = [top for _, x, top in paired(share, longest) if x > 0] if share and longest else []
    whole = all(x == round(x) for x in cut)  # averages over several steps vary anyway
    return f"{min(cut):.0f}-{max(cut):.0f}" if len(cut) >= 4 and whole and max(cut) > 1.02 * min(cut) else ""


def _silent_cap(run: Columns) -> str:
    """A longest answer that is the same in most rows, and a share of cut ones that is 0 in all."""
    share, longest = run.get("truncated/share"), run.get("length/max")
    if not share or not longest or share.high > 0 or len(longest) < 8:
        return ""
    at_top = sum(x == longest.high for x in longest.values)
    return f"{longest.high:.0f} ({at_top} x)" if at_top > 0.5 * len(longest) and longest.high >= 8 else ""


def _product(run: Columns) -> str:
    """One token's log-prob differs little, the ratio much."""
    gap, ratio = run.get("mismatch/log_prob"), run.get("mismatch/ratio_mean")
    small = gap is not None and 0 < abs(gap.median) < 0.02
    return f"{gap.median:.2g}, {ratio.median:.2g}" if gap and small and ratio and abs(ratio.median - 1) > 0.3 else ""


SHOWN: dict[str, Callable[[Columns], str]] = {
    "varying_cap": _varying_cap,
    "silent_cap": _silent_cap,
    "product": _product,
}
"""Test of a known meter on the log that has it: the numbers that show it, or ""."""


def rename_batch_std(series: dict[str, Series]) -> None:
    """TRL's `reward_std` was the mean std within groups and is, in newer versions or settings, the std of the batch.

    It is the batch's wherever it is above 0 in a row whose groups all have no spread. A batch without any spread
    has none in its groups. TRL's own `reward_std` is the batch's from 0.27 on (logs with `step_time`, 0.26 had it too),
    unless it differs from the spread of its only part, which is always the batch's. TRL's it is known to be by TRL's
    name of the share of such groups beside it. A row or two pasted without that share, with a time of the step or
    with the spread of an only part, is not taken for that inside groups either.
    """
    within, dead = series.get("reward/std_within"), series.get("groups/dead")
    spread = series.get("reward/std")
    if spread and not within and len(spread) and spread.low == spread.high == 0:
        series["reward/std_within"] = replace(spread, name="reward/std_within")  # none in the batch: none in a group
    if not within or "reward/std" in series:
        return
    share = dead.at() if dead else {}
    parts = [s for name, s in series.items() if name.startswith("reward/component_std/")]
    other = len(parts) == 1 and any(abs(x - y) > 1e-4 * (x + y) for _, x, y in paired(within, parts[0]))
    timed = "time/step" in series
    trls = dead is not None and dead.key.endswith("frac_reward_zero_std") and timed
    pasted = not dead and len(within) < 3 and (timed or len(parts) == 1)
    recent = within.key.endswith("reward_std") and (trls or pasted)
    shown = any(x > 1e-3 and share.get(r, 0.0) >= 1.0 for r, x in zip(within.rows, within.values))
    if shown or (recent and not other):
        series["reward/std"] = replace(series.pop("reward/std_within"), name="reward/std")

"""Has the run learned? The question that most rules ask first, answered once and the same way."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace

from anygrpo.doctor.canonical import DISTANCE, LIKENESS, MATCHING, words_of
from anygrpo.doctor.columns import Columns
from anygrpo.doctor.series import Series, mean

LONG_ENOUGH = 8
"""Rows below which no trend is read."""

_END = r"(?:[_@/]?\d+k?(?:_full)?|[_/](?:mean|avg|ema|vgg|alex|score|value|dist(?:ance)?)|/[\w-]+)?$"
_OF_A_PART = r"(?![a-z])(?!_(?:loss|error))"
"""Behind a likeness any channel, data set or degradation may stand: "psnr_y", "psnr/rain"."""
LOWER_IS_BETTER = re.compile(
    rf"^(?!.*(?:reward|(?:^|[/_])(?:neg|inv|minus)(?:[/_]|$)))(?:.*/)?(?:(?:\w+_)?(?:{DISTANCE}){_END}|{MATCHING}$)"
)
"""Whole last parts of a name: "clean_fid", "fid_50k"; no "fidelity", "lpips_reward" or "string_matching_score"."""
OUTCOME = re.compile(
    r"(?:^|[/_@.])(?:acc|accuracy|reward|score|pass|success|win|exact|em|f1|solve|correct|avg)"
    rf"|(?:^|/)(?:\w+_)?(?:{LIKENESS}){_OF_A_PART}|{LOWER_IS_BETTER.pattern}"
)
NO_OUTCOME = re.compile(
    r"std|_se(?:$|/)|best|worst|max|min|length|token|turn|time|kl|entropy|clip|trunc|penalty|format|dead|(?:^|/)aux/|perplexity|ppl|distinct|outside|reward_gain"
)


@dataclass(frozen=True)
class Progress:
    """The main reward, last quarter against first.

    `rose`: a gain beyond what the log can show (MDE), or beyond half of that with a monotone trend at p < .01, or a
    rise within the first quarter (first twentieth against last half) of more than 4 standard errors.
    `fell`: a loss beyond MDE with a trend at p < .01.
    `flat`: none of these, although the log could have shown a gain worth wanting.
    `unclear`: it could not, or there is a hint of one (over half an MDE, trend at p < .05).
    """

    reward: Series

    @property
    def trending(self) -> bool:
        return self.reward.trending

    @property
    def rose(self) -> bool:
        r = self.reward
        return r.gain > r.mde or (self.trending and r.gain > r.mde / 2) or self.rose_early

    @property
    def rose_early(self) -> bool:
        r = self.reward
        n, few = len(r), max(4, len(r) // 20)
        if n < 20 or r.gain < -r.mde:
            return False
        rest = r.values[n // 2 :]
        return mean(rest) - mean(r.values[:few]) > 4 * r.noise * math.sqrt(r.inertia * (1 / few + 1 / len(rest)))

    @property
    def fell(self) -> bool:
        return self.reward.gain < -self.reward.mde and self.trending

    @property
    def wanted(self) -> float:
        """The smallest gain worth wanting: half of where the run started (of what is left to 1, for a share), or three
        quarters of a row's noise."""
        r = self.reward
        share = r.low >= 0 and r.high <= 1
        half = 0.5 * min(r.first, 1 - r.first) if share else 0.5 * abs(r.first)
        return max(half, 0.75 * r.noise)

    @property
    def still(self) -> bool:
        return not self.rose and not self.trending and abs(self.reward.gain) <= self.reward.mde

    @property
    def flat(self) -> bool:
        r = self.reward
        hint = r.gain > r.mde / 2 and r.p < 0.05
        return self.still and r.mde <= self.wanted and not hint

    @property
    def unclear(self) -> bool:
        return self.still and not self.flat


def progress(run: Columns) -> Progress | None:
    """None where there is no reward, or too little of it for a trend."""
    reward = run.get("reward/mean")
    return Progress(reward) if reward and len(reward) >= LONG_ENOUGH else None


def lost_everything(run: Columns) -> bool:
    """Whether the reward ends at its floor (its last tenth, three rows at least, all there) after a life above it."""
    reward = run.get("reward/mean")
    if not reward or len(reward) < LONG_ENOUGH:
        return False
    late = reward.values[-max(3, len(reward) // 10) :]
    return max(late) == min(late) == reward.low and reward.first > reward.low


def of_episodes(key: str) -> bool:
    """Whether a length is that of an environment's episodes: "rollout/ep_len_mean", "episodic_length"."""
    return bool({"ep", "episode", "episodes", "episodic", "eplen"} & set(words_of(key)))


def rose(run: Columns) -> bool:
    p = progress(run)
    return bool(p and p.rose)


def outcomes(run: Columns) -> dict[str, Series]:
    """Held-out measures of success (accuracy, reward, pass rate): not their spread, lengths or times.

    A distance (FID) comes with the other sign, and says so: "-FID".
    """
    return {
        name: replace(s, key=f"-{s.key}", values=tuple(-x for x in s.values)) if LOWER_IS_BETTER.search(name) else s
        for name, s in run.evals.items()
        if len(s) >= 3 and OUTCOME.search(name) and not NO_OUTCOME.search(name)
    }


def held_out_rose(run: Columns) -> bool:
    seen = outcomes(run).values()
    return paired_rose(run) or any(s.gain > 0 and s.gain > min(s.mde, 2 * max(s.noise, 1e-9)) for s in seen)


def paired_rose(run: Columns) -> bool:
    """Whether the same held-out prompts earn more than at the run's first evaluation, by over 3 standard errors of that
    difference (a run folder of ours holds each prompt's own result): the difficulty of prompts cancels. That is told
    by the last evaluation, or not at all: an earlier gain may be gone."""
    gain, error, reward = (run.evals.get(k) for k in ("reward_gain", "reward_gain_se", "reward"))
    if not gain or not error or not reward or not gain.rows[-1] == error.rows[-1] == reward.rows[-1]:
        return False
    return gain.values[-1] > 3 * error.values[-1] > 0


def blocks(series: Series, count: int = 8) -> list[float]:
    """Means of `count` equal stretches."""
    n = len(series)
    return [mean(series.values[i * n // count : (i + 1) * n // count]) for i in range(count)]


def loss_kl_slope(run: Columns) -> float | None:
    """The number beta with loss = beta x KL in (nearly) every row, or None. Row by row, within 3% or print rounding."""
    loss, kl = run.get("loss/total"), run.comparable("kl/reference")
    if not loss or not kl:
        return None
    other = kl.at()
    pairs = [(x, other[r]) for r, x in zip(loss.rows, loss.values) if r in other and abs(other[r]) > 1e-9]
    if len(pairs) < 5:
        return None
    step = rounding([x for x, _ in pairs])
    total = sum(k * k for _, k in pairs)
    beta = sum(x * k for x, k in pairs) / total
    if beta <= 0 or max(abs(x) for x, _ in pairs) <= 3 * step:
        return None
    near = sum(abs(x - beta * k) <= 0.03 * abs(beta * k) + step for x, k in pairs)
    return beta if near >= 0.9 * len(pairs) else None


def rounding(values: list[float]) -> float:
    """Half a unit of the last printed decimal where all values are short decimals, else 0."""
    for digits in range(7):
        if all(abs(x - round(x, digits)) < 1e-12 for x in values):
            return 0.5 * 10.0**-digits
    return 0.0


def moved(run: Columns) -> bool | None:
    """Whether the policy left its start: False where KL to it stayed small and did not double; None where not logged.

    A policy that has not moved has learned nothing, so it has lost nothing either.
    """
    kl = run.comparable("kl/reference")
    if not kl or len(kl) < LONG_ENOUGH or all(x == 0 for x in kl.values):  # a column of zeros was not measured
        return None
    late = abs(mean(kl.tail(0.5)))
    return not (late < 1e-3 or (late < 0.01 and kl.end < 2 * abs(kl.start)))


def payable(run: Columns, kl: Series) -> float | None:
    """The largest change of a mean reward that a policy at this KL can have brought; None where it can't be told.

    Pinsker: |E_p[r] - E_q[r]| <= (max r - min r) sqrt(KL(p, q) / 2), KL of a whole answer: length times KL a token.
    """
    length, top, floor = run.get("length/mean"), run.get("reward/max"), run.get("reward/min")
    reward = run.get("reward/mean")
    if not length or not reward or kl.low < -1e-6:
        return None
    if top and floor:
        reach = top.high - floor.low
    elif reward.low >= 0 and reward.high <= 1:
        reach = 1.0
    else:
        return None
    return reach * math.sqrt(max(0.0, mean(kl.tail(0.25))) * length.high / 2)


def worthless(run: Columns, p: Progress, kl: Series) -> bool:
    """Whether the reward changed by less than is worth wanting, and a policy so near to its start can do no better."""
    most = payable(run, kl)
    return most is not None and most < p.wanted / 2 and not p.fell and p.reward.gain < p.wanted

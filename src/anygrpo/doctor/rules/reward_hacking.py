"""The reward rose, an independent measure did not."""

from __future__ import annotations

import math
import re

from anygrpo.doctor.columns import Columns
from anygrpo.doctor.evidence.progress import outcomes, progress
from anygrpo.doctor.rule import Result, finding, rule
from anygrpo.doctor.series import Series, correlation, paired
from anygrpo.doctor.synthetic import Case, evaluated, healthy, line, wiggle
from anygrpo.spoken import Text

WORDS = {
    "title": Text("The reward rose, an independent measure did not", "奖励上升，独立的度量没有"),
    "evidence:measure": Text(
        "The trained reward rose from {r_first} to {r_last}; {name}, which is not trained on, went from {first}"
        " to {last}.",
        "训练的奖励从 {r_first} 升到 {r_last}；没有参与训练的 {name} 从 {first} 到 {last}。",
    ),
    "evidence:perplexity": Text(
        "The trained reward rose from {r_first} to {r_last} while {name} went from {first} to {last}: the texts"
        " left the language.",
        "训练的奖励从 {r_first} 升到 {r_last}，同时 {name} 从 {first} 变为 {last}：文本已经不像语言。",
    ),
    "evidence": Text("The trained reward rose and {name} did not.", "训练的奖励上升，而 {name} 没有。"),
    "cause": Text("The reward can be had without the thing it stands for.", "不做到该做的事也能拿到奖励。"),
    "prescription": Text(
        "Read 20 samples of the last step. Mend the verifier, mix the truth into the reward, or stop at the"
        " step where they part.",
        "读最后一步的 20 条样本。修补验证器，把真实指标混入奖励，或停在两者分开的那一步。",
    ),
    "principle": Text("a proxy parted from what it stands for", "替代指标离开了它所代表的东西"),
    "unlike": Text(
        "an evaluation with the same reward model: it agrees with the hack", "用同一个奖励模型做的评测：它与作弊一致"
    ),
}


@rule(
    stage="aim",
    order=10,
    certainty="likely",
    experiment="gold_and_wrong",
    needs=("reward/mean",),
    trend=True,
    explains=("length_collapse", "length_explosion"),
)
def reward_hacking(run: Columns) -> Result:
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


def hacked(run: Columns, name: str, s: Series, reward: Series, variant: str) -> Result:
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
        explains=("truncation",) if grew(run.get("truncated/share")) else (),
    )


def grew(share: Series | None) -> bool:
    """Whether cut-off answers came with the reward: few at first, many later. Then length is what was paid for."""
    return bool(share) and share.start < 0.2 and share.last > 2 * share.start and share.gain > 0.1


NO_SUCCESS = {
    "failure", "failures", "failed", "fail", "error", "errors", "invalid", "valid", "judged", "eligible", "parsed",
    "timeout", "timeouts", "retry", "retries", "format", "length", "penalty", "cost",
}  # fmt: skip
"""Words of shares that tell how scoring went, not how well the answers did."""


def independent(run: Columns) -> list[tuple[str, Series]]:
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
            full = s.high <= 1 and s.first > 0.9  # no room to show the gain
            if full or NO_SUCCESS & set(re.split(r"[/_]", name)):
                continue
            if abs(correlation([x for _, x, _ in pairs], [y for _, _, y in pairs])) < 0.9:
                found.append((s.key, s))
    for s in outcomes(run).values():
        if len(s) >= 4 and not s.constant and s.mde < 0.5 * reward.gain and not same_reward(run, s):
            found.append((s.key, s))
    return found


def same_reward(run: Columns, s: Series) -> bool:
    """An evaluation with the trained reward itself agrees with a hack: it is no independent witness."""
    return s.name == "eval/reward" or s.name.startswith("eval/reward/")


def fires() -> Case:
    return (
        evaluated(healthy(120), eval_accuracy=wiggle(0.4, 0.005)),
        {},
    )


def silent() -> Case:
    return (evaluated(healthy(120), eval_accuracy=line(0.2, 0.6)), {})

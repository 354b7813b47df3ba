"""Cards of the normalisers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from anygrpo.choices.card import Card
from anygrpo.spoken import Text

_BOTH = ("advantage_clip",)
_STD = ("std_floor", "ddof", "epsilon", "advantage_clip")
_METRICS = ("advantage/mean", "advantage/std", "advantage/abs_max", "advantage/one_sign", "advantage/clipped")
_OPTIONS: Mapping[str, Any] = {"metrics": _METRICS}


def _card(name: str, formula: str, source: str, sentence: Text, settings: tuple[str, ...], **more: Any) -> Card:
    function = f"anygrpo.algorithm.normalisers:{name}"
    given = {"baseline": "group", **_OPTIONS, **more}
    return Card("advantage", name, function, formula, sentence, source, settings, **given)


ADVANTAGES = (
    _card(
        "zscore",
        "(r - mean) / max(std, floor) in the group",
        "GRPO, arXiv 2402.03300",
        Text(
            "A reward minus its group's mean, in units of the group's standard deviation.",
            "奖励减去组均值，再除以组内标准差。",
        ),
        _STD,
    ),
    _card(
        "centred",
        "r - mean",
        "Dr. GRPO, 2503.20783",
        Text(
            "A reward minus its group's mean; easy and hard prompts keep their own scale.",
            "奖励减去组均值，不除以标准差，难易提示各保持自己的尺度。",
        ),
        _BOTH,
    ),
    _card(
        "leave_one_out",
        "r_i - mean of the others",
        "RLOO, 2402.14740",
        Text(
            "A reward minus the mean of the other samples of its group: an unbiased baseline.",
            "奖励减去同组其他样本的均值：无偏基线。",
        ),
        _BOTH,
    ),
    _card(
        "leave_one_out_std",
        "(r_i - mean of the others) / std of the others; undivided where the others are constant",
        "NeMo-RL's default",
        Text(
            "The leave-one-out advantage in units of the others' standard deviation.",
            "留一法优势再除以其他样本的标准差；其他样本全相同时不除。",
        ),
        _STD,
    ),
    _card(
        "rank",
        "2 rank / (n - 1) - 1, ties share their mean rank; std sqrt((n+1) / (3(n-1))) without ties",
        "",
        Text(
            "Only the order of a group's rewards counts; equal rewards share their rank.",
            "排名归一化优势：只看组内奖励的次序，相同奖励共享名次。",
        ),
        _BOTH,
    ),
    _card(
        "batch",
        "(r - group mean) / std of all rewards of the batch",
        'TRL `scale_rewards="batch"`; 2508.08221',
        Text(
            "A reward minus its group's mean, in units of the whole batch's standard deviation.",
            "奖励减去组均值，再除以整个批次的标准差。",
        ),
        _STD,
    ),
    _card(
        "whitened",
        "r - group mean, then centred and scaled over the batch",
        "REINFORCE++-baseline, 2501.03262",
        Text(
            "Group-centred rewards, then centred and scaled over the whole batch.",
            "先减去组均值，再在整个批次上中心化并缩放。",
        ),
        _STD,
    ),
    _card(
        "overall",
        "(r - mean) / std over the batch, groups ignored",
        "REINFORCE++, 2501.03262",
        Text(
            "Compared across the whole batch, so a group of one is enough.",
            "在整个批次上比较，不看分组，每组一个样本即可。",
        ),
        _STD,
        baseline="batch",
    ),
    _card(
        "running",
        "(r - m) / s, moving mean and standard deviation",
        "",
        Text(
            "Compared with a moving mean over steps, so a group of one is enough.",
            "与跨步的滑动均值比较，每组一个样本即可。",
        ),
        ("running_decay", "std_floor", "epsilon", "advantage_clip"),
        baseline="running",
    ),
    _card(
        "history",
        "(r - m) / s of the prompt's own last rewards; of the batch while it has too few",
        "DDPO, 2305.13301",
        Text(
            "Compared with what the same prompt earned in earlier steps, so a group of one is enough.",
            "与同一提示在先前各步的奖励比较，每组一个样本即可。",
        ),
        ("history_size", "history_least", *_STD),
        baseline="history",
        metrics=(*_METRICS, "groups/own_past"),
    ),
    _card(
        "components",
        "each reward part z-scored in the group, weighted, summed",
        "",
        Text(
            "Each part of the reward is compared by itself, then the parts are added by weight.",
            "各奖励分量分别在组内标准化，再加权求和。",
        ),
        ("component_weights", *_STD),
        by_part=True,
    ),
    _card(
        "gdpo",
        "`components`, then centred and scaled over the batch",
        "GDPO, 2601.05242",
        Text(
            "As components, then scaled over the batch, so the number of parts sets no scale.",
            "同 components，再在批次上缩放，分量个数不影响尺度。",
        ),
        ("component_weights", *_STD),
        by_part=True,
    ),
    _card(
        "maxrl",
        "(r - mean) / mean, rewards >= 0",
        "MaxRL, 2602.02710",
        Text(
            "A reward minus its group's mean, over that mean: rare successes weigh more.",
            "奖励减去组均值再除以组均值：罕见的成功权重更大。",
        ),
        ("epsilon", "advantage_clip"),
    ),
    _card(
        "gpg",
        "(r - mean) x valid samples / samples with r != 0",
        "GPG, 2504.02546",
        Text(
            "Group-centred rewards, scaled up by the share of samples that earned anything.",
            "减去组均值，并按得到非零奖励的样本比例放大。",
        ),
        _BOTH,
    ),
    _card(
        "pass_at_k",
        "k (E max over i and k - 1 others - E max over k others)",
        "2505.15201",
        Text(
            "Rewards the best of k samples instead of each one: for pass@k, with exploration.",
            "奖励 k 个样本中的最好者而非每一个：直接优化 pass@k。",
        ),
        ("pass_k", "advantage_clip"),
    ),
    _card(
        "best_gap",
        "best: (best - second) / std; others 0",
        "verl `grpo_passk`; 2503.19595",
        Text(
            "Only the group's best sample learns, by its lead over the second best.",
            "只有组内最好的样本得到优势，大小为领先第二名的幅度。",
        ),
        _STD,
    ),
)

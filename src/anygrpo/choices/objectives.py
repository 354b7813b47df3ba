"""Cards of the objectives."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from anygrpo.choices.card import Card
from anygrpo.spoken import Text

_RATIO = ("log_ratio/mean", "log_ratio/abs_max", "ratio/mean", "ratio/max", "kl/behaviour", "guarded", "loss/policy")
_CLIP = ("clip/low", "clip/high")
_CLIPS = ("clip_low", "clip_high", "dual_clip", "ratio_guard")
_NO_RATIO: Mapping[str, Any] = {"metrics": _RATIO}


def _card(name: str, formula: str, source: str, sentence: Text, settings: tuple[str, ...], **more: Any) -> Card:
    given = {"metrics": (*_RATIO, *_CLIP), **more}
    return Card("objective", name, f"anygrpo.algorithm.objectives:{name}", formula, sentence, source, settings, **given)


OBJECTIVES = (
    _card(
        "ppo",
        "-min(r A, clip(r, 1 - low, 1 + high) A); `dual`: at most dual x abs(A) for A < 0",
        "1707.06347, 2503.14476, 1912.09729",
        Text(
            "Moves each decision until its ratio leaves the clip range, then stops.",
            "逐决策更新，比值超出裁剪范围后不再有梯度。",
        ),
        _CLIPS,
        metrics=(*_RATIO, *_CLIP, "clip/dual"),
    ),
    _card(
        "gspo",
        "-min(s A, clip(s, 1 - low, 1 + high) A), s = exp(mean log r) of the sequence; `dual` as in ppo",
        "2507.18071",
        Text(
            "PPO's clip on one ratio a sample, the geometric mean over its decisions.",
            "对整个序列的长度归一化比值做 PPO 裁剪，每个样本一个比值。",
        ),
        _CLIPS,
        metrics=(*_RATIO, *_CLIP, "clip/dual"),
        whole_sequence=True,
        defaults={"clip_low": 3e-4, "clip_high": 4e-4, "reduction": "sequence_mean"},
    ),
    _card(
        "cispo",
        "-sg(clip(r, 1 - low, 1 + high)) A log new",
        "2506.13585",
        Text(
            "Limits the weight of a decision, not its gradient: no decision is lost.",
            "只限制决策的权重，不截掉其梯度：没有决策被丢弃。",
        ),
        ("clip_low", "clip_high"),
        defaults={"clip_low": 1.0, "clip_high": 4.0, "reduction": "token_mean"},
    ),
    _card(
        "sapo",
        "-(4 / tau) sigmoid(tau (r - 1)) A, tau by the sign of A",
        "2511.20347",
        Text(
            "A soft gate in place of the clip: the gradient fades with the ratio's distance from 1.",
            "用平滑的门代替裁剪：比值离 1 越远，梯度越弱。",
        ),
        ("tau_positive", "tau_negative", "ratio_guard"),
        defaults={"tau_positive": 1.0, "tau_negative": 1.05, "reduction": "sequence_mean"},
        **_NO_RATIO,
    ),
    _card(
        "reinforce",
        "-A log new",
        "Williams 1992",
        Text(
            "The plain policy gradient: right for samples of the present weights alone.",
            "最朴素的策略梯度：只适用于当前权重采样的样本。",
        ),
        (),
        **_NO_RATIO,
    ),
    _card(
        "supervised",
        "-log new",
        "",
        Text(
            "Cross-entropy of given actions (a stage's method, not a recipe's objective).",
            "给定动作的交叉熵（阶段的 method，不是 objective）。",
        ),
        (),
        metrics=("loss/policy",),
    ),
    _card(
        "rce",
        "-w log new, w >= 0",
        "",
        Text(
            "Cross-entropy weighted by reward (a stage's method, not a recipe's objective).",
            "按奖励加权的交叉熵（阶段的 method，不是 objective）。",
        ),
        ("rce_temperature", "rce_variant"),
        metrics=("loss/policy",),
    ),
)

METHODS = frozenset({"supervised", "rce"})
"""Named by a stage's `method`, never by `objective`."""

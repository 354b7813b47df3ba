"""One batch of the run itself: how large its loss is for what it weighs, and which written settings can do nothing."""

from __future__ import annotations

from typing import Any

import torch

from anygrpo.doctor import Finding
from anygrpo.probes.confirm.ground import Ground, Trial
from anygrpo.probes.idle_settings import no_effect
from anygrpo.probes.subject import Subject
from anygrpo.spoken import Text
from anygrpo.train.batches import Prepared, weigh

_SUMMED = 10.0
"""Times a mean from which a loss is a sum of some kind."""
_LARGE = 100.0
"""A largest |advantage| that no normaliser gives."""


def one_batch(ground: Ground, rule: str, finding: Finding | None) -> Trial:
    """A batch at the newest weights: the loss under advantages of 1, or the settings that cannot act on it."""
    del finding
    with ground.subject(ground.newest) as subject:
        return _scale(subject) if rule == "loss_scale" else _idle(subject)


def _scale(subject: Subject) -> Trial:
    """With every advantage 1 and ratios near 1, a mean is -1; a sum is as much larger as it has terms."""
    rollout = subject.small
    prepared = subject.prepared()
    advantages = prepared.advantages
    mask = rollout.mask & rollout.valid[..., None]
    ones = subject.ready(
        weigh(Prepared(rollout, torch.ones_like(rollout.rewards), mask, {}, limit=prepared.limit), subject.stage)
    )
    with subject.untouched():
        tally = subject.accumulate(subject.updater(), ones)
    value = abs(float(tally.sums["loss/policy"]))
    numbers: dict[str, Any] = {"value": value, "top": float(advantages.abs().max()) if advantages.numel() else 0.0}
    text = Text(
        "with every advantage 1 the policy loss is {value:.3g} in size, where a mean is 1; the largest advantage of"
        " this batch is {top:.3g}",
        "所有优势都取 1 时，策略损失的大小为 {value:.3g}（求平均应为 1）；这一批最大的优势为 {top:.3g}",
    )
    if value > _SUMMED:
        return Trial("confirmed", text + Text(": it is a sum", "：这是求和"), numbers)
    if numbers["top"] > _LARGE:
        tail = Text(": the advantages are not normalised", "：优势没有归一化")
        return Trial("confirmed", text + tail, numbers)
    return Trial("refuted", text, numbers)


def _idle(subject: Subject) -> Trial:
    """Settings that are written in the recipe and can change nothing of a batch."""
    outcome = no_effect(subject)
    numbers = {"en": outcome.say("en"), "zh": outcome.say("zh")}
    if outcome.status == "not applicable":
        return Trial("undecided", Text("not decided: {en}", "无法判定：{zh}"), numbers)
    return Trial("confirmed" if outcome.status == "warning" else "refuted", Text("{en}", "{zh}"), numbers)

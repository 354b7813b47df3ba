"""Settings that were written into the recipe and can do nothing: a clip on policy, a norm limit out of reach, ..."""

from __future__ import annotations

from typing import Any

from anygrpo.core.probe_outcome import Outcome, not_applicable
from anygrpo.probes.subject import Subject
from anygrpo.recipe.recipe import largest_beta
from anygrpo.spoken import Text
from anygrpo.train.measure import advantage_metrics

_OUT_OF_REACH = 100.0
"""A limit of the gradient norm this many times above the norm that was met is not going to act."""
_ONE_SIGN = 0.5
"""Share of live groups whose advantages all have one sign, above which the choice inside groups is drowned."""


def no_effect(subject: Subject) -> Outcome:
    """Terms of the objective that are written in the recipe and have no effect on its updates, each with the reason.

    A setting that was left at its default is not held against the recipe.
    """
    if subject.stage.method != "grpo":
        return not_applicable("no_effect", Text("only GRPO stages have these terms", "只有 GRPO 阶段才有这些项"))
    numbers: dict[str, Any] = {}
    found = [*_clip(subject, numbers), *_reference(subject), *_norm(subject, numbers), *_signs(subject, numbers)]
    if not found:
        return Outcome("no_effect", "ok", Text("every written term can act", "写出的各项都可能起作用"), numbers=numbers)
    text = Text("; ".join(one.en for one in found), "；".join(one.zh for one in found))
    cure = Text(
        "take them out, or make them act: minibatches or epochs above 1 for a clip, beta above 0 for a KL",
        "删去它们，或让它们起作用：要裁剪，minibatches 或 epochs 需大于 1；要 KL,beta 需大于 0",
    )
    return Outcome("no_effect", "warning", text, cure, numbers, certainty="certain")


def _clip(subject: Subject, numbers: dict[str, Any]) -> list[Text]:
    a = subject.stage.algorithm
    updates = a.epochs * a.minibatches
    numbers["updates"] = updates
    late = subject.run.recipe.training.samples_ahead
    written = a.model_fields_set & {"clip_low", "clip_high", "dual_clip"}
    if updates > 1 or late or not written:
        return []
    return [Text(
        "the ratio clip: one update a rollout, so the ratio is 1 when the loss is taken",
        "比值裁剪：每个 rollout 只更新一次，计算损失时比值恒为 1",
    )]  # fmt: skip


def _reference(subject: Subject) -> list[Text]:
    a = subject.stage.algorithm
    if largest_beta(a) or not a.model_fields_set & {"beta", "kl", "kl_controller"}:
        return []
    return [Text("a KL to the reference: beta = 0", "对参考策略的 KL:beta = 0")]


def _norm(subject: Subject, numbers: dict[str, Any]) -> list[Text]:
    limit = subject.stage.optimizer.grad_clip
    if limit is None or not len(subject.batch):
        return []
    with subject.untouched():
        updater = subject.updater()
        subject.accumulate(updater, subject.batch)
        numbers["norm"] = updater.step(subject.rate, measure=False)["grad_norm/total"]
    numbers["limit"] = limit
    if limit < _OUT_OF_REACH * numbers["norm"] or "grad_clip" not in subject.stage.optimizer.model_fields_set:
        return []
    return [Text(
        "grad_clip = {limit:g}: the gradient's norm is {norm:.2g}",
        "grad_clip = {limit:g}：梯度范数为 {norm:.2g}",
    )]  # fmt: skip


def _signs(subject: Subject, numbers: dict[str, Any]) -> list[Text]:
    share = advantage_metrics(subject.prepared(subject.rollout)).get("advantage/one_sign", 0.0)
    numbers["one_sign"] = share
    if share < _ONE_SIGN:
        return []
    return [Text(
        "the comparison inside groups: in {one_sign:.0%} of them all advantages have one sign",
        "组内比较：{one_sign:.0%} 的组内优势同号",
    )]  # fmt: skip

"""Can this policy learn at all? What trains and moves, each term's own gradient, and a made-up preference followed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from anygrpo.core.probe_outcome import Outcome, not_applicable
from anygrpo.core.rollout import Batch
from anygrpo.probes.rate import find_rate
from anygrpo.probes.subject import Subject
from anygrpo.spoken import Text
from anygrpo.train.stages import Numbers

_TERMS = {"policy": "lambda_pg", "supervised": "lambda_supervised", "consistency": "lambda_consistency",
          "entropy": "entropy_coef", "kl": "beta"}  # fmt: skip
_STEERING_STEPS = 10


def trainable(subject: Subject) -> Outcome:
    """Which weights train, which of them receive a gradient, and how far two updates at the planned rate move them.

    Two, because adapters that start at 0 pass no gradient on in the first.
    """
    names = {id(p): name for name, p in subject.module.named_parameters()}
    with subject.untouched():
        updater = subject.updater()
        before = [p.detach().clone() for p in updater.parameters]
        reached: set[str] = set()
        for _ in range(2):
            subject.accumulate(updater, subject.preference)
            reached |= {names[id(p)] for p in updater.parameters if p.grad is not None and bool(p.grad.abs().max() > 0)}
            updater.step(subject.rate, measure=False)
        rows = _by_module(names, updater.parameters, before)
    mine = {names[id(p)]: p.numel() for p in updater.parameters}
    idle = sorted(mine.keys() - reached)
    numbers: dict[str, Any] = {
        "tensors": len(mine),
        "weights": sum(mine.values()),
        "share": sum(mine.values()) / sum(p.numel() for p in subject.module.parameters()),
        "idle": len(idle),
        "idle_names": ", ".join(idle[:4]),
        "largest_move": max((r["relative"] for r in rows), default=0.0),
        "rate": subject.rate,
    }
    return _moves(numbers, rows)


def _moves(numbers: dict[str, Any], rows: list[dict[str, Any]]) -> Outcome:
    if numbers["idle"] == numbers["tensors"]:
        text = Text(
            "none of the {tensors} trainable tensors receives a gradient from the policy loss",
            "{tensors} 个可训练张量都没有从策略损失得到梯度",
        )
        cure = Text(
            "the graph is cut between weights and log-probs: detached log-probs, an adapter that is not active, "
            "requires_grad set on weights that the forward pass does not use",
            "权重与对数概率之间的计算图断开：对数概率被 detach、适配器未启用、前向未使用的权重设了 requires_grad",
        )
        return Outcome("trainable", "serious", text, cure, numbers, rows, "certain")
    if numbers["idle"]:
        text = Text(
            "{idle} of {tensors} trainable tensors receive no gradient: {idle_names}",
            "{tensors} 个可训练张量中 {idle} 个没有梯度：{idle_names}",
        )
        cure = Text("freeze them, or find what keeps them out of the loss", "冻结它们，或查明为何不进入损失")
        return Outcome("trainable", "warning", text, cure, numbers, rows)
    text = Text(
        "{weights} weights in {tensors} tensors train ({share:.1%} of the module); two updates at {rate:.1e} move a "
        "module by at most {largest_move:.1e} of itself",
        "{tensors} 个张量共 {weights} 个权重可训练（占模块 {share:.1%}）；"
        "学习率 {rate:.1e} 两次更新使单个模块最多移动其 {largest_move:.1e}",
    )
    return Outcome("trainable", "ok", text, numbers=numbers, rows=rows)


def _by_module(names: dict[int, str], parameters: list[Any], before: list[Tensor]) -> list[dict[str, Any]]:
    """Relative change of each part of the module, largest first."""
    squares: dict[str, list[float]] = {}
    for p, old in zip(parameters, before):
        part = names[id(p)].rpartition(".")[0] or names[id(p)]
        entry = squares.setdefault(part, [0.0, 0.0])
        entry[0] += float((p.detach() - old).double().square().sum())
        entry[1] += float(old.double().square().sum())
    rows = [{"module": part, "relative": (a / b) ** 0.5 if b else float(a > 0)} for part, (a, b) in squares.items()]
    return sorted(rows, key=lambda r: -r["relative"])


def gradient_terms(subject: Subject) -> Outcome:
    """Each loss term's own gradient norm, and the cosine to the policy term's.

    Measured after one update, since a KL to the starting policy has no gradient at the start.
    """
    if not len(subject.batch):
        return not_applicable("gradient_terms", Text("no group has reward spread here", "没有奖励有差异的组"))
    if subject.stage.method != "grpo":
        return not_applicable("gradient_terms", Text("this stage has one loss only", "该阶段只有一个损失"))
    active = [t for t, field in _TERMS.items() if getattr(subject.numbers, field)]
    with subject.untouched():
        updater = subject.updater()
        subject.accumulate(updater, subject.batch)
        updater.step(subject.rate, measure=False)
        gradients = {term: _gradient(subject, updater, subject.batch, term) for term in active}
        if subject.taught is not None:
            gradients["supervised"] = _gradient(subject, updater, subject.batch.rows(slice(0, 0)), "supervised")
    base = gradients.get("policy")
    norms = {term: float(g.norm()) for term, g in gradients.items()}
    rows = [{"term": t, "norm": norms[t], "cosine_to_policy": _cosine(g, base)} for t, g in gradients.items()]
    numbers: dict[str, Any] = {f"norm/{t}": n for t, n in norms.items()}
    numbers["terms"] = ", ".join(f"{t} {n:.2e}" for t, n in norms.items())
    numbers["dead"] = ", ".join(t for t, n in norms.items() if n == 0)
    numbers["beta"] = subject.numbers.beta
    numbers["kl_share"] = norms.get("kl", 0.0) / norms["policy"] if norms.get("policy") else 0.0
    return _pulls(numbers, norms, rows)


def _pulls(numbers: dict[str, Any], norms: dict[str, float], rows: list[dict[str, Any]]) -> Outcome:
    if norms.get("policy") == 0:
        text = Text(
            "the policy term is switched on and its gradient is exactly 0 ({terms})",
            "策略项已启用，但梯度恰为 0({terms})",
        )
        cure = Text(
            "advantages, log-probs or ratios are constant: see ratio_one, live_groups and trainable",
            "优势、对数概率或比值为常数：见 ratio_one、live_groups、trainable",
        )
        return Outcome("gradient_terms", "serious", text, cure, numbers, rows, "certain")
    if numbers["kl_share"] > 1:
        text = Text(
            "after one update the KL gradient is already {kl_share:.2g} times the policy gradient ({terms})",
            "一次更新后 KL 梯度已是策略梯度的 {kl_share:.2g} 倍（{terms}）",
        )
        cure = Text("lower algorithm.beta ({beta:g}) to 0.001-0.01", "把 algorithm.beta（{beta:g}）降到 0.001-0.01")
        return Outcome("gradient_terms", "warning", text, cure, numbers, rows)
    if numbers["dead"]:
        text = Text("weighted terms without any gradient: {dead} ({terms})", "有权重却没有梯度的项：{dead}({terms})")
        cure = Text("find out why, or set the weight to 0", "查明原因，或把权重设为 0")
        return Outcome("gradient_terms", "warning", text, cure, numbers, rows)
    return Outcome(
        "gradient_terms", "ok", Text("gradient norms: {terms}", "梯度范数：{terms}"), numbers=numbers, rows=rows
    )


def _gradient(subject: Subject, updater: Any, batch: Batch, term: str) -> Tensor:
    """The flat gradient of one weighted term alone."""
    off = {field: 0.0 for t, field in _TERMS.items() if t != term}
    numbers: Numbers = replace(subject.numbers, **off)
    subject.accumulate(updater, batch, numbers, taught=term == "supervised")
    return torch.cat(
        [(torch.zeros_like(p) if p.grad is None else p.grad).flatten().double() for p in updater.parameters]
    )


def _cosine(a: Tensor, b: Tensor | None) -> float | None:
    if b is None or not bool(a.any()) or not bool(b.any()):
        return None
    return float(torch.dot(a, b) / (a.norm() * b.norm()))


def steering(subject: Subject) -> Outcome:
    """A made-up preference (+1, -1 in turn on fixed samples) must be followed within a few updates.

    It exercises the whole path from advantages to weights: a flipped sign, a cut graph or a dead optimizer fails it.
    """
    batch = subject.preference
    if subject.stage.method == "supervised":
        return not_applicable("steering", Text("a supervised stage has no advantages", "监督阶段没有优势"))
    rate = (subject.outcomes.get("learning_rate") or find_rate(subject)).numbers.get("recommended")
    if rate is None or not len(batch):
        return not_applicable(
            "steering", Text("nothing moves the policy: see learning_rate", "策略不动：见 learning_rate")
        )
    with subject.untouched():
        updater = subject.updater()
        numbers = replace(subject.numbers, beta=0.0, entropy_coef=0.0, lambda_supervised=0.0, lambda_consistency=0.0)
        numbers = replace(numbers, lambda_pg=numbers.lambda_pg or 1.0)
        start = _gap(subject, batch)
        for _ in range(_STEERING_STEPS):
            subject.accumulate(updater, batch, numbers)
            updater.step(rate, measure=False)
        end = _gap(subject, batch)
    values = {"gained": end - start, "rate": rate, "steps": _STEERING_STEPS}
    if end > start:
        text = Text(
            "a made-up preference is followed: its log-odds rise by {gained:.2g} in {steps} updates at {rate:.1e}",
            "人为偏好得到遵循：{steps} 次更新（学习率 {rate:.1e}）后对数优势升高 {gained:.2g}",
        )
        return Outcome("steering", "ok", text, numbers=values)
    text = Text(
        "a made-up preference is not followed: its log-odds change by {gained:.2g} in {steps} updates at {rate:.1e}",
        "人为偏好未被遵循：{steps} 次更新（学习率 {rate:.1e}）后对数优势变化 {gained:.2g}",
    )
    cure = Text(
        "a sign is wrong, or log-probs do not depend on the weights as the loss believes: see trainable and ratio_one",
        "符号有误，或对数概率与权重的关系不是损失所假定的：见 trainable 与 ratio_one",
    )
    return Outcome("steering", "serious", text, cure, values)


def _gap(subject: Subject, batch: Batch) -> float:
    """Mean log-prob per decision of preferred rows minus that of the others."""
    scores, sign = subject.score(batch), batch.advantages[:, :1].double()
    up, down = batch.mask & (sign > 0), batch.mask & (sign <= 0)
    return float(scores[up].mean() - scores[down].mean()) if bool(up.any()) and bool(down.any()) else 0.0

"""The updates of a run of the walker in float64: loss, gradient, AdamW and the KL's weight, step by step."""

from __future__ import annotations

import math
from typing import Any

import torch
from float64 import DEFAULTS, Groups, Step, advantages, at, groups_of, kept, log_probs, logits, objective, reduced
from torch import Tensor

SCHEDULED = (
    "temperature", "clip_low", "clip_high", "lambda_pg", "lambda_supervised", "lambda_consistency", "entropy_coef",
    "beta", "tau_positive", "tau_negative", "rce_temperature", "learning_rate",
)  # fmt: skip


def weights_after(
    record: list[Step], start: dict[str, Tensor], anchor: dict[str, Tensor], given: dict[str, Any]
) -> dict[str, Tensor]:
    base = DEFAULTS | given
    w = {name: x.double().clone().requires_grad_(True) for name, x in start.items()}
    anchor = {name: x.double() for name, x in anchor.items()}
    moments = {name: (torch.zeros_like(x), torch.zeros_like(x)) for name, x in w.items()}
    made, seen, beta = 0, [], max(float(at(base["beta"], 0, len(record))), base["beta_min"])
    for number, step in enumerate(record):
        s = base | {key: at(base[key], number, len(record)) for key in SCHEDULED}
        if s["kl_controller"] != "fixed":
            s["beta"] = beta
        s["number"], s["steps"] = number, len(record)
        samples, old, groups, keep = _trained_on(step, s)
        seen.append([r for rows in zip(groups.rewards, keep) for r, k in zip(*rows) if k])
        values = _worths(groups, keep, s, seen)
        behaviour, factor = old, torch.ones_like(old)
        if s["importance"] != "none":
            old, factor = _corrected(w, samples, behaviour, keep, s)
        measured: list[tuple[Tensor, float]] = []
        for passed in step.passes:
            rows = list(range(len(keep)))  # rows that can add nothing are not passed, and count all the same
            if s["minibatches"] > 1:
                rows = [i for i in rows if int(samples["number"][i, 0]) in passed]
            part = {name: x[rows] for name, x in samples.items()}
            valid = torch.tensor(keep)[rows]
            loss, far = _loss(w, anchor, part, old[rows], factor[rows], values[rows], valid, s, measured)
            if s["lambda_supervised"] and not s["targets"] and s["method"] == "grpo":
                loss = loss + s["lambda_supervised"] * _taught(w, step.replayed[0], s)
            if s["target_kl"] is not None and far > s["target_kl"]:
                break
            gradients = torch.autograd.grad(loss, list(w.values()), allow_unused=True)
            made += 1
            _adam(w, gradients, moments, made, s)
        if count := sum(n for _, n in measured):
            beta = _next(beta, float(sum(total for total, _ in measured)) / count, len(keep) * len(keep[0]), s)
    return {name: x.detach() for name, x in w.items()}


def _trained_on(step: Step, s: dict[str, Any]) -> tuple[Any, Tensor, Groups, list[list[bool]]]:
    """(samples, log-probs, groups, kept) of the step: the first groups that the filters leave, over its draws."""
    if s["method"] != "grpo":
        samples = step.replayed[0]
        return samples, torch.zeros(samples["mask"].shape), *_stored(samples)
    assert step.draws[0][1].shape[:2] == (s["prompts_per_step"], s["group_size"])
    rows: list[tuple[int, int]] = []
    for d, (samples, _) in enumerate(step.draws):
        left = kept(groups_of(samples, s), s, s["number"], s["steps"], neutral=True)
        rows += [(d, i) for i, row in enumerate(left) if any(row) or not s["refill"]]
    last = len(step.draws) - 1
    rows = rows[: s["prompts_per_step"]] or [(last, i) for i in range(s["prompts_per_step"])]
    take = lambda pick: torch.stack([pick(*step.draws[d])[i] for d, i in rows])  # noqa: E731
    samples = {name: take(lambda x, _, name=name: x[name]) for name in step.draws[0][0]}
    groups = groups_of(samples, s)
    return samples, take(lambda _, x: x).double(), groups, kept(groups, s, s["number"], s["steps"], neutral=False)


def _stored(samples: Any) -> tuple[Groups, list[list[bool]]]:
    p, g = samples["arms"].shape[:2]
    groups = Groups([[1.0, 0.6, 0.1]] * p, {}, [[True] * g] * p, [[True] * g] * p, [])
    return groups, groups.valid


def _worths(groups: Groups, keep: list[list[bool]], s: dict[str, Any], seen: list[list[float]]) -> Tensor:
    """[P, G] advantages, or the weights of reward-weighted cross-entropy."""
    if s["method"] == "grpo":
        return torch.tensor(advantages(groups, keep, s, seen), dtype=torch.float64)
    row = torch.tensor(groups.rewards[0], dtype=torch.float64)
    if s["rce_variant"] == "rank":
        row = torch.tensor([1.0, 0.0, -1.0], dtype=torch.float64)  # best, middle, worst of three
    share = torch.softmax(row / s["rce_temperature"], 0)
    if s["rce_variant"] == "top1":
        share = torch.tensor([1.0, 0.0, 0.0], dtype=torch.float64)
    if s["method"] == "supervised":
        share = torch.tensor([1.0, 0.0, 0.0], dtype=torch.float64) / 3  # the best one
    return (3 * share).expand(len(keep), 3)


def _corrected(w: Any, samples: Any, behaviour: Tensor, keep: Any, s: dict[str, Any]) -> tuple[Tensor, Tensor]:
    """(log-probs of the policy as the step finds it, factors old / behaviour)."""
    used = samples["mask"] & torch.tensor(keep)[..., None]
    old = log_probs(w, samples, s["temperature"] or 1.0)[1].detach()
    d = torch.where(used, old - behaviour, 0.0)
    if s["importance_level"] == "sequence":
        d = d.sum(-1, keepdim=True).expand_as(d)
    r, cap = d.exp(), s["importance_cap"]
    return old, torch.where(r > cap, 0.0, r) if s["importance"] == "mask" else r.clamp(max=cap)


def _loss(
    w: Any, anchor: Any, samples: Any, old: Tensor, factor: Tensor, values: Tensor, valid: Tensor, s: dict[str, Any],
    measured: list[tuple[Tensor, float]],
) -> tuple[Tensor, float]:  # fmt: skip
    """(the loss of an update, the KL to the behaviour policy that it finds)."""
    temperature = s["temperature"] or 1.0
    every, new = log_probs(w, samples, temperature)
    used = samples["mask"] & valid[..., None]
    weights = reduced(samples["mask"], valid, s)
    a = values[..., None].expand_as(new)
    if s["method"] == "rce":
        return s["lambda_pg"] * (-a * new * used).sum() / valid.sum(), 0.0
    if s["method"] == "supervised":
        best = valid & (values > 0)
        return (-reduced(samples["mask"], best, s) * new).sum(), 0.0
    if not used.any() and not valid.any():
        return torch.zeros((), dtype=torch.float64, requires_grad=True), 0.0
    loss = s["lambda_pg"] * (factor * weights * torch.where(used, objective(new, old, a, used, s), 0.0)).sum()
    if s["beta"]:
        ref_every, ref = log_probs(anchor, samples, temperature)
        d = torch.where(used, new - ref, 0.0)
        ratio = torch.where(used, new - old, 0.0).exp().detach()
        value = {"k1": d, "k2": d**2 / 2, "k3": torch.exp(-d) - 1 + d}.get(s["kl"])
        if value is None:
            value = torch.where(used, (every.exp() * (every - ref_every)).sum(-1), 0.0)
            term = (weights * value).sum()
        else:
            term = (factor * weights * ratio * d.detach() * new).sum()
        measured.append((value.detach().sum(), float(used.sum())))
        loss = loss + s["beta"] * term
    entropy = -(every.exp() * every).sum(-1)
    loss = loss - s["entropy_coef"] * (weights * entropy).sum()
    own = logits(w, samples["x"])
    loss = loss + s["lambda_consistency"] * (own.square().mean((-1, -2)) * valid).sum() / valid.sum()
    if s["targets"]:
        loss = loss + s["lambda_supervised"] * ((own - 1).square().mean((-1, -2)) * valid).sum() / valid.sum()
    d = torch.where(used, new - old, 0.0)
    return loss, float((d.exp() - 1 - d).detach().sum() / used.sum())


def _taught(w: Any, samples: Any, s: dict[str, Any]) -> Tensor:
    """Cross-entropy of each prompt's best stored walk."""
    best = torch.zeros(samples["arms"].shape[:2], dtype=torch.bool)
    best[:, 0] = True
    new = log_probs(w, samples, s["temperature"] or 1.0)[1]
    return -(reduced(samples["mask"], best, s) * new).sum()


def _adam(w: Any, gradients: Any, moments: Any, made: int, s: dict[str, Any]) -> None:
    gradients = [torch.zeros_like(x) if g is None else g for x, g in zip(w.values(), gradients)]
    norm = math.sqrt(sum(float(g.square().sum()) for g in gradients))
    scale = 1.0 if s["grad_clip"] in (None, "none") else min(1.0, s["grad_clip"] / norm)
    (one, two), rate = s["betas"], s["learning_rate"]
    with torch.no_grad():
        for (name, x), g in zip(w.items(), gradients):
            m, v = moments[name]
            m, v = one * m + (1 - one) * scale * g, two * v + (1 - two) * (scale * g) ** 2
            moments[name] = m, v
            x -= rate * s["weight_decay"] * x
            x -= rate * (m / (1 - one**made)) / ((v / (1 - two**made)).sqrt() + s["eps"])


def _next(beta: float, kl: float, samples: int, s: dict[str, Any]) -> float:
    if s["kl_controller"] == "proportional":
        beta *= 1 + min(max(kl / s["kl_target"] - 1, -0.2), 0.2) * min(samples / s["kl_horizon"], 1)
    if s["kl_controller"] == "band":
        beta *= s["kl_factor"] if kl > s["kl_high"] else 1 / s["kl_factor"] if kl < s["kl_low"] else 1
    return min(max(beta, s["beta_min"]), s["beta_max"])

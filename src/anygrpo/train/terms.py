"""One block's loss: separate weighted terms, and the sums that its metrics are made of."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from anygrpo.algorithm import kl, objectives
from anygrpo.core.choices import chosen
from anygrpo.core.policy import Policy
from anygrpo.core.rollout import Batch, Evaluation
from anygrpo.recipe.recipe import Stage, largest_beta, number
from anygrpo.train.parallel import gather, local, world_size
from anygrpo.train.stages import Numbers, numbers_at


@dataclass
class Tally:
    """Sums and maxima over the blocks of an optimizer step, kept on the device until one read at the end."""

    sums: dict[str, Tensor] = field(default_factory=dict)
    maxima: dict[str, Tensor] = field(default_factory=dict)

    def add(self, name: str, value: Tensor) -> None:
        value = value.detach().double()
        self.sums[name] = self.sums[name] + value if name in self.sums else value

    def peak(self, name: str, value: Tensor) -> None:
        value = value.detach().double()
        self.maxima[name] = torch.maximum(self.maxima[name], value) if name in self.maxima else value

    def over_ranks(self) -> Tally:
        """Sums and maxima over all ranks' blocks; ranks may have tallied different names."""
        if world_size() == 1:
            return self
        total = Tally()
        for sums, maxima in gather((_plain(self.sums), _plain(self.maxima))):
            for name, value in sums.items():
                total.add(name, torch.tensor(value, dtype=torch.float64))
            for name, value in maxima.items():
                total.peak(name, torch.tensor(value, dtype=torch.float64))
        return total

    def merge(self, other: Tally) -> None:
        for name, value in other.sums.items():
            self.add(name, value)
        for name, value in other.maxima.items():
            self.peak(name, value)


def _plain(values: dict[str, Tensor]) -> dict[str, float]:
    if not values:
        return {}
    return dict(zip(values, torch.stack([local(v).reshape(()) for v in values.values()]).tolist()))


def wanted(stage: Stage, numbers: Numbers, policy: Policy) -> frozenset[str]:
    """What the policy must compute for the terms in force; refused by the policy where it cannot."""
    want = set()
    if numbers.entropy_coef:
        want.add("entropy")
    if stage.algorithm.kl == "exact" and numbers.beta:
        want.add("kl")
    if numbers.lambda_consistency:
        want.add("consistency")
    own_loss = "supervised" in policy.provides
    if numbers.lambda_supervised or (stage.method == "supervised" and own_loss):
        want.add("supervised")
    return frozenset(want)


def wanted_at_any_step(stage: Stage, steps: int, policy: Policy) -> frozenset[str]:
    """What `wanted` may ask for in the course of a stage. Demonstrations beside it are a batch of their own."""
    a = stage.algorithm
    largest = replace(
        numbers_at(stage, 0, max(steps, 1)),
        entropy_coef=number(a.entropy_coef),
        beta=largest_beta(a),
        lambda_consistency=number(a.lambda_consistency),
        lambda_supervised=number(a.lambda_supervised) if policy.targets_in_samples else 0.0,
    )
    return wanted(stage, largest, policy)


def terms_of(
    policy: Policy, evaluation: Evaluation, block: Batch, stage: Stage, numbers: Numbers, tally: Tally
) -> dict[str, Tensor]:
    """The weighted loss terms of a block, by name; their sum is what is differentiated.

    Every term is a sum over this block of weights x values; adding blocks gives the whole batch's loss.
    """
    terms: dict[str, Tensor] = {}
    new, mask, w = evaluation.log_probs, block.mask, block.weights
    for name, weight in (("supervised", numbers.lambda_supervised), ("consistency", numbers.lambda_consistency)):
        if name in evaluation.losses:
            value = (block.row_weights * torch.where(block.row_weights > 0, evaluation.losses[name], 0.0)).sum()
            tally.add(f"loss/{name}", value)
            unset = stage.method == "supervised" and not number(stage.algorithm.lambda_supervised)
            terms[name] = value * (1.0 if unset and name == "supervised" else weight)
    for name in policy.own_losses & evaluation.losses.keys():
        terms[name] = (block.row_weights * torch.where(block.row_weights > 0, evaluation.losses[name], 0.0)).sum()
        tally.add(f"loss/{name}", terms[name])
    if "supervised" in terms and stage.method == "supervised":
        return terms
    if numbers.lambda_pg:
        terms["policy"] = numbers.lambda_pg * _policy_term(policy, new, block, stage, numbers, tally)
    if numbers.beta and (evaluation.kl is not None or block.ref is not None):
        terms["kl"] = numbers.beta * _kl_term(evaluation, block, stage, tally)
    if numbers.entropy_coef and evaluation.entropy is not None:
        entropy = torch.where(mask, evaluation.entropy, 0.0)
        tally.add("entropy/sum", entropy.sum())
        tally.add("entropy/count", mask.sum())
        terms["entropy"] = -numbers.entropy_coef * (w * entropy).sum()
    return terms


def supervised_term(evaluation: Evaluation, block: Batch, weight: float, tally: Tally) -> dict[str, Tensor]:
    """The loss of a block of demonstrations beside another objective: the policy's own supervised loss where it has
    one, else cross-entropy, as in a supervised stage."""
    if "supervised" in evaluation.losses:
        value = (block.row_weights * torch.where(block.row_weights > 0, evaluation.losses["supervised"], 0.0)).sum()
    else:
        value = (block.weights * torch.where(block.mask, -evaluation.log_probs, 0.0)).sum()
    tally.add("loss/supervised", value)
    return {"supervised": weight * value}


def _policy_term(policy: Policy, new: Tensor, block: Batch, stage: Stage, numbers: Numbers, tally: Tally) -> Tensor:
    a = stage.algorithm
    settings = objectives.ClipSettings(
        low=policy.clip.low if numbers.clip_low is None else numbers.clip_low,
        high=policy.clip.high if numbers.clip_high is None else numbers.clip_high,
        dual=a.dual_clip,
        tau_positive=numbers.tau_positive,
        tau_negative=numbers.tau_negative,
        guard=a.ratio_guard,
    )
    objective = chosen("objective", a.objective if stage.method == "grpo" else stage.method).function
    result = objective(new, block.old, block.advantages, block.mask, settings)
    value = (_as_sampled(block) * result.loss).sum()
    tally.add("loss/policy", value)
    if stage.method == "grpo":
        _tally_ratio(new.detach(), block, result, tally)
        if a.dual_clip is not None:
            tally.add("clip/dual/sum", (result.clipped_dual & block.mask).sum())
    return value


def _tally_ratio(new: Tensor, block: Batch, result: objectives.PerDecision, tally: Tally) -> None:
    log_ratio = torch.where(block.mask, new - block.old, 0.0)
    ratio = log_ratio.exp()
    tally.add("count", block.mask.sum())
    tally.add("log_ratio/sum", log_ratio.sum())
    tally.add("ratio/sum", torch.where(block.mask, ratio, 0.0).sum())
    tally.add("kl/behaviour/sum", torch.where(block.mask, ratio - 1 - log_ratio, 0.0).sum())
    tally.add("clip/low/sum", (result.clipped_low & block.mask).sum())
    tally.add("clip/high/sum", (result.clipped_high & block.mask).sum())
    tally.add("guarded", result.guarded.sum())
    tally.peak("log_ratio/abs_max", log_ratio.abs().amax())
    tally.peak("ratio/max", ratio.amax())


def _as_sampled(block: Batch) -> Tensor:
    """Weights of a loss that samples of the behaviour policy estimate."""
    return block.weights if block.importance is None else block.weights * block.importance


def _kl_term(evaluation: Evaluation, block: Batch, stage: Stage, tally: Tally) -> Tensor:
    if evaluation.kl is not None:
        value = loss = torch.where(block.mask, evaluation.kl, 0.0)
        weights = block.weights
    else:
        assert block.ref is not None
        measure = chosen("kl", stage.algorithm.kl).function
        estimate: kl.KL = measure(evaluation.log_probs, block.ref, block.old, block.mask)
        value, loss, weights = estimate.value, estimate.loss, _as_sampled(block)
        tally.add("guarded", estimate.guarded.sum())
    tally.add("kl/reference/sum", value.sum())
    tally.add("kl/count", block.mask.sum())
    weighted = (weights * loss).sum()
    tally.add("loss/kl", weighted)
    return weighted

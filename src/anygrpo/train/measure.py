"""A step's numbers, by the names of `anygrpo.metrics`."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from anygrpo.algorithm import filters
from anygrpo.algorithm.statistics import RunningState
from anygrpo.core.policy import Policy
from anygrpo.core.resident import peak_bytes
from anygrpo.core.rollout import Rollout
from anygrpo.recipe.recipe import Stage
from anygrpo.train.batches import Prepared, penalised
from anygrpo.train.parallel import sum_over_ranks
from anygrpo.train.stages import Numbers
from anygrpo.train.terms import Tally


def step_metrics(
    stage: Stage, numbers: Numbers, prepared: Prepared, drawn: Rollout, update: dict[str, float]
) -> dict[str, float]:
    """Of all that was drawn, of the advantages and terms, and of the updates: in the order that a row has them."""
    sampled = rollout_metrics(drawn)
    if int(prepared.mask.any(-1).sum()) != int(drawn.valid.sum()):
        sampled |= kept_metrics(prepared, drawn)
    if stage.source != "policy":
        sampled = of_stored_actions(sampled, imitated=stage.method == "supervised")
    advantages = advantage_metrics(prepared) if stage.method == "grpo" else {}
    if "groups/live" in advantages:  # of all that was drawn, though `prepared` knows what a refill kept
        rewards = penalised(replace(drawn, limit=prepared.limit), stage).rewards
        live = filters.live_groups(rewards, drawn.valid)
        advantages["groups/live"] = float(live.sum()) / max(drawn.shape[0], 1)
    return sampled | advantages | weights_of_terms(numbers) | update


def rollout_metrics(rollout: Rollout) -> dict[str, float]:
    """Rewards, spread within groups and between them, lengths, what was cut off, what was invalid and why."""
    rewards, valid = rollout.rewards, rollout.valid
    row = dict(rollout.info)
    here = max(int(rollout.present.sum()), 1)
    padding = row.get("offline/padding", 0.0)  # places of a rectangle, not samples
    row["invalid/share"] = max(0.0, 1 - float(valid.sum()) / here - padding) / max(1 - padding, 1e-9)
    for reason in rollout.reasons.values():
        key = f"invalid/{reason.split(':')[0][:60]}"
        row[key] = row.get(key, 0.0) + 1 / here
    if bool(valid.any()):
        row["reward/mean"] = float(rewards[valid].mean())
        row["reward/max"] = float(rewards[valid].max())
        row["reward/std"] = float(rewards[valid].std(correction=0))
        row["reward/std_within"], row["reward/std_between"] = _spread(rewards, valid)
        for name, part in rollout.components.items():
            if (given := part[valid & part.isfinite()]).numel():
                row[f"reward/component/{name}"] = float(given.mean())
        row.update(_groups(rewards, valid))
    lengths = rollout.mask.sum(-1)[rollout.present].float()
    row.setdefault("length/mean", _mean(lengths))
    row.setdefault("length/max", float(lengths.max()) if lengths.numel() else 0.0)
    row.setdefault("length/min", float(lengths.min()) if lengths.numel() else 0.0)
    row.setdefault("truncated/share", 1 - _mean(rollout.ended[rollout.present].float()))
    return row


def kept_metrics(prepared: Prepared, drawn: Rollout) -> dict[str, float]:
    """The same numbers of what is left after filters and refilling, under "kept/...", and how many groups were drawn
    for the step. For steps that train on less than was drawn."""
    keep = prepared.mask.any(-1)
    rollout = replace(prepared.rollout, valid=keep, info={}, reasons={})
    kept = {f"kept/{name}": value for name, value in rollout_metrics(rollout.groups(keep.any(1))).items()}
    del kept["kept/invalid/share"]
    return kept | {"groups/drawn": float(drawn.shape[0]), "groups/kept": float(keep.any(1).sum())}


def entropy_estimate(rollout: Rollout, stage: Stage, policy: Policy) -> dict[str, float]:
    """Mean of -log p over the decisions that all ranks sampled: the mean entropy of their distributions, in
    expectation, at no cost. Of policies alone whose log-probs and entropy are of one kind."""
    if stage.source != "policy" or "entropy" not in policy.provides:
        return {}
    taken = rollout.log_probs[rollout.mask].double()
    total, count = sum_over_ranks(torch.stack([taken.sum(), torch.tensor(float(taken.numel()), dtype=torch.float64)]))
    return {"entropy": -float(total / count)} if count else {}


_OF_THE_FILE = ("reward/mean", "reward/max", "reward/std")
_COMPARISONS = ("groups/", "reward/std_within", "reward/std_between")


def of_stored_actions(row: dict[str, float], imitated: bool = False) -> dict[str, float]:
    """The row of a step on stored actions: their rewards are the file's and say nothing of the policy, so they go to
    "stored/reward/..."; "reward/mean" is then the policy's estimated value, where there is one ("offline/value").
    Demonstrations that all have one reward, or that are imitated, are compared with nothing: they have no live or dead
    groups and no spread within them, and what is imitated tells nothing of the policy's value. Nor is the one reward of
    what is imitated written: most demonstrations have none, and 0 would read as a failure."""
    alike = row.get("reward/std", 0.0) == 0.0
    if imitated or alike:
        gone = (*_COMPARISONS, *_OF_THE_FILE) if imitated and alike else _COMPARISONS
        row = {name: value for name, value in row.items() if not name.startswith(gone)}
    moved = {f"stored/{name}" if name in _OF_THE_FILE else name: value for name, value in row.items()}
    return moved | ({"reward/mean": row["offline/value"]} if "offline/value" in row and not imitated else {})


def _mean(x: Tensor) -> float:
    return float(x.mean()) if x.numel() else 0.0


def _spread(rewards: Tensor, valid: Tensor) -> tuple[float, float]:
    """Mean over groups of the standard deviation in the group; standard deviation of the groups' means."""
    n = valid.sum(1).clamp(min=1)
    mean = torch.where(valid, rewards, 0.0).sum(1) / n
    deviation = torch.where(valid, rewards - mean[:, None], 0.0)
    within = (deviation.square().sum(1) / (n - 1).clamp(min=1)).sqrt()
    some = valid.any(1)
    return float(within[some].mean()), float(mean[some].std(correction=0))


def _groups(rewards: Tensor, valid: Tensor) -> dict[str, float]:
    """Shares of groups with spread, and of constant ones at the step's best and worst reward."""
    live = filters.live_groups(rewards, valid)
    some = valid.any(1)
    value = torch.where(valid, rewards, -torch.inf).amax(1)
    best, worst = rewards[valid].max(), rewards[valid].min()
    dead = some & ~live
    total = float(some.sum())
    return {
        "groups/live": float((live & some).sum()) / total,
        "groups/all_best": float((dead & (value == best)).sum()) / total,
        "groups/all_worst": float((dead & (value == worst) & (best > worst)).sum()) / total,
    }


def advantage_metrics(prepared: Prepared) -> dict[str, float]:
    """Advantages of the samples that count, and live groups after each filter."""
    row = dict(prepared.counts)
    compared = prepared.mask.any(-1).sum(1)  # not the setting: filters leave fewer, stored groups have their own size
    if compared.numel() and int(compared.max()) > 0:
        row["groups/size"] = float(compared.max())
    drawn = prepared.rollout.present.sum(1)
    if drawn.numel() and int(drawn.max()) != int(drawn.min()):
        row["groups/size_min"], row["groups/size_mean"] = float(drawn.min()), float(drawn.float().mean())
    by_turn = prepared.advantages.dim() == 3
    values = prepared.advantages[prepared.mask if by_turn else prepared.rollout.valid]
    if values.numel():
        row["advantage/mean"] = float(values.mean())
        row["advantage/std"] = float(values.std(correction=0))
        row["advantage/abs_max"] = float(values.abs().max())
    if isinstance(prepared.memory, RunningState) and prepared.memory.weight:
        row["reward/running_mean"] = prepared.memory.mean
        row["reward/running_std"] = prepared.memory.variance**0.5
    each = prepared.advantages.flatten(1)
    live = each[(each != 0).any(1)]
    if len(live):  # a baseline inside the group leaves none of them with one sign
        row["advantage/one_sign"] = float(((live >= 0).all(1) | (live <= 0).all(1)).double().mean())
    return row


def weights_of_terms(numbers: Numbers) -> dict[str, float]:
    """The terms' weights in force, where there is a term beside the policy's own or its weight is not 1."""
    weights = {
        "lambda/pg": numbers.lambda_pg,
        "lambda/supervised": numbers.lambda_supervised,
        "lambda/consistency": numbers.lambda_consistency,
    }
    plain = {"lambda/pg": 1.0, "lambda/supervised": 0.0, "lambda/consistency": 0.0}
    return {} if weights == plain else weights


def update_metrics(tally: Tally) -> dict[str, float]:
    """Means over masked decisions of all blocks of all inner updates (one read from the device)."""
    names = [*tally.sums, *(f"max:{n}" for n in tally.maxima)]
    if not names:
        return {}
    every = [v.reshape(()) for v in (*tally.sums.values(), *tally.maxima.values())]
    values = torch.stack([v.to(every[0].device) for v in every]).tolist()  # sums over ranks are on the CPU
    got = dict(zip(names, values))
    row = {n: v for n, v in got.items() if n.startswith(("loss/", "grad_norm/"))}
    updates = got.get("updates", 1.0)
    row = {n: v / updates for n, v in row.items()}
    for name, (total, count) in _MEANS.items():
        if got.get(count) and total in got:
            row[name] = got[total] / got[count]
    row |= {n[4:]: v for n, v in got.items() if n.startswith("max:")}
    if got.get("guarded"):
        row["guarded"] = got["guarded"]
    return row


_MEANS = {
    "log_ratio/mean": ("log_ratio/sum", "count"),
    "ratio/mean": ("ratio/sum", "count"),
    "kl/behaviour": ("kl/behaviour/sum", "count"),
    "clip/low": ("clip/low/sum", "count"),
    "clip/high": ("clip/high/sum", "count"),
    "clip/dual": ("clip/dual/sum", "count"),
    "kl/reference": ("kl/reference/sum", "kl/count"),
    "entropy": ("entropy/sum", "entropy/count"),
}


def memory_gb(device: torch.device) -> float:
    """Peak memory of this process where the policy computes: of its GPU, else resident."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 2**30
    return resident_gb()


def resident_gb() -> float:
    """Peak resident memory of this process, in GiB."""
    return peak_bytes() / 2**30

"""From a scored rollout to the batches of its optimizer steps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TypeVar

import torch
from torch import Tensor

from anygrpo.algorithm import advantages, allocation, filters, weights
from anygrpo.algorithm.statistics import Memory, PromptHistory, RunningState
from anygrpo.core.choices import chosen
from anygrpo.core.rollout import Batch, Rollout
from anygrpo.core.tree import tree_map
from anygrpo.errors import ConfigError
from anygrpo.recipe.recipe import Stage
from anygrpo.spoken import Text
from anygrpo.train.credit import credited
from anygrpo.train.parallel import sum_over_ranks, world_size
from anygrpo.train.stages import Numbers

_M = TypeVar("_M", RunningState, PromptHistory)


@dataclass(frozen=True)
class Prepared:
    """All rows of a rollout with their advantages, before they are split.

    Attributes:
        rollout: with filters applied (some groups gone); its rewards are the task's, without any penalty.
        advantages: [P, G], or [P, G, T] where turns have their own.
        mask: [P, G, T] decisions that count in the loss.
        counts: live groups after each filter, and what each dropped, by metric name.
        old, importance: [P, G, T] log-probs of the policy as the step finds it, and factors old / behaviour; None where
            the sampler's own log-probs are those that ratios divide by.
        ref: [P, G, T] log-probs under the reference policy (0 where no decision counts), or None.
        memory: what the advantage keeps for the next step, or None.
        first, groups, width: index of the first group here, number of groups and of decisions T in the whole step,
            of which other ranks hold the rest.
        limit: the most decisions that a sample could have had; None: not known.
        mean_group: samples of a prompt in the mean over the whole step.
    """

    rollout: Rollout
    advantages: Tensor
    mask: Tensor
    counts: dict[str, float]
    old: Tensor | None = None
    importance: Tensor | None = None
    ref: Tensor | None = None
    memory: Memory | None = None
    first: int = 0
    groups: int = 0
    width: int = 0
    limit: int | None = None
    mean_group: float = 0.0


def prepare(rollout: Rollout, stage: Stage, numbers: Numbers, memory: Memory | None) -> Prepared:
    """Filters, then advantages. Supervised stages learn each prompt's best stored actions (all, where their rewards are
    equal or absent) with advantage 1; RCE stages learn all with their reward's weight.

    Takes the groups of all ranks: filters and advantages may compare across the whole step.
    """
    groups, _, width = rollout.shape
    limit = _limit(rollout)
    if stage.method == "grpo":
        mean = float(rollout.present.sum()) / max(groups, 1)
        prepared = _prepare_grpo(rollout, stage, numbers, memory)
        return replace(prepared, groups=groups, width=width, limit=limit, mean_group=mean)
    if stage.method == "supervised":
        best = torch.where(rollout.valid, rollout.rewards, -torch.inf).amax(1, keepdim=True)
        rollout = replace(rollout, valid=rollout.valid & (rollout.rewards >= best))
        value = rollout.valid.float()
    else:
        value = advantages.reward_weights(
            rollout.rewards,
            rollout.valid,
            numbers.rce_temperature,
            ranked=stage.algorithm.rce_variant == "rank",
            top_one=stage.algorithm.rce_variant == "top1",
        )
    mask = rollout.mask & rollout.valid[..., None]
    return Prepared(rollout, value, mask, {}, groups=groups, width=width, limit=limit)


def _limit(rollout: Rollout) -> int | None:
    full = bool((rollout.mask | ~rollout.valid[..., None]).all())  # T is the same for every sample: it is the limit
    return rollout.limit if rollout.limit is not None else rollout.shape[2] if full else None


def penalised(rollout: Rollout, stage: Stage) -> Rollout:
    """With the soft overlong penalty in its rewards, where the recipe asks for it: what filters and advantages see."""
    buffer, limit = stage.algorithm.overlong_buffer, _limit(rollout)
    if not buffer:
        return rollout
    if limit is None:
        raise ConfigError(
            Text(
                f"overlong_buffer = {buffer}, but the policy does not say how long a sample may become",
                f"overlong_buffer = {buffer}，但策略没有说明样本最长可以多长",
            ),
            Text(
                "give Rollout.of(..., limit=...) in its sample(), or set overlong_buffer = 0",
                "请在它的 sample() 中给出 Rollout.of(..., limit=...)，或设 overlong_buffer = 0",
            ),
        )
    penalty = filters.soft_overlong_penalty(rollout.mask.sum(-1), limit, buffer)
    return replace(rollout, rewards=rollout.rewards + penalty)


def _filtered(rollout: Rollout, stage: Stage, numbers: Numbers) -> filters.Filtered:
    groups = filters.Groups(rollout.rewards, rollout.valid, rollout.ended, rollout.components)
    card = chosen("advantage", stage.algorithm.advantage).card
    # A group whose total has no spread teaches all the same where parts or turns are compared, or rows of others.
    idle = stage.algorithm.credit == "outcome" and (card is None or (card.baseline == "group" and not card.by_part))
    return filters.apply(groups, [f for f in numbers.filters if idle or f[0] not in filters.NEUTRAL])


def _prepare_grpo(rollout: Rollout, stage: Stage, numbers: Numbers, memory: Memory | None) -> Prepared:
    a, given = stage.algorithm, rollout.rewards
    rollout = penalised(rollout, stage)
    advantage = chosen("advantage", a.advantage)
    filtered = _filtered(rollout, stage, numbers)
    options = advantages.AdvantageOptions(
        std_floor=a.std_floor,
        clip=a.advantage_clip,
        components=rollout.components,
        component_weights=rollout.weights | a.component_weights,
        running=replace(_kept(memory, RunningState), decay=a.running_decay),  # the recipe's, resumed or not
        history=replace(_kept(memory, PromptHistory), size=a.history_size),
        prompts=rollout.prompt_id,
        history_least=a.history_least,
        k=a.pass_k,
        ddof=a.ddof,
        epsilon=a.epsilon,
    )
    # a card's name, since some normalisers need more than their function (moving statistics)
    name = advantage.function if advantage.card is None else advantage.name
    if name == "history" and (unknown := int((rollout.prompt_id == 0).sum())):
        raise ConfigError(
            Text(
                f'advantage = "history", and {unknown} of {len(rollout.prompt_id)} groups do not say '
                "of which prompt they "
                "are: one history would serve them all",
                f'advantage = "history"，而 {len(rollout.prompt_id)} 组中有 {unknown} 组没有说明属于哪个提示：'
                "同一段历史会用于所有提示",
            ),
            Text("give Rollout.prompt_id, or take another advantage", "请给出 Rollout.prompt_id，或换一种优势"),
        )
    result = advantages.compute(name, rollout.rewards, filtered.counted, options)
    counts = filtered.counts | {"advantage/clipped": float(result.clipped.double().mean())}
    if isinstance(result.memory, PromptHistory) and len(rollout.prompt_id):
        counts["groups/own_past"] = result.memory.known(rollout.prompt_id, a.history_least) / len(rollout.prompt_id)
    mask = rollout.mask & filtered.counted[..., None]
    rollout = replace(rollout, valid=filtered.counted)  # a row that leaves is in no denominator, of whatever reduction
    values = result.values
    if a.credit != "outcome":
        values = credited(rollout, mask, a, lambda x, valid: advantages.compute(name, x, valid, options).values)
    return Prepared(replace(rollout, rewards=given), values, mask, counts, memory=result.memory)


def _kept(memory: Memory | None, kind: type[_M]) -> _M:
    """The memory where it is of this kind, else a new one."""
    return memory if isinstance(memory, kind) else kind()


def kept_groups(rollout: Rollout, stage: Stage, numbers: Numbers) -> Tensor:
    """[P] bool: groups of which the stage's filters keep a sample, by the rewards that a step would train on."""
    return _filtered(penalised(rollout, stage), stage, numbers).keep.any(1)


def own_part(whole: Prepared, rollout: Rollout, first: int) -> Prepared:
    """What this rank trains on: the groups of `rollout`, which are the whole step's from number `first` on."""
    if world_size() == 1:
        return whole
    p, _, t = rollout.shape
    mine = slice(first, first + p)
    return replace(
        whole,
        rollout=replace(rollout, valid=whole.rollout.valid[mine]),
        advantages=whole.advantages[mine] if whole.advantages.dim() == 2 else whole.advantages[mine, :, :t],
        mask=whole.mask[mine, :, :t],
        first=first,
    )


def weigh(prepared: Prepared, stage: Stage) -> Batch:
    """Flatten to N rows with weights that carry every denominator, counts summed over ranks."""
    rollout, a = prepared.rollout, stage.algorithm
    p, g, _ = rollout.shape
    flat = lambda x: x.flatten(0, 1)  # noqa: E731
    mask, valid, by_row = flat(prepared.mask), flat(rollout.valid), flat(prepared.advantages)
    prompt = torch.arange(p, device=mask.device).repeat_interleave(g)
    own = weights.counts(mask, valid, prompt)
    totals = dict(zip(own, sum_over_ranks(torch.stack(list(own.values())))))
    whole_rows = stage.method == "rce"  # a mean over rows of summed cross-entropies, whatever the lengths
    reduction = chosen("reduction", a.reduction)
    share = _equal_prompts(prepared)
    by_prompt = reduction.card is not None and reduction.card.by_prompt  # its prompts weigh the same as it is
    return Batch(
        samples=tree_map(flat, rollout.samples),
        old=flat(rollout.log_probs if prepared.old is None else prepared.old),
        ref=None if prepared.ref is None else flat(prepared.ref),
        mask=mask,
        advantages=by_row if by_row.dim() > 1 else by_row[:, None],
        weights=weights.loss_weights(
            mask,
            valid,
            weights.constant if whole_rows else reduction.function,
            horizon=1 if whole_rows else a.horizon or prepared.limit,
            prompt_ids=prompt,
            totals=totals,
        )
        * (1.0 if share is None or by_prompt else share[:, None]),
        row_weights=weights.row_weights(valid, totals) * (1.0 if share is None else share),
        importance=None if prepared.importance is None else flat(prepared.importance),
    )


def _equal_prompts(prepared: Prepared) -> Tensor | None:
    """[N] factors by which prompts with groups of unequal size weigh the same; None where all are of one size."""
    sizes = prepared.rollout.present.sum(1).tolist()
    if all(n == prepared.mean_group for n in sizes) or not prepared.mean_group:
        return None
    factors = torch.tensor(allocation.equal_share(sizes, prepared.mean_group), device=prepared.mask.device)
    return factors.repeat_interleave(prepared.mask.shape[1])


def minibatches(prepared: Prepared, stage: Stage, seed: int) -> Iterator[Prepared]:
    """The step cut into `minibatches` sets of whole groups, anew in each of `epochs` passes; of each set the groups
    that this rank holds (none, maybe), so that every rank counts the same sets."""
    a = stage.algorithm
    p = prepared.rollout.shape[0]
    parts = min(a.minibatches, max(prepared.groups, 1))
    generator = torch.Generator().manual_seed(seed)
    for _ in range(a.epochs):
        order = torch.randperm(prepared.groups, generator=generator) if parts > 1 else torch.arange(prepared.groups)
        for chunk in order.tensor_split(parts):
            here = chunk[(chunk >= prepared.first) & (chunk < prepared.first + p)] - prepared.first
            yield prepared if parts == 1 else _groups(prepared, here)


def _groups(prepared: Prepared, index: Tensor) -> Prepared:
    keep = torch.zeros(prepared.rollout.shape[0], dtype=torch.bool)
    keep[index] = True
    where = keep.nonzero()[:, 0].to(prepared.advantages.device)
    return replace(
        prepared,
        rollout=prepared.rollout.groups(keep),
        advantages=prepared.advantages[where],
        mask=prepared.mask[where],
        old=None if prepared.old is None else prepared.old[where],
        importance=None if prepared.importance is None else prepared.importance[where],
        ref=None if prepared.ref is None else prepared.ref[where],
    )


def needed_rows(batch: Batch, numbers: Numbers, stage: Stage, own_losses: bool = False) -> Batch:
    """Without the rows that can add nothing: exact, since the weights keep their denominators. Rows with advantage 0
    stay where another term is theirs, and where an objective of the user's own may have a gradient there."""
    idle = stage.method != "grpo" or chosen("objective", stage.algorithm.objective).idle_at_zero
    live = batch.mask.any(-1) & ((batch.advantages != 0).any(-1) | (not idle)) & bool(numbers.lambda_pg)
    if numbers.beta or numbers.entropy_coef:
        live = live | batch.mask.any(-1)
    if numbers.lambda_supervised or numbers.lambda_consistency or own_losses:
        live = live | (batch.row_weights > 0)
    return batch if bool(live.all()) else batch.rows(live.nonzero()[:, 0])

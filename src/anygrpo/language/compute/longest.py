"""The proof at load is on few tokens. What begins later (chunks, windows, scaled positions) is seen once, on the
longest row of the first rollout."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from anygrpo.core.rollout import Rollout
from anygrpo.core.tree import Tree
from anygrpo.errors import TrainingError
from anygrpo.language.compute.capability import Ability
from anygrpo.language.compute.log_probs import Scorer
from anygrpo.language.compute.paths import Paths
from anygrpo.spoken import Text

if TYPE_CHECKING:
    from anygrpo.language.policy import CausalLM

log = logging.getLogger("anygrpo")

FAR = {torch.float32: 1e-3, torch.float64: 1e-6}
"""Mean difference of log-probs (nats) that rounding does not make; .05 in narrow types."""


@torch.no_grad()
def holds_for_the_longest(policy: CausalLM, rollout: Rollout) -> bool:
    """False where the policy's way of computing was wrong for this rollout's longest row; it then has another one, and
    the rollout is to be sampled again.

    Raises:
        TrainingError: it is wrong, and there is no plainer way left.
    """
    row = _longest(rollout)
    size = int(row["prompt_lengths"][0] + row["completion_lengths"][0])
    scorer = policy.scorer
    alone = replace(scorer.paths, ability=Ability(False), padded=False)
    gap = _gap(policy, row, alone)
    if gap <= FAR.get(policy.weights.dtype, 0.05):
        return True
    plainer = _plainer(scorer.paths)
    if plainer is None:
        raise TrainingError(
            Text(
                f"log-probs of a row of {size} tokens differ by {gap:.2g} from the library's own",
                f"一行 {size} 个 token 的对数概率与原库相差 {gap:.2g}",
            ),
            Text('set policy.dtype = "float32", or report this model', '请设 policy.dtype = "float32"，或报告这个模型'),
        )
    note = f"rows of {size} tokens differ by {gap:.2g} nats from the library's own: plain passes from here on"
    log.warning("%s", note)
    scorer.paths = replace(plainer, notes=(*plainer.notes, note))
    if hasattr(policy.engine, "paths"):
        policy.engine.paths = scorer.paths  # type: ignore[attr-defined]
    policy.trust_sampler = None
    return False


def _longest(rollout: Rollout) -> Tree:
    """The row with the most tokens, [1, ...]."""
    rows = {name: x.flatten(0, 1) for name, x in rollout.samples.items()}
    at = int((rows["prompt_lengths"] + rows["completion_lengths"]).argmax())
    return {name: x[at : at + 1] for name, x in rows.items()}


def _gap(policy: CausalLM, row: Tree, alone: Paths) -> float:
    """Mean difference between our pass and the library's own body on this row by itself."""
    ours, held = _scores(policy, row), policy.scorer
    policy.scorer = Scorer(held.device, held.precise, alone)
    try:
        theirs = _scores(policy, row)
    finally:
        policy.scorer = held
    return float((ours - theirs).abs().mean())


def _scores(policy: CausalLM, row: Tree) -> torch.Tensor:
    return policy.evaluate(row, slice(0, row["completion_ids"].shape[1])).log_probs[0][
        : int(row["completion_lengths"][0])
    ]


def _plainer(paths: Paths) -> Paths | None:
    if paths.ability.shared:
        return replace(paths, ability=Ability(False, reason="see the first rollout"))
    return replace(paths, padded=False) if paths.padded else None

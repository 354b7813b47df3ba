"""Drawing selections: sampling, greedy, beams. All return positions with STOP and NOTHING, and log-probabilities."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from anygrpo.selection.network import Encoded, SelectorNetwork, Stepper
from anygrpo.selection.picks import Remaining, decision_mask, gumbel, gumbel_top_k, log_softmax, open_columns


@dataclass(frozen=True)
class Rules:
    """What a decoder may do: most picks, whether it may stop and from when, and the temperature."""

    shots: int
    stop: bool
    min_shots: int
    temperature: float


@dataclass(frozen=True)
class Drawn:
    """Selections as they were drawn, [u, r, K] each: picks, their log-probabilities, and whether there was a choice.

    Attributes:
        states: [u, r or 1, h] at each pick, with their graph, and scores: [u, r, K, M + 1] log-probabilities of all
            columns; where they were asked for.
    """

    chosen: Tensor
    log_probs: Tensor
    free: Tensor
    states: tuple[Tensor, ...] = ()
    scores: Tensor | None = None


@torch.no_grad()
def sample(
    network: SelectorNetwork,
    encoded: Encoded,
    choosable: Tensor,
    count: int,
    rules: Rules,
    generator: torch.Generator,
    keep: bool = False,
) -> Drawn:
    """`count` selections of each prompt, without replacement, by the Gumbel-max trick.

    Args:
        choosable: [u, M] bool.
        keep: also give states and scores.
    """
    u, size = choosable.shape
    if network.decoder.stateless and not rules.stop:
        return _at_once(network, encoded, choosable, count, rules, generator)
    with torch.set_grad_enabled(keep):
        stepper = Stepper(network.decoder, encoded)
    remaining = Remaining(choosable[:, None].expand(u, count, size), rules.stop, rules.min_shots)
    drawn, states, all_scores = [], [], []
    for step in range(rules.shots):
        options = remaining.options()
        scores = log_softmax(stepper.logits() / rules.temperature, options)
        noise = gumbel((u * count, size + 1), generator).to(scores.device).view(u, count, size + 1)
        column = (scores + noise).argmax(-1)
        free = ~remaining.ended & (options.sum(-1) > 1)
        pick = remaining.take(column)
        drawn.append((pick, scores.gather(-1, column[..., None])[..., 0], free))
        if keep:
            states.append(stepper.state)
            all_scores.append(scores)
        if step + 1 < rules.shots:
            with torch.set_grad_enabled(keep):
                stepper.take(pick, ends=rules.stop)
    chosen, log_probs, free = (torch.stack(part, -1) for part in zip(*drawn))
    return Drawn(chosen, log_probs, free, tuple(states), torch.stack(all_scores, 2) if keep else None)


def _at_once(
    network: SelectorNetwork,
    encoded: Encoded,
    choosable: Tensor,
    count: int,
    rules: Rules,
    generator: torch.Generator,
) -> Drawn:
    u, size = choosable.shape
    logits = network.decoder.logits(encoded.state[:, None], encoded, None) / rules.temperature
    first = log_softmax(logits, torch.cat([choosable, torch.zeros_like(choosable[:, :1])], 1)[:, None])
    spread = first.expand(u, count, size + 1)
    chosen = gumbel_top_k(spread.reshape(u * count, size + 1), rules.shots, generator).view(u, count, -1)
    options = open_columns(choosable[:, None], chosen, rules.stop, rules.min_shots)
    log_probs = log_softmax(logits[:, :, None], options).gather(-1, chosen[..., None])[..., 0]
    return Drawn(chosen, log_probs, decision_mask(options, chosen))


@torch.no_grad()
def beams(
    network: SelectorNetwork, encoded: Encoded, choosable: Tensor, rules: Rules, width: int
) -> tuple[Tensor, Tensor]:
    """The `width` best selections that a beam search finds, best first.

    Returns:
        picks [u, W, K], log-probabilities [u, W] (-inf where fewer selections exist).
    """
    u, size = choosable.shape
    stepper = Stepper(network.decoder, encoded)
    remaining = Remaining(choosable[:, None], rules.stop, rules.min_shots)
    scores = torch.zeros(u, 1, device=choosable.device)
    picks = torch.zeros(u, 1, 0, dtype=torch.long, device=choosable.device)
    for _ in range(rules.shots):
        step = log_softmax(stepper.logits() / rules.temperature, remaining.options())
        total = (scores[:, :, None] + step).flatten(1)
        scores, best = total.topk(min(width, total.shape[1]), dim=-1)
        parents = best // (size + 1)
        remaining.select(parents)
        stepper = stepper.select(parents)
        pick = remaining.take(best % (size + 1))
        stepper.take(pick)
        earlier = picks.gather(1, parents[..., None].expand(-1, -1, picks.shape[-1]))
        picks = torch.cat([earlier, pick[..., None]], -1)
    return picks, scores


def greedy(network: SelectorNetwork, encoded: Encoded, choosable: Tensor, rules: Rules) -> Tensor:
    """The likeliest pick at each step; [u, K]."""
    return beams(network, encoded, choosable, rules, 1)[0][:, 0]

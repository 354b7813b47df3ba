"""Drawing selections: sampling, greedy, beams. All return positions with STOP and NOTHING, and log-probabilities."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from anygrpo.policies.selector.network import SelectorNetwork, Stepper
from anygrpo.policies.selector.picks import NOTHING, STOP, gumbel, gumbel_top_k, log_softmax, open_columns


@dataclass(frozen=True)
class Rules:
    """What a decoder may do: most picks, whether it may stop and from when, and the temperature."""

    shots: int
    stop: bool
    min_shots: int
    temperature: float


def _as_picks(column: Tensor, size: int, ended: Tensor) -> Tensor:
    pick = torch.where(column == size, torch.full_like(column, STOP), column)
    return torch.where(ended, torch.full_like(column, NOTHING), pick)


def _options(choosable: Tensor, picked: list[Tensor], ended: Tensor, rules: Rules) -> Tensor:
    """Open columns [n, M + 1] of the next step."""
    ahead = torch.where(ended, NOTHING, STOP)  # any pick that isn't NOTHING: open columns don't depend on it
    return open_columns(choosable, torch.stack([*picked, ahead], 1), rules.stop, rules.min_shots)[:, -1]


@torch.no_grad()
def sample(
    network: SelectorNetwork, state: Tensor, items: Tensor, choosable: Tensor, rules: Rules, generator: torch.Generator
) -> Tensor:
    """One selection a row [n, K], without replacement, by the Gumbel-max trick.

    Where logits don't change with what was picked, one draw of Gumbel top-k gives all K picks.
    """
    n, size = choosable.shape
    if network.decoder.stateless and not rules.stop:
        logits = network.decoder.logits(state, items, None, 0) / rules.temperature
        options = torch.cat([choosable, torch.zeros_like(choosable[:, :1])], 1)
        return gumbel_top_k(log_softmax(logits, options), rules.shots, generator)
    stepper = Stepper(network.decoder, state, items)
    ended = torch.zeros(n, dtype=torch.bool, device=state.device)
    picked: list[Tensor] = []
    for _ in range(rules.shots):
        options = _options(choosable, picked, ended, rules)
        scores = log_softmax(stepper.logits() / rules.temperature, options)
        noise = gumbel((n, size + 1), generator).to(scores.device)
        pick = _as_picks((scores + noise).argmax(-1), size, ended)
        stepper.take(pick)
        picked.append(pick)
        ended = ended | (pick < 0)
    return torch.stack(picked, 1)


@torch.no_grad()
def beams(
    network: SelectorNetwork, state: Tensor, items: Tensor, choosable: Tensor, rules: Rules, width: int
) -> tuple[Tensor, Tensor]:
    """The `width` best selections that a beam search finds, best first.

    Returns:
        picks [b, W, K], log-probabilities [b, W] (-inf where fewer selections exist).
    """
    b, size = choosable.shape
    stepper = Stepper(network.decoder, state, items)
    scores = torch.zeros(b, 1, device=state.device)
    picks = torch.zeros(b, 1, 0, dtype=torch.long, device=state.device)
    for _ in range(rules.shots):
        live = picks.shape[1]
        flat = picks.reshape(b * live, -1)
        ended = (flat < 0).any(-1) if flat.shape[1] else torch.zeros(b * live, dtype=torch.bool, device=state.device)
        open_ = _options(choosable.repeat_interleave(live, 0), list(flat.unbind(1)), ended, rules)
        step = log_softmax(stepper.logits() / rules.temperature, open_).view(b, live, size + 1)
        total = (scores[:, :, None] + step).view(b, -1)
        scores, best = total.topk(min(width, total.shape[1]), dim=-1)
        parent, column = best // (size + 1), best % (size + 1)
        rows = (torch.arange(b, device=state.device)[:, None] * live + parent).reshape(-1)
        pick = _as_picks(column.reshape(-1), size, ended[rows])
        stepper = stepper.select(rows)
        stepper.take(pick)
        picks = torch.cat([flat[rows], pick[:, None]], 1).view(b, scores.shape[1], -1)
    return picks, scores


def greedy(network: SelectorNetwork, state: Tensor, items: Tensor, choosable: Tensor, rules: Rules) -> Tensor:
    """The likeliest pick at each step; [b, K]."""
    return beams(network, state, items, choosable, rules, 1)[0][:, 0]

"""What sampling leaves for the one update of a rollout, so that scoring need not compute it again.

The graph of the encoder and of the states is kept with the samples' log-probabilities. Scoring the very same rows under
the very same weights then gives the recorded numbers, and their gradient is made from the recorded distributions.
Anything else (other rows, another block, changed weights, dropout) is scored anew, with the same result.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from anygrpo.selection.decoding import Drawn
from anygrpo.selection.network import Encoded, SelectorNetwork, stacked
from anygrpo.selection.picks import columns
from anygrpo.selection.sharing import mixed_of


@dataclass(frozen=True)
class Recorded:
    """A rollout's graph.

    Attributes:
        values: of the prompts, by identity. encoded: with its graph.
        drawn: with states and scores; None where the logits are made of more than states and keys.
        versions: of the weights; others mean that they have changed since.
    """

    values: dict[str, Tensor]
    encoded: Encoded
    drawn: Drawn | None
    versions: tuple[int, ...]

    def fits(self, network: SelectorNetwork, values: dict[str, Tensor]) -> bool:
        """Whether the encoded prompts are those of `values` under the present weights."""
        return self.values is values and self.versions == versions(network)

    def log_probs(self, network: SelectorNetwork, prompt: Tensor, chosen: Tensor, temperature: float) -> Tensor | None:
        """[n, K] of the rollout's own rows, in their order; None where these rows are others."""
        drawn = self.drawn
        if drawn is None or drawn.scores is None:
            return None
        u, r, _ = drawn.chosen.shape
        rows = torch.arange(u, device=prompt.device).repeat_interleave(r)
        if not torch.equal(prompt, rows) or not torch.equal(chosen, drawn.chosen.flatten(0, 1)):
            return None
        scale = network.decoder.scale * temperature
        bias = network.decoder.stop.bias if hasattr(network.decoder, "stop") else None
        column = columns(drawn.chosen, self.encoded.items.shape[1])
        made = _FromScores.apply(stacked(list(drawn.states), r), self.encoded.keys, bias, drawn.scores, column, scale)
        return made.flatten(0, 1)


def versions(network: SelectorNetwork) -> tuple[int, ...]:
    """Changes whenever a weight is changed in place."""
    return tuple(p._version for p in network.parameters())


def recordable(network: SelectorNetwork) -> bool:
    """Whether logits are (state . key + STOP's bias) / scale, which `_FromScores` differentiates."""
    decoder = network.decoder
    return not (decoder.additive or decoder.stateless or hasattr(decoder, "diversity"))


class _FromScores(torch.autograd.Function):
    """Log-probabilities of columns, from distributions already made; backward as through the masked log-softmax of
    (states . keys + bias of the last column) / scale. Shapes: states [u, r, K, h], keys [u or 1, C, h], scores
    [u, r, K, C], columns [u, r, K]."""

    @staticmethod
    def forward(
        ctx: Any, states: Tensor, keys: Tensor, bias: Tensor | None, scores: Tensor, column: Tensor, scale: float
    ) -> Tensor:
        ctx.save_for_backward(states, keys, scores, column)
        ctx.scale, ctx.biased = scale, bias is not None
        return scores.gather(-1, column[..., None])[..., 0]

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        states, keys, scores, column = ctx.saved_tensors
        gradient = (gradient / ctx.scale)[..., None]
        of_logits = scores.exp().mul_(-gradient)  # closed columns: exp(-inf) = 0
        of_logits.scatter_add_(-1, column[..., None], gradient)
        bias = of_logits[..., -1].sum().view(1) if ctx.biased else None
        flat = of_logits.flatten(1, 2)
        of_states = mixed_of(flat, keys).view_as(states)
        if len(keys) < len(states):
            of_keys = (flat.flatten(0, 1).T @ states.flatten(0, 2))[None]
        else:
            of_keys = torch.bmm(flat.transpose(1, 2), states.flatten(1, 2))
        return of_states, of_keys, bias, None, None, None

"""The pointer network: cross-attention of a query over its pool, then one pick after the other."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from anygrpo.config.selection import SelectorConfig
from anygrpo.policies.selector.picks import columns


class Encoder(nn.Module):
    """Query and candidates into one space; the query attends over its own pool. Blind to the candidates' order."""

    def __init__(self, config: SelectorConfig) -> None:
        super().__init__()
        self.input = _input(config)
        self.attention = nn.MultiheadAttention(config.width, config.heads, batch_first=True)
        self.norm = nn.LayerNorm(config.width)

    def forward(self, query: Tensor, candidates: Tensor, choosable: Tensor) -> tuple[Tensor, Tensor]:
        """[b, d], [b, M, d], [b, M] bool -> state [b, h], items [b, M, h]."""
        q, items = self.input(query), self.input(candidates)
        attended, _ = self.attention(q[:, None], items, items, key_padding_mask=~choosable, need_weights=False)
        return self.norm(attended[:, 0] + q), items


def _input(config: SelectorConfig) -> nn.Module:
    """Features to the network's width: linear, or with a hidden layer (features scaled to unit variance first: units of
    a unit vector are so small that GELU would be linear on them)."""
    if not config.hidden:
        return nn.Linear(config.features, config.width)
    hidden = nn.Linear(config.features, config.hidden)
    return nn.Sequential(nn.LayerNorm(config.features), hidden, nn.GELU(), nn.Linear(config.hidden, config.width))


class Decoder(nn.Module):
    """Logits of the next pick from the state, and the state after it."""

    def __init__(self, config: SelectorConfig) -> None:
        super().__init__()
        h = config.width
        self.kind, self.additive = config.decoder, config.logits == "additive"
        self.scale = 1.0 if self.additive else config.logit_temperature
        self.query, self.item = nn.Linear(h, h), nn.Linear(h, h)
        if config.decoder == "gated":
            self.gate = nn.Linear(2 * h, h)
        elif config.decoder == "gru":
            self.cell = nn.GRUCell(h, h)
        if self.additive:
            self.state_part, self.item_part, self.score = nn.Linear(h, h), nn.Linear(h, h), nn.Linear(h, 1, bias=False)
        if config.stop:
            self.stop = nn.Linear(h, 1)
            nn.init.constant_(self.stop.bias, config.stop_bias * self.scale)
        if config.diversity:
            steps = max(config.shots, config.evaluation_shots or 0)
            self.diversity = nn.Parameter(torch.full((steps,), -2.0))  # softplus(-2) = 0.13
        self.dropout = nn.Dropout(config.dropout)

    def start(self, state: Tensor, items: Tensor) -> tuple[Tensor, Tensor]:
        """Encoded [b, h], [b, M, h] -> unit state and unit items of the same shapes."""
        return (
            F.normalize(self.query(self.dropout(state)), dim=-1),
            F.normalize(self.item(self.dropout(items)), dim=-1),
        )

    def logits(self, state: Tensor, items: Tensor, nearness: Tensor | None, step: int) -> Tensor:
        """[n, h], [n, M, h], largest cosine to what was picked [n, M] -> [n, M + 1] (last column: STOP)."""
        if self.additive:
            scores = self.score(torch.tanh(self.state_part(state)[:, None] + self.item_part(items)))[..., 0]
        else:
            scores = torch.einsum("nmh,nh->nm", items, state) / self.scale
        if nearness is not None:
            scores = scores - F.softplus(self.diversity[step]) / self.scale * nearness
        stop = self.stop(state) / self.scale if hasattr(self, "stop") else torch.zeros_like(scores[:, :1])
        return torch.cat([scores, stop], 1)

    def after(self, state: Tensor, picked: Tensor) -> Tensor:
        """The state once `picked` [n, h] was taken."""
        if self.kind == "none":
            return state
        if self.kind == "gru":
            return F.normalize(self.cell(picked, state), dim=-1)
        gate = torch.sigmoid(self.gate(torch.cat([state, picked], -1)))
        return F.normalize(gate * state + (1 - gate) * picked, dim=-1)

    @property
    def stateless(self) -> bool:
        """Logits don't change with what was picked (beyond its removal)."""
        return self.kind == "none" and not hasattr(self, "diversity")


class SelectorNetwork(nn.Module):
    """Encoder and decoder; parameter names start with "encoder." or "decoder."."""

    def __init__(self, config: SelectorConfig) -> None:
        super().__init__()
        self.encoder, self.decoder = Encoder(config), Decoder(config)

    def encode(self, query: Tensor, candidates: Tensor, choosable: Tensor) -> tuple[Tensor, Tensor]:
        """Start of decoding: unit state [b, h] and unit items [b, M, h]."""
        return self.decoder.start(*self.encoder(query, candidates, choosable))

    def logits(self, state: Tensor, items: Tensor, chosen: Tensor) -> Tensor:
        """Unmasked logits at every pick, given the picks before it.

        Args:
            state, items: [n, h], [n, M, h] from `encode`.
            chosen: [n, K] positions, STOP or NOTHING.

        Returns:
            [n, K, M + 1].
        """
        stepper = Stepper(self.decoder, state, items)
        out = []
        for step in range(chosen.shape[1]):
            out.append(stepper.logits())
            stepper.take(chosen[:, step])
        return torch.stack(out, 1)


class Stepper:
    """Decoding one pick at a time: `logits()`, then `take(picks)`."""

    def __init__(self, decoder: Decoder, state: Tensor, items: Tensor) -> None:
        self.decoder, self.state, self.items = decoder, state, items
        self.nearness = items.new_zeros(items.shape[:2]) if hasattr(decoder, "diversity") else None
        self.step = 0

    def logits(self) -> Tensor:
        """[n, M + 1] before masking."""
        nearness = self.nearness if self.step else None
        return self.decoder.logits(self.state, self.items, nearness, self.step)

    def take(self, picks: Tensor) -> None:
        """Move on by picks [n]; STOP and NOTHING leave the state as it is."""
        real = picks >= 0
        at = columns(picks, 0)  # any column will do where nothing was picked
        picked = self.items[torch.arange(len(picks), device=picks.device), at]
        self.state = torch.where(real[:, None], self.decoder.after(self.state, picked), self.state)
        if self.nearness is not None:
            cosine = torch.einsum("nmh,nh->nm", self.items, picked)
            nearer = cosine if self.step == 0 else torch.maximum(self.nearness, cosine)
            self.nearness = torch.where(real[:, None], nearer, self.nearness)
        self.step += 1

    def select(self, rows: Tensor) -> Stepper:
        """The same decoding at rows [m] (repeats allowed), for beams."""
        copy = Stepper(self.decoder, self.state[rows], self.items[rows])
        copy.nearness = None if self.nearness is None else self.nearness[rows]
        copy.step = self.step
        return copy

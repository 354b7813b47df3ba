"""The pointer network: cross-attention of a query over its pool, then one pick after the other."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from anygrpo.config.selection import SelectorConfig


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

    def logits(self, state: Tensor, items: Tensor, cost: Tensor | None) -> Tensor:
        """[u, r, h], items [u, M, h] that the r rows share, what is taken off each logit [u, r, M] -> [u, r, M + 1]
        (last column: STOP)."""
        if self.additive:
            scores = self.score(torch.tanh(self.state_part(state)[:, :, None] + self.item_part(items)[:, None]))[..., 0]
        else:
            scores = torch.bmm(state / self.scale, items.transpose(1, 2))
        if cost is not None:
            scores = scores - cost
        stop = self.stop(state) / self.scale if hasattr(self, "stop") else torch.zeros_like(scores[..., :1])
        return torch.cat([scores, stop], -1)

    def cost(self, nearness: Tensor, steps: int | slice) -> Tensor:
        """What closeness to earlier picks takes off the logits, for [..., M] at one step or [..., K, M] at all."""
        weight = F.softplus(self.diversity[steps]) / self.scale
        return weight[..., None] * nearness

    def after(self, state: Tensor, picked: Tensor) -> Tensor:
        """The state [..., h] once `picked` [..., h] was taken."""
        if self.kind == "none":
            return state
        if self.kind == "gru":
            return F.normalize(self.cell(picked.flatten(0, -2), state.flatten(0, -2)).view(state.shape), dim=-1)
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
        """Unmasked logits at every pick, given the picks before it: all in one product a prompt.

        Args:
            state, items: [u, h], [u, M, h] from `encode`.
            chosen: [u, r, K] positions, STOP or NOTHING: r rows of each prompt.

        Returns:
            [u, r, K, M + 1].
        """
        u, r, shots = chosen.shape
        if self.decoder.stateless:
            once = self.decoder.logits(state[:, None], items, None)
            return once[:, :, None].expand(u, r, shots, once.shape[-1])
        before = chosen[:, :, :-1]
        picked = gathered(items, before.flatten(1)).view(u, r, shots - 1, items.shape[-1])
        states = [state[:, None].expand(u, r, -1)]
        for step in range(shots - 1):
            after = self.decoder.after(states[-1], picked[:, :, step])
            states.append(torch.where(before[:, :, step, None] >= 0, after, states[-1]))
        cost = None
        if hasattr(self.decoder, "diversity"):
            cost = self.decoder.cost(_nearness(items, picked, before), slice(0, shots)).flatten(1, 2)
        logits = self.decoder.logits(torch.stack(states, 2).flatten(1, 2), items, cost)
        return logits.view(u, r, shots, logits.shape[-1])


def gathered(items: Tensor, picks: Tensor) -> Tensor:
    """Items [u, M, h] at picks [u, r]: [u, r, h]; any item where nothing was picked."""
    return items.gather(1, picks.clamp(min=0)[..., None].expand(-1, -1, items.shape[-1]))


def _nearness(items: Tensor, picked: Tensor, before: Tensor) -> Tensor:
    """Largest cosine of each item to what was picked before each step: [u, r, K, M], 0 before the first."""
    u, r, earlier, _ = picked.shape
    cosine = torch.bmm(picked.flatten(1, 2), items.transpose(1, 2)).view(u, r, earlier, -1)
    cosine = cosine.masked_fill(before[..., None] < 0, -1.0)  # no cosine is smaller
    nearest = cosine.cummax(2).values if earlier else cosine
    return torch.cat([nearest.new_zeros(u, r, 1, items.shape[1]), nearest], 2)


class Stepper:
    """Decoding one pick at a time, r rows of each prompt: `logits()`, then `take(picks)`."""

    def __init__(self, decoder: Decoder, state: Tensor, items: Tensor) -> None:
        """state [u, r, h], items [u, M, h]."""
        self.decoder, self.state, self.items = decoder, state, items
        wide = hasattr(decoder, "diversity")
        self.nearness = items.new_zeros(*state.shape[:2], items.shape[1]) if wide else None
        self.step = 0

    def logits(self) -> Tensor:
        """[u, r, M + 1] before masking."""
        cost = None if self.nearness is None else self.decoder.cost(self.nearness, self.step)
        return self.decoder.logits(self.state, self.items, cost)

    def take(self, picks: Tensor) -> None:
        """Move on by picks [u, r]; STOP and NOTHING leave the state as it is."""
        real = picks[..., None] >= 0
        if self.decoder.kind != "none" or self.nearness is not None:
            picked = gathered(self.items, picks)
            self.state = torch.where(real, self.decoder.after(self.state, picked), self.state)
            if self.nearness is not None:
                cosine = torch.bmm(picked, self.items.transpose(1, 2))
                nearer = cosine if self.step == 0 else torch.maximum(self.nearness, cosine)
                self.nearness = torch.where(real, nearer, self.nearness)
        self.step += 1

    def select(self, parents: Tensor) -> Stepper:
        """The same decoding of the rows that `parents` [u, r'] name in each prompt (repeats allowed), for beams."""
        copy = Stepper(self.decoder, gathered(self.state, parents), self.items)
        copy.nearness = None if self.nearness is None else gathered(self.nearness, parents)
        copy.step = self.step
        return copy

"""The pointer network: cross-attention of a query over its pool, then one pick after the other."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from anygrpo.selection.settings import SelectorConfig
from anygrpo.selection.sharing import compared, gathered, mixed_of

_SET_HEADS = 4


class Encoder(nn.Module):
    """Query and candidates into one space; the query attends over its own pool. Blind to the candidates' order."""

    def __init__(self, config: SelectorConfig) -> None:
        super().__init__()
        self.input = _input(config)
        self.attention = nn.MultiheadAttention(config.width, config.heads, batch_first=True)
        self.norm = nn.LayerNorm(config.width)
        if config.layers > 1:
            self.deeper = nn.ModuleList(CrossAttention(config) for _ in range(config.layers - 1))
        if config.set_layers:
            layer = nn.TransformerEncoderLayer(
                config.width, _SET_HEADS, 2 * config.width, dropout=0.0, batch_first=True, norm_first=True
            )
            self.among = nn.TransformerEncoder(layer, config.set_layers, enable_nested_tensor=False)

    def forward(self, query: Tensor, candidates: Tensor, choosable: Tensor) -> tuple[Tensor, Tensor]:
        """[b, d], [b or 1, M, d], [b, M] bool -> state [b, h], items [b or 1, M, h]; 1: one pool that all share."""
        q, items = self.input(query), self.input(candidates)
        if hasattr(self, "among"):
            if len(items) < len(choosable):  # who is left out differs from query to query, and so do the others' views
                alike = bool((choosable == choosable[:1]).all())
                items = items if alike else items.expand(len(choosable), -1, -1)
            items = self.among(items, src_key_padding_mask=~choosable[: len(items)])
        q = self.norm(attended(self.attention, q, items, choosable) + q)
        for layer in getattr(self, "deeper", ()):
            q = layer(q, items, choosable)
        return q, items


class CrossAttention(nn.Module):
    """One more layer of the query's attention over its pool, with a residual and a norm."""

    def __init__(self, config: SelectorConfig) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(config.width, config.heads, batch_first=True)
        self.norm = nn.LayerNorm(config.width)

    def forward(self, q: Tensor, items: Tensor, choosable: Tensor) -> Tensor:
        """[b, h], [b or 1, M, h], [b, M] bool -> [b, h]."""
        return self.norm(attended(self.attention, q, items, choosable) + q)


def attended(attention: nn.MultiheadAttention, q: Tensor, items: Tensor, choosable: Tensor) -> Tensor:
    """`attention` of one query [b, h] over its pool [b or 1, M, h], [b, h], without keys and values of the items:
    q . (K x) is (K^T q) . x and sum a (V x) is V (sum a x), which costs a product a head in place of two an item.
    Biases of keys shift all scores alike and drop out; those of values have weights that sum to 1."""
    heads = attention.num_heads
    of_query, of_key, of_value = attention.in_proj_weight.chunk(3)
    query_bias, _, value_bias = attention.in_proj_bias.chunk(3)
    query = F.linear(q, of_query, query_bias).unflatten(-1, (heads, -1))
    asked = torch.einsum("bnd,ndh->bnh", query, of_key.unflatten(0, (heads, -1)))
    scores = compared(asked, items) / query.shape[-1] ** 0.5
    weights = torch.where(choosable[:, None], scores, -torch.inf).softmax(-1)
    mixed = torch.einsum("bnh,ndh->bnd", mixed_of(weights, items), of_value.unflatten(0, (heads, -1)))
    return attention.out_proj(mixed.flatten(1) + value_bias)


def _input(config: SelectorConfig) -> nn.Module:
    """Features to the network's width: linear, or with a hidden layer (features scaled to unit variance first: units of
    a unit vector are so small that GELU would be linear on them)."""
    if not config.hidden:
        return nn.Linear(config.features, config.width)
    hidden = nn.Linear(config.features, config.hidden)
    return nn.Sequential(nn.LayerNorm(config.features), hidden, nn.GELU(), nn.Linear(config.hidden, config.width))


class Encoded(NamedTuple):
    """Prompts ready for decoding: all that their rows share.

    Attributes:
        state: [u, h], unit: where every row begins. items: [u, M, h], unit.
        keys: what states are compared with: the items and STOP's weights [u, M + 1, h], or the items' part of additive
            logits [u, M, h].
        gate: [u, M, h] the items' part of a gated state's gate, or None.

    Items, keys and gate are [1, ...] where all prompts share one pool: it is encoded once, and its gradient is one.
    """

    state: Tensor
    items: Tensor
    keys: Tensor
    gate: Tensor | None

    def map(self, fn: Callable[[Tensor], Tensor]) -> Encoded:
        """`fn` of what each prompt has of its own."""
        count = len(self.state)
        return Encoded(*(x if x is None or len(x) < count else fn(x) for x in self))  # type: ignore[arg-type]

    def picked(self, picks: Tensor) -> tuple[Tensor, Tensor | None]:
        """Items and their gates at picks [u, r]: [u, r, h] each."""
        return gathered(self.items, picks), None if self.gate is None else gathered(self.gate, picks)


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
        if config.logits == "bilinear":
            self.bilinear = nn.Linear(h, h, bias=False)
            nn.init.eye_(self.bilinear.weight)
        if config.stop:
            self.stop = nn.Linear(h, 1)
            nn.init.constant_(self.stop.bias, config.stop_bias * self.scale)
        if config.diversity:
            steps = max(config.shots, config.evaluation_shots or 0)
            self.diversity = nn.Parameter(torch.full((steps,), -2.0))  # softplus(-2) = 0.13
        self.dropout = nn.Dropout(config.dropout)

    def start(self, state: Tensor, items: Tensor) -> tuple[Tensor, Tensor]:
        """The encoder's [b, h], [b or 1, M, h] -> unit state and unit items of the same shapes."""
        return (
            F.normalize(self.query(self.dropout(state)), dim=-1),
            F.normalize(self.item(self.dropout(items)), dim=-1),
        )

    def prepare(self, state: Tensor, items: Tensor) -> Encoded:
        """Start of decoding from the encoder's [u, h], [u or 1, M, h], with what is made once for all rows."""
        state, items = self.start(state, items)
        turned = self.bilinear(items) if hasattr(self, "bilinear") else items
        if self.additive:
            keys = self.item_part(items)
        elif hasattr(self, "stop"):
            keys = torch.cat([turned, self.stop.weight.expand(len(items), 1, -1)], 1)
        else:
            keys = F.pad(turned, (0, 0, 0, 1))
        gate = None
        if self.kind == "gated":
            gate = F.linear(items, self.gate.weight[:, items.shape[-1] :], self.gate.bias)
        return Encoded(state, items, keys, gate)

    def logits(self, state: Tensor, encoded: Encoded, cost: Tensor | None) -> Tensor:
        """[u, r, h], the prompts that r rows each share, what is taken off each logit [u, r, M + 1] or None
        -> [u, r, M + 1] (last column: STOP)."""
        if self.additive:
            scores = self.score(torch.tanh(self.state_part(state)[:, :, None] + encoded.keys[:, None]))[..., 0]
            stop = self.stop(state) if hasattr(self, "stop") else torch.zeros_like(scores[..., :1])
            scores = torch.cat([scores, stop], -1)
        else:
            scores = compared(state / self.scale, encoded.keys)
            if hasattr(self, "stop"):
                scores[..., -1] += self.stop.bias / self.scale
        return scores if cost is None else scores - cost

    def cost(self, nearness: Tensor, steps: int | slice) -> Tensor:
        """What closeness to earlier picks takes off the logits, for [..., M] at one step or [..., K, M] at all:
        [..., M + 1], 0 for STOP."""
        weight = F.softplus(self.diversity[steps]) / self.scale
        return F.pad(weight[..., None] * nearness, (0, 1))

    def after(self, state: Tensor, picked: Tensor, gate: Tensor | None) -> Tensor:
        """The state [u, r, h] once `picked` [u, r, h] was taken; a state [u, 1, h] is that of all r rows.

        Args:
            gate: of a gated state, the picked items' part of the gate [u, r, h] (`Encoded.gate`).
        """
        if self.kind == "none":
            return state
        if self.kind == "gru":
            flat = state.expand_as(picked).flatten(0, -2)
            return F.normalize(self.cell(picked.flatten(0, -2), flat).view(picked.shape), dim=-1)
        assert gate is not None
        keep = torch.sigmoid(F.linear(state, self.gate.weight[:, : state.shape[-1]]) + gate)
        return F.normalize(torch.lerp(picked, state, keep), dim=-1)

    @property
    def stateless(self) -> bool:
        """Logits don't change with what was picked (beyond its removal)."""
        return self.kind == "none" and not hasattr(self, "diversity")


class SelectorNetwork(nn.Module):
    """Encoder and decoder; parameter names start with "encoder." or "decoder."."""

    def __init__(self, config: SelectorConfig) -> None:
        super().__init__()
        self.encoder, self.decoder = Encoder(config), Decoder(config)

    def encode(self, query: Tensor, candidates: Tensor, choosable: Tensor) -> Encoded:
        """[b, d], [b, M, d], [b, M] bool -> what decoding starts from. Candidates that are one pool expanded to all
        queries are encoded once."""
        if len(candidates) > 1 and candidates.stride(0) == 0:
            candidates = candidates[:1]
        return self.decoder.prepare(*self.encoder(query, candidates, choosable))

    def logits(self, encoded: Encoded, chosen: Tensor) -> Tensor:
        """Unmasked logits at every pick, given the picks before it: all in one product a prompt.

        Args:
            chosen: [u, r, K] positions, STOP or NOTHING: r rows of each prompt.

        Returns:
            [u, r, K, M + 1].
        """
        (u, r, shots), decoder = chosen.shape, self.decoder
        if decoder.stateless:
            once = decoder.logits(encoded.state[:, None], encoded, None)
            return once[:, :, None].expand(u, r, shots, once.shape[-1])
        before = chosen[:, :, :-1]
        picked, gate = (None if x is None else x.unflatten(1, (r, -1)) for x in encoded.picked(before.flatten(1)))
        assert picked is not None
        states, ends = [encoded.state[:, None]], bool((before < 0).any())
        for k in range(shots - 1):
            after = decoder.after(states[-1], picked[:, :, k], None if gate is None else gate[:, :, k])
            states.append(torch.where(before[:, :, k, None] >= 0, after, states[-1]) if ends else after)
        cost = None
        if hasattr(decoder, "diversity"):
            cost = decoder.cost(_nearness(encoded.items, picked, before), slice(0, shots)).flatten(1, 2)
        return decoder.logits(stacked(states, r).flatten(1, 2), encoded, cost).unflatten(1, (r, shots))


def stacked(states: list[Tensor], rows: int) -> Tensor:
    """States [u, rows or 1, h] of K steps: [u, rows, K, h]."""
    return torch.stack([s.expand(-1, rows, -1) for s in states], 2)


def _nearness(items: Tensor, picked: Tensor, before: Tensor) -> Tensor:
    """Largest cosine of each item to what was picked before each step: [u, r, K, M], 0 before the first."""
    u, r, earlier, _ = picked.shape
    cosine = compared(picked.flatten(1, 2), items).view(u, r, earlier, -1)
    cosine = cosine.masked_fill(before[..., None] < 0, -1.0)  # no cosine is smaller
    nearest = cosine.cummax(2).values if earlier else cosine
    return torch.cat([nearest.new_zeros(u, r, 1, items.shape[1]), nearest], 2)


class Stepper:
    """Decoding one pick at a time, r rows of each prompt: `logits()`, then `take(picks)`. All rows begin as one."""

    def __init__(self, decoder: Decoder, encoded: Encoded) -> None:
        self.decoder, self.encoded, self.state = decoder, encoded, encoded.state[:, None]
        u, size = len(encoded.state), encoded.items.shape[1]
        self.nearness = encoded.items.new_zeros(u, 1, size) if hasattr(decoder, "diversity") else None
        self.step = 0

    def logits(self) -> Tensor:
        """[u, r, M + 1] before masking; r = 1 before the first pick."""
        cost = None if self.nearness is None else self.decoder.cost(self.nearness, self.step)
        return self.decoder.logits(self.state, self.encoded, cost)

    def take(self, picks: Tensor, ends: bool = True) -> None:
        """Move on by picks [u, r]; STOP and NOTHING (there are none where not `ends`) leave the state as it is."""
        real = picks[..., None] >= 0
        if not self.decoder.stateless:
            picked, gate = self.encoded.picked(picks)
            after = self.decoder.after(self.state, picked, gate)
            self.state = torch.where(real, after, self.state) if ends else after
            if self.nearness is not None:
                cosine = compared(picked, self.encoded.items)
                nearer = cosine if self.step == 0 else torch.maximum(self.nearness, cosine)
                self.nearness = torch.where(real, nearer, self.nearness)
        self.step += 1

    def select(self, parents: Tensor) -> Stepper:
        """The same decoding of the rows that `parents` [u, r'] name in each prompt (repeats allowed), for beams."""
        made = copy(self)
        if not self.decoder.stateless:
            made.state = gathered(self.state, parents)
        made.nearness = None if self.nearness is None else gathered(self.nearness, parents)
        return made

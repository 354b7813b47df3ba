"""Group decoding on a GPU as captured graphs: one launch a token instead of a thousand.

All of a step is in the graph: the model, attention over prompts and own tokens, the draw, and the bookkeeping. The host
looks in only every `LOOK` steps: to stop, or to go on with half the rows when half are done (each size is captured once
and kept for later generations). Longer and longer parts of the rows' own keys are read: a graph for each doubling.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from anygrpo.language.compute.cache import GroupCache, Step
from anygrpo.language.compute.head import Head
from anygrpo.language.compute.passes import forward, prefill
from anygrpo.language.compute.support import draw, restrict
from anygrpo.language.engine.rows import uniforms
from anygrpo.language.generation import Generation, Sampling

log = logging.getLogger("anygrpo")

LOOK = 16
"""Steps between two looks at which rows are done."""

NARROW = 128
"""Own tokens read by the first graph."""

ROUND = 128
"""Prompt buffers grow in steps of this many tokens, so that a graph serves prompts of similar length."""


@dataclass
class Level:
    """Buffers of R rows decoded together, and their graphs by width."""

    cache: GroupCache
    token: Tensor  # [R]
    lengths: Tensor  # [R] of the prompts
    row: Tensor  # [R] which row of the generation
    done: Tensor  # [R] bool
    place: Tensor  # [1] index of `token` in its completion
    graphs: dict[int, torch.cuda.CUDAGraph] = field(default_factory=dict)


class CapturedDecoder:
    """Decoder for P prompts of at most Lp tokens, G rows each, one kind of sampling. Kept from call to call.

    Args:
        model, head: weights are read where they are at each replay, so an update in place is seen.
        prompts: P. group_size: G. prompt_width: Lp, a multiple of `ROUND`.
        capture: False runs the same steps without graphs (where capturing failed, and on a CPU).
    """

    def __init__(
        self,
        model: nn.Module,
        head: Head,
        prompts: int,
        group_size: int,
        prompt_width: int,
        sampling: Sampling,
        capture: bool = True,
    ) -> None:
        self.model, self.head, self.sampling, self.capture = model, head, sampling, capture
        self.prompts, self.group_size, self.prompt_width = prompts, group_size, prompt_width
        rows, steps, device = prompts * group_size, sampling.max_new_tokens, head.weight.device
        self.ids = torch.zeros(rows, steps, dtype=torch.long, device=device)
        self.log_probs = torch.zeros(rows, steps, device=device)
        self.noise = torch.zeros(rows, steps, device=device)
        self.ended = torch.zeros(rows, dtype=torch.bool, device=device)
        self.count = torch.zeros(rows, dtype=torch.long, device=device)
        self.levels: dict[int, Level] = {}
        # One pool for all graphs: they never run at once, and nothing they leave in it is read later.
        self.pool = torch.cuda.graph_pool_handle() if device.type == "cuda" else None
        self.hidden = torch.zeros(prompts, prompt_width, dtype=torch.bool, device=device)
        self.lengths = torch.zeros(prompts, dtype=torch.int32, device=device)
        self.prompt_k: list[Tensor] = []
        self.prompt_v: list[Tensor] = []

    @torch.no_grad()
    def generate(self, prompts: list[list[int]], noise: Tensor | None) -> Generation:
        """Completions as `group.generate_groups` makes them from `noise` [R, max_new_tokens] (None: greedy)."""
        start = time.perf_counter()
        level, hidden = self._begin(prompts, noise)
        self._advance(level, hidden)  # the first token comes from the prompt
        level.done.any().item()  # waits for the device
        middle = time.perf_counter()
        for place in range(self.sampling.max_new_tokens - 1):
            if place % LOOK == 0:
                alive = int((~level.done).sum())
                if alive == 0:
                    break
                level = self._smaller(level, alive, place)
            self._replay(level, place)
        made = self._finish()
        return Generation(*made, {"prefill": middle - start, "decode": time.perf_counter() - middle})

    def _begin(self, prompts: list[list[int]], noise: Tensor | None) -> tuple[Level, Tensor]:
        """Prompts into the buffers, everything else back to the start."""
        cache, hidden = prefill(self.model, prompts, [self.group_size] * self.prompts, width=1)
        device, longest = hidden.device, cache.prompt_k[0].shape[2]
        sizes = torch.tensor([len(ids) for ids in prompts], device=device)
        self.hidden.copy_(torch.arange(self.prompt_width, device=device) >= sizes[:, None])
        self.lengths.copy_(sizes)
        if not self.prompt_k:
            shape = (*cache.prompt_k[0].shape[:2], self.prompt_width, cache.prompt_k[0].shape[3])
            self.prompt_k = [x.new_zeros(shape) for x in cache.prompt_k]
            self.prompt_v = [x.new_zeros(shape) for x in cache.prompt_v]
        for mine, new in zip(self.prompt_k + self.prompt_v, cache.prompt_k + cache.prompt_v):
            mine[:, :, :longest] = new
        if noise is not None:
            self.noise.copy_(noise)
        self.ended.zero_()
        self.count.zero_()
        level = self._level(len(self.ids))
        level.row.copy_(torch.arange(len(self.ids), device=device))
        level.cache.seat(level.row, self.group_size)
        level.lengths.copy_(sizes.repeat_interleave(self.group_size))
        level.done.zero_()
        level.place.fill_(-1)
        return level, hidden

    def _level(self, rows: int) -> Level:
        if rows not in self.levels:
            device, some = self.hidden.device, self.prompt_k[0]
            shape = (rows, some.shape[1], self.sampling.max_new_tokens, some.shape[3])
            zeros = lambda kind: torch.zeros(rows, dtype=kind, device=device)  # noqa: E731
            row = torch.arange(rows, device=device)
            prompts = (self.lengths, self.hidden, self.prompt_k, self.prompt_v)
            cache = GroupCache(row // self.group_size, row, self.group_size, *prompts)
            cache.own_k = [some.new_zeros(shape) for _ in self.prompt_k]
            cache.own_v = [some.new_zeros(shape) for _ in self.prompt_k]
            place = torch.zeros(1, dtype=torch.long, device=device)
            whole = torch.long
            self.levels[rows] = Level(cache, zeros(whole), zeros(whole), row.clone(), zeros(torch.bool), place)
        return self.levels[rows]

    def _smaller(self, level: Level, alive: int, place: int) -> Level:
        """The level with half, a quarter, ... of the rows that still holds all alive ones, filled up with done rows."""
        rows = len(level.row)
        while rows % 2 == 0 and alive <= rows // 2:
            rows //= 2
        if rows == len(level.row):
            return level
        stay = torch.argsort(level.done.long(), stable=True)[:rows].sort().values
        new = self._level(rows)
        for name in ("token", "lengths", "row", "done"):
            getattr(new, name).copy_(getattr(level, name)[stay])
        new.place.copy_(level.place)
        new.cache.seat(new.row, self.group_size)
        for mine, old in zip(new.cache.own_k + new.cache.own_v, level.cache.own_k + level.cache.own_v):
            mine[:, :, :place] = old[stay, :, :place]
        return new

    def _replay(self, level: Level, place: int) -> None:
        """One token more for each row of the level."""
        width = NARROW
        while width <= place:
            width *= 2
        width = min(width, self.sampling.max_new_tokens)
        if self.capture and width not in level.graphs:
            try:
                level.graphs[width] = self._capture(level, width)
            except RuntimeError as error:
                self.capture = False
                log.warning("decoding without captured graphs, which is slower: %s", str(error).splitlines()[0])
        if self.capture:
            level.graphs[width].replay()
        else:
            self._step(level, width)

    def _capture(self, level: Level, width: int) -> torch.cuda.CUDAGraph:
        """Run once to warm up, put back what that run changed, and record."""
        state = [level.token, level.done, level.place, self.ended, self.count, self.ids, self.log_probs]
        before = [x.clone() for x in state]
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            self._step(level, width)
        torch.cuda.current_stream().wait_stream(side)
        for x, old in zip(state, before):
            x.copy_(old)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self.pool):
            self._step(level, width)
        return graph  # recording computes nothing: the state is still as before

    def _step(self, level: Level, width: int) -> None:
        positions = level.lengths + level.place
        self._advance(level, forward(self.model, level.token, positions, Step(level.cache, level.place, width)))

    def _advance(self, level: Level, hidden: Tensor) -> None:
        """Draw the token after `place` for every row from hidden [R, H]; rows that are done record nothing."""
        level.place += 1
        z = restrict(self.head.logits(hidden), self.sampling.support, level.place.expand(len(level.row)))
        noise = None if self.sampling.greedy else self.noise[level.row, level.place]
        token, log_prob = draw(z, noise)
        self.ids[level.row, level.place] = torch.where(level.done, self.ids[level.row, level.place], token)
        old = self.log_probs[level.row, level.place]
        self.log_probs[level.row, level.place] = torch.where(level.done, old, log_prob)
        self.count[level.row] = self.count[level.row] + (~level.done).long()
        for end in self.sampling.support.eos_ids:
            level.done |= token == end
        self.ended[level.row] = level.done
        level.token.copy_(token)

    def _finish(self) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        lengths = self.count.cpu().clone()
        width = max(int(lengths.max()), 1)
        chosen = torch.arange(width) < lengths[:, None]
        ids = torch.where(chosen, self.ids[:, :width].cpu(), 0)
        return ids, lengths, chosen, torch.where(chosen, self.log_probs[:, :width].cpu(), 0.0), self.ended.cpu().clone()


class Captured:
    """Keeps the decoders of recent shapes; the oldest leaves when there are more than `most`."""

    def __init__(self, model: nn.Module, most: int = 2) -> None:
        self.model, self.most = model, most
        self.decoders: dict[tuple[Any, ...], CapturedDecoder] = {}

    def generate(
        self,
        head: Head,
        prompts: list[list[int]],
        group_size: int,
        sampling: Sampling,
        seed: int,
        capture: bool = True,
    ) -> Generation:
        """All rows, `sampling.rows` of them (whole groups, at least one) at a time."""
        noise = uniforms(len(prompts) * group_size, sampling, seed, head.weight.device)
        step = max(1, (sampling.rows or len(prompts) * group_size) // group_size)
        parts = []
        for a in range(0, len(prompts), step):
            part = prompts[a : a + step]
            mine = None if noise is None else noise[a * group_size : (a + step) * group_size]
            parts.append(self._decoder(head, part, group_size, sampling, capture).generate(part, mine))
        return joined(parts)

    def _decoder(
        self, head: Head, prompts: list[list[int]], group_size: int, sampling: Sampling, capture: bool
    ) -> CapturedDecoder:
        width = -(-max(map(len, prompts)) // ROUND) * ROUND
        key = (len(prompts), group_size, width, sampling, head.weight.data_ptr())
        decoder = self.decoders.pop(key, None)
        if decoder is None:
            while len(self.decoders) >= self.most:
                self.decoders.pop(next(iter(self.decoders)))
            decoder = CapturedDecoder(self.model, head, len(prompts), group_size, width, sampling, capture)
        self.decoders[key] = decoder
        return decoder


def joined(parts: list[Generation]) -> Generation:
    """The rows of several generations under one another; shorter ones padded."""
    width = max(part.ids.shape[1] for part in parts)
    wide = lambda x: torch.nn.functional.pad(x, (0, width - x.shape[1]))  # noqa: E731
    return Generation(
        torch.cat([wide(part.ids) for part in parts]),
        torch.cat([part.lengths for part in parts]),
        torch.cat([wide(part.chosen) for part in parts]),
        torch.cat([wide(part.log_probs) for part in parts]),
        torch.cat([part.ended for part in parts]),
        {name: sum(part.seconds[name] for part in parts) for name in parts[0].seconds},
    )

"""Group decoding on a GPU as captured graphs: one launch a token instead of a thousand.

All of a step is in the graph: the model, attention over prompts and own tokens, the draw, and the bookkeeping. The host
looks in only every `LOOK` steps. Then rows that are done are refilled from those that wait; when none waits, and half
are done, it goes on with half the rows; and before a row reaches the end of its buffers, they become twice as wide. So
what is held follows the rows that live and how long they are. Each pair of sizes is captured once and kept.
"""

# pyright: reportArgumentType=false, reportOptionalMemberAccess=false

from __future__ import annotations

import logging
import time
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from anygrpo.language.compute.cache import GroupCache, Uneven
from anygrpo.language.compute.head import Head
from anygrpo.language.compute.passes import forward, prefill
from anygrpo.language.compute.support import draw, restrict
from anygrpo.language.generation import Generation, Sampling

log = logging.getLogger("anygrpo")

LOOK = 16
"""Steps between two looks at which rows are done."""

NARROW = 256
"""Own tokens that the first buffers hold."""

HELD = 4 * 2**30
"""Bytes of buffers up to which those that rows have left are kept for the next generation."""


@dataclass
class Level:
    """Buffers of R rows decoded together, `width` tokens each, and the graph of their step."""

    cache: GroupCache
    width: int
    token: Tensor  # [R]
    lengths: Tensor  # [R] of the prompts
    row: Tensor  # [R] which row of the generation
    done: Tensor  # [R] bool
    place: Tensor  # [R] index of `token` in its completion
    graph: torch.cuda.CUDAGraph | None = None

    @property
    def bytes(self) -> int:
        return sum(x.nbytes for x in self.cache.own_k + self.cache.own_v)


class CapturedDecoder:
    """Decoder for P prompts of at most Lp tokens, G rows each, one kind of sampling. Kept from call to call.

    Args:
        model, head: weights are read where they are at each replay, so an update in place is seen.
        prompts: P. group_size: G. prompt_width: Lp, a multiple of `shapes.ROUND`.
        capture: False runs the same steps without graphs (where capturing failed, and on a CPU).

    Attributes:
        turns: tokens that were computed in the last generation, of rows that were done already too.
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
        self.rows = min(rows, max((sampling.rows or rows) // group_size, 1) * group_size)
        self.waiting = self.turns = 0
        self.ids = torch.zeros(rows, steps, dtype=torch.long, device=device)
        self.log_probs = torch.zeros(rows, steps, device=device)
        self.noise = torch.zeros(rows, steps, device=device)
        self.ended = torch.zeros(rows, dtype=torch.bool, device=device)
        self.count = torch.zeros(rows, dtype=torch.long, device=device)
        self.ends = torch.zeros(len(head.weight), dtype=torch.bool, device=device)
        self.ends[list(sampling.support.eos_ids)] = True
        self.levels: dict[tuple[int, int], Level] = {}
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
        self._advance(level, hidden[: self.rows])  # the first token comes from the prompt
        level.done.any().item()  # waits for the device
        middle = time.perf_counter()
        while (found := self._look(level, hidden)) is not None:
            level = found
            for _ in range(LOOK):
                self._replay(level)
        made = self._finish()
        return Generation(*made, {"prefill": middle - start, "decode": time.perf_counter() - middle})

    def _look(self, level: Level, hidden: Tensor) -> Level | None:
        """What to go on with; None where every row is done."""
        while True:
            furthest = level.place.masked_fill(level.done, 0).amax()
            alive, furthest = torch.stack([(~level.done).sum(), furthest]).tolist()
            if alive == len(level.row) or self.waiting == len(self.ids):
                return self._fitting(level, alive, furthest) if alive else None
            self._refill(level, hidden)

    def _refill(self, level: Level, hidden: Tensor) -> None:
        """Waiting rows in the places of those that are done, each with its first token, from hidden [R, H]."""
        at = level.done.nonzero()[: len(self.ids) - self.waiting, 0]
        row = torch.arange(self.waiting, self.waiting + len(at), device=at.device)
        level.row[at], level.lengths[at] = row, self.lengths[row // self.group_size].long()
        level.done[at], level.place[at] = False, -1
        level.cache.seat(level.row, self.group_size)
        self.waiting += len(at)
        self._advance(level, hidden[row], at)

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
        self.waiting, self.turns = self.rows, 0
        level = self._level(self.rows, min(NARROW, self.sampling.max_new_tokens))
        level.row.copy_(torch.arange(self.rows, device=device))
        level.cache.seat(level.row, self.group_size)
        level.lengths.copy_(sizes.repeat_interleave(self.group_size)[: self.rows])
        level.done.zero_()
        level.place.fill_(-1)
        return level, hidden

    def _level(self, rows: int, width: int) -> Level:
        if (rows, width) not in self.levels:
            device, some = self.hidden.device, self.prompt_k[0]
            shape = (rows, some.shape[1], width, some.shape[3])
            zeros = lambda kind: torch.zeros(rows, dtype=kind, device=device)  # noqa: E731
            row = torch.arange(rows, device=device)
            prompts = (self.lengths, self.hidden, self.prompt_k, self.prompt_v)
            cache = GroupCache(row // self.group_size, row, self.group_size, *prompts)
            cache.refilled = self.rows < len(self.ids)
            cache.own_k = [some.new_zeros(shape) for _ in self.prompt_k]
            cache.own_v = [some.new_zeros(shape) for _ in self.prompt_k]
            whole = (zeros(torch.long), zeros(torch.long), row.clone(), zeros(torch.bool), zeros(torch.long))
            self.levels[rows, width] = Level(cache, width, *whole)
        return self.levels[rows, width]

    def _fitting(self, level: Level, alive: int, furthest: int) -> Level:
        """The level wide enough for the steps up to the next look, with half, a quarter, ... of the rows where that
        holds all alive ones and none waits, filled up with done rows."""
        rows, width = len(level.row), level.width
        while self.waiting == len(self.ids) and rows % 2 == 0 and alive <= rows // 2:
            rows //= 2
        while width < min(furthest + LOOK + 1, self.sampling.max_new_tokens):
            width = min(2 * width, self.sampling.max_new_tokens)
        if (rows, width) == (len(level.row), level.width):
            return level
        stay = torch.argsort(level.done.long(), stable=True)[:rows].sort().values
        new, used = self._level(rows, width), furthest + 1
        for name in ("token", "lengths", "row", "done", "place"):
            getattr(new, name).copy_(getattr(level, name)[stay])
        new.cache.seat(new.row, self.group_size)
        for mine, old in zip(new.cache.own_k + new.cache.own_v, level.cache.own_k + level.cache.own_v):
            mine[:, :, :used] = old[stay, :, :used]
        if sum(one.bytes for one in self.levels.values()) > HELD:
            del self.levels[len(level.row), level.width]
        return new

    def _replay(self, level: Level) -> None:
        """One token more for each row of the level."""
        self.turns += len(level.row)
        if self.capture and level.graph is None:
            try:
                level.graph = self._capture(level)
            except RuntimeError as error:
                self.capture = False
                log.warning("decoding without captured graphs, which is slower: %s", str(error).splitlines()[0])
        if self.capture:
            assert level.graph is not None
            level.graph.replay()
        else:
            self._step(level)

    def _capture(self, level: Level) -> torch.cuda.CUDAGraph:
        """Run once to warm up, put back what that run changed, and record."""
        state = [level.token, level.done, level.place, self.ended, self.count, self.ids, self.log_probs]
        before = [x.clone() for x in state]
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            self._step(level)
        torch.cuda.current_stream().wait_stream(side)
        for x, old in zip(state, before):
            x.copy_(old)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self.pool):
            self._step(level)
        return graph  # recording computes nothing: the state is still as before

    def _step(self, level: Level) -> None:
        positions = level.lengths + level.place
        step = Uneven(level.cache, level.place, level.width)
        self._advance(level, forward(self.model, level.token, positions, step))

    def _advance(self, level: Level, hidden: Tensor, at: Tensor | None = None) -> None:
        """Draw the token after `place` for the rows `at` (None: all) from hidden [n, H]; rows that are done stay."""
        here = slice(None) if at is None else at
        row, alive = level.row[here], ~level.done[here]
        place = level.place[here] + alive
        z = restrict(self.head.logits(hidden), self.sampling.support, place)
        token, log_prob = draw(z, None if self.sampling.greedy else self.noise[row, place])
        self.ids[row, place] = torch.where(alive, token, self.ids[row, place])
        self.log_probs[row, place] = torch.where(alive, log_prob, self.log_probs[row, place])
        self.count[row] = torch.where(alive, place + 1, self.count[row])
        end = alive & self.ends[token]
        self.ended[row] = self.ended[row] | end
        level.place[here] = place
        level.done[here] = ~alive | end | (place + 1 >= self.sampling.max_new_tokens)
        level.token[here] = torch.where(alive, token, level.token[here])

    def _finish(self) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        lengths = self.count.cpu().clone()
        width = max(int(lengths.max()), 1)
        chosen = torch.arange(width) < lengths[:, None]
        ids = torch.where(chosen, self.ids[:, :width].cpu(), 0)
        return ids, lengths, chosen, torch.where(chosen, self.log_probs[:, :width].cpu(), 0.0), self.ended.cpu().clone()

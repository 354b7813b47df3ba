"""Judged selections of earlier steps that join a query's group again, with the log-probabilities they were drawn with.

What a scorer was asked once teaches as long as it is kept: the selections of a query's last visits stand beside those
drawn now. They are draws of older weights, whose log-probabilities are the behaviour policy's in the ratio: the factor
new / behaviour makes them count as draws of the present policy, clipped as the objective clips, or truncated
(`algorithm.importance`). Their scores are asked for again under the same key, which a cache answers for nothing.
Truncated weights of older draws: Ionides, "Truncated importance sampling", 2008.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from anygrpo.core.rollout import Rollout
from anygrpo.core.tree import Shared
from anygrpo.selection.prompts import content_key

_Draw = tuple[tuple[int, ...], tuple[float, ...], tuple[bool, ...], int]
"""Picks [K], log-probabilities [T] under the weights that drew them, mask [T], and those weights' number."""


@dataclass
class Earlier:
    """The last `size` draws of each query that were judged. Part of a checkpoint."""

    size: int
    draws: dict[int, deque[_Draw]] = field(default_factory=dict[int, deque[_Draw]])
    _fresh: int = 0

    def joined(self, fresh: Rollout, prompts: list[Any], version: int) -> Rollout:
        """[P, G, ...] drawn now -> [P, G + R, ...], with what its queries drew before; R: the most that one has. A
        group with fewer ends in places where nothing was drawn."""
        before = [list(self.draws.get(content_key(prompt), ())) for prompt in prompts]
        self._fresh = fresh.shape[1]
        widest = max(map(len, before))
        if not widest:
            return fresh
        made = _with(fresh, before, widest)
        ages = [version - draw[3] for row in before for draw in row]
        share = len(ages) / (len(ages) + fresh.valid.numel())
        return replace(made, info=made.info | {"reuse/share": share, "reuse/age": sum(ages) / len(ages)})

    def keep(self, prompts: list[Any], scored: Rollout) -> None:
        """Keep what `joined` was given, now that it is judged; what could not be judged teaches nothing later."""
        first = lambda x: x[:, : self._fresh].tolist()  # noqa: E731
        parts = (scored.samples["chosen"], scored.log_probs, scored.mask, scored.version[..., 0], scored.valid)
        for prompt, *rows in zip(prompts, *map(first, parts)):
            kept = self.draws.setdefault(content_key(prompt), deque(maxlen=self.size))
            kept.extend((tuple(a), tuple(b), tuple(c), v) for a, b, c, v, judged in zip(*rows) if judged)

    def state(self) -> list[Any]:
        return [[key, [list(map(_plain, draw)) for draw in kept]] for key, kept in self.draws.items()]

    def load(self, state: list[Any]) -> None:
        self.draws = {
            int(key): deque(((tuple(a), tuple(b), tuple(c), int(v)) for a, b, c, v in kept), maxlen=self.size)
            for key, kept in state
        }


def _plain(x: Any) -> Any:
    return list(x) if isinstance(x, tuple) else x


def _with(fresh: Rollout, before: list[list[_Draw]], widest: int) -> Rollout:
    p, device = len(before), fresh.log_probs.device
    there = torch.tensor([[i < len(row) for i in range(widest)] for row in before], device=device)
    filled = [row + [(a, b, c, 0)] * (widest - len(row)) for row, (a, b, c) in zip(before, _firsts(fresh))]
    tensor = lambda part: torch.tensor([[draw[part] for draw in row] for row in filled], device=device)  # noqa: E731
    cat = lambda a, b: torch.cat([a, b.to(a)], 1)  # noqa: E731
    prompt: Shared = fresh.samples["prompt"]
    index = cat(prompt.index, prompt.index[:, :1].expand(p, widest))
    rest = torch.zeros(p, widest, device=device)
    return Rollout.of(
        {"prompt": Shared(prompt.values, index), "chosen": cat(fresh.samples["chosen"], tensor(0))},
        cat(fresh.log_probs, tensor(1) * there[..., None]),
        cat(fresh.mask, tensor(2) & there[..., None]),
        rewards=cat(fresh.rewards, rest),
        valid=cat(fresh.valid, there),
        ended=cat(fresh.ended, there | True),
        present=cat(fresh.present, there),
        version=torch.cat([fresh.version, tensor(3)[..., None].expand(-1, -1, fresh.version.shape[-1])], 1),
        info=fresh.info,
        limit=fresh.limit,
    )


def _firsts(fresh: Rollout) -> list[tuple[Any, Any, Any]]:
    """Each group's first draw, which stands where nothing was drawn."""
    first = lambda x: [tuple(row) for row in x[:, 0].tolist()]  # noqa: E731
    return list(zip(first(fresh.samples["chosen"]), first(fresh.log_probs), first(fresh.mask)))

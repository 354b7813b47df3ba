"""Judged selections of earlier steps that join a query's group again, with the rewards they were given and the
log-probabilities they were drawn with.

What a scorer was asked once teaches as long as it is kept: the selections of a query's last visits stand beside those
drawn now, and no scorer is asked again. They are draws of older weights, whose log-probabilities are the behaviour
policy's in the ratio. Weighed by new / behaviour they would count as draws of the present policy, were those weights
independent of them. They are not: the weights have learnt from these very draws. The factor is also bounded (clipped as
the objective clips, or truncated: `algorithm.importance`). Both are biases, which fewer calls are the price of.
Truncated weights of older draws: Ionides, "Truncated importance sampling", 2008.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field, fields, replace
from typing import Any

import torch
from torch import Tensor

from anygrpo.core.rollout import Rollout
from anygrpo.core.tree import Shared
from anygrpo.errors import ConfigError
from anygrpo.selection.prompts import content_key
from anygrpo.spoken import Text


@dataclass(frozen=True)
class _Draw:
    """One judged selection: lists, as a checkpoint holds them."""

    chosen: list[int]  # [K]
    log_probs: list[float]  # [T] under the weights that drew it
    mask: list[bool]  # [T]
    version: int  # of those weights
    reward: float
    components: dict[str, float]
    paid: list[float]  # turn rewards
    ended: bool


@dataclass
class Earlier:
    """The last `size` draws of each query that were judged. Part of a checkpoint."""

    size: int
    draws: dict[int, deque[_Draw]] = field(default_factory=dict[int, deque[_Draw]])

    def joined(self, fresh: Rollout, prompts: list[Any], version: int) -> Rollout:
        """[P, G, ...] drawn now and judged -> [P, G + R, ...], with what its queries drew before; R: the most that one
        has. A group with fewer ends in places where nothing was drawn. What is fresh is kept; what could not be judged
        teaches nothing later."""
        before = [list(self.draws.get(content_key(prompt), ())) for prompt in prompts]
        for p, prompt in enumerate(prompts):
            self.draws.setdefault(content_key(prompt), deque(maxlen=self.size)).extend(_judged(fresh, p))
        ages = [version - draw.version for row in before for draw in row]
        if not ages:
            return replace(fresh, info=fresh.info | {"reuse/share": 0.0})
        share = len(ages) / (len(ages) + fresh.valid.numel())
        info = fresh.info | {"reuse/share": share, "reuse/age": sum(ages) / len(ages)}
        return replace(_with(fresh, before), info=info)

    def state(self) -> list[Any]:
        return [[key, [[getattr(draw, f.name) for f in fields(_Draw)] for draw in kept]] for key, kept in self._items()]

    def load(self, state: list[Any]) -> None:
        """Draws of a checkpoint that holds no rewards are passed over."""
        whole = lambda kept: (_Draw(*draw) for draw in kept if len(draw) == len(fields(_Draw)))  # noqa: E731
        self.draws = {int(key): deque(whole(kept), maxlen=self.size) for key, kept in state}

    def _items(self) -> Iterator[tuple[int, deque[_Draw]]]:
        return ((key, kept) for key, kept in self.draws.items() if kept)


def _judged(rollout: Rollout, p: int) -> Iterator[_Draw]:
    """The judged draws of group p."""
    parts = (rollout.samples["chosen"], rollout.log_probs, rollout.mask, rollout.version[..., 0], rollout.rewards)
    columns: list[list[Any]] = [part[p].tolist() for part in parts]
    named = {name: part[p].tolist() for name, part in rollout.components.items()}
    paid, ended = rollout.turn_rewards[p].tolist(), rollout.ended[p].tolist()
    for g in (rollout.valid & rollout.present)[p].nonzero()[:, 0].tolist():
        own = {name: part[g] for name, part in named.items()}
        chosen, log_probs, mask, version, reward = (column[g] for column in columns)
        yield _Draw(chosen, log_probs, mask, version, reward, own, paid[g], ended[g])


def _with(fresh: Rollout, before: list[list[_Draw]]) -> Rollout:
    p, widest = len(before), max(map(len, before))

    def beside(x: Tensor, part: str, empty: Any = 0) -> Tensor:
        """[P, G, ...] -> [P, G + R, ...]; `empty` where nothing was drawn."""
        rest = torch.full((p, widest, *x.shape[2:]), empty, dtype=x.dtype)
        for row, draws in zip(rest, before):
            if draws:
                row[: len(draws)] = torch.tensor([getattr(draw, part) for draw in draws], dtype=x.dtype).view_as(
                    row[: len(draws)]
                )
        return torch.cat([x, rest.to(x.device)], 1)

    there = torch.tensor([[i < len(row) for i in range(widest)] for row in before])
    also = lambda x: torch.cat([x, there.to(x.device)], 1)  # noqa: E731
    chosen = fresh.samples["chosen"]
    first = chosen[:, :1].expand(p, widest, -1)  # stands where nothing was drawn
    filled = beside(chosen, "chosen")
    here = also(fresh.present)[..., None].to(chosen.device)
    prompt: Shared = fresh.samples["prompt"]
    index = torch.cat([prompt.index, prompt.index[:, :1].expand(p, widest)], 1)
    age = torch.tensor([[*(d.version for d in row), *[0] * (widest - len(row))] for row in before])
    age = age.to(fresh.version)[..., None].expand(p, widest, fresh.version.shape[-1])
    return replace(
        fresh,
        samples={
            "prompt": Shared(prompt.values, index),
            "chosen": torch.where(here, filled, torch.cat([chosen, first], 1)),
        },
        **{name: beside(getattr(fresh, name), name) for name in ("log_probs", "mask")},
        rewards=beside(fresh.rewards, "reward"),
        ended=beside(fresh.ended, "ended", True),
        turn_rewards=beside(fresh.turn_rewards, "paid", torch.nan),
        valid=also(fresh.valid),
        present=also(fresh.present),
        version=torch.cat([fresh.version, age], 1),
        turn=torch.cat([fresh.turn, torch.zeros(p, widest, fresh.turn.shape[-1]).to(fresh.turn)], 1),
        components={name: _component(x, name, before, widest) for name, x in fresh.components.items()},
    )


def _component(x: Tensor, name: str, before: list[list[_Draw]], widest: int) -> Tensor:
    rows = [[*(d.components.get(name, 0.0) for d in row), *[0.0] * (widest - len(row))] for row in before]
    return torch.cat([x, torch.tensor(rows).to(x)], 1)


def copied(reuse: int) -> ConfigError:
    """Of a policy that shall sample in a copy beside the updates."""
    return ConfigError(
        Text(
            f"policy.reuse = {reuse}, and what a copy samples beside the updates is not kept",
            f"policy.reuse = {reuse}，而在更新的同时采样的副本，其内容不会保留",
        ),
        Text(
            "set training.max_staleness = 0, or policy.reuse = 0",
            "请设 training.max_staleness = 0，或 policy.reuse = 0",
        ),
    )

"""Groups of unequal size: what each prompt is thought to teach, how many samples it gets, and how these are drawn.

A group of n samples is drawn as n / unit groups of `unit`, all of a step's in one call: every policy samples groups of
one size. They are put together before they are scored, so that a reward which compares a group's samples sees all.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from anygrpo.algorithm import allocation
from anygrpo.core.digest import digest
from anygrpo.core.policy import Policy
from anygrpo.core.rollout import Rollout
from anygrpo.core.task import Pending, Scores
from anygrpo.core.tree import tree_map
from anygrpo.errors import ConfigError
from anygrpo.recipe.algorithm import AlgorithmConfig
from anygrpo.spoken import Text

KEPT = 0.75
"""What a prompt gave before weighs so much at its next visit: the policy has changed since."""


@dataclass
class PromptBook:
    """What each prompt's answers have earned. Part of a checkpoint.

    Attributes:
        seen: by the prompt's number.
        lowest, highest: of all rewards so far.
    """

    seen: dict[int, allocation.Seen] = field(default_factory=dict[int, allocation.Seen])
    lowest: float = math.inf
    highest: float = -math.inf

    def learn(self, rollout: Rollout) -> None:
        """Take account of a step's groups, those among them that were replaced."""
        for key, rewards, valid in zip(rollout.prompt_id.tolist(), rollout.rewards, rollout.valid):
            values = rewards[valid].tolist()
            if key and values:
                self.seen[key] = self.seen.get(key, allocation.Seen()).after(values, KEPT)
                self.lowest, self.highest = min(self.lowest, *values), max(self.highest, *values)

    def sizes(self, keys: Sequence[int], a: AlgorithmConfig) -> list[int]:
        """The step's group sizes, in the order of its prompts; equal ones as long as all rewards are the same."""
        known = self.highest > self.lowest
        nothing = allocation.Seen()
        spreads = [
            allocation.expected_spread(self.seen.get(key, nothing), self.lowest, self.highest) if known else 1.0
            for key in keys
        ]
        assert a.samples_per_step is not None
        return allocation.sizes(spreads, a.samples_per_step, a.smallest_group, a.largest_group)

    def state(self) -> list[Any]:
        rows = [[key, s.count, s.total, s.squares] for key, s in self.seen.items()]
        return [self.lowest, self.highest, rows] if rows else []

    @staticmethod
    def of(state: list[Any]) -> PromptBook:
        if not state:
            return PromptBook()
        lowest, highest, rows = state
        return PromptBook({int(k): allocation.Seen(*numbers) for k, *numbers in rows}, lowest, highest)


def number_of(prompt: Any) -> int:
    """The same number for the same prompt, in any process; never 0."""
    return int(digest(prompt)[:15], 16) + 1


@dataclass(frozen=True)
class Spread:
    """One draw's groups of unequal size.

    Attributes:
        sizes: of the prompts here.
        unit: what all sizes are multiples of.
        width: the largest size of the whole step, on whatever rank.
    """

    sizes: list[int]
    unit: int
    width: int

    def part(self, first: int, count: int) -> Spread:
        return replace(self, sizes=self.sizes[first : first + count])

    def sample(self, policy: Policy, prompts: list[Any], seed: int) -> tuple[Rollout, list[list[Any]]]:
        """(rollout [P, width, ...], each prompt's outputs, as many as its group has)."""
        again = [p for p, n in enumerate(self.sizes) for _ in range(n // self.unit)]
        units = policy.sample([prompts[p] for p in again], self.unit, seed)
        if units.shape[1] != self.unit:
            raise ConfigError(
                Text(
                    f"{type(policy).__name__} gave {units.shape[1]} samples of a prompt where "
                    f"{self.unit} were asked for, "
                    'and group_size = "auto" counts them',
                    f"{type(policy).__name__} 对一个提示给出 {units.shape[1]} 个样本，而要的是 {self.unit} 个，"
                    'group_size = "auto" 会计数',
                ),
                Text("a fixed group_size", "请用固定的 group_size"),
            )
        outputs = policy.decode(units.samples)
        grouped: list[list[Any]] = [[] for _ in prompts]
        for p, some in zip(again, outputs):
            grouped[p] += some
        return self._together(units), grouped

    def _together(self, units: Rollout) -> Rollout:
        """[U, unit, ...] -> [P, width, ...]; where a group has fewer samples its first stands in, of no account."""
        row, place = self._places()
        take = lambda x: x[row.to(x.device), place.to(x.device)]  # noqa: E731
        present = torch.arange(self.width) < torch.tensor(self.sizes)[:, None]
        here = lambda x: take(x) & present.to(x.device)  # noqa: E731
        made = replace(
            units,
            samples=tree_map(take, units.samples),
            log_probs=torch.where(present.to(units.log_probs.device)[..., None], take(units.log_probs), 0.0),
            mask=take(units.mask) & present.to(units.mask.device)[..., None],
            rewards=take(units.rewards),
            valid=here(units.valid),
            ended=take(units.ended),
            version=take(units.version),
            turn=take(units.turn),
            turn_rewards=take(units.turn_rewards),
            components={name: take(x) for name, x in units.components.items()},
            present=present.to(units.valid.device),
            prompt_id=torch.zeros(len(self.sizes), dtype=torch.int64, device=units.valid.device),
        )
        starts = {
            int(r): (p, g)
            for p, line in enumerate(row[:, :: self.unit].tolist())
            for g, r in enumerate(line)
            if g * self.unit < self.sizes[p]
        }
        return replace(
            made, reasons={(p, k * self.unit + g): why for (u, g), why in units.reasons.items() for p, k in [starts[u]]}
        )

    def _places(self) -> tuple[Tensor, Tensor]:
        """[P, width] each: the unit, and the sample in it, that stands at a place of a group."""
        size, slot = torch.tensor(self.sizes)[:, None], torch.arange(self.width)
        first = torch.cumsum(size[:, 0] // self.unit, 0)[:, None] - size // self.unit
        slot = torch.where(slot < size, slot, 0)
        return first + slot // self.unit, slot % self.unit

    def score(self, prompts: list[Any], outputs: list[list[Any]], score: Callable[..., Any]) -> Any:
        """Scores of the groups, or their promise: those of one size together, which a task can compare."""
        by_size = {n: [p for p, m in enumerate(self.sizes) if m == n] for n in sorted(set(self.sizes))}
        made = [(at, score([prompts[p] for p in at], [outputs[p] for p in at])) for at in by_size.values()]
        parts = _Parts(made, (len(prompts), self.width))
        return parts if any(isinstance(s, Pending) for _, s in made) else parts.result()


def _parts(done: list[tuple[list[int], Scores]], shape: tuple[int, int]) -> Tensor | None:
    """[P, G, K] of what each part earned, NaN where there is none; None where no task pays parts."""
    paid = [(at, s.parts) for at, s in done if s.parts is not None]
    if not paid:
        return None
    out = torch.full((*shape, max(x.shape[2] for _, x in paid)), math.nan)
    for at, x in paid:
        out[torch.tensor(at), : x.shape[1], : x.shape[2]] = x.to("cpu", torch.float32)
    return out


@dataclass(frozen=True)
class _Parts:
    """Scores of some prompts each, waited for together."""

    parts: list[tuple[list[int], Any]]
    shape: tuple[int, int]

    def result(self) -> Scores:
        done = [(at, s.result() if isinstance(s, Pending) else s) for at, s in self.parts]
        every = [s for _, s in done]

        def whole(of: Callable[[Scores], Tensor | None], missing: float, dtype: torch.dtype) -> Tensor:
            out = torch.full(self.shape, missing, dtype=dtype)
            for at, scores in done:
                value = of(scores)
                if value is not None:
                    out[torch.tensor(at), : value.shape[1]] = value.to("cpu", dtype)
            return out

        names = dict.fromkeys(name for s in every for name in s.components)
        faults = whole(lambda s: s.faults, False, torch.bool) if any(s.faults is not None for s in every) else None
        return Scores(
            whole(lambda s: s.rewards, 0.0, torch.float32),
            {n: whole(lambda s, n=n: s.components.get(n), math.nan, torch.float32) for n in names},
            whole(lambda s: s.valid if s.valid is not None else torch.ones_like(s.rewards), False, torch.bool),
            {(at[p], g): why for at, s in done for (p, g), why in s.reasons.items()},
            {name: w for s in every for name, w in s.weights.items()},
            faults,
            _parts(done, self.shape),
        )

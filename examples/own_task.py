"""A task of one's own: `[task] kind = "python"`, `function = "examples/own_task.py:Parity"`.

The policy of the same recipe gets what `prompts` returns; `score` gets its texts back.
"""

from __future__ import annotations

import random
from typing import Any

import torch

from anygrpo.core.task import Scores, Stored, Task


class Parity(Task):
    """Is a number even or odd? Training numbers end in anything; held-out numbers are never trained on."""

    def __init__(self, seed: int, largest: int = 9999, held_out: int = 64) -> None:
        self.seed, self.largest = seed, largest
        self.kept = set(random.Random("held-out").sample(range(largest + 1), held_out))

    def prompts(self, step: int, count: int) -> list[Any]:
        draw = random.Random(f"{self.seed}/{step}")
        numbers = [n for n in (draw.randint(0, self.largest) for _ in range(20 * count)) if n not in self.kept]
        return [self._prompt(n) for n in numbers[:count]]

    def held_out(self) -> list[Any]:
        return [self._prompt(n) for n in sorted(self.kept)]

    def _prompt(self, number: int) -> dict[str, Any]:
        return {"prompt": f"Is {number} even or odd? Reply with one word.", "answer": ("even", "odd")[number % 2]}

    def score(self, prompts: list[Any], outputs: list[list[str]]) -> Scores:
        right = [[float(p["answer"] in o.lower()) for o in row] for p, row in zip(prompts, outputs)]
        rewards = torch.tensor(right)
        return Scores(rewards=rewards, components={"right": rewards}, valid=torch.ones_like(rewards, dtype=torch.bool))

    def stored(self, prompts: list[Any]) -> Stored:
        return Stored(actions=[[p["answer"]] for p in prompts])

    def measure(self, prompts: list[Any], outputs: list[list[str]]) -> dict[str, float]:
        return {"eval/accuracy": self.score(prompts, outputs).rewards.mean().item()}

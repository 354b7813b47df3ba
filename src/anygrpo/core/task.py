"""What a task is: prompts as a pure function of (seed, step), and scores."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import torch

from anygrpo.core.rollout import Scores, Stored


@runtime_checkable
class Task(Protocol):
    """Prompts are any objects the policy of the same recipe understands.

    Attributes:
        size: number of training prompts in an epoch (0: endless).
    """

    size: int

    def prompts(self, step: int, count: int) -> list[Any]:
        """`count` training prompts of this step: a pure function of (seed, step, count), so resume is exact."""
        ...

    def held_out(self) -> list[Any]:
        """Evaluation prompts, disjoint from training, always the same."""
        ...

    def score(self, prompts: list[Any], outputs: list[list[Any]]) -> Scores:
        """Rewards [P, G] of decoded outputs. Never raises for a bad sample: it is invalid, with a reason."""
        ...


class Pending(Protocol):
    """Scores that are being made."""

    def result(self) -> Scores:
        """Wait for them."""
        ...


@dataclass(frozen=True)
class Made:
    """Scores that are there already, as a `Pending`."""

    scores: Scores

    def result(self) -> Scores:
        return self.scores


class BaseTask:
    """Defaults: an endless task without stored actions."""

    size: int = 0

    def score_async(self, prompts: list[Any], outputs: list[list[Any]]) -> Pending:
        """Begin `score`; tasks whose rewards run in processes of their own return before it is done. This one does not:
        a reward of this process may share random state or a device with the sampler."""
        return Made(self.score(prompts, outputs))  # type: ignore[attr-defined]

    def stored(self, prompts: list[Any]) -> Stored:
        """Demonstrations or scored candidates of these prompts, for supervised and RCE stages."""
        from anygrpo.errors import ConfigError

        raise ConfigError(
            f"{type(self).__name__} has no stored answers, so it cannot feed a supervised or RCE stage",
            "use a method that samples (grpo), or a task with demonstrations",
        )

    def measure(self, prompts: list[Any], outputs: list[list[Any]]) -> dict[str, float]:
        """Extra held-out measures by metric name ("eval/..."), beyond the mean reward. Outputs have G = 1."""
        return {}

    def prepare(self, outputs_of: Callable[[list[Any]], list[list[Any]]], folder: Path) -> None:
        """Called once before the first step with the start policy's greedy outputs at hand (curricula that rank samples
        by them); what it decides goes into the run folder, so that a resumed run finds it."""

    def pictures(self, prompts: list[Any], before: list[list[Any]], after: list[list[Any]], folder: Path) -> list[Path]:
        """Draw outputs [P][1] of the same prompts before and after training into `folder`; the files' paths."""
        return []

    def close(self) -> None:
        """Stop workers, close files."""


def epoch_indices(size: int, step: int, count: int, seed: int) -> list[int]:
    """`count` indices of the `step`-th batch of a shuffled, endless pass over `size` items: each epoch is a new
    permutation, drawn from (seed, epoch) alone; no item repeats inside an epoch."""
    out: list[int] = []
    start = step * count
    while len(out) < count:
        epoch, offset = divmod(start + len(out), size)
        order = torch.randperm(size, generator=torch.Generator().manual_seed(seed * 1_000_003 + epoch))
        out += order[offset : offset + count - len(out)].tolist()
    return out

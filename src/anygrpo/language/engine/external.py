"""What an engine outside of the policy's memory adds to `Engine`, and the check that it holds the weights it was sent.

An engine that goes on sampling from old weights trains a policy without an error anywhere. So a few next-token
distributions are compared with the training pass's: at the first sync they must agree, and once training has moved
them, the engine's must have moved as well. Engines that can be read back are checked exactly too, at each sync.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol, runtime_checkable

from anygrpo.errors import TrainingError
from anygrpo.spoken import Text

CONTEXTS, LIKELY = 4, 20
"""Prompts probed, and next tokens of each: the likeliest of the first probe."""

GAP = 0.5
"""Largest mean difference (nats) of log-probs at the first sync. Kernels in bfloat16 differ by a tenth of it."""

MOVED, FOLLOWED = 0.05, 0.25
"""Once the training pass's log-probs have moved by MOVED nats in the mean, the engine's must have by this share."""

Likely = list[dict[int, float]]
"""For each prompt: next token -> log-prob at temperature 1."""


@runtime_checkable
class External(Protocol):
    """An engine that is sent weights.

    Attributes:
        adapters: it takes adapters alone, by `refresh_adapters`, in place of all weights.
    """

    adapters: bool

    def refresh_adapters(self, save: Callable[[Path], None]) -> None:
        """Take over the adapters that `save` writes to a folder (PEFT's format)."""
        ...

    def likely(self, prompts: list[list[int]], count: int) -> Likely:
        """The `count` likeliest next tokens of each prompt."""
        ...


class SyncProbe:
    """Compares an engine with the training pass after syncs, until it has been seen to follow the weights once.

    Args:
        score: (prompts, tokens of each) -> log-probs of each by the training pass, at temperature 1.
    """

    def __init__(self, score: Callable[[list[list[int]], list[list[int]]], list[list[float]]]) -> None:
        self._score = score
        self._prompts: list[list[int]] = []
        self._first: list[dict[int, tuple[float, float]]] = []  # token -> (engine, training pass)
        self.done = False

    def check(self, engine: External, prompts: list[list[int]]) -> None:
        """To be called after each sync, with the prompts that are about to be sampled (none: those of the first call).

        Raises:
            TrainingError: the engine holds other weights than those sent.
        """
        if self.done or not (prompts or self._first):
            return
        if not self._first:
            self._prompts = prompts[:CONTEXTS]
            self._begin(engine)
        else:
            self._follow(engine)

    def _scores(self) -> list[list[float]]:
        return self._score(self._prompts, [list(at) for at in self._first])

    def _begin(self, engine: External) -> None:
        theirs = engine.likely(self._prompts, LIKELY)
        self._first = [{token: (value, 0.0) for token, value in at.items()} for at in theirs]
        ours = self._scores()
        self._first = [
            {token: (value, own) for (token, value), own in zip(at.items(), row)} for at, row in zip(theirs, ours)
        ]
        gap = _mean([abs(a - b) for at in self._first for a, b in at.values()])
        if gap > GAP:
            raise TrainingError(
                Text(
                    "after the first sync the engine's log-probs differ from the training pass's by "
                    f"{gap:.2f} nats in the "
                    f"mean (at most {GAP} is rounding): it holds another model or stale weights",
                    f"首次同步后，引擎的对数概率与训练时平均相差 {gap:.2f} nat（舍入误差至多 {GAP}）："
                    "它装的是另一个模型或过期的权重",
                ),
                Text(
                    "compare the engine's model with policy.model, restart the engine",
                    "请比较引擎的模型与 policy.model，并重启引擎",
                ),
            )

    def _follow(self, engine: External) -> None:
        ours = [dict(zip(at, row)) for at, row in zip(self._first, self._scores())]
        if _mean([abs(at[t][1] - new[t]) for at, new in zip(self._first, ours) for t in at]) < MOVED:
            return
        theirs = engine.likely(self._prompts, LIKELY)
        # Stale weights give the same tokens again; one that is no longer among the likeliest has moved.
        both = [(at[t], new[t], own[t]) for at, new, own in zip(self._first, theirs, ours) for t in at if t in new]
        moved, followed = _mean([abs(a[1] - own) for a, _, own in both]), _mean([abs(a[0] - new) for a, new, _ in both])
        if followed < FOLLOWED * moved:
            raise TrainingError(
                Text(
                    f"the engine holds stale weights: training moved log-probs by {moved:.3f} nats, the engine's by "
                    f"{followed:.3f}",
                    f"引擎的权重已过期：训练使对数概率改变 {moved:.3f} nat，引擎的改变 {followed:.3f}",
                ),
                Text(
                    "restart the engine; report the model if it happens again, and use engine = builtin",
                    "请重启引擎；若再次发生，请报告这个模型，并用 engine = builtin",
                ),
            )
        self.done = True


def _mean(values: list[float]) -> float:
    return sum(values) / len(values) if values else 0.0

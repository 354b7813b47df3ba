"""Several rewards at once, in parallel, as one `Scores`."""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import torch

from anygrpo.core.task import Scores
from anygrpo.scoring.reward import Outcome, Reward, Rows

log = logging.getLogger(__name__)


class Handle:
    """Scores that are being made. `result()` waits for them."""

    def __init__(self, future: Future[Scores]) -> None:
        self._future = future

    def done(self) -> bool:
        return self._future.done()

    def result(self) -> Scores:
        return self._future.result()


class Scorer:
    """The weighted sum of rewards: reward = sum of weight x component, over the rewards in the recipe's order.

    A sample is invalid where any reward of non-zero weight gives no finite number; the reason names the reward.
    """

    def __init__(self, rewards: list[Reward]) -> None:
        self.rewards = rewards
        self._threads = ThreadPoolExecutor(2, thread_name_prefix="scorer")

    def score(self, prompts: list[dict[str, Any]], outputs: list[list[str]]) -> Scores:
        """Rewards [P, G] of P prompts' outputs. Never raises: what fails is invalid, with its reason."""
        where = [(p, g) for p, row in enumerate(outputs) for g in range(len(row))]
        texts = [(p, g) for p, g in where if isinstance(outputs[p][g], str)]
        rows = flatten(prompts, outputs, texts)
        outcomes = {reward.name: waiting() for reward, waiting in [(r, _begin(r, rows)) for r in self.rewards]}
        return self._assemble((len(outputs), max(map(len, outputs), default=0)), texts, outcomes)

    def score_async(self, prompts: list[dict[str, Any]], outputs: list[list[str]]) -> Handle:
        """The same in a background thread, so that the trainer may compute meanwhile."""
        return Handle(self._threads.submit(self.score, prompts, outputs))

    def _assemble(
        self, shape: tuple[int, int], where: list[tuple[int, int]], outcomes: dict[str, list[Outcome]]
    ) -> Scores:
        rewards, valid = torch.zeros(shape), torch.zeros(shape, dtype=torch.bool)
        components = {reward.name: torch.zeros(shape) for reward in self.rewards}
        reasons = {(p, g): "the output is no text" for p in range(shape[0]) for g in range(shape[1])}
        for n, at in enumerate(where):
            values = [(reward, outcomes[reward.name][n]) for reward in self.rewards]
            faults = [f"{reward.name}: {v}" for reward, v in values if isinstance(v, str) and reward.weight]
            for reward, value in values:
                components[reward.name][at] = 0.0 if isinstance(value, str) else value
            if faults:
                reasons[at] = "; ".join(faults)
                continue
            del reasons[at]
            valid[at] = True
            rewards[at] = sum(reward.weight * value for reward, value in values if not isinstance(value, str))
        return Scores(rewards=rewards, components=components, valid=valid, reasons=reasons)

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)


def flatten(prompts: list[dict[str, Any]], outputs: list[list[str]], where: list[tuple[int, int]]) -> Rows:
    """The outputs at `where` as rows, each with its prompt and the prompt's columns."""
    names = dict.fromkeys(key for prompt in prompts for key in prompt if key != "prompt")
    return Rows(
        prompts=[prompts[p]["prompt"] for p, _ in where],
        outputs=[outputs[p][g] for p, g in where],
        columns={name: [prompts[p].get(name) for p, _ in where] for name in names},
    )


def _begin(reward: Reward, rows: Rows) -> Callable[[], list[Outcome]]:
    """Start a reward; whatever it raises becomes every row's reason."""

    def failed(error: Exception) -> list[Outcome]:
        log.warning("reward %s failed: %s: %s", reward.name, type(error).__name__, error)
        return [f"{type(error).__name__}: {error}"] * len(rows)

    if not len(rows):
        return list
    try:
        waiting = reward.start(rows)
    except Exception as error:
        result = failed(error)
        return lambda: result

    def wait() -> list[Outcome]:
        try:
            return waiting()
        except Exception as error:
            return failed(error)

    return wait

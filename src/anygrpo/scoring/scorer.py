"""Several rewards at once, in parallel, as one `Scores`."""

from __future__ import annotations

import logging
import math
import traceback
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import torch

from anygrpo.core.task import Scores
from anygrpo.errors import AnygrpoError
from anygrpo.scoring._worker import FLOAT32_MAX
from anygrpo.scoring.outcome import Elsewhere, FirstCall, Outcome, Raised
from anygrpo.scoring.reward import Reward, Rows
from anygrpo.spoken import Text, say

log = logging.getLogger(__name__)


_AT_ONCE = 16
"""Calls that are waited for at once: a slow one holds up its own samples alone."""


class Handle:
    """Scores that are being made. `result()` waits for them."""

    def __init__(self, future: Future[Scores], check: Callable[[], None] = lambda: None) -> None:
        self._future, self._check = future, check

    def done(self) -> bool:
        return self._future.done()

    def result(self) -> Scores:
        scores = self._future.result()
        self._check()
        return scores


class Scorer:
    """The weighted sum of rewards: reward = sum of weight x component, over the rewards that apply to the sample.

    A reward that says None does not apply: the others count, as TRL's sum does; a sample to which none applies is
    invalid. So is one where any reward of non-zero weight gives no finite number; the reason names the reward. A
    component has NaN where it has no value.
    """

    def __init__(self, rewards: list[Reward]) -> None:
        self.rewards = rewards
        self._threads = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="scorer")
        self._first: dict[str, FirstCall] = {}
        self._broken: AnygrpoError | None = None

    def score(self, prompts: list[dict[str, Any]], outputs: list[list[str]]) -> Scores:
        """Rewards [P, G] of P prompts' outputs. Never raises: what fails is invalid, with its reason."""
        where = [(p, g) for p, row in enumerate(outputs) for g in range(len(row))]
        texts = [(p, g) for p, g in where if isinstance(outputs[p][g], str)]
        rows = flatten(prompts, outputs, texts)
        outcomes = {reward.name: waiting() for reward, waiting in [(r, _begin(r, rows)) for r in self.rewards]}
        for reward in self.rewards:
            self._note(reward, outcomes[reward.name])
        return self._assemble((len(outputs), max(map(len, outputs), default=0)), texts, outcomes)

    def _note(self, reward: Reward, outcomes: list[Outcome]) -> None:
        if not reward.weight:
            return
        wanted = Text(
            "one number (or None) an output, or weight = 0 to do without it",
            "每个输出一个数（或 None）；或设 weight = 0 不用它",
        )
        name = Text(f"the reward {reward.name!r}", f"奖励 {reward.name!r}")
        first = self._first.setdefault(reward.name, FirstCall(name, wanted))
        try:
            first.see(outcomes)
        except AnygrpoError as error:
            self._broken = error

    def check(self) -> None:
        """No later step mends a reward that is broken.

        Raises:
            TrainingError: a reward of non-zero weight raised on every output of its first call; with its traceback.
            ConfigError: it returned no number for any of them.
        """
        if self._broken is not None:
            raise self._broken

    @property
    def lowest(self) -> float | None:
        """The lowest weighted sum that the rewards can give; None where one of them does not say its bounds."""
        bounds = [(r.weight, getattr(r, "bounds", None)) for r in self.rewards if r.weight]
        if any(b is None for _, b in bounds):
            return None
        return sum(min(weight * b[0], weight * b[1]) for weight, b in bounds if b is not None)

    def score_async(self, prompts: list[dict[str, Any]], outputs: list[list[str]], check: bool = False) -> Handle:
        """The same in a background thread, so that the trainer may compute meanwhile. `check`: see there."""
        future = self._threads.submit(self.score, prompts, outputs)
        return Handle(future, self.check) if check else Handle(future)

    def _assemble(
        self, shape: tuple[int, int], where: list[tuple[int, int]], outcomes: dict[str, list[Outcome]]
    ) -> Scores:
        rewards, valid = torch.zeros(shape), torch.zeros(shape, dtype=torch.bool)
        components = {reward.name: torch.full(shape, math.nan) for reward in self.rewards}
        reasons = {(p, g): "the output is no text" for p in range(shape[0]) for g in range(shape[1])}
        faults = torch.zeros(shape, dtype=torch.bool)
        for n, at in enumerate(where):
            values = [(reward, _fits(outcomes[reward.name][n])) for reward in self.rewards]
            for reward, value in values:
                if isinstance(value, float | int):
                    components[reward.name][at] = value
            total = combined(values)
            if isinstance(total, str):
                reasons[at] = total
                why = [v for reward, v in values if reward.weight and isinstance(v, str)]
                faults[at] = bool(why) and all(isinstance(v, Elsewhere) for v in why)  # what one reward blames stays so
                continue
            del reasons[at]
            valid[at] = True
            rewards[at] = total
        weights = {reward.name: reward.weight for reward in self.rewards}
        return Scores(
            rewards=rewards, components=components, valid=valid, reasons=reasons, weights=weights, faults=faults
        )

    def close(self) -> None:
        """Stop what the rewards hold of their own."""
        for reward in self.rewards:
            if hasattr(reward, "close"):
                reward.close()  # type: ignore[attr-defined]
        self._threads.shutdown(wait=False, cancel_futures=True)


def combined(values: list[tuple[Reward, Outcome]]) -> float | str:
    """The weighted sum of the rewards that apply, or the reason why the sample is invalid."""
    counted = [(reward, value) for reward, value in values if reward.weight]
    if faults := [f"{reward.name}: {value}" for reward, value in counted if isinstance(value, str)]:
        return "; ".join(faults)
    if counted and all(value is None for _, value in counted):
        return "; ".join(f"{reward.name}: returned None" for reward, _ in counted)
    total = float(sum(reward.weight * value for reward, value in counted if isinstance(value, float | int)))
    return total if abs(total) <= FLOAT32_MAX else f"reward: the weighted sum {total:g} is more than float32 holds"


def _fits(value: Outcome) -> Outcome:
    """The outcome, or the reason why the rollout cannot hold it: rewards of any kind are checked once, here."""
    if isinstance(value, str) or value is None or abs(value) <= FLOAT32_MAX:
        return value
    return f"returned {value:g}, more than float32 holds" if math.isfinite(value) else f"returned {value}"


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
        log.warning(say("reward %s failed: %s: %s", "奖励 %s 出错：%s: %s"), reward.name, type(error).__name__, error)
        reason = Raised(f"{type(error).__name__}: {error}", "".join(traceback.format_exception(error)))
        return [reason] * len(rows)

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

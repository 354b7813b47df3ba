"""The built-in task: sums of two numbers, without end, scored by the last number of the output."""

from __future__ import annotations

import operator
import random
from collections.abc import Callable

from anygrpo.errors import ConfigError
from anygrpo.language.task_settings import ArithmeticTaskConfig
from anygrpo.language.tasks.text import Prompt, TextTask, in_context
from anygrpo.language.tasks.worded import problem, with_calculator
from anygrpo.scoring.build import build_rewards
from anygrpo.scoring.settings import NumberRewardConfig
from anygrpo.spoken import Text

OPERATIONS: dict[str, Callable[[int, int], int]] = {"+": operator.add, "-": operator.sub, "*": operator.mul}

HELD_OUT_SEED = "held-out"
"""Held-out sums do not depend on the run's seed, so that runs of several seeds are measured alike."""


class Arithmetic(TextTask):
    """Prompt i of training is a pure function of (seed, i). A pair held out is in training in neither order."""

    size = 0

    def __init__(self, config: ArithmeticTaskConfig, seed: int) -> None:
        super().__init__(config, seed)
        self.config = config
        self.demonstration = "demonstration" if config.worded else "answer"
        self.low, self.high = (10 ** (config.digits - 1) if config.digits > 1 else 0), 10**config.digits - 1
        pairs = (self.high - self.low + 1) * (self.high - self.low + 2) // 2
        if config.held_out > pairs // 2:
            raise ConfigError(
                Text(
                    f"held_out = {config.held_out} of the {pairs} pairs of {config.digits}-digit "
                    "numbers leaves too few",
                    f"{config.digits} 位数共有 {pairs} 对，held_out = {config.held_out} 后所剩太少",
                ),
                Text(
                    f"set task.held_out to {pairs // 2} at most, or task.digits higher",
                    f"请把 task.held_out 设为至多 {pairs // 2}，或增大 task.digits",
                ),
            )
        self._held_out = self._draw_held_out(config.held_out)
        self._forbidden = {frozenset(pair) for pair in self._held_out}
        self.judge_by(
            build_rewards(
                config.rewards or [NumberRewardConfig.model_validate({"kind": "number"})], self.pool, {"answer"}
            ),
            config.accuracy,
        )

    def prompts(self, step: int, count: int) -> list[Prompt]:
        return [self._prompt(*self._pair(i), i, False) for i in range(step * count, (step + 1) * count)]

    def held_out(self) -> list[Prompt]:
        return [self._prompt(*pair, i, True) for i, pair in enumerate(self._held_out)]

    def _draw_held_out(self, count: int) -> list[tuple[int, int]]:
        draw, taken = random.Random(HELD_OUT_SEED), {}
        while len(taken) < count:
            pair = (draw.randint(self.low, self.high), draw.randint(self.low, self.high))
            taken.setdefault(frozenset(pair), pair)
        return list(taken.values())

    def _pair(self, index: int) -> tuple[int, int]:
        draw = random.Random(f"{self.seed}/{index}")
        while True:
            pair = (draw.randint(self.low, self.high), draw.randint(self.low, self.high))
            if frozenset(pair) not in self._forbidden:
                return pair

    def _prompt(self, a: int, b: int, number: int, held_out: bool) -> Prompt:
        config = self.config
        question = problem(a, b, number, held_out) if config.worded else f"What is {a} {config.operation} {b}?"
        made: Prompt = {
            "prompt": in_context(config, question),
            "answer": str(OPERATIONS[config.operation](a, b)),
        }
        if config.worded:
            made["demonstration"] = with_calculator(config.tool, a, b) if config.tool else f"The answer is {a * b}."
        return made


build = Arithmetic
"""build(config, seed) of this kind."""

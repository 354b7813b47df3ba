"""Generated tasks of reasoning-gym, scored by the data set's own `score_answer` in worker processes."""

from __future__ import annotations

import warnings
from typing import Any

from anygrpo.errors import DataError
from anygrpo.language.task_settings import ReasoningGymTaskConfig
from anygrpo.language.tasks.gym import create
from anygrpo.language.tasks.text import Prompt, TextTask, in_context
from anygrpo.scoring.build import build_rewards
from anygrpo.scoring.reward import Remote
from anygrpo.spoken import Text

SPAN = 1_000_000
"""Seeds set aside for the held-out items: [0, SPAN). Training of run seed s starts at SPAN x (s + 1)."""

TRIES = 50
"""Fresh items tried where a training question is among the held-out ones."""


class ReasoningGym(TextTask):
    """Endless training items, never repeated; held-out items come from other seeds, and their questions are taken out
    of training by text, because two seeds may give one question."""

    size = 0

    def __init__(self, config: ReasoningGymTaskConfig, seed: int) -> None:
        super().__init__(config, seed)
        self.config = config
        self._source = create(config.dataset, config.parameters, SPAN * (seed + 1))
        self._held_out = self._draw_held_out()
        self._forbidden = {item["question"] for item in self._held_out}
        own = Remote(
            name=config.dataset,
            weight=config.weight,
            judges=True,
            target="anygrpo.language.tasks.gym:score",
            pool=self.pool,
            timeout=config.timeout,
            settings={"dataset": config.dataset, "parameters": config.parameters, "extract": config.extract},
            columns={"entry": "entry"},
            split=True,
        )
        others = build_rewards(config.rewards, self.pool, {"answer", "entry"})
        self.judge_by([own, *others], config.accuracy)

    def prompts(self, step: int, count: int) -> list[Prompt]:
        return [self._prompt(self._item(step * count + i)) for i in range(count)]

    def held_out(self) -> list[Prompt]:
        return [self._prompt(item) for item in self._held_out]

    def _draw_held_out(self) -> list[dict[str, Any]]:
        source, taken, wanted = create(self.config.dataset, self.config.parameters, 0), {}, self.config.held_out
        for index in range(min(SPAN, TRIES * wanted)):
            item = source[index]
            taken.setdefault(item["question"], item)
            if len(taken) == wanted:
                break
        else:
            warnings.warn(
                f"{self.config.dataset}: only {len(taken)} different held-out questions exist, {wanted} wanted",
                stacklevel=4,
            )
        return list(taken.values())

    def _item(self, index: int) -> dict[str, Any]:
        for attempt in range(TRIES):
            item = self._source[index + attempt * SPAN // 2]
            if item["question"] not in self._forbidden:
                return item
        raise DataError(
            Text(
                f"{self.config.dataset}: {TRIES} questions in a row are held-out ones; too few "
                "different questions exist",
                f"{self.config.dataset}：连续 {TRIES} 个问题都是留出的；不同的问题太少",
            ),
            Text(
                "set task.held_out lower, or task.parameters to a larger range",
                "请减小 task.held_out，或扩大 task.parameters 的范围",
            ),
        )

    def _prompt(self, item: dict[str, Any]) -> Prompt:
        question = item["question"].strip()
        return {"prompt": in_context(self.config, question), "answer": item["answer"], "entry": dict(item)}


build = ReasoningGym
"""build(config, seed) of this kind."""

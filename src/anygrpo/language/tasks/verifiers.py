"""The data of a verifiers environment as a task: what is asked and what is paid is the environment's own business."""

from __future__ import annotations

import json
from typing import Any

from anygrpo.core.task import epoch_indices
from anygrpo.errors import ConfigError, DataError
from anygrpo.language.task_settings import VerifiersTaskConfig
from anygrpo.language.tasks.jsonl import share_of
from anygrpo.language.tasks.text import Prompt, TextTask
from anygrpo.language.tools.verifiers import SOURCE, loaded
from anygrpo.scoring.build import build_rewards
from anygrpo.scoring.settings import EnvironmentRewardConfig
from anygrpo.spoken import Text


class Verifiers(TextTask):
    """Rows by their place in the environment's training data, `example`, and whose data these are, `SOURCE`; a share,
    chosen by a hash of the prompt, is held out."""

    def __init__(self, config: VerifiersTaskConfig, seed: int) -> None:
        super().__init__(config, seed)
        source = {"id": config.id, "arguments": config.arguments}
        rows = [_row(i, row) | {SOURCE: source} for i, row in enumerate(_rows(config))]
        asked = [share_of(row["prompt"]) for row in rows]  # equal prompts stay on one side
        limit = sorted(asked)[max(1, round(config.held_out_share * len(rows))) - 1] if rows else 0.0
        self._held_out = [row for row, share in zip(rows, asked) if share <= limit][: config.held_out]
        self._train = [row for row, share in zip(rows, asked) if share > limit]
        if not self._train:
            raise DataError(
                Text(
                    f"the environment {config.id!r} has {len(rows)} row(s): too few to hold some out",
                    f"环境 {config.id!r} 有 {len(rows)} 行：太少，无法留出一部分",
                )
            )
        self.size = len(self._train)
        columns = {key for row in rows for key in row} - {"prompt"}
        own = EnvironmentRewardConfig(kind="environment", name="environment")
        self.judge_by(build_rewards((own, *config.rewards), self.pool, columns), config.accuracy)

    def prompts(self, step: int, count: int) -> list[Prompt]:
        return [self._train[i] for i in epoch_indices(self.size, step, count, self.seed)]

    def held_out(self) -> list[Prompt]:
        return self._held_out


def _rows(config: VerifiersTaskConfig) -> list[dict[str, Any]]:
    try:
        return list(loaded(config.id, json.dumps(config.arguments, sort_keys=True)).rows())
    except ModuleNotFoundError as error:
        if error.name == "verifiers":
            raise  # with the extra that installs it
        raise ConfigError(
            Text(
                f"the verifiers environment {config.id!r} cannot be imported: {error}",
                f"无法导入 verifiers 环境 {config.id!r}：{error}",
            ),
            Text("install it", "请安装它"),
        ) from None
    except Exception as error:  # whatever an environment's own code raises
        raise ConfigError(
            Text(
                f"the verifiers environment {config.id!r} cannot be loaded: {type(error).__name__}: {error}",
                f"无法加载 verifiers 环境 {config.id!r}：{type(error).__name__}: {error}",
            ),
            Text("correct task.id and task.arguments", "请改正 task.id 和 task.arguments"),
        ) from error


def _row(place: int, row: dict[str, Any]) -> Prompt:
    """Its place and prompt, and what is plain of its answer, for further rewards."""
    given = {k: row[k] for k in ("answer", "info", "name") if isinstance(row.get(k), str | int | float | dict)}
    return {"prompt": _prompt(row), "example": place} | given


def _prompt(row: dict[str, Any]) -> Any:
    """What is shown of a row before the environment has begun it."""
    asked = row.get("prompt") or row.get("question") or f"task {row.get('idx', '')}"
    if isinstance(asked, str):
        return asked
    return [{"role": m["role"], "content": m["content"]} for m in asked if isinstance(m.get("content"), str)]


build = Verifiers
"""build(config, seed) of this kind."""

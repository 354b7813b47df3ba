"""A language model, rows and rewards that are objects in memory, as `anygrpo.train` takes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError
from torch import nn

from anygrpo.core.task import epoch_indices
from anygrpo.errors import ConfigError
from anygrpo.language import build
from anygrpo.language.policy import CausalLM
from anygrpo.language.settings import CausalLMConfig
from anygrpo.language.task_settings import TextTaskConfig
from anygrpo.language.tasks.messages import clean_prompt
from anygrpo.language.tasks.text import Prompt, TextTask, in_context
from anygrpo.recipe.refusals import readable
from anygrpo.scoring import _worker, signatures
from anygrpo.scoring.outcome import Outcome, Raised, Unfit, outcome_of
from anygrpo.scoring.reward import Rows
from anygrpo.spoken import Text

Judge = Callable[..., Any]
"""A reward function in any form that is known (docs/rewards.md)."""


def causal_lm(model: nn.Module, tokenizer: Any, *, seed: int = 0, **settings: Any) -> CausalLM:
    """A policy around a causal language model in memory; its weights as they are now are the reference.

    Args:
        tokenizer: transformers' own, of this model.
        settings: keys of [policy] of kind "causal_lm", `model` left out: max_new_tokens, lora, ...

    Raises:
        ConfigError: an unknown key, or a value that cannot be meant.
    """
    try:
        config = CausalLMConfig.model_validate({"kind": "causal_lm", "model": "memory", **settings})
    except ValidationError as error:
        raise readable(error, CausalLMConfig, "policy.") from None
    return build.from_model(model, tokenizer, config, seed)


class TextRows(TextTask):
    """Rows in memory as a task, judged by functions in memory; the functions run in this process, one after the other.

    Args:
        rows: {"prompt": text or messages, column: value, ...} each; trained on in a new order each epoch.
        rewards: a function, several, or name -> function; their sum is the reward. A column "answer" is what a
            supervised stage imitates.
        held_out: rows that are evaluated and never trained on.
        system: message put before each prompt.

    Raises:
        ConfigError: no rows, or a function whose parameters are of no form that is known.
    """

    def __init__(
        self,
        rows: Sequence[Prompt],
        rewards: Judge | Sequence[Judge] | Mapping[str, Judge],
        held_out: Sequence[Prompt] = (),
        *,
        system: str | None = None,
        seed: int = 0,
    ) -> None:
        config = TextTaskConfig.model_validate({"system": system})
        super().__init__(config, seed)
        self._train = [_row(row, f"row {i}", config) for i, row in enumerate(rows)]
        self._held_out = [_row(row, f"held-out row {i}", config) for i, row in enumerate(held_out)]
        if not self._train:
            raise ConfigError(Text("there are no rows", "没有任何行"), Text("give some", "请给出"))
        self.judge_by([InProcess.of(name, one) for name, one in _named(rewards).items()], None)

    def prompts(self, step: int, count: int) -> list[Prompt]:
        return [self._train[i] for i in epoch_indices(len(self._train), step, count, self.seed)]

    def held_out(self) -> list[Prompt]:
        return self._held_out


def _row(row: Any, where: str, config: TextTaskConfig) -> Prompt:
    if not isinstance(row, dict) or "prompt" not in row:
        raise ConfigError(
            Text(f'{where} is {str(row)[:60]!r}, without a "prompt"', f"{where} 为 {str(row)[:60]!r}，没有 prompt"),
            Text('a row is {"prompt": text or messages, ...}', '一行应为 {"prompt": 文本或消息, ...}'),
        )
    return row | {"prompt": in_context(config, clean_prompt(row["prompt"], where))}


def _named(rewards: Judge | Sequence[Judge] | Mapping[str, Judge]) -> dict[str, Judge]:
    if isinstance(rewards, Mapping):
        return dict(rewards)
    listed: list[Judge] = list(rewards) if isinstance(rewards, Sequence) else [rewards]
    names = [getattr(one, "__name__", type(one).__name__) for one in listed]
    return {name if names.count(name) == 1 else f"{name}_{i}": one for i, (name, one) in enumerate(zip(names, listed))}


@dataclass(frozen=True)
class InProcess:
    """A reward function that is called in the trainer's own process. Implements `scoring.reward.Reward`."""

    name: str
    function: Judge
    form: str
    weight: float = 1.0
    judges: bool = False

    @staticmethod
    def of(name: str, function: Judge) -> InProcess:
        """Of a class with `__call__` one object is made, as where a recipe names it.

        Raises:
            ConfigError: it cannot be called or made, or its parameters are of no form that is known.
        """
        try:
            function = signatures.instance(function)
        except Exception as error:
            raise ConfigError(
                Text(f"the reward {name!r} cannot be made: {error}", f"奖励 {name!r} 无法创建：{error}"),
                Text("hand over an object of that class", "请传入该类的对象"),
            ) from None
        form = signatures.described(function)["form"] if callable(function) else None
        if form is None:
            what = f"the reward {name!r}"
            raise ConfigError(
                Text(f"{what} is called in no way that is known", f"奖励 {name!r} 的参数不是任何已知的形式"),
                Text("define it as (prompts, outputs, **columns)", "请定义为 (prompts, outputs, **columns)"),
            )
        return InProcess(name, function, form)

    def start(self, rows: Rows) -> Callable[[], list[Outcome]]:
        messages = [getattr(output, "messages", None) for output in rows.outputs]
        ids = [getattr(output, "ids", None) for output in rows.outputs]
        given = {"prompts": rows.prompts, "outputs": [str(output) for output in rows.outputs], "ids": ids}
        given |= {"columns": rows.columns, "settings": {}, "messages": messages}
        request = {"op": "call", "target": self.name, "arguments": given, "count": len(rows), "form": self.form}
        made = self._outcomes(_worker.handle(request, {self.name: self.function}), len(rows))
        return lambda: made

    @staticmethod
    def _outcomes(reply: dict[str, Any], count: int) -> list[Outcome]:
        if "values" in reply:
            return [outcome_of(verdict) for verdict in reply["values"]]
        return [Unfit(reply["error"]) if reply.get("shape") else Raised(reply["error"], reply["trace"])] * count

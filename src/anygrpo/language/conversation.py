"""Conversations of several turns: a user's function answers the model, tokens in, tokens out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from anygrpo.core import user_code
from anygrpo.errors import ConfigError, TrainingError
from anygrpo.language.prompts import Prompts
from anygrpo.language.settings import CausalLMConfig

Environment = Callable[[list[dict[str, str]], dict[str, Any]], "str | None"]
"""(messages so far, columns of the prompt record) -> the next user or tool text, or None to end."""


class Conversation:
    """Called whenever a row gives an end token; the tokens it returns are fed to the row, not sampled."""

    def __init__(
        self, environment: Environment, prompts: Prompts, records: list[Any], group_size: int, max_turns: int
    ) -> None:
        self.environment, self.prompts, self.records = environment, prompts, records
        self.group_size, self.max_turns = group_size, max_turns
        self.state: dict[int, tuple[list[dict[str, str]], int]] = {}

    @staticmethod
    def of(config: CausalLMConfig, prompts: Prompts, records: list[Any], group_size: int) -> Conversation | None:
        """The conversations of one rollout, or None where there is one turn."""
        if config.environment is None:
            return None
        return Conversation(load_environment(config.environment), prompts, records, group_size, config.max_turns)

    def __call__(self, row: int, ids: list[int]) -> list[int] | None:
        record = self.records[row // self.group_size]
        messages, seen = self.state.get(row, (self.prompts.messages(record), 0))
        messages = [*messages, {"role": "assistant", "content": self.prompts.text(ids[seen:])}]
        turns = sum(m["role"] == "assistant" for m in messages[len(self.prompts.messages(record)) :])
        if turns >= self.max_turns:
            return None
        columns = record if isinstance(record, dict) else {}
        reply = self.environment(messages, columns)
        if reply is None:
            return None
        if not isinstance(reply, str):
            raise TrainingError(f"the environment returned {type(reply).__name__}", "return a text, or None to end")
        inserted = self.prompts.next_turn(reply)
        self.state[row] = ([*messages, {"role": "user", "content": reply}], len(ids) + len(inserted))
        return inserted


def load_environment(name: str) -> Environment:
    """The function named as `path.py:function`.

    Raises:
        ConfigError: not of that form, or not a function in that file. DataError: no such file.
    """
    function = user_code.load(name)
    if not callable(function):
        raise ConfigError(f"environment = {name!r} is a {type(function).__name__}, not a function")
    return function

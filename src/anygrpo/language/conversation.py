"""The record of a conversation: who wrote which token, and which messages they make. Tokens in, tokens out: what the
policy sampled is never decoded and encoded again; what an environment says is put after it as the chat template would.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from anygrpo.core import user_code
from anygrpo.errors import ConfigError, TrainingError
from anygrpo.language.prompts import Prompts
from anygrpo.language.settings import CausalLMConfig
from anygrpo.language.tasks.answer import Answer, Message
from anygrpo.language.tasks.messages import clean_prompt

NOBODY, POLICY, ENVIRONMENT = 0, 1, 2
"""Who wrote a token of a completion: padding, sampled, inserted by an environment. (Prompts stand apart.)"""

Environment = Callable[[list[dict[str, Any]], dict[str, Any]], Any]
"""(messages so far, columns of the prompt record) -> the next text, message or messages, or None to end."""

KEPT = 4096
"""Conversations remembered after they were sampled, until rewards have read them."""


def writers(chosen: Tensor, lengths: Tensor) -> Tensor:
    """[N, T] int8 of the numbers above, from which tokens were sampled [N, T] and how long rows are [N]."""
    inside = torch.arange(chosen.shape[1]) < lengths[:, None]
    return torch.where(chosen, POLICY, torch.where(inside, ENVIRONMENT, NOBODY)).to(torch.int8)


@dataclass(frozen=True)
class Span:
    """Tokens [start, end) of a completion by one writer."""

    start: int
    end: int
    writer: int


def spans(written: list[int]) -> list[Span]:
    """The runs of equal writers in a row, padding left out."""
    made: list[Span] = []
    for i, writer in enumerate(written):
        if writer == NOBODY:
            continue
        if made and made[-1].writer == writer and made[-1].end == i:
            made[-1] = Span(made[-1].start, i + 1, writer)
        else:
            made.append(Span(i, i + 1, writer))
    return made


class Conversations:
    """Messages of sampled conversations, by their tokens."""

    def __init__(self, prompts: Prompts) -> None:
        self.prompts = prompts
        self._said: dict[tuple[int, ...], list[list[Message]]] = {}

    def keep(self, ids: list[int], inserted: list[list[Message]]) -> None:
        """Remember what an environment inserted into a row, turn by turn."""
        self._said[tuple(ids)] = inserted
        while len(self._said) > KEPT:
            del self._said[next(iter(self._said))]

    def answer(self, ids: list[int], written: list[int]) -> str:
        """What a reward reads of a row: a text where nobody else spoke, else an `Answer`."""
        parts = spans(written[: len(ids)])
        if all(part.writer == POLICY for part in parts):
            return self.prompts.text(ids)
        said, messages = iter(self._said.get(tuple(ids), ())), []
        for part in parts:
            here = ids[part.start : part.end]
            if part.writer == POLICY:
                messages.append({"role": "assistant", "content": self.prompts.text(here), "by": "policy"})
                continue
            own = [{"role": "user", "content": self.prompts.plain(here)}]  # not of this process: its text as it stands
            messages += [{**m, "by": "environment"} for m in next(said, own)]
        return Answer(messages)


class Conversation:
    """Called whenever a row gives an end token; the tokens it returns are fed to the row, not sampled."""

    def __init__(
        self, environment: Environment, prompts: Prompts, records: list[Any], group_size: int, max_turns: int
    ) -> None:
        self.environment, self.prompts, self.records = environment, prompts, records
        self.group_size, self.max_turns = group_size, max_turns
        self.state: dict[int, tuple[list[dict[str, Any]], int]] = {}
        self.inserted: dict[int, list[list[Message]]] = {}

    @staticmethod
    def of(config: CausalLMConfig, prompts: Prompts, records: list[Any], group_size: int) -> Conversation | None:
        """The conversations of one rollout, or None where there is one turn."""
        if config.environment is None:
            return None
        return Conversation(load_environment(config.environment), prompts, records, group_size, config.max_turns)

    def __call__(self, row: int, ids: list[int]) -> list[int] | None:
        record = self.records[row // self.group_size]
        first = self.prompts.messages(record)
        messages, seen = self.state.get(row, (first, 0))
        messages = [*messages, {"role": "assistant", "content": self.prompts.text(ids[seen:])}]
        if sum(m["role"] == "assistant" for m in messages[len(first) :]) >= self.max_turns:
            return None
        reply = self.environment(messages, record if isinstance(record, dict) else {})
        if reply is None:
            return None
        said = _messages(reply)
        tokens = self.prompts.next_turn(said)
        self.inserted.setdefault(row, []).append(said)
        self.state[row] = ([*messages, *said], len(ids) + len(tokens))
        return tokens


def _messages(reply: Any) -> list[Message]:
    """What an environment says: a text is a user's message."""
    given = [{"role": "user", "content": reply}] if isinstance(reply, str) else reply
    given = [given] if isinstance(given, dict) else given
    if not isinstance(given, list) or not given:
        raise TrainingError(
            f"the environment returned {type(reply).__name__}",
            "return a text, a message {role, content}, a list of them, or None to end",
        )
    return clean_prompt(given, "the environment's reply")  # type: ignore[return-value]


def check_template(prompts: Prompts) -> str | None:
    """What is to be said of a chat template that is to hold several turns; tried when the policy is built.

    Raises:
        ConfigError: what was said before changes when something is added, so that the tokens sampled would not be those
            of the conversation.
    """
    if not prompts.chat:
        return None
    asked: list[dict[str, Any]] = [{"role": "user", "content": "first question"}]
    more = [{"role": "user", "content": "second question"}]
    for content in ("a first answer", "<think>\na thought\n</think>\n\na first answer"):
        before = prompts.render(asked) + content
        whole = prompts.render([*asked, {"role": "assistant", "content": content}, *more])
        if whole.startswith(before):
            continue
        if content.startswith("<think>"):
            return (
                "the chat template drops the thoughts of earlier turns; here they stay in the conversation, as sampled"
            )
        raise ConfigError(
            f"the chat template does not keep what was said before: {before[-60:]!r} becomes "
            f"{whole[: len(before)][-60:]!r}",
            "use a template that only adds to the conversation, or max_turns = 1",
        )
    return None


def load_environment(name: str) -> Environment:
    """The function named as `path.py:function`.

    Raises:
        ConfigError: not of that form, or not a function in that file. DataError: no such file.
    """
    function = user_code.load(name)
    if not callable(function):
        raise ConfigError(f"environment = {name!r} is a {type(function).__name__}, not a function")
    return function

"""The record of a conversation: who wrote which token, and which messages they make. Tokens in, tokens out: what the
policy sampled is never decoded and encoded again; what an environment says is put after it as the chat template would.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import torch
from torch import Tensor

from anygrpo.errors import ConfigError
from anygrpo.language.prompts import Prompts
from anygrpo.language.tasks.answer import Answer, Message
from anygrpo.language.tools import formats
from anygrpo.spoken import Text

NOBODY, POLICY, ENVIRONMENT = 0, 1, 2
"""Who wrote a token of a completion: padding, sampled, inserted by an environment. (Prompts stand apart.)"""

KEPT = 1 << 16
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
    made, at = [], 0
    for writer, run in groupby(written):
        size = sum(1 for _ in run)
        if writer != NOBODY:
            made.append(Span(at, at + size, writer))
        at += size
    return made


class Conversations:
    """Sampled conversations, by their number."""

    def __init__(self, prompts: Prompts) -> None:
        self.prompts = prompts
        self.read: Callable[[list[int]], Message] | None = None
        self._held: dict[int, Answer] = {}

    def keep(self, number: int, answer: Answer) -> None:
        """Remember what was said in a row."""
        self._held[number] = answer
        while len(self._held) > KEPT:
            del self._held[next(iter(self._held))]

    def answer(self, ids: list[int], written: list[int], number: int = -1) -> str:
        """What a reward reads of a row: a text where nobody else can speak, else an `Answer`. Of a conversation that
        was sampled elsewhere, words are read from the tokens, and what an environment paid is not known."""
        if number in self._held:
            return self._held[number]
        parts = spans(written[: len(ids)])
        if number < 0 and all(part.writer == POLICY for part in parts):
            return self.prompts.text(ids)
        messages = []
        for part in parts:
            here = ids[part.start : part.end]
            if part.writer == ENVIRONMENT:
                messages.append({"role": "user", "content": self.prompts.plain(here), "by": "environment"})
            elif self.read is not None:
                messages.append({**self.read(here), "by": "policy"})
            else:
                messages.append({"role": "assistant", "content": self.prompts.text(here), "by": "policy"})
        return Answer(messages)


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
            Text(
                f"the chat template does not keep what was said before: {before[-60:]!r} becomes "
                f"{whole[: len(before)][-60:]!r}",
                f"对话模板没有保留之前说过的内容：{before[-60:]!r} 变成了 {whole[: len(before)][-60:]!r}",
            ),
            Text(
                "use a template that only adds to the conversation, or max_turns = 1",
                "请用只在对话后追加内容的模板，或设 max_turns = 1",
            ),
        )
    if prompts.tools:
        prompts.next_turn(formats.TRIED[2:], formats.TRIED[1]["tool_calls"])
    return None

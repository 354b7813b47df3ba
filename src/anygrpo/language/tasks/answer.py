"""What a reward reads of a conversation: the policy's own words as a text, and all messages beside them. No torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

Message = dict[str, Any]


class Answer(str):
    """The policy's own text: its turns joined by an empty line, nothing that an environment wrote.

    Attributes:
        messages: the conversation after the prompt: {role, content, by}, where `by` is "policy" or "environment"; calls
            of tools are parsed ("tool_calls"), and not in the content.
        rewards: what an environment gave for each turn of the policy, None where none pays.
    """

    messages: list[Message]
    rewards: list[float | None]

    def __new__(cls, messages: Sequence[Message] = (), rewards: Sequence[float | None] = ()) -> Answer:
        made = super().__new__(cls, "\n\n".join(m["content"] for m in messages if m["by"] == "policy" and m["content"]))
        made.messages, made.rewards = list(messages), list(rewards)
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        return Answer, (self.messages, self.rewards)

    @property
    def reward(self) -> float | None:
        """The sum of the environment's rewards; None where it gave none."""
        given = [r for r in self.rewards if r is not None]
        return sum(given) if given else None

    @property
    def turns(self) -> int:
        """How often the policy spoke."""
        return sum(m["by"] == "policy" for m in self.messages)

    @property
    def inserted(self) -> list[Message]:
        """What an environment wrote."""
        return [m for m in self.messages if m["by"] != "policy"]

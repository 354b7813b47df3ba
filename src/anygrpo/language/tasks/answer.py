"""What a reward reads of a conversation: the policy's own words as a text, and all messages beside them. No torch."""

from __future__ import annotations

from typing import Any

Message = dict[str, Any]


class Answer(str):
    """The policy's own text: its turns joined by an empty line, nothing that an environment wrote.

    Attributes:
        messages: the conversation after the prompt: {role, content, by}, where `by` is "policy" or "environment".
    """

    messages: list[Message]

    def __new__(cls, messages: list[Message]) -> Answer:
        made = super().__new__(cls, "\n\n".join(m["content"] for m in messages if m["by"] == "policy"))
        made.messages = messages
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        return Answer, (self.messages,)

    @property
    def inserted(self) -> list[Message]:
        """What an environment wrote."""
        return [m for m in self.messages if m["by"] != "policy"]

"""One conversation as it grows, and what others say as messages."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import Any

from anygrpo.errors import TrainingError
from anygrpo.language.generation import Reply
from anygrpo.language.tasks.answer import Message
from anygrpo.language.tasks.messages import clean_prompt
from anygrpo.language.tools.formats import Call
from anygrpo.language.tools.sessions import Session
from anygrpo.spoken import Text

_NUMBERS = itertools.count()


@dataclass
class Held:
    """One conversation.

    Attributes:
        messages: after the prompt, each with `by`.
        seen: tokens of the completion that these messages hold.
        rewards: of each turn of the policy: 0 where the environment gave none, None where there is none that pays.
        fault: why the sample is invalid, or "".
        heard: the environment has answered a turn.
        calls, failed: of tools, so far.
    """

    row: dict[str, Any]
    first: list[Message]
    number: int = field(default_factory=lambda: next(_NUMBERS))
    messages: list[Message] = field(default_factory=list)
    seen: int = 0
    rewards: list[float | None] = field(default_factory=list)
    fault: str = ""
    heard: bool = False
    calls: int = 0
    failed: int = 0
    own: frozenset[str] = frozenset()
    session: Session | None = None
    spent: float = 0.0
    # of the turn under way
    ids: list[int] = field(default_factory=list)
    asked: str = ""
    ran: list[Call] = field(default_factory=list)
    theirs: list[Call] = field(default_factory=list)
    said: list[Message] = field(default_factory=list)
    reply: Reply | None = None

    @property
    def turns(self) -> int:
        return len(self.rewards)


def call_of(call: dict[str, Any]) -> Call:
    return Call(call["function"]["name"], call["function"]["arguments"], call.get("fault", ""))


def said_by_environment(reply: Any) -> list[Message]:
    """What an environment says: a text is a user's message."""
    given = [{"role": "user", "content": reply}] if isinstance(reply, str) else reply
    given = [given] if isinstance(given, dict) else given
    if not isinstance(given, list) or not given:
        raise TrainingError(
            Text(f"it returned {type(reply).__name__}", f"它返回了 {type(reply).__name__}"),
            Text("return a text, a message, a list of them, or None", "请返回文本、消息、它们的列表，或 None"),
        )
    try:
        made = clean_prompt(given, "the environment's reply")
    except Exception as error:
        raise TrainingError(str(getattr(error, "what", error)), "") from None
    return [{**m, "by": "environment"} for m in made]  # type: ignore[union-attr]

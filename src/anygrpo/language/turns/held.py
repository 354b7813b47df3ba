"""One conversation as it grows, and what others say as messages."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import Any

from anygrpo.errors import AnygrpoError
from anygrpo.language.generation import Reply
from anygrpo.language.tasks.answer import Message
from anygrpo.language.tasks.messages import clean_prompt
from anygrpo.language.tasks.pictures import is_picture
from anygrpo.language.tools import replies
from anygrpo.language.tools.formats import Call
from anygrpo.language.tools.sessions import Session
from anygrpo.scoring.outcome import Broken, Raised, Unfit
from anygrpo.spoken import Text

HEAD = "environment: "
"""Before a sample's reason that is the environment's."""
_NUMBERS = itertools.count()


@dataclass
class Held:
    """One conversation.

    Attributes:
        messages: after the prompt, each with `by`.
        seen: tokens of the completion that these messages hold.
        rewards: of each turn of the policy: 0 where the environment gave none, None where there is none that pays.
        fault: why the sample is invalid, or "".
        unbegun: the fault is of its beginning: no turn was taken.
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
    unbegun: bool = False
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


def as_asked(calls: list[Call]) -> list[dict[str, Any]]:
    """Calls as the process that runs them is given them."""
    return [{"name": c.name, "arguments": c.arguments} for c in calls]


def unsigned(messages: list[Message]) -> list[Message]:
    """Messages without who said them, as environments are shown them."""
    return [{k: v for k, v in m.items() if k != "by"} for m in messages]


def said_by_environment(reply: Any, by: str, wanted: str) -> list[Message]:
    """What an environment says: a text is a user's message.

    Raises:
        Unfit: no messages; `by` is the method that said it.
    """
    given = [{"role": "user", "content": reply}] if isinstance(reply, str) else reply
    given = [given] if isinstance(given, dict) else given
    try:
        made = clean_prompt(given, by)
    except AnygrpoError as error:
        found = f"{str(reply)[:60]!r} ({replies.rest(by, error)}; {error.cure})"  # both are in the language in use
        raise replies.Unfit(by, Text(found, found), wanted) from None
    contents = [m["content"] for m in made if isinstance(m, dict) and isinstance(m["content"], list)]
    if any(is_picture(part) and "image" not in part for content in contents for part in content):
        raise replies.Unfit(by, Text("a place for a picture, and no picture", "有图片的位置，却没有图片"), wanted)
    return [{**m, "by": "environment"} for m in made]  # type: ignore[union-attr]


def why(answer: dict[str, Any]) -> str:
    """The fault of a reply: what it returned of another kind, or with its traceback where the environment raised."""
    if "unfit" in answer:
        return unfit(answer["unfit"], HEAD)
    reason = HEAD + str(answer["error"])
    return Raised(reason, answer["trace"]) if "trace" in answer else reason


def bare(fault: str) -> str:
    """Without the word that says whose it is, for a sentence that says so itself."""
    if isinstance(fault, Unfit):
        return Unfit(fault.removeprefix(HEAD), fault.wanted)
    if isinstance(fault, Broken):
        return Broken(fault.removeprefix(HEAD), fault.cure)
    return Raised(fault.removeprefix(HEAD), fault.trace) if isinstance(fault, Raised) else fault


def unfit(fault: replies.Fault, head: str = "") -> Unfit:
    """The reason of what was returned of another kind."""
    return Unfit(head + replies.worded(fault).said(), replies.WANTED[fault["wanted"]].said())

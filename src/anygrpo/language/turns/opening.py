"""How conversations begin: what an environment's reset says, as a record of a prompt and as the policy's ids."""

from __future__ import annotations

from typing import Any

from anygrpo.errors import DataError
from anygrpo.language.turns.held import HEAD, Held, bare
from anygrpo.language.turns.talk import Talk
from anygrpo.scoring.outcome import Broken

_IN_PLACE = {"prompt": "-"}
"""What a policy is given where its conversation cannot begin: the sample is invalid, and ends with its first turn."""


def opened(talk: Talk, record: dict[str, Any], messages: Any, tools: Any) -> dict[str, Any]:
    """The record as the policy is given it: None leaves the prompt, a text is one more user's turn, messages take
    its place."""
    made = dict(record)
    if isinstance(messages, str):
        before = talk.prompts.turns_of(record) if record.get("prompt") else []
        made["prompt"] = [*before, {"role": "user", "content": messages}]
    elif messages is not None:
        made["prompt"] = messages
    if tools:
        made["tools"] = [*(record.get("tools") or []), *talk.schemas, *tools]
    return made


def encoded(talk: Talk, records: list[dict[str, Any]], groups: list[list[Held]], limit: int) -> list[list[int]]:
    """Ids of each group's prompt. An environment's opening that the policy cannot be given (too long, refused by the
    template) is a fault of its group alone.

    Raises:
        DataError: no environment opens them: the prompts are the data's.
    """
    if talk.kind != "class":
        return talk.prompts.encode(records, limit)
    made = []
    for record, group in zip(records, groups):
        try:
            made += talk.prompts.encode([record], limit)
        except DataError as error:
            for one in group:
                one.fault = one.fault or Broken(f"{HEAD}{talk.name}.reset: {error.what}", error.cure)
            made += talk.prompts.encode([_IN_PLACE], limit)
        for one in group:
            one.unbegun = bool(one.fault)
    return made


def told(talk: Talk, held: list[Held]) -> list[str]:
    """What a rollout's conversations say of the environment, for `FirstCall.see`: a fault, or "" of one that it has
    answered.

    Once any conversation has begun well, a beginning that fails is its prompt's fault. Before that, one that gave
    nothing to be used (too long, its process ended) needs a second prompt of which that is so too; what `reset`
    raises or returns of another kind is the code's.
    """
    unbegun = [one for one in held if one.unbegun]
    talk.begins = talk.begins or len(unbegun) < len(held)
    if talk.begins:
        return [bare(one.fault) for one in held if not one.unbegun and (one.fault or one.heard)]
    alone = len({repr(one.row) for one in unbegun}) < 2
    return [bare(one.fault) for one in unbegun if not (alone and isinstance(one.fault, Broken))]

"""How models write calls of tools, and what is put where a chat template knows none. No torch.

hermes    <tool_call>{"name": ..., "arguments": {...}}</tool_call>, any number of them (Hermes, Qwen)
llama3    {"name": ..., "parameters": {...}}, alone or after <|python_tag|> (Llama 3)
mistral   [TOOL_CALLS] and a JSON list, or name[ARGS]{...} (Mistral)
gpt_oss   to=functions.name ... <|message|>{...} (gpt-oss)
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

Messages = list[dict[str, Any]]


@dataclass(frozen=True)
class Call:
    """One call as the model wrote it.

    Attributes:
        name, arguments: of the function; empty where `fault` says why they cannot be read.
        fault: what is wrong with the text of the call, as the model is told, or "".
    """

    name: str = ""
    arguments: dict[str, Any] = field(default_factory=dict)
    fault: str = ""

    def message(self) -> dict[str, Any]:
        """As chat templates take it."""
        return {"type": "function", "function": {"name": self.name, "arguments": self.arguments}}


Read = tuple[str, list[Call]]
"""(text without the calls, calls in order)."""


def call_of(text: str) -> Call:
    """A JSON object {name, arguments} (or parameters) as a call."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        return Call(fault=f"the call is not JSON: {error}"[:200])
    return _called(value)


def _called(value: Any) -> Call:
    if isinstance(value, dict) and isinstance(value.get("function"), dict):
        value = value["function"]
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        return Call(fault='a call is {"name": ..., "arguments": {...}}')
    given = value.get("arguments", value.get("parameters", {}))
    if isinstance(given, str):
        with contextlib.suppress(ValueError, RecursionError):
            given = json.loads(given)
    if not isinstance(given, dict):
        return Call(value["name"], fault=f"the arguments of {value['name']} are not an object")
    return Call(value["name"], given)


_HERMES = re.compile(r"<tool_call>\s*(.*?)\s*(?:</tool_call>|\Z)", re.DOTALL)


def read_hermes(text: str) -> Read:
    calls = [call_of(body) for body in _HERMES.findall(text)]
    return (_HERMES.sub("", text).strip(), calls) if calls else (text, [])


def read_llama3(text: str) -> Read:
    """JSON objects alone are calls; an object inside of other words is none."""
    body = text.strip()
    marked = body.startswith("<|python_tag|>")
    body = body.removeprefix("<|python_tag|>").strip()
    if not (marked or (body.startswith("{") and '"name"' in body)):
        return text, []
    values, rest = _objects(body)
    if rest or not values:
        return ("", [Call(fault="the call is not JSON")]) if marked else (text, [])
    return "", [_called(value) for value in values]


def _objects(body: str) -> tuple[list[Any], str]:
    """(the JSON values at the beginning, separated by semicolons, commas or spaces; what follows them)."""
    decoder, values = json.JSONDecoder(), []
    while body:
        try:
            value, end = decoder.raw_decode(body)
        except (ValueError, RecursionError):
            break
        values.append(value)
        body = body[end:].lstrip("; ,\n\t")
    return values, body


_NAMED = re.compile(r"\s*([\w.-]+)\s*(?:\[CALL_ID\][\w-]+)?\s*\[ARGS\]\s*")


def read_mistral(text: str) -> Read:
    before, mark, _ = text.partition("[TOOL_CALLS]")
    if not mark:
        return text, []
    calls: list[Call] = []
    for part in text[len(before) :].split("[TOOL_CALLS]")[1:]:
        named = _NAMED.match(part)
        if named:
            values, _ = _objects(part[named.end() :])
            given = values[0] if values else None
            fault = "" if isinstance(given, dict) else f"the arguments of {named[1]} are not a JSON object"
            calls.append(Call(named[1], given if isinstance(given, dict) else {}, fault))
            continue
        values, _ = _objects(part.strip())
        found = values[0] if values else None
        found = found if isinstance(found, list) else [found]
        calls += [_called(one) if one is not None else Call(fault="the call is not JSON") for one in found]
    return before.strip(), calls


_HARMONY = re.compile(
    r"(?:<\|start\|>)?(?:assistant)?(?:<\|channel\|>\w+)?\s*to=functions\.([\w.-]+).*?<\|message\|>(.*?)(?=<\|call\|>|<\|start\|>|<\|end\|>|\Z)(?:<\|call\|>|<\|end\|>)?",
    re.DOTALL,
)
_CHANNEL = re.compile(r"(?:<\|start\|>assistant)?<\|channel\|>(\w+)(?:<\|constrain\|>\w+)?<\|message\|>")


def read_gpt_oss(text: str) -> Read:
    calls = []
    for name, body in _HARMONY.findall(text):
        values, rest = _objects(body.strip())
        good = len(values) == 1 and isinstance(values[0], dict) and not rest
        calls.append(Call(name, values[0]) if good else Call(name, fault=f"the arguments of {name} are not JSON"))
    return (_HARMONY.sub("", text).strip(), calls) if calls else (text, [])


READERS: dict[str, Callable[[str], Read]] = {
    "hermes": read_hermes,
    "llama3": read_llama3,
    "mistral": read_mistral,
    "gpt_oss": read_gpt_oss,
}
"""Format -> what reads an assistant's text."""

_ASKED = {"role": "user", "content": "anygrpo-asks"}
_NAME, _KEY, _VALUE, _RESULT = "anygrpo_name", "anygrpo_key", "anygrpo-value", "anygrpo-result"
TRIED: Messages = [
    _ASKED,
    {
        "role": "assistant",
        "content": "",
        "tool_calls": [
            {"id": "anygrpo01", "type": "function", "function": {"name": _NAME, "arguments": {_KEY: _VALUE}}}
        ],
    },
    {"role": "tool", "name": _NAME, "tool_call_id": "anygrpo01", "content": _RESULT},
]
"""A conversation with a call, whose words are looked for in what a template makes of it."""


def shown(render: Callable[[Messages], str]) -> bool:
    """Whether a call and what the tool said are in the text that a template makes of them."""
    try:
        text = render(TRIED)
    except Exception:  # a template is a program of the model's: it may refuse any of this
        return False
    return all(word in text for word in (_NAME, _KEY, _VALUE, _RESULT))


def found(render: Callable[[Messages], str]) -> str | None:
    """The format in which a template writes a call; None where the call, or a tool's text, is lost in it."""
    if not shown(render):
        return None
    text = render(TRIED)
    wrote = text[text.index(_ASKED["content"]) : text.index(_RESULT)]
    if f"to=functions.{_NAME}" in wrote:
        return "gpt_oss"
    if "[TOOL_CALLS]" in wrote:
        return "mistral"
    if "<tool_call>" in wrote and '"name"' in wrote:
        return "hermes"
    return "llama3" if '"parameters"' in wrote and '"name"' in wrote else None


# -- where a template knows no tools ------------------------------------------------------------------------------


def written_call(call: dict[str, Any]) -> str:
    """A call in the hermes form."""
    inner = call.get("function", call)
    body = json.dumps({"name": inner["name"], "arguments": inner["arguments"]}, ensure_ascii=False)
    return f"<tool_call>\n{body}\n</tool_call>"


def written_tools(tools: list[dict[str, Any]]) -> str:
    """What a system message says of tools."""
    listed = "\n".join(json.dumps(tool.get("function", tool), ensure_ascii=False) for tool in tools)
    return (
        f"You can call these functions:\n{listed}\n"
        'To call one, write\n<tool_call>\n{"name": ..., "arguments": {...}}\n</tool_call>'
    )


def plainly(messages: Messages, tools: list[dict[str, Any]] | None) -> Messages:
    """The messages in words alone: tools in the system message, calls in the assistant's text, a tool's text in a
    user's turn (texts of several tools in one)."""
    made: Messages = []
    for m in messages:
        if m.get("tool_calls"):
            text = "\n".join([*([m["content"]] if m["content"] else []), *map(written_call, m["tool_calls"])])
            m = {**{k: v for k, v in m.items() if k != "tool_calls"}, "content": text}
        if m["role"] == "tool":
            text = f"<tool_response>\n{m['content']}\n</tool_response>"
            if made and made[-1].get("of_tool"):
                made[-1] = {**made[-1], "content": f"{made[-1]['content']}\n{text}"}
                continue
            m = {"role": "user", "content": text, "of_tool": True}
        made.append(m)
    made = [{k: v for k, v in m.items() if k != "of_tool"} for m in made]
    if not tools:
        return made
    about = written_tools(tools)
    if made and made[0]["role"] in ("system", "developer"):
        return [{**made[0], "content": f"{made[0]['content']}\n\n{about}"}, *made[1:]]
    return [{"role": "system", "content": about}, *made]

"""What an environment or a tool of the user's may return: seen in its own process, where its types still
are. No torch.

A fault is {"by": "Env.step", "found": "a tuple of 5", "zh": the same in Chinese, "wanted": a key of `WANTED`}; `worded`
says it. What a model is told of it is English.
"""

from __future__ import annotations

import inspect
import json
import types
from collections.abc import Callable
from typing import Any

from anygrpo.core.thumbnails import data_url
from anygrpo.errors import AnygrpoError
from anygrpo.spoken import Text

Fault = dict[str, str]

WANTED: dict[str, Text] = {
    "reset": Text("None, a text or messages, or (those, a list of tools)", "None、文本或消息，或 (这些, 工具列表)"),
    "step": Text(
        "None, a text or messages, or (those, reward), or (those, reward, done)",
        "None、文本或消息，或 (这些, 奖励)，或 (这些, 奖励, 是否结束)",
    ),
    "speak": Text("None, a text or messages", "None、文本或消息"),
    "tool": Text("a text, or what JSON holds", "文本，或 JSON 能表示的值"),
    "Env": Text("an object with reset(row) and step(messages, calls)", "带 reset(row) 与 step(messages, calls) 的对象"),
}
"""What a method has to return, by the name it is asked under."""

_SHOWN = ("image", "image_url", "url", "path", "bytes")
"""Keys of a content part under which its picture is."""

_NEVER = (types.GeneratorType, types.AsyncGeneratorType, types.ModuleType, type)


class Unfit(Exception):
    """What the user's code returned is of no kind that is wanted. `fault` says whose it is."""

    def __init__(self, by: str, found: Text, wanted: str) -> None:
        super().__init__(f"{by} returned {found.en}")
        self.fault: Fault = {"by": by, "found": found.en, "zh": found.zh, "wanted": wanted}


def worded(fault: Fault) -> Text:
    """ "Env.step returned a tuple of 5"."""
    return Text(f"{fault['by']} returned {fault['found']}", f"{fault['by']} 返回了 {fault['zh']}")


def shown(value: Any) -> Text:
    """A value in a few words: its type, and what it is where that is short."""
    kind = type(value).__name__
    if isinstance(value, type):
        return Text("a class", "一个类")
    if isinstance(value, _NEVER) or callable(value):
        return Text(f"a {kind}", f"一个 {kind}")
    if isinstance(value, list | tuple | set | frozenset | bytes):
        return Text(f"a {kind} of {len(value)}", f"长度为 {len(value)} 的 {kind}")
    try:
        text = repr(value)
    except Exception:
        return Text(f"a {kind} whose repr fails", f"一个 {kind}，其 repr 失败")
    return Text(f"{text[:60]} ({kind})", f"{text[:60]}（{kind}）")


def said(by: str, wanted: str, value: Any) -> Any:
    """What an environment says, as JSON holds it: None, a text, a message, or messages.

    Raises:
        Unfit: of another kind, or with something in it that JSON does not hold.
    """
    if value is not None and not isinstance(value, str | dict | list):
        raise Unfit(by, shown(value), wanted)
    messages = [value] if isinstance(value, dict) else value
    if (
        isinstance(messages, list)
        and (other := next((m for m in messages if not isinstance(m, dict)), None)) is not None
    ):
        raise Unfit(by, Text("a list with ", "列表，其中有 ") + shown(other) + Text(" in it", ""), wanted)
    if isinstance(messages, list):
        held = [m | {"content": _with_urls(m["content"])} if "content" in m else m for m in messages]
        value = held[0] if isinstance(value, dict) else held
    return _as_json(by, "messages", value, wanted)


def _with_urls(content: Any) -> Any:
    """Content whose pictures that are objects (a PIL image, bytes) are data URLs."""
    if isinstance(content, list | tuple):
        return [_with_urls(part) for part in content]
    if not isinstance(content, dict):
        return content
    return {key: (data_url(value) or _with_urls(value)) if key in _SHOWN else value for key, value in content.items()}


def rest(by: str, error: AnygrpoError) -> str:
    """What an error says, without the place that stands before it."""
    return error.what.removeprefix(f"{by}: ").removeprefix(f"{by}：")


def _as_json(by: str, what: str, value: Any, wanted: str) -> Any:
    """The value as JSON holds it. Raises: Unfit with what it does not hold."""
    try:
        whole = json.dumps(value, default=_plain, ensure_ascii=False)
        whole.encode()  # half a surrogate pair is no text that a tokenizer takes
        return json.loads(whole)
    except (TypeError, ValueError, RecursionError) as error:
        found = Text(f"{what} that are no JSON: {error}"[:200], f"不是 JSON 的 {what}：{error}"[:200])
        raise Unfit(by, found, wanted) from None


def _plain(value: Any) -> Any:
    """Numbers of NumPy and torch."""
    if hasattr(value, "tolist") and not callable(value):
        return value.tolist()
    raise TypeError(f"a {type(value).__name__}")


def number(by: str, value: Any) -> float | None:
    """A reward: a number or None.

    Raises:
        Unfit: anything else; a text that holds a number among it.
    """
    if value is None:
        return None
    try:
        if isinstance(value, str | bytes):
            raise TypeError
        return float(value)
    except OverflowError:
        return float("inf")
    except Exception:
        raise Unfit(by, Text("a reward of ", "奖励 ") + shown(value), "step") from None


def ending(by: str, value: Any) -> bool:
    """Whether the conversation is over: True, False, 0, 1 or None.

    Raises:
        Unfit: anything else, which would always count as true.
    """
    if value is None or isinstance(value, bool):
        return bool(value)
    try:
        if not isinstance(value, str | bytes) and value in (0, 1):
            return bool(value)
    except Exception:  # an array of several values
        pass
    raise Unfit(by, shown(value) + Text(" for done", " 作为 done"), "step")


def schemas(by: str, tools: Any, made: Callable[[Any], Any]) -> list[dict[str, Any]]:
    """Schemas of the tools that `reset` gives: {"type": "function", "function": {name, description, parameters}}.

    Args:
        made: a function -> its schema.

    Raises:
        Unfit: no list of functions and schemas, two of one name, or one with something that JSON does not hold.
    """
    if isinstance(tools, dict) and ("name" in tools or "function" in tools):
        tools = [tools]
    if tools and not isinstance(tools, list | tuple):
        raise Unfit(by, shown(tools) + Text(" for the tools", " 作为工具"), "reset")
    whole = [_schema(by, tool, made) for tool in tools or ()]
    names = [one["function"]["name"] for one in whole]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise Unfit(by, Text(f"two tools called {twice!r}", f"两个都叫 {twice!r} 的工具"), "reset")
    return _as_json(by, "tools", whole, "reset")


def _schema(by: str, tool: Any, made: Callable[[Any], Any]) -> dict[str, Any]:
    if callable(tool):
        try:
            return made(tool)
        except Exception as error:
            why = str(error).strip().splitlines() or [type(error).__name__]
            name = getattr(tool, "__name__", type(tool).__name__)
            found = Text(f"the tool {name}, of which no schema can be made: ", f"工具 {name}，无法得到它的 schema：")
            raise Unfit(by, found + Text(why[0][:200], why[0][:200]), "reset") from None
    inner = tool.get("function", tool) if isinstance(tool, dict) else None
    if not isinstance(inner, dict) or not isinstance(inner.get("name"), str) or not inner["name"]:
        what = "{name, description, parameters}"
        neither = Text(f", neither a function nor {what}", f"，既不是函数也不是 {what}")
        raise Unfit(by, Text("a tool ", "工具 ") + shown(tool) + neither, "reset")
    if not isinstance(inner.get("parameters", {}), dict):
        tool_of = Text(f"the tool {inner['name']!r} with parameters ", f"工具 {inner['name']!r}，其 parameters 为 ")
        raise Unfit(by, tool_of + shown(inner["parameters"]), "reset")
    return tool if "function" in tool else {"type": "function", "function": tool}


def parts(by: str, wanted: str, value: Any, sizes: tuple[int, ...]) -> tuple[Any, ...]:
    """A tuple's values, filled with None up to the largest size; anything else stands first.

    Raises:
        Unfit: a tuple of another size.
    """
    if not isinstance(value, tuple):
        return (value, *[None] * (max(sizes) - 1))
    if len(value) not in sizes:
        raise Unfit(by, shown(value), wanted)
    return (*value, *[None] * (max(sizes) - len(value)))


def told(by: str, value: Any) -> str:
    """A tool's value as the model reads it; half a surrogate pair is a question mark.

    Raises:
        Unfit: what no model can read: a generator, a function, a class.
    """
    if isinstance(value, _NEVER) or inspect.isroutine(value):
        raise Unfit(by, shown(value), "tool")
    try:
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        text = str(value)
    return text.encode(errors="replace").decode()

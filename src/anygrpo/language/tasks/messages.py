"""Messages in the forms people have, as templates take them: one text each, tool calls parsed. No torch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from anygrpo.errors import DataError
from anygrpo.files import json_value
from anygrpo.language.tasks.pictures import is_picture, part_of
from anygrpo.spoken import Text

ROLES = ("system", "developer", "user", "assistant", "tool")
_OTHER_ROLES = {"human": "user", "gpt": "assistant", "model": "assistant", "bot": "assistant", "function": "tool"}
_OTHER_ROLES |= {"observation": "tool", "ipython": "tool"}

Messages = list[dict[str, Any]]

SYSTEM = ("system", "developer")


def clean_prompt(prompt: Any, where: str, folder: Path | None = None) -> str | Messages:
    """A text, or messages of {role, content, ...}.

    Content parts of text are joined, null content is empty, arguments of tool calls that are JSON texts are parsed,
    {from, value} is {role, content}, and a text that is a JSON list of messages is read as such. A message with
    pictures keeps its parts, each picture by its reference (see `pictures.reference`; paths from `folder`).

    Raises:
        DataError: anything else, sound among it.
    """
    if isinstance(prompt, str):
        if not prompt.strip():
            raise _bad(prompt, where)
        return _listed(prompt, where, folder) or prompt
    if not isinstance(prompt, list) or not prompt:
        raise _bad(prompt, where)
    made = [_message(turn, prompt, where, folder) for turn in prompt]
    if sum(m["role"] in SYSTEM for m in made) > 1:
        raise DataError(
            Text(f"{where}: the prompt has two system messages", f"{where}：提示有两条系统消息"),
            Text("join them", "请合并"),
        )
    if not any(m["content"] or m.get("tool_calls") for m in made):
        raise _bad(prompt, where)
    return made


def _listed(prompt: str, where: str, folder: Path | None) -> Messages | None:
    """The messages of a text that is a JSON list of objects with roles (as CSV files carry them)."""
    if not prompt.lstrip().startswith("[{"):
        return None
    try:
        value = json_value(prompt)
    except ValueError:
        return None
    if isinstance(value, list) and all(isinstance(t, dict) and ("role" in t or "from" in t) for t in value):
        return clean_prompt(value, where, folder)  # type: ignore[return-value]
    return None


def _message(turn: Any, prompt: Any, where: str, folder: Path | None) -> dict[str, Any]:
    if not isinstance(turn, dict):
        raise _bad(prompt, where)
    turn = {k: v for k, v in turn.items() if v is not None or k == "content"}  # Parquet fills every key with null
    if "role" not in turn and {"from", "value"} <= turn.keys():
        turn = {"role": turn.pop("from"), "content": turn.pop("value"), **turn}
    role = _OTHER_ROLES.get(str(turn.get("role")), turn.get("role"))
    if role not in ROLES or not ("content" in turn or "tool_calls" in turn):
        raise _bad(prompt, where)
    made = {**turn, "role": role, "content": _text(turn.get("content"), prompt, where, folder)}
    if "tool_calls" in made:
        made["tool_calls"] = _calls(made["tool_calls"], where)
    return made


def _text(content: Any, prompt: Any, where: str, folder: Path | None) -> str | list[dict[str, Any]]:
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, dict):
        content = [content]
    if not isinstance(content, list):
        raise _bad(prompt, where)
    parts, pictures = [], False
    for part in content:
        if is_picture(part):
            pictures = True
            parts.append(part_of(part, where, folder))
            continue
        kind = "text" if isinstance(part, str) else part.get("type", "text") if isinstance(part, dict) else None
        text = part if isinstance(part, str) else part.get("text") if isinstance(part, dict) else None
        if kind != "text" or not isinstance(text, str):
            raise DataError(
                Text(
                    f"{where}: a part of a message is {str(part)[:60]!r} of type {kind!r}",
                    f"{where}：消息的一部分为 {str(part)[:60]!r}，类型为 {kind!r}",
                ),
                Text("parts are texts or pictures", "各部分应为文本或图片"),
            )
        parts.append({"type": "text", "text": text})
    return parts if pictures else "".join(part["text"] for part in parts)


def _calls(calls: Any, where: str) -> list[Any]:
    """Calls with their arguments as objects: templates write them out again."""
    calls = calls if isinstance(calls, list) else [calls]
    made = []
    for call in calls:
        call = parsed(call)
        if not isinstance(call, dict):
            raise DataError(
                Text(f"{where}: a tool call is {str(call)[:60]!r}", f"{where}：工具调用为 {str(call)[:60]!r}"),
                Text("write {name, arguments}", "请写成 {name, arguments}"),
            )
        inner = dict(call.get("function") or call)
        inner["arguments"] = parsed(inner.get("arguments", {}))
        made.append({**call, "function": inner} if "function" in call else {"type": "function", "function": inner})
    return made


def parsed(value: Any) -> Any:
    """The value of a text that is JSON, anything else as it is."""
    if isinstance(value, str):
        try:
            return json_value(value)
        except ValueError:
            return value
    return value


def _bad(prompt: Any, where: str) -> DataError:
    return DataError(
        Text(f"{where}: the prompt is {str(prompt)[:60]!r}", f"{where}：提示为 {str(prompt)[:60]!r}"),
        Text(
            f"a prompt is a text that is not empty, or a list of {{role, content}} with role {' | '.join(ROLES)}",
            f"提示应为非空文本，或 {{role, content}} 的列表，role 为 {'、'.join(ROLES)}",
        ),
    )


def with_system(system: str | None, turns: Messages) -> Messages:
    """The messages with a system message before them where they bring none of their own: never two."""
    if not system or any(m["role"] in SYSTEM for m in turns):
        return turns
    return [{"role": "system", "content": system}, *turns]

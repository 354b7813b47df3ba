"""What a record of the data holds as a prompt: its words, its messages, its objects."""

from __future__ import annotations

from typing import Any

from anygrpo.errors import DataError
from anygrpo.language.tasks.messages import parsed
from anygrpo.language.tasks.pictures import MARK, parts, references
from anygrpo.spoken import Text


def words_of(prompt: Any) -> str:
    """What a prompt's tokens are made from: its text, or the text of its messages."""
    content = content_of(prompt)
    if isinstance(content, str):
        return content
    text = lambda part: str(part.get("text") or "") if isinstance(part, dict) else str(part)  # noqa: E731
    return "\n".join("".join(map(text, parts(message["content"]))) for message in content)


def object_of(columns: dict[str, Any], name: str) -> dict[str, Any]:
    """A column that holds an object, or the JSON of one.

    Raises:
        DataError: anything else.
    """
    value = parsed(columns.get(name))
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise DataError(
            Text(
                f"{name} = {str(value)[:60]!r} of a row is a {type(value).__name__}",
                f"一行的 {name} = {str(value)[:60]!r} 是 {type(value).__name__}",
            ),
            Text("give an object", "请给出对象"),
        )
    return value


def content_of(prompt: Any) -> Any:
    """The text or messages of a prompt record.

    Raises:
        DataError: no "prompt" in the record, or a prompt that is neither a text nor messages.
    """
    content = prompt.get("prompt") if isinstance(prompt, dict) else prompt
    good = isinstance(content, str) or (
        isinstance(content, list)
        and content
        and all(isinstance(m, dict) and {"role", "content"} <= m.keys() for m in content)
    )
    if not good:
        raise DataError(
            Text(
                f"a prompt must be a text or a list of messages with role and content, found {str(content)[:80]!r}",
                f"提示应为文本，或带 role 与 content 的消息列表，现为 {str(content)[:80]!r}",
            ),
            Text('give each record a "prompt"', '请给每条记录一个 "prompt"'),
        )
    return content


def waits(prompt: Any) -> bool:
    """Whether the words of a prompt without pictures hold the mark of one."""
    content = content_of(prompt)
    return not references(content) and MARK in words_of(prompt)

"""Keys, tokens and passwords among another trainer's settings: that they are set is told, what they are is not."""

from __future__ import annotations

import json
import re
from typing import Any

SET = "(set)"
_NAME = re.compile(r"(?:^|[._\-/])(?P<of>[a-z0-9]*?)[._\-]?(?P<what>key|token|secret|password|passwd|credentials?)$")
_PLAIN = (
    "prompt", "input", "label", "answer", "image", "images", "video", "videos", "audio", "audios", "fn", "metric",
    "tool", "tools", "messages", "message", "system", "response", "output", "query", "question", "dict", "history",
    "solution", "reward", "target", "eos", "bos", "pad", "unk", "sep", "cls", "mask", "stop", "think", "placeholder",
    "special", "text", "content", "chat", "sort", "group",
)  # fmt: skip
"""What a name of a column, of a measure or of a special token is before its `key` or `token`."""
_SOURCE = re.compile(
    r"""(?P<name>\b[\w.\-]*(?:key|token|secret|password|passwd|credentials?))(?P<is>["']?\]?\s*(?::\s*str\s*)?[=:]\s*)"""
    r"""(?P<mark>["'])(?P<value>(?:(?!(?P=mark)).)*)(?P=mark)""",
    re.IGNORECASE,
)
_LIKE_A_KEY = re.compile(r"[\w\-./+=:~]{12,}")
"""A key or token in source: a mark of an answer's format ("<think>") is none."""


def secret(name: str) -> bool:
    """Whether a setting of this name holds what only its owner should read: `hub_token`, `logger.wandb.key`."""
    found = _NAME.search(name.lower())
    return found is not None and not (found["what"] in ("key", "token") and found["of"] in _PLAIN)


def hidden(given: Any, name: str = "") -> Any:
    """Settings with "(set)" in place of each secret value, in tables and lists inside them too."""
    if given is None or isinstance(given, bool):
        return given
    if secret(name):
        return SET
    if isinstance(given, dict):
        return {key: hidden(value, str(key)) for key, value in given.items()}
    if isinstance(given, list | tuple):
        return [hidden(value) for value in given]
    if isinstance(given, str):
        return _text(given)
    return given


def _text(given: str) -> str:
    """A value that holds settings itself: a JSON table, `NAME=value` words."""
    if given.lstrip().startswith("{"):
        try:
            table = json.loads(given)
        except (ValueError, RecursionError):
            return hidden_source(given)
        return json.dumps(hidden(table), ensure_ascii=False)
    name, equals, _ = given.partition("=")
    return f"{name}={SET}" if equals and re.fullmatch(r"[\w.\-+]+", name) and secret(name) else given


def hidden_source(text: str) -> str:
    """Python source, or a text with some in it, with "(set)" in place of the strings given to secret names."""

    def put(found: re.Match[str]) -> str:
        name = found["name"].lower()
        sure = secret(name) and (not name.endswith(("key", "token")) or _LIKE_A_KEY.fullmatch(found["value"]))
        return f"{found['name']}{found['is']}{found['mark']}{SET}{found['mark']}" if sure else found[0]

    return _SOURCE.sub(put, text)


def hidden_words(command: list[str]) -> list[str]:
    """Words of a command, the values of secret ones left out: `NAME=value`, `--name value`, `--name=value`."""
    out, before = list[str](), ""
    for word in command:
        own = before.startswith("--") and "=" not in before and secret(before) and not word.startswith("--")
        out.append(SET if own else _text(word))
        before = word
    return out

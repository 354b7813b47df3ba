"""What a model is told of a tool: a JSON schema from a function's signature and docstring."""

from __future__ import annotations

from typing import Any

from anygrpo.core import user_code
from anygrpo.errors import ConfigError


def schemas_of(tools: tuple[str, ...]) -> list[dict[str, Any]]:
    """Schemas of functions named as "path.py:name", in order.

    Raises:
        ConfigError: two of one name, not a function, or one without types or a docstring. DataError: no such file.
    """
    made = [schema_of(user_code.load(spec), spec) for spec in tools]
    names = [one["function"]["name"] for one in made]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ConfigError(f"two tools are called {twice[0]!r}", "give one of them another name")
    return made


def schema_of(function: Any, spec: str) -> dict[str, Any]:
    """{"type": "function", "function": {name, description, parameters, ...}}, as transformers makes it."""
    from transformers.utils.chat_template_utils import get_json_schema

    if not callable(function):
        raise ConfigError(f"{spec} is a {type(function).__name__}, no function", "name a function")
    try:
        return get_json_schema(function)
    except Exception as error:  # its own exceptions are of several kinds
        raise ConfigError(
            f"{spec}: no schema can be made of its signature: {str(error).strip().splitlines()[0]}",
            "give each argument a type, and a docstring that describes the function and, under Args:, each argument",
        ) from None


def check_schemas(tools: Any, where: str) -> list[dict[str, Any]]:
    """Schemas that an environment gives, in the form of the others.

    Raises:
        ConfigError: not a list of them.
    """
    if tools is None:
        return []
    made = []
    for tool in tools if isinstance(tools, list) else [tools]:
        inner = tool.get("function", tool) if isinstance(tool, dict) else None
        if not isinstance(inner, dict) or not isinstance(inner.get("name"), str):
            raise ConfigError(
                f"{where}: a tool is {str(tool)[:60]!r}", "give {name, description, parameters}, or a function"
            )
        made.append(tool if "function" in tool else {"type": "function", "function": tool})
    return made

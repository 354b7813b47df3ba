"""What a model is told of a tool: a JSON schema from a function's signature and docstring."""

from __future__ import annotations

import inspect
from typing import Any

from anygrpo.core import user_code
from anygrpo.errors import ConfigError
from anygrpo.language.tools import replies
from anygrpo.language.tools.contract import named_call, said_of
from anygrpo.spoken import Text


def schemas_of(tools: tuple[str, ...]) -> list[dict[str, Any]]:
    """Schemas of functions named as "path.py:name", in order.

    Raises:
        ConfigError: two of one name, not a function, or one without types or a docstring, or that cannot be called with
            its arguments by name. DataError: no such file.
    """
    made = [schema_of(user_code.load(spec), spec) for spec in tools]
    names = [one["function"]["name"] for one in made]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ConfigError(
            Text(f"two tools are called {twice[0]!r}", f"有两个工具都叫 {twice[0]!r}"),
            Text("give one of them another name", "请给其中一个换名称"),
        )
    return made


def schema_of(function: Any, spec: str) -> dict[str, Any]:
    """{"type": "function", "function": {name, description, parameters, ...}}, as transformers makes it."""
    from transformers.utils.chat_template_utils import get_json_schema

    if not callable(function) or inspect.isclass(function):
        raise ConfigError(
            Text(f"{spec} is ", f"{spec} 是 ") + replies.shown(function) + Text(", no function", "，不是函数"),
            Text("name a function", "请给出函数"),
        )
    try:
        made = get_json_schema(function)
    except Exception as error:  # its own exceptions are of several kinds
        raise ConfigError(
            Text(
                f"{spec}: no schema can be made of its signature: {str(error).strip().splitlines()[0]}",
                f"{spec}：不能从它的签名得到 schema：{str(error).strip().splitlines()[0]}",
            ),
            Text(
                "give each argument a type, and a docstring that describes the function and, under "
                "Args:, each argument",
                "请给每个参数标注类型，并写文档字符串，描述函数，以及 Args: 下的每个参数",
            ),
        ) from None
    name = spec.rpartition(":")[2]
    made["function"]["name"] = name  # what a call is looked up by
    if wrong := named_call(name, function, list(made["function"]["parameters"].get("properties", {}))):
        raise ConfigError(*said_of(wrong))
    return made

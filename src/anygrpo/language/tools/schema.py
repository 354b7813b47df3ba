"""What a model is told of a tool: a JSON schema from a function's signature and docstring."""

from __future__ import annotations

from typing import Any

from anygrpo.core import user_code
from anygrpo.errors import ConfigError
from anygrpo.spoken import Text


def schemas_of(tools: tuple[str, ...]) -> list[dict[str, Any]]:
    """Schemas of functions named as "path.py:name", in order.

    Raises:
        ConfigError: two of one name, not a function, or one without types or a docstring. DataError: no such file.
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

    if not callable(function):
        raise ConfigError(
            Text(
                f"{spec} is a {type(function).__name__}, no function", f"{spec} 是 {type(function).__name__}，不是函数"
            ),
            Text("name a function", "请给出函数"),
        )
    try:
        return get_json_schema(function)
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
                Text(f"{where}: a tool is {str(tool)[:60]!r}", f"{where}：工具为 {str(tool)[:60]!r}"),
                Text(
                    "give {name, description, parameters}, or a function",
                    "请给出 {name, description, parameters}，或函数",
                ),
            )
        made.append(tool if "function" in tool else {"type": "function", "function": tool})
    return made

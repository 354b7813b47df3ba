"""What an environment or a tool of the user's has to be, seen before anything is asked of it: what it defines, and that
it can be called as it will be. No torch.

What is not kept is {"fault": a kind, "by": whose, "found": ...}, which `said_of` says.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any

from anygrpo.language.tools.replies import shown
from anygrpo.spoken import Text


def contract(name: str, made: Any, arguments: dict[str, Any]) -> dict[str, str] | None:
    """Why `made` cannot be an environment, for `said_of`; None where it can.

    Args:
        arguments: the recipe's `turns.arguments`, of a class.
    """
    if not callable(made) and not hasattr(made, "step"):
        return {"fault": "neither", "by": name, "found": shown(made).en, "zh": shown(made).zh}
    if inspect.isclass(made) or hasattr(made, "step"):
        return _of_object(name, made, arguments)
    if arguments:
        return {"fault": "arguments", "by": name, "found": ", ".join(sorted(arguments))}
    return _callable(name, made, ("messages", "columns"))


def _of_object(name: str, made: Any, arguments: dict[str, Any]) -> dict[str, str] | None:
    for method in ("reset", "step"):
        found = inspect.getattr_static(made, method, None)
        there = callable(getattr(made, method, None)) or isinstance(found, property)
        if not there and not (found is None and _gives_itself(made)):
            return {"fault": "missing", "by": name, "found": method}
    if inspect.isclass(made):
        if undefined := sorted(getattr(made, "__abstractmethods__", ())):
            return {"fault": "missing", "by": name, "found": ", ".join(undefined)}
        if wrong := _bound(name, made, (), arguments):
            return wrong
    elif arguments:
        return {"fault": "arguments", "by": name, "found": ", ".join(sorted(arguments))}
    for method, given in (("reset", ("row",)), ("step", ("messages", "calls"))):
        found = inspect.getattr_static(made, method, None)
        own = inspect.isclass(made) and not isinstance(found, staticmethod | classmethod | property)
        target = getattr(made, method, None)
        if callable(target) and (wrong := _callable(f"{name}.{method}", target, given, own)):
            return wrong
    return None


def _gives_itself(made: Any) -> bool:
    """Whether objects of a class may have what the class has not: set when they are made, or by `__getattr__`. Whether
    they do is seen of the object."""
    own = ("__init__", "__new__", "__getattr__", "__getattribute__")
    return inspect.isclass(made) and any(name in vars(kind) for kind in made.__mro__[:-1] for name in own)


def _callable(by: str, made: Callable[..., Any], given: tuple[str, ...], own: bool = False) -> dict[str, str] | None:
    """`own`: a method seen through its class, so that `self` comes before what is given."""
    if inspect.isgeneratorfunction(made) or inspect.isasyncgenfunction(made):
        return {"fault": "yields", "by": by, "found": ""}
    return _bound(by, made, ("self", *given) if own else given, {})


def _bound(by: str, made: Callable[..., Any], given: Iterable[str], named: dict[str, Any]) -> dict[str, str] | None:
    try:
        signature = inspect.signature(made)
    except (TypeError, ValueError):  # a built-in without one
        return None
    call = ", ".join([*(one for one in given if one != "self"), *(f"{key}=..." for key in named)])
    try:
        signature.bind(*given, **named)
    except TypeError as error:
        return {"fault": "call", "by": by, "found": str(error), "call": f"{by}({call})", "takes": str(signature)}
    return None


def named_call(name: str, tool: Callable[..., Any], arguments: list[str]) -> dict[str, str] | None:
    """Why a tool cannot be called with its arguments by name, as a model calls it."""
    if inspect.isgeneratorfunction(tool) or inspect.isasyncgenfunction(tool):
        return {"fault": "yields", "by": name, "found": ""}
    wrong = _bound(name, tool, (), dict.fromkeys(arguments))
    return wrong and {**wrong, "fault": "tool"}


def said_of(fault: dict[str, str]) -> tuple[Text, Text]:
    """(what is wrong, what to do) of a `contract` that is not kept."""
    by, found = fault["by"], fault["found"]
    if fault["fault"] == "missing":
        what = Text(f"{by} does not define {found}", f"{by} 没有定义 {found}")
    elif fault["fault"] == "yields":
        what = Text(f"{by} is a generator: it has a yield", f"{by} 是生成器：其中有 yield")
        return what, Text("return what is said instead", "请改用 return 返回要说的话")
    elif fault["fault"] == "arguments":
        what = Text(
            f"turns.arguments gives {found}, and {by} is no class: nothing takes them",
            f"turns.arguments 给了 {found}，而 {by} 不是类：没有谁接收它们",
        )
        return what, Text("name a class, or take the arguments away", "请给出类，或去掉这些参数")
    elif fault["fault"] == "neither":
        what = Text(f"{by} is {found}, no class and no function", f"{by} 是 {fault['zh']}，既不是类也不是函数")
    else:
        what = Text(
            f"{by} cannot be called as {fault['call']}: {found} (it takes {fault['takes']})",
            f"{by} 不能按 {fault['call']} 调用：{found}（它接受 {fault['takes']}）",
        )
    if fault["fault"] == "tool":
        return what, Text("give it arguments that can be named: no * and no /", "请用可按名给出的参数：不要 * 和 /")
    return what, Text(
        "an environment is a class with reset(row) and step(messages, calls), or a function (messages, columns)",
        "环境是带 reset(row) 与 step(messages, calls) 的类，或函数 (messages, columns)",
    )

"""What is said where a method of a user's own class is missing, raises or returns otherwise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from anygrpo.core.plain_tensors import DENSE, unusable
from anygrpo.core.policy import Policy
from anygrpo.core.user_code import describe, described
from anygrpo.errors import AnygrpoError, ConfigError
from anygrpo.spoken import NOTHING, Text, said


def instance(made: Any, base: type, where: str) -> None:
    """Raises: ConfigError where what a user's function made does not derive from `base` (Policy or Task), or lacks a
    method of it, or trains no module."""
    methods = sorted(getattr(base, "__abstractmethods__", ()))
    missing = [name for name in methods if not callable(getattr(made, name, None))]
    name = type(made).__name__
    if not isinstance(made, base):
        lacks = f", and lacks {', '.join(missing)}" if missing else ""
        lacks_zh = f"，且缺少 {'、'.join(missing)}" if missing else ""
        own = type(made).__module__ != "builtins"  # a number or a list is no class of the user's to change
        raise ConfigError(
            Text(
                f"{where} returned a {name}, which does not derive from anygrpo.{base.__name__}{lacks}",
                f"{where} 返回了 {name}，它不是 anygrpo.{base.__name__} 的子类{lacks_zh}",
            ),
            Text(
                f"write class {name if own else 'Mine'}(anygrpo.{base.__name__}) and define {', '.join(methods)}"
                + ("" if own else "; return one of it"),
                f"写成 class {name if own else 'Mine'}(anygrpo.{base.__name__})，并定义 {'、'.join(methods)}"
                + ("" if own else "；返回它的对象"),
            ),
        )
    if missing:
        raise ConfigError(
            Text(f"{name} ({where}) has {missing[0]} = None", f"{name}（{where}）的 {missing[0]} = None"),
            Text(f"define {', '.join(missing)}", f"请定义 {'、'.join(missing)}"),
        )
    if isinstance(made, Policy) and not isinstance(module := called(made, "trainable"), nn.Module):
        wrong(made, "trainable", a_kind(module), Text("a torch.nn.Module", "torch.nn.Module"))


def called(by: Any, method: str, *arguments: Any) -> Any:
    """What the user's method returns.

    Raises:
        ConfigError: it is no method, or raised something; the place is named.
    """
    function: Callable[..., Any] | None = getattr(by, method, None)
    if not callable(function):
        raise ConfigError(
            Text(
                f"{type(by).__name__}.{method} is {function!r}, not a method",
                f"{type(by).__name__}.{method} 是 {function!r}，不是方法",
            ),
            Text("define it", "请定义它"),
        )
    try:
        return function(*arguments)
    except AnygrpoError:
        raise
    except (Exception, SystemExit) as error:
        inside = error.__traceback__ is not None and error.__traceback__.tb_next is not None
        what = describe(error) if inside else described(error)  # it could not even be called: no line of theirs
        name = f"{type(by).__name__}.{method}"
        raise ConfigError(Text(f"{name} raised {what}", f"{name} 抛出 {what}"), Text("mend it", "请修正")) from error


def of_type(by: Any, method: str, found: Any, wanted: type, what: str = "") -> None:
    if not isinstance(found, wanted):
        named = wanted.__name__ if wanted in (Tensor, dict) else f"anygrpo.{wanted.__name__}"
        wrong(by, method, (Text(f"{what} as ", f"{what} 为") if what else NOTHING) + a_kind(found), _named(named))


def dense(by: Any, method: str, x: Tensor, name: str) -> None:
    if why := unusable(x):
        wrong(by, method, Text(f"{name} of {why}", f"{why} 的 {name}"), DENSE)


def a_kind(value: Any) -> Text:
    """ "a list"."""
    return _named(type(value).__name__)


def _named(name: str) -> Text:
    return Text(f"{'an' if name[0] in 'aeiouAEIOU' else 'a'} {name}", f"一个 {name}")


def wrong(by: Any, method: str, found: str | Text, wanted: str | Text) -> None:
    """Raises: ConfigError that names the user's method, what it gave and what it has to give."""
    name, found, wanted = f"{type(by).__name__}.{method}", said(found), said(wanted)
    raise ConfigError(
        Text(f"{name} returned {found}", f"{name} 返回了 {found}"), Text(f"it has to be {wanted}", f"应当是 {wanted}")
    )

"""A user's own code, named as `path.py:name`, relative to the current folder. Standard library only: workers use it."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
import sysconfig
from pathlib import Path
from typing import Any

from anygrpo.errors import AnygrpoError, ConfigError, DataError, suggestion
from anygrpo.spoken import Text, say


def check(spec: str) -> None:
    """Raises: ConfigError where `spec` is not path.py:name; DataError where there is no such file."""
    path, _, name = spec.rpartition(":")
    if not path.endswith(".py") or not name.isidentifier():
        raise ConfigError(
            Text(f"{spec!r} does not name an object in a file", f"{spec!r} 没有指向文件中的对象"),
            Text('write it as "path.py:name"', '写作 "path.py:名称"'),
        )
    if not Path(path).is_file():
        raise DataError(
            Text(
                f"no file {path} (for {spec!r}), looked in {Path.cwd()}",
                f"没有文件 {path}（{spec!r}），在 {Path.cwd()} 中查找",
            ),
            Text("correct the path", "请改正路径"),
        )


def missing(spec: str, name: str, known: tuple[str, ...]) -> ConfigError:
    """The error for a file that does not define `name`."""
    hint = suggestion(name, known) if known else say("the file defines nothing", "该文件没有定义任何东西")
    return ConfigError(
        Text(
            f"{spec.rpartition(':')[0]} has no {name!r}; {hint}", f"{spec.rpartition(':')[0]} 中没有 {name!r}；{hint}"
        ),
        Text("define it there, or correct the name", "请在其中定义，或改正名称"),
    )


def load(spec: str) -> Any:
    """The object that `spec` names.

    Raises:
        ConfigError: a malformed spec, a file without that name, or a file that fails when it runs.
        DataError: no such file.
    """
    check(spec)
    try:
        return resolve(spec)
    except AttributeError as error:
        if len(error.args) == 3:
            raise missing(spec, error.args[1], tuple(error.args[2])) from None
        raise ConfigError(
            Text(
                f"running {spec.rpartition(':')[0]} failed: {describe(error)}",
                f"运行 {spec.rpartition(':')[0]} 失败：{describe(error)}",
            ),
            Text("mend it", "请修正"),
        ) from error
    except Exception as error:
        raise ConfigError(
            Text(
                f"running {spec.rpartition(':')[0]} failed: {describe(error)}",
                f"运行 {spec.rpartition(':')[0]} 失败：{describe(error)}",
            ),
            Text("mend it", "请修正"),
        ) from error


def resolve(target: str) -> Any:
    """What `target` names: "path.py:name", or "package.module:name". Files beside a file can be imported by it.

    Raises:
        FileNotFoundError: no such file.
        AttributeError: the file has no such name; args are (message, name, names it has).
        Exception: whatever running the file raises.
    """
    place, _, name = target.rpartition(":")
    if place.endswith(".py"):
        path = Path(place).resolve()
        if not path.is_file():
            raise FileNotFoundError(f"no file {path}")
        if str(path.parent) not in sys.path:
            sys.path.insert(0, str(path.parent))
        spec = importlib.util.spec_from_file_location(f"user_{path.stem}", path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        spec.loader.exec_module(module)
    else:
        module = importlib.import_module(place)
    if not hasattr(module, name):
        own = [n for n, value in vars(module).items() if callable(value) and not n.startswith("_")]
        raise AttributeError(f"{place} has no {name!r}", name, own)
    return getattr(module, name)


def made(spec: str, arguments: dict[str, Any], **given: Any) -> Any:
    """What the function or class that `spec` names returns for (**given, **arguments). One way and one error for all
    user code that a recipe names by `function` and `arguments`. Of `given` (the recipe's seed) it gets what it takes.

    Raises:
        ConfigError: a malformed spec, a file that fails, a call that does not fit, or one that raises.
        DataError: no such file.
    """
    function = load(spec)
    given = {name: value for name, value in given.items() if _takes(function, name)}
    try:
        return function(**given, **arguments)
    except AnygrpoError:
        raise
    except TypeError as error:
        inside = error.__traceback__ is not None and error.__traceback__.tb_next is not None
        if inside:
            raise ConfigError(
                Text(f"{spec} raised {describe(error)}", f"{spec} 抛出 {describe(error)}"), Text("mend it", "请修正")
            ) from error
        names = sorted({*given, *arguments})
        words = ", ".join([*(f"{n}={n}" for n in given), "**arguments"])
        call = f"{spec.rpartition(':')[2]}({words})"
        cure = Text(f"it is called as {call}", f"它按 {call} 调用")
        raise ConfigError(
            Text(f"{spec} cannot be called with {names}: {error}", f"{spec} 不能以 {names} 调用：{error}"), cure
        ) from error
    except Exception as error:
        raise ConfigError(
            Text(f"{spec} raised {describe(error)}", f"{spec} 抛出 {describe(error)}"), Text("mend it", "请修正")
        ) from error


def _takes(function: Any, name: str) -> bool:
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):  # a built-in without one, or nothing that can be called
        return True
    return name in parameters or any(p.kind == p.VAR_KEYWORD for p in parameters.values())


def users_place(error: BaseException) -> str | None:
    """ "file.py:12 in score", where an exception came out of a file that is neither ours nor an installed package's."""
    trace, place = error.__traceback__, None
    installed = tuple(sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib"))
    ours = str(Path(__file__).parents[1])
    while trace is not None:
        code = trace.tb_frame.f_code
        if not code.co_filename.startswith((*installed, ours, "<")) and "site-packages" not in code.co_filename:
            place = f"{code.co_filename}:{trace.tb_lineno} in {code.co_name}"
        trace = trace.tb_next
    return place


def describe(error: BaseException) -> str:
    """One line: the exception and, where it was raised in a file, the place."""
    trace, place = error.__traceback__, ""
    while trace is not None:
        place = f" ({Path(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno})"
        trace = trace.tb_next
    return described(error)[:300].replace("\n", " ") + place


def described(error: BaseException) -> str:
    """The exception and what it says, were it even unable to say it."""
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:
        return f"{type(error).__name__} (its text fails)"

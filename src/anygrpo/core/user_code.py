"""A user's own code, named as `path.py:name`, relative to the current folder. Standard library only: workers use it."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from typing import Any

from anygrpo.errors import AnygrpoError, ConfigError, DataError, suggestion


def check(spec: str) -> None:
    """Raises: ConfigError where `spec` is not path.py:name; DataError where there is no such file."""
    path, _, name = spec.rpartition(":")
    if not path.endswith(".py") or not name.isidentifier():
        raise ConfigError(f"{spec!r} does not name an object in a file", 'write it as "path.py:name"')
    if not Path(path).is_file():
        raise DataError(f"no file {path} (for {spec!r}), looked in {Path.cwd()}", "correct the path")


def missing(spec: str, name: str, known: tuple[str, ...]) -> ConfigError:
    """The error for a file that does not define `name`."""
    hint = suggestion(name, known) if known else "the file defines nothing"
    return ConfigError(f"{spec.rpartition(':')[0]} has no {name!r}; {hint}", "define it there, or correct the name")


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
        raise ConfigError(f"running {spec.rpartition(':')[0]} failed: {describe(error)}", "mend it") from error
    except Exception as error:
        raise ConfigError(f"running {spec.rpartition(':')[0]} failed: {describe(error)}", "mend it") from error


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
    user code that a recipe names by `function` and `arguments`.

    Raises:
        ConfigError: a malformed spec, a file that fails, a call that does not fit, or one that raises.
        DataError: no such file.
    """
    function = load(spec)
    try:
        return function(**given, **arguments)
    except AnygrpoError:
        raise
    except TypeError as error:
        inside = error.__traceback__ is not None and error.__traceback__.tb_next is not None
        if inside:
            raise ConfigError(f"{spec} raised {describe(error)}", "mend it") from error
        names = sorted({*given, *arguments})
        words = ", ".join([*(f"{n}={n}" for n in given), "**arguments"])
        cure = f"it is called as {spec.rpartition(':')[2]}({words})"
        raise ConfigError(f"{spec} cannot be called with {names}: {error}", cure) from error
    except Exception as error:
        raise ConfigError(f"{spec} raised {describe(error)}", "mend it") from error


def describe(error: BaseException) -> str:
    """One line: the exception and, where it was raised in a file, the place."""
    trace, place = error.__traceback__, ""
    while trace is not None:
        place = f" ({Path(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno})"
        trace = trace.tb_next
    return f"{type(error).__name__}: {error}"[:300].replace("\n", " ") + place

"""Loading a user's code named as `path.py:name`, relative to the current folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from anygrpo.errors import ConfigError, DataError, suggestion
from anygrpo.tasks import _worker


def check(spec: str) -> None:
    """Raises: ConfigError where `spec` is not path.py:name; DataError where there is no such file."""
    path, _, name = spec.rpartition(":")
    if not path.endswith(".py") or not name.isidentifier():
        raise ConfigError(f"{spec!r} does not name a function in a file", 'write it as "path/file.py:name"')
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
        return _worker.load(spec)
    except AttributeError as error:
        if len(error.args) == 3:
            raise missing(spec, error.args[1], tuple(error.args[2])) from None
        raise ConfigError(f"running {spec.rpartition(':')[0]} failed: {_worker.describe(error)}", "mend it") from error
    except Exception as error:
        raise ConfigError(f"running {spec.rpartition(':')[0]} failed: {_worker.describe(error)}", "mend it") from error

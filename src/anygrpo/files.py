"""Loading a user's own code, named as `path.py:name`; where the user's cache is."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from typing import Any

from anygrpo.errors import ConfigError, DataError, suggestion


def cache_folder() -> Path:
    """$XDG_CACHE_HOME/anygrpo, or ~/.cache/anygrpo."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "anygrpo"


def load_object(spec: str) -> Any:
    """The object `name` that the file of `path.py:name` defines; the path is relative to the current folder.

    Raises:
        ConfigError: a malformed spec, a file without that name, or one that fails when it runs.
        DataError: no such file.
    """
    path, _, name = spec.rpartition(":")
    if not path.endswith(".py") or not name.isidentifier():
        raise ConfigError(f"{spec!r} does not name an object in a file", 'write it as "path.py:function"')
    file = Path(path)
    if not file.is_file():
        raise DataError(f"no file {path} (for {spec!r}), looked in {Path.cwd()}", "correct the path")
    module_spec = importlib.util.spec_from_file_location(f"anygrpo_user_{file.stem}", file)
    assert module_spec is not None
    assert module_spec.loader is not None
    module = importlib.util.module_from_spec(module_spec)
    try:
        module_spec.loader.exec_module(module)
    except Exception as error:
        raise ConfigError(f"running {path} failed: {type(error).__name__}: {error}", "mend it") from error
    if not hasattr(module, name):
        known = [key for key in vars(module) if not key.startswith("_")]
        raise ConfigError(f"{path} defines no {name!r}", suggestion(name, known) if known else "define it there")
    return getattr(module, name)

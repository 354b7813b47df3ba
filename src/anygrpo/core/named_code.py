"""The user's own functions that a recipe names: looked up before a run is built."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from anygrpo.core import user_code
from anygrpo.errors import ConfigError
from anygrpo.recipe.recipe import Recipe
from anygrpo.recipe.section import is_user_code
from anygrpo.spoken import Text


def named(recipe: Recipe) -> list[str]:
    """Every "path.py:name" of the recipe and of its stages, in the order of the file."""
    tables = [recipe, *(part for stage in recipe.resolved_stages() for part in (stage.algorithm, stage.task))]
    return list(dict.fromkeys(spec for table in tables for spec in _specs(table.model_dump())))


def look_up(recipe: Recipe) -> list[str]:
    """Each of them, found: its file is run, as a run would.

    Raises:
        DataError: no such file.
        ConfigError: no such name in it, a file that fails, or something that cannot be called.
    """
    found = named(recipe)
    for spec in found:
        made = user_code.load(spec)
        if not callable(made):
            kind, name = type(made).__name__, spec.rpartition(":")[2]
            raise ConfigError(
                Text(f"{spec} is {kind}, no function", f"{spec} 是 {kind}，不是函数"),
                Text(f"define `def {name}(...)` or `class {name}`", f"请定义 `def {name}(...)` 或 `class {name}`"),
            )
    return found


def _specs(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        if is_user_code(value) and not any(c.isspace() for c in value.rpartition("/")[2]):  # no sentence of a prompt
            yield value
    elif isinstance(value, dict | list | tuple):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _specs(inner)

"""The sections of a recipe that a family defines, found by their `kind`."""

from __future__ import annotations

from typing import Any

from anygrpo.errors import ConfigError
from anygrpo.families import kind_of, kinds, resolve
from anygrpo.recipe.section import Section


def section_of(table: str, value: Any) -> type[Section]:
    """The class that validates the table [policy] or [task].

    Raises:
        ConfigError: no `kind`, or one that no family has.
    """
    if isinstance(value, Section):
        return type(value)
    if not isinstance(value, dict):
        raise ConfigError(f"{table} is missing" if value is None else f"{table} = {value!r} is not a table")
    if "kind" not in value:
        raise ConfigError(f"{table}.kind is missing", f"it is one of {', '.join(kinds(table))}")
    found: type[Section] = resolve(kind_of(table, value["kind"]).settings)
    return found


def check_forms(policy: str, task: str) -> None:
    """A task takes what the policy puts out.

    Raises:
        ConfigError: it takes something else; both are named.
    """
    out, taken = kind_of("policy", policy).form, kind_of("task", task).form
    if "any" not in (out, taken) and out != taken:
        fitting = [name for name, kind in kinds("task").items() if kind.form in (out, "any")]
        raise ConfigError(
            f"policy.kind = {policy!r} puts out {out}, and task.kind = {task!r} takes {taken}",
            f"tasks for it: {', '.join(fitting)}",
        )

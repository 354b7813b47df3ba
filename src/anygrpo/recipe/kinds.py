"""The sections of a recipe that a family defines, found by their `kind`."""

from __future__ import annotations

from typing import Any

from anygrpo.errors import ConfigError
from anygrpo.families import kind_of, kinds, resolve
from anygrpo.recipe.section import Section
from anygrpo.spoken import Text


def section_of(table: str, value: Any) -> type[Section]:
    """The class that validates the table [policy] or [task].

    Raises:
        ConfigError: no `kind`, or one that no family has.
    """
    if isinstance(value, Section):
        return type(value)
    if not isinstance(value, dict):
        raise ConfigError(
            Text(f"{table} is missing", f"缺少表 {table}")
            if value is None
            else Text(f"{table} = {value!r} is not a table", f"{table} = {value!r} 不是表")
        )
    if "kind" not in value:
        raise ConfigError(
            Text(f"{table}.kind is missing", f"缺少 {table}.kind"),
            Text(f"it is one of {', '.join(kinds(table))}", f"可选：{'、'.join(kinds(table))}"),
        )
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
            Text(
                f"policy.kind = {policy!r} puts out {out}, and task.kind = {task!r} takes {taken}",
                f"policy.kind = {policy!r} 输出 {out}，而 task.kind = {task!r} 接收 {taken}",
            ),
            Text(f"tasks for it: {', '.join(fitting)}", f"适用的任务：{'、'.join(fitting)}"),
        )

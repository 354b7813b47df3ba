"""The registry of families: which kinds of policy and task there are, and where each one's parts lie.

A family is a folder with a `family.py` that holds one `FAMILY`: strings "module:name" by purpose, resolved when
used. Built-in families are found by their file, others by the entry point group `anygrpo.families`, whose values name
a `FAMILY` too. Standard library only: to know what exists loads nothing.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from anygrpo.errors import ConfigError, suggestion
from anygrpo.spoken import Text, say

GROUP = "anygrpo.families"


@dataclass(frozen=True)
class Kind:
    """One `kind` of a recipe's [policy] or [task].

    Attributes:
        settings: its pydantic section.
        build: (section, seed) -> the policy or task.
        form: what the policy puts out, or the task takes: "text", "picks", ... ("any" fits everything).
        also: other words for it, which are answered with its name.
    """

    settings: str
    build: str
    form: str
    also: tuple[str, ...] = ()


@dataclass(frozen=True)
class Family:
    """What a family brings, as strings "module:name".

    Attributes:
        policies, tasks: by kind.
        metrics: tuples of `Metric` for the catalogue.
        probes: name of a probe of `anygrpo check` -> (subject) -> an Outcome, or the rows that it adds to a shared one.
        cards: tuples of `Card`: the rewards that the family brings, for `anygrpo explain` and its page.
        pages: (rows of the first evaluation, of the last, language) -> (heading, HTML) of a section of report.html, or
            None where it has nothing to show.
        tables: (rows of metrics.jsonl, language) -> the same, of the run's numbers.
        memory: (recipe, ranks) -> numbers that --dry-run prints, or None for recipes it says nothing about.
        export: (policy, folder, ...) -> files, in the form that the family's own library loads.
        apply: (policy, inputs, out, ...) -> rows: what a trained policy is used for.
        load: (path, like, **settings) -> a policy from an export or a base model, used as the section `like` says (or
            None); None where the path is nothing of its own.
        commands: word of the command line -> (module with `add_parser` and `run`, its help).
    """

    name: str
    policies: Mapping[str, Kind] = field(default_factory=dict[str, Kind])
    tasks: Mapping[str, Kind] = field(default_factory=dict[str, Kind])
    metrics: tuple[str, ...] = ()
    probes: Mapping[str, str] = field(default_factory=dict[str, str])
    cards: tuple[str, ...] = ()
    pages: tuple[str, ...] = ()
    tables: tuple[str, ...] = ()
    memory: str | None = None
    export: str | None = None
    apply: str | None = None
    load: str | None = None
    commands: Mapping[str, tuple[str, str | Text]] = field(default_factory=dict[str, tuple[str, str | Text]])

    def strings(self) -> list[str]:
        """All that it names."""
        kinds = [*self.policies.values(), *self.tasks.values()]
        named = [text for kind in kinds for text in (kind.settings, kind.build)]
        modules = [module for module, _ in self.commands.values()]
        return [
            *named,
            *self.metrics,
            *self.probes.values(),
            *self.cards,
            *self.pages,
            *self.tables,
            *modules,
            *filter(None, [self.memory, self.export, self.apply, self.load]),
        ]


@cache
def families() -> tuple[Family, ...]:
    """Every family, built-in ones first.

    Raises:
        ConfigError: a package's entry point names no Family, or two families have one kind.
    """
    here = Path(__file__).parent
    built_in = [f"anygrpo.{file.parent.name}.family:FAMILY" for file in sorted(here.glob("*/family.py"))]
    found = [resolve(text) for text in built_in]
    for point in metadata.entry_points(group=GROUP):
        family = resolve(point.value)
        if not isinstance(family, Family):
            raise ConfigError(
                Text(
                    f"entry point {point.name} of {GROUP}: {point.value} is a {type(family).__name__}",
                    f"{GROUP} 的入口 {point.name}：{point.value} 是 {type(family).__name__}",
                )
            )
        found.append(family)
    for what in ("policies", "tasks"):
        kinds = [kind for family in found for kind in getattr(family, what)]
        if twice := {kind for kind in kinds if kinds.count(kind) > 1}:
            raise ConfigError(
                Text(
                    f"two families have {what} of kind {sorted(twice)}", f"两个族都有 kind 为 {sorted(twice)} 的 {what}"
                ),
                Text("uninstall one of them", "请卸载其中一个"),
            )
    return tuple(found)


def resolve(text: str) -> Any:
    """The object of "module:name", or the module of "module"."""
    module, _, name = text.partition(":")
    found = importlib.import_module(module)
    return getattr(found, name) if name else found


def kinds(table: str) -> dict[str, Kind]:
    """Every kind of "policy" or "task"."""
    return {kind: made for f in families() for kind, made in (f.policies if table == "policy" else f.tasks).items()}


def kind_of(table: str, name: Any) -> Kind:
    """What is known of `kind = name` in [policy] or [task].

    Raises:
        ConfigError: no family has it.
    """
    known = kinds(table)
    if not isinstance(name, str) or name not in known:
        ours = next((kind for kind, one in known.items() if str(name).lower().replace("-", "_") in one.also), None)
        cure = suggestion(str(name), known) if ours is None else say(f"it is called {ours!r} here", f"这里叫 {ours!r}")
        cure += say("; or install the package that brings it", "；或安装提供它的包")
        raise ConfigError(
            Text(
                f"{table}.kind = {name!r} is not known: no family here has it", f"{table}.kind = {name!r} 不在可选值中"
            ),
            cure,
        )
    return known[name]


def family_of(policy_kind: str) -> Family | None:
    """The family of a kind of policy."""
    return next((family for family in families() if policy_kind in family.policies), None)

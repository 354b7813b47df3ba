"""Every setting that a recipe can have: name, type, default and sentence, read from the sections themselves.

A sentence is the text that stands below a field in its class (several in a row are one). Torch-free.
"""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, get_args, get_origin

from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from anygrpo.choices.settings import SETTINGS
from anygrpo.errors import ConfigError
from anygrpo.families import kinds, resolve
from anygrpo.recipe.chinese import CHINESE
from anygrpo.recipe.hints import meant
from anygrpo.recipe.recipe import Recipe
from anygrpo.recipe.schema import words_of
from anygrpo.recipe.section import Schedule, Section, UserFunction
from anygrpo.spoken import Text

FIXED = ("algorithm", "optimizer", "training", "evaluation", "doctor")


@dataclass(frozen=True)
class Setting:
    """One key of a table.

    Attributes:
        table: where it stands: "algorithm", "policy.causal_lm", "rewards.judge".
        name: the key. type: what it may be, with its range, in words. default: as TOML has it; "" where it must be
            given, "none" where it may be left without a value.
        sentence: what it means.
    """

    table: str
    name: str
    type: str
    default: str
    sentence: str


@cache
def tables() -> dict[str, type[Section]]:
    """Name -> section, in the order of a recipe: its own keys (""), fixed tables, stages, every kind of policy and
    task, then the tables inside these. One that several have stands once: "task.*.rewards.number"."""
    found = dict(outer())
    for section, owners in inner().items():
        found[_name(owners, found)] = section
    return found


def _name(owners: list[tuple[str, str]], taken: dict[str, type[Section]]) -> str:
    """What an inner table is called: by the one that has it; by "*"; by all, where "*" stands for another section."""
    owner, key = owners[0]
    root = owner.partition(".")[0]
    kinds_of = list(dict.fromkeys(owner.split(".")[1] for owner, _ in owners if "." in owner))
    name = f"{root}.*.{key}" if len(kinds_of) > 1 else f"{owner}.{key}"
    return f"{root}.{'|'.join(kinds_of)}.{key}" if name in taken else name


@cache
def outer() -> dict[str, type[Section]]:
    """Name -> section of what stands in no other table but the recipe: its own keys (""), fixed tables, stages, kinds
    of policies and tasks; and of what stands in place of a number or a name."""
    fields = Recipe.model_fields
    found: dict[str, type[Section]] = {"": Recipe}
    found |= {name: _sections(fields[name].annotation)[0] for name in (*FIXED, "stages")}
    for table in ("policy", "task"):
        for kind, known in kinds(table).items():
            section = resolve(known.settings)
            if section not in found.values():
                found[f"{table}.{kind}"] = section
    return found | {"schedule": Schedule, "algorithm.CHOICE": UserFunction}


@cache
def inner() -> dict[type[Section], list[tuple[str, str]]]:
    """Section of every table inside another -> (table that has it, key and kind it has there), all of them."""
    return _inside({name: section for name, section in outer().items() if name})


def _inside(found: dict[str, type[Section]]) -> dict[type[Section], list[tuple[str, str]]]:
    """Section -> the tables that have it, each with the key (and kind) it stands under there."""
    out: dict[type[Section], list[tuple[str, str]]] = {}
    queue, seen = list(found.items()), set(found.values())
    while queue:
        owner, section = queue.pop(0)
        for key, field in section.model_fields.items():
            for one in _sections(field.annotation):
                if one in seen:
                    continue
                words = (key.removeprefix("evaluation_"), _kind(one))
                place = (owner, ".".join(filter(None, words)))
                if one not in out:
                    queue.append((".".join(place), one))
                if place not in out.setdefault(one, []):
                    out[one].append(place)
    return out


def _sections(annotation: Any) -> list[type[Section]]:
    """The tables that a value of this type may be."""
    if isinstance(annotation, type) and issubclass(annotation, Section):
        return [annotation]
    if get_origin(annotation) is Annotated:
        return _sections(get_args(annotation)[0])
    return [one for arg in get_args(annotation) for one in _sections(arg)]


def _kind(section: type[Section]) -> str:
    """The word of a section's `kind`, where it has one."""
    field = section.model_fields.get("kind")
    words = get_args(field.annotation) if field is not None else ()
    return str(words[0]) if len(words) == 1 else ""


def settings(table: str) -> list[Setting]:
    """The keys of one table, by its whole name."""
    section = tables()[table]
    sentences, types = sentences_of(section), words_of(section)
    out = []
    for name, field in section.model_fields.items():
        if table == "" and name in (*FIXED, "policy", "task", "stages"):
            continue
        said = sentences.get(name) or (SETTINGS[name].en if table == "algorithm" and name in SETTINGS else "")
        said = said or ("Which of these tables it is." if name == "kind" else "")
        default = field.get_default(call_default_factory=True)
        out.append(Setting(table, name, types[name], _shown(default), " ".join(said.split())))
    return out


def meaning(one: Setting) -> Text:
    """Its sentence; the Chinese one where there is one, else English in both."""
    choice = SETTINGS.get(one.name) if one.table == "algorithm" else None
    said = choice.zh if choice is not None else CHINESE.get(one.table, {}).get(one.name)
    return Text(one.sentence, said or one.sentence)


def named(word: str) -> list[Setting]:
    """The keys of the tables that `word` names, by their whole name or its end ("algorithm", "causal_lm",
    "rewards.judge"), or every key of that name ("learning_rate").

    Raises:
        ConfigError: no table and no key is called so.
    """
    word = word.strip("[]").replace("-", "_")
    ends = [name for name in tables() if name == word or name.endswith("." + word) or word in _whole(name)]
    if word in ("policy", "task"):
        ends = [name for name in tables() if re.fullmatch(rf"{word}\.\w+", name)]
    table, _, key = word.rpartition(".")
    found = [one for name in ends for one in settings(name)]
    found = found or [
        one
        for one in every()
        if one.name == key and (not table or one.table.endswith(table) or table in _whole(one.table))
    ]
    if not found:
        ends_of = {name.rpartition(".")[2] for name in tables()}
        known = {"policy", "task"} | {one.name for one in every()} | set(tables()) | ends_of
        raise ConfigError(Text(f"there is no table or setting {word!r}", f"没有表或设置 {word!r}"), meant(word, known))
    return found


def _whole(table: str) -> list[str]:
    """Every name of an inner table: with each kind that has it (policy.stochastic.lora, policy.restorer.lora), and as
    a recipe's head writes it, which names no kind (policy.lora, task.rewards)."""
    out = list[str]()
    for owner, key in inner().get(tables()[table], ()):
        out.append(f"{owner}.{key}")
        root, *rest = owner.split(".")
        if root in ("policy", "task"):
            short = ".".join([root, *rest[1:]])
            out += [f"{short}.{key}", f"{short}.{key.partition('.')[0]}"]
    return out


def every() -> Iterator[Setting]:
    """All keys of all tables."""
    for table in tables():
        yield from settings(table)


@cache
def places() -> dict[str, tuple[str, ...]]:
    """Key -> the tables that have it, those of the recipe first."""
    out: dict[str, tuple[str, ...]] = {}
    for one in every():
        out[one.name] = (*out.get(one.name, ()), one.table)
    return out


def _shown(value: Any) -> str:
    if value is PydanticUndefined:
        return ""
    if isinstance(value, BaseModel):
        return "the table's own defaults"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_kind(type(v)) or "..." if isinstance(v, Section) else _shown(v) for v in value) + "]"
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{k} = {_shown(v)}" for k, v in value.items()) + " }" if value else "{}"
    if isinstance(value, bool):
        return str(value).lower()
    return "none" if value is None else f'"{value}"' if isinstance(value, str) else f"{value}"


@cache
def sentences_of(section: type[BaseModel]) -> dict[str, str]:
    """Key -> the text below it, of the class and those it is made from."""
    out: dict[str, str] = {}
    for one in reversed(section.__mro__):
        if issubclass(one, BaseModel) and one.__module__.partition(".")[0] not in ("pydantic", "builtins"):
            out |= _written(one)
    return out


def _written(section: type[BaseModel]) -> dict[str, str]:
    try:
        (tree,) = ast.parse(textwrap.dedent(inspect.getsource(section))).body
    except (OSError, TypeError, ValueError, SyntaxError):
        return {}
    out: dict[str, str] = {}
    key = ""
    for line in tree.body if isinstance(tree, ast.ClassDef) else ():
        if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name):
            key = line.target.id
        elif isinstance(line, ast.Expr) and isinstance(line.value, ast.Constant) and isinstance(line.value.value, str):
            if key:
                out[key] = f"{out.get(key, '')} {line.value.value}".strip()
        else:
            key = ""
    return out

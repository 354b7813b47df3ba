"""What an unknown key was meant to be: another table's, a word of another library's, or a slip. Torch-free.

A hint never names a setting of another meaning: words of other libraries are listed (`other_words`), and only what is
written almost like a key is taken for a slip.
"""

from __future__ import annotations

import re
import typing
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from pydantic import BaseModel

from anygrpo.families import kinds, resolve
from anygrpo.recipe.no_counterpart import no_counterpart
from anygrpo.recipe.other_values import VALUES
from anygrpo.recipe.other_words import ANYWHERE, HERE, OURS
from anygrpo.recipe.words_by_table import BY_TABLE, TABLES
from anygrpo.recipe.words_explained import EXPLAINED, TWO
from anygrpo.spoken import Text, say

FEW = 12
PLAIN = ("betas", "seed", "device", "system")
"""Keys of one word that mean the same in every library."""
OWN = (
    "every", "mode", "language", "prompts", "path", "split", "subset", "name", "target", "text", "width", "window",
    "function", "arguments", "output", "table", "multiple", "scale", "margin", "limits", "floor", "channel", "sets",
    "sources", "index", "rule", "cache", "id", "ids", "live", "methods", "parameters", "average", "levels", "network",
    "features", "loss", "labels", "frames", "success", "queries", "shots", "pool", "patch", "weight", "extract",
)  # fmt: skip
"""Keys of ours whose word alone means something else in any other table."""


def meant(
    key: str,
    known: Collection[str],
    root: type[BaseModel] | None = None,
    listing: str = "anygrpo settings",
    table: str = "",
) -> str:
    """What to say of an unknown `key` of a table whose keys are `known`, in a recipe of the class `root`.

    Args:
        listing: the command that shows all that is known.
        table: the one that the key stands in, dotted ("policy.lora"); "" at the top.
    """
    key = key.lower()
    if key in known:
        return say(f"keys are written small: {key!r}", f"键用小写：{key!r}")
    ours = next((name for name in HERE.get(key, ()) if name in known), None)
    if ours is not None:
        return say(f"it is called {ours!r} here", f"这里叫 {ours!r}")
    places = _places(root) if root is not None else {}
    if root is not None and (told := BY_TABLE.get(table, {}).get(key)) and _fits(told, places):
        return told.said()
    if key in TWO and root is not None and ("algorithm" in known or key not in places or key != "temperature"):
        return TWO[key].said()  # at the top: as other libraries' flags are given
    if key in places and (not table or key not in OWN):
        there = say(" or ", " 或 ").join(places[key])
        return say(f"it belongs to another table: {there}", f"它属于另一张表：{there}")
    if foreign := _of_another_library(key, places):
        return foreign
    everywhere = _beside(table) if root is not None else {}
    if key in everywhere:
        there = say(" or ", " 或 ").join(everywhere[key][:2])
        return say(f"it belongs to another kind: {there}", f"它属于另一种策略或任务：{there}")
    if near := _slip_of(key, known, places, everywhere, table):
        return near
    if not known:
        return say("remove it", "请删去")
    if len(known) <= FEW:
        return say("known: ", "可用：") + ", ".join(sorted(known))
    return say(f"{listing} lists what there is", f"{listing} 列出全部")


def _slip_of(
    key: str,
    known: Collection[str],
    places: Mapping[str, Sequence[str]],
    everywhere: Mapping[str, Sequence[str]],
    table: str,
) -> str:
    """The word that a mistyped `key` was to be, here first; "" where none is near."""
    for words in (known, places, everywhere):
        close = min(words, key=lambda word: (slips(key, word), word), default="")
        if close and slips(key, close) <= (0 if len(key) < 4 and words is not known else 1 if len(key) < 8 else 2):
            # a whole word of another table is no slip of one here: revision, vision
            whole = words is places and (close in OWN or (table and "_" not in close))
            if words is not known and (key in OWN or whole):
                continue
            where = "" if words is known else _there((places if words is places else everywhere)[close])
            return say(f"did you mean {close!r}?", f"是否想写 {close!r}？") + where
    return ""


def meant_inside(key: str, table: Mapping[str, Any], root: type[BaseModel]) -> tuple[str, str]:
    """Of a whole table that is not known here (verl's `actor_rollout_ref.rollout.n`): its first setting, dotted, and
    what that is here ("" where it is not known)."""
    path, value = [key.lower()], dict(table)
    while isinstance(value, dict) and value:
        name, value = next(iter(value.items()))
        path.append(str(name).lower())
    dotted = ".".join(path)
    if whole := no_counterpart("critic" if "critic" in path else dotted):
        return dotted, whole.said()
    for start in range(len(path)):  # the longest end that means something: rollout_n before n
        word = "_".join(path[start:])
        if word in TWO:
            return dotted, TWO[word].said()
        if foreign := _of_another_library(word, _places(root)):
            return dotted, foreign
        places = _places(root).get(word) if "_" in word or word in PLAIN else None
        if places:
            return dotted, say(f"here that is {places[0]}", f"这里是 {places[0]}")
    if ours := TABLES.get(path[0]):
        inside = [p for p in _places(root).get(path[1], ()) if p == f"{ours}.{path[1]}"] if len(path) > 1 else []
        there = inside[0] if inside else f"[{ours}]"
        return dotted if inside else path[0], say(f"here that is {there}", f"这里是 {there}")
    return dotted, ""


def _of_another_library(key: str, places: Mapping[str, Sequence[str]]) -> str:
    known = OURS | EXPLAINED
    key = key if key in known else key.removeprefix("grpo_")  # as one of the papers' codes names all its settings
    if key in known and _fits(known[key], places):
        return _here(known[key])
    if key in ANYWHERE and (there := next((places[name] for name in HERE[key] if name in places), None)):
        return say(f"here that is {there[0]}", f"这里是 {there[0]}")
    none = no_counterpart(key)
    return none.said() if none else ""


def _fits(ours: str | Text, places: Mapping[str, Sequence[str]]) -> bool:
    """Whether the keys of a policy or a task that an answer names are there in this recipe. Of a policy of text all
    are taken to be: its other tasks are one `kind` away."""
    if not places or "max_new_tokens" in places:
        return True
    said = ours.said("en") if isinstance(ours, Text) else ours
    return all(key in places for key in re.findall(r"\b(?:policy|task)\.(\w+)", said))


def _here(ours: str | Text) -> str:
    """A key or a line of ours in its sentence; a Text is one already."""
    return ours.said() if isinstance(ours, Text) else say(f"here that is {ours}", f"这里是 {ours}")


def _there(tables: Sequence[str]) -> str:
    """The first few places of a key, in brackets."""
    more = ", ..." if len(tables) > 2 else ""
    return say(f" ({' or '.join(tables[:2])}{more})", f"（{' 或 '.join(tables[:2])}{more}）")


def meant_value(key: str, value: str, allowed: Collection[str]) -> str:
    """What to say of a `value` that is none of those `allowed` for `key`."""
    if ours := VALUES.get(key, {}).get(value.lower()):
        return _here(ours)
    close = min(allowed, key=lambda word: (slips(value.lower(), word), word), default="")
    most = 0 if len(value) < 4 else 1 if len(value) < 8 else 2  # dpo is no slip of ppo
    if close and slips(value.lower(), close) <= most:
        return say(f"did you mean {close!r}?", f"是否想写 {close!r}？")
    return say("known: ", "可用：") + ", ".join(sorted(allowed))


def slips(a: str, b: str) -> int:
    """Letters left out, put in, exchanged or swapped with their neighbour between two words (optimal alignment)."""
    before, row = list[int](), list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        last, before, row = before, row, [i]
        for j, y in enumerate(b, 1):
            least = min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (x != y))
            if i > 1 and j > 1 and x == b[j - 2] and a[i - 2] == y:
                least = min(least, last[j - 2] + 1)
            row.append(least)
    return row[-1]


def _places(root: type[BaseModel]) -> dict[str, list[str]]:
    """Key -> where the tables of this recipe have it, dotted."""
    out: dict[str, list[str]] = {name: [name + say(" (at the top)", "（在最上层）")] for name in ("seed", "folder")}
    for name in ("algorithm", "optimizer", "training", "evaluation", "doctor", "policy", "task"):
        field = root.model_fields.get(name)
        for section in _models(field.annotation) if field is not None else ():
            for key in section.model_fields.keys() - {"kind"}:
                out.setdefault(key, []).append(f"{name}.{key}")
    return out


def _beside(table: str) -> dict[str, list[str]]:
    """Key -> where other kinds have it at the same place as `table`: a word two tables deeper means something else."""
    if not table:
        return _everywhere()
    root, *inner = table.split(".")
    same = {
        key: [p for p in at if p.split(".")[0] == root and p.split(".")[2:-1] == inner]
        for key, at in _everywhere().items()
    }
    return {key: at for key, at in same.items() if at}


@cache
def _everywhere() -> dict[str, list[str]]:
    """Key -> where the sections of all kinds of policy and task have it, tables inside them too."""
    out: dict[str, list[str]] = {}
    for table in ("policy", "task"):
        queue = [(f"{table}.{kind}", resolve(known.settings)) for kind, known in kinds(table).items()]
        seen: set[type[BaseModel]] = set()
        while queue:
            place, section = queue.pop(0)
            if section in seen:
                continue
            seen.add(section)
            for key, field in section.model_fields.items():
                out.setdefault(key, []).append(f"{place}.{key}")
                queue += [(f"{place}.{key}", inner) for inner in _models(field.annotation)]
    return out


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    else:
        for arg in typing.get_args(annotation):
            yield from _models(arg)

"""How a recipe writes each table of the reference: its head in brackets, and the kinds that it is for. Torch-free."""

from __future__ import annotations

from typing import get_args

from anygrpo.recipe.reference import FIXED, inner, outer, tables
from anygrpo.recipe.section import Section
from anygrpo.spoken import Text

_INSTEAD = {
    "": Text("Above all tables.", "写在所有表之前。"),
    "policy.object": Text(
        "Not for a recipe to write: so a run's `config.toml` names a policy or a task that Python gave as an object.",
        "不由配方书写：运行的 `config.toml` 用它记录由 Python 以对象给出的策略或任务。",
    ),
    "schedule": Text(
        'In place of a number: `learning_rate = { kind = "cosine", start = 1e-4 }`.',
        '代替一个数：`learning_rate = { kind = "cosine", start = 1e-4 }`。',
    ),
    "algorithm.CHOICE": Text(
        'In place of a choice\'s name: `objective = { function = "mine.py:loss" }`.',
        '代替选项的名称：`objective = { function = "mine.py:loss" }`。',
    ),
    "algorithm.temperature.adaptive": Text(
        'In place of a number: `temperature = { kind = "adaptive", target = 0.3 }`.',
        '代替一个数：`temperature = { kind = "adaptive", target = 0.3 }`。',
    ),
}


def written(table: str) -> Text:
    """What stands in a recipe: `[policy]` with `kind = "causal_lm"`; `[policy.lora]`, where the policy is motion, mdm.

    Args:
        table: a name of `anygrpo.recipe.reference.tables`.
    """
    if table in _INSTEAD:
        return _INSTEAD[table]
    section, root = tables()[table], table.partition(".")[0]
    if table in outer():
        head = f"`[{root}]`" if table != "stages" else "`[[stages]]`"
        return _said(head, "" if table in (*FIXED, "stages") else kinds_of(section, table.partition(".")[2]), [], root)
    owners = inner()[section]
    heads = " / ".join(dict.fromkeys(f"`{_head(owner, key)}`" for owner, key in owners))
    users = dict.fromkeys(owner.split(".")[1] for owner, _ in owners if "." in owner)
    return _said(heads, kinds_of(section, "") if "kind" in section.model_fields else "", list(users), root)


def kinds_of(section: type[Section], kind: str) -> str:
    """The words that its `kind` may be, as TOML has them; `kind` where the section leaves it open."""
    field = section.model_fields.get("kind")
    words = get_args(field.annotation) if field is not None else ()
    return " / ".join(f'"{word}"' for word in words or (kind,))


def _said(head: str, kind: str, users: list[str], root: str) -> Text:
    with_kind = Text(f" with `kind = {kind}`", f"，其中 `kind = {kind}`") if kind else Text("", "")
    of = Text(f", for {root} kinds {', '.join(users)}", f"，用于 {root}：{'、'.join(users)}") if users else Text("", "")
    return Text(f"{head}{with_kind.en}{of.en}.", f"{head}{with_kind.zh}{of.zh}。")


def _head(owner: str, key: str) -> str:
    """[policy.lora]; in double brackets where the table that has it has a list of them."""
    root, *rest = owner.split(".")
    field = key.split(".")[0]
    having = tables().get(owner) or next(s for s, places in inner().items() if (root, *rest) in _split(places))
    path = ".".join([root, *(rest[1:] if root in ("policy", "task") else rest), field])
    many = any(word in str(having.model_fields[field].annotation) for word in ("list[", "tuple["))
    return f"[[{path}]]" if many else f"[{path}]"


def _split(places: list[tuple[str, str]]) -> list[tuple[str, ...]]:
    return [tuple(f"{owner}.{key}".split(".")) for owner, key in places]

"""Pydantic's findings in our words: where, the value found, what is allowed."""

from __future__ import annotations

import json
import re
import typing
from collections.abc import Callable
from typing import Any

from pydantic import BaseModel, ValidationError

from anygrpo.choices.catalogue import names
from anygrpo.errors import ConfigError
from anygrpo.recipe.hints import meant, meant_inside, meant_value
from anygrpo.spoken import Text, say


def readable(error: ValidationError, root: type[BaseModel], prefix: str = "") -> ConfigError:
    """One error for all that validation found in a table of type `root`, which stands at `prefix` in the recipe."""
    lines: list[str] = []
    cure = ""
    items = error.errors()
    for item in items:
        if _of_the_other_branch(item) or _follows_from_another(item, items) or _is_beside_a_word(item, items):
            continue
        keys, models = _walk(root, tuple(map(_unwrapped, item["loc"])))
        where = (prefix + ".".join(keys)).rstrip(".")
        found = _found(item)
        if item["type"] == "extra_forbidden":
            known, table, inner = _fields(models), item.get("input"), ""
            if isinstance(table, dict) and keys[-1] not in known:
                dotted, inner = meant_inside(keys[-1], table, root)
                where = prefix + ".".join([*keys[:-1], dotted]) if inner else where
            lines.append(say(f"unknown key {where!r}", f"未知的键 {where!r}"))
            cure = cure or inner or meant(keys[-1], known, root, table=_table(prefix, keys))
        elif item["type"] in ("union_tag_invalid", "literal_error"):
            allowed = item.get("ctx", {}).get("expected_tags") or item.get("ctx", {}).get("expected", "")
            lines.append(say(f"{where} = {found!r} is not known", f"{where} = {found!r} 不在可选值中"))
            words = [word.strip(" '") for word in allowed.replace(" or ", ",").split(",")]
            words += [w for other in _beside_a_word(item, items) for w in _FORMS[other["type"]]()]
            cure = cure or meant_value(keys[-1] if keys else "", str(found), words)
        elif item["type"] == "not_a_number":
            inner = item.get("ctx", {})
            given = f"{'.'.join(filter(None, (where, inner['key'])))} = {inner['value']!r}"
            lines.append(say(f"{given} is not a number", f"{given} 不是数"))
            if inner["value"] in names("schedule"):
                form = f'{{ kind = "{inner["value"]}", start = 1e-5, end = 0.0 }}'
                cure = cure or say(f"write {form}", f"写作 {form}")
        elif item["type"] == "missing":
            lines.append(say(f"{where} is missing", f"缺少 {where}"))
        elif item["type"] == "union_tag_not_found":
            lines.append(say(f"{where}.kind is missing", f"缺少 {where}.kind"))
            table = item.get("input")
            strange = [key for key in table if key not in _fields(models)] if isinstance(table, dict) else []
            if strange:
                strangest = f"{where}.{strange[0]}"
                lines.append(say(f"unknown key {strangest!r}", f"未知的键 {strangest!r}"))
                cure = cure or meant(str(strange[0]), _fields(models), root, table=_table(prefix, [*keys, ""]))
        else:
            value = "" if isinstance(item.get("input"), dict) else say(f" (found {found!r})", f"（现为 {found!r}）")
            cure = cure or _form(item, keys, models)
            lines.append(f"{where or say('recipe', '配方')}{say(': ', '：')}{_reason(item)}{value}")
    return ConfigError("; ".join(dict.fromkeys(lines)), cure)


def _table(prefix: str, keys: list[str]) -> str:
    """The table that a key stands in, dotted, without places in lists: "task.rewards"."""
    path = [*filter(None, prefix.split(".")), *keys[:-1]]
    return ".".join(word for word in path if not word.isdigit())


_ENGLISH: dict[str, str] = {
    **dict.fromkeys(("list_type", "tuple_type"), "a list is wanted, in [ ]"),
    **dict.fromkeys(("dict_type", "model_type", "model_attributes_type"), "a table is wanted"),
}
"""Where the validator's own words speak of Python's types."""

_REASONS = {
    "greater_than": "应大于 {gt}",
    "greater_than_equal": "应不小于 {ge}",
    "less_than": "应小于 {lt}",
    "less_than_equal": "应不大于 {le}",
    "too_short": "至少要有 {min_length} 项，现有 {actual_length} 项",
    "too_long": "至多 {max_length} 项，现有 {actual_length} 项",
    "string_too_short": "文字至少 {min_length} 个字符",
    "finite_number": "应为有限的数",
    "int_type": "应为整数",
    "int_parsing": "应为整数",
    "int_parsing_size": "这个整数太大",
    "int_from_float": "应为整数",
    "float_type": "应为数",
    "float_parsing": "应为数",
    "bool_type": "应为 true 或 false",
    "bool_parsing": "应为 true 或 false",
    "string_type": "应为文字",
    "list_type": "应为列表，写在 [ ] 中",
    "tuple_type": "应为列表，写在 [ ] 中",
    "dict_type": "应为表",
    "model_type": "应为表",
    "model_attributes_type": "应为表",
    "path_type": "应为路径",
}
"""The validator's own kinds of refusal, in Chinese: its English words are the library's."""


def _reason(item: Any) -> str:
    """What the validator says; a check of ours may have said it in both languages."""
    given = item.get("ctx", {})
    own = given.get("error")
    if isinstance(own, ValueError) and own.args and isinstance(own.args[0], Text):
        return own.args[0].said()
    english = item["msg"].removeprefix("Value error, ")
    return say(
        _ENGLISH.get(str(item["type"])) or english,
        _REASONS[item["type"]].format(**given) if item["type"] in _REASONS else english,
    )


def _form(item: Any, keys: list[str], models: list[Any]) -> str:
    """How a value is written where a list or a table is wanted: as the default is, as what was found would be, or the
    table's keys."""
    found, known = item.get("input"), [m for model in models for m in _models_in_field(model, keys[-1] if keys else "")]
    if item["type"] in ("model_type", "model_attributes_type", "dict_type") and known:
        return say("its keys: ", "它的键：") + ", ".join(_fields(known))
    if item["type"] not in ("list_type", "tuple_type") or not isinstance(found, str | int | float):
        return ""
    fields = [
        model.model_fields[keys[-1]] for model in models if keys and keys[-1] in getattr(model, "model_fields", {})
    ]
    default = next((list(f.default) for f in fields if isinstance(f.default, tuple | list) and f.default), [found])
    written = f"{keys[-1]} = [{', '.join(map(_inline, default))}]"
    return say(f"write {written}", f"写作 {written}")


def _inline(value: Any) -> str:
    """A value as it stands in a line of TOML."""
    if isinstance(value, BaseModel):
        value = value.model_dump(mode="json", exclude_defaults=True) | {"kind": _kind_of(type(value))}
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {_inline(x)}" for key, x in value.items() if x is not None) + " }"
    return json.dumps(value, ensure_ascii=False)


_FORMS: dict[str, Callable[[], list[str]]] = {
    **dict.fromkeys(("bool_type", "bool_parsing"), lambda: ["true", "false"]),
    **dict.fromkeys(("int_type", "int_parsing", "int_from_float"), lambda: [say("a whole number", "整数")]),
    **dict.fromkeys(("float_type", "float_parsing", "not_a_number"), lambda: [say("a number", "数")]),
}
"""What a value may be beside one of some words: refusals of one value of a union stand side by side."""


def _is_beside_a_word(item: Any, items: list[Any]) -> bool:
    """Whether the same value was also to be one of some words, whose refusal tells of both."""
    if item["type"] not in _FORMS:
        return False
    return any(other["type"] == "literal_error" and item in _beside_a_word(other, items) for other in items)


def _beside_a_word(item: Any, items: list[Any]) -> list[Any]:
    """Refusals of the same value as something else than a word."""
    if item["type"] != "literal_error" or not item["loc"] or not str(item["loc"][-1]).startswith("literal["):
        return []
    at = item["loc"][:-1]
    return [i for i in items if i["type"] in _FORMS and i["loc"][: len(at)] == at and len(i["loc"]) <= len(at) + 1]


def _of_the_other_branch(item: Any) -> bool:
    """A number may be a float or a schedule: what was meant decides which of the two complaints is shown."""
    part, table = _unwrapped(item["loc"][-1]) if item["loc"] else "", isinstance(item.get("input"), dict)
    return (part == "Schedule" and item["type"] == "model_type" and not table) or (part == "float" and table)


def _follows_from_another(item: Any, items: list[Any]) -> bool:
    """A list is too short once its broken elements are left out."""
    loc = item["loc"]
    return item["type"] == "too_short" and any(len(i["loc"]) > len(loc) and i["loc"][: len(loc)] == loc for i in items)


def _unwrapped(part: Any) -> Any:
    """The model's name out of "function-after[check(), Schedule]"."""
    found = re.fullmatch(r"function-\w+\[.*, (\w+)\]", part) if isinstance(part, str) else None
    return found[1] if found else part


def _found(item: Any) -> Any:
    value = item.get("input")
    return value.get("kind", "a table") if isinstance(value, dict) else value


def _walk(root: type[BaseModel], loc: tuple[Any, ...]) -> tuple[list[str], list[Any]]:
    """The keys a person wrote on the way to `loc` (tags of unions left out), and the models there."""
    keys: list[str] = []
    models: list[Any] = [root]
    for i, part in enumerate(loc):
        last = i == len(loc) - 1
        inside = [m for model in models for m in _models_in_field(model, part)]
        tagged = [m for m in models if _kind_of(m) == part or m.__name__ == part]
        if isinstance(part, int):
            keys.append(str(part))
        elif tagged and (len(models) > 1 or not last):  # before fields: kind "function" has a key `function` too
            models = tagged
        elif any(part in getattr(m, "model_fields", {}) for m in models):
            keys.append(part)
            models = models if last else inside
        elif tagged or (i and (part in ("float", "Schedule", "int", "bool", "str", "none") or _is_words(part))):
            continue
        else:
            keys.append(str(part))
    return keys, models


def _is_words(part: Any) -> bool:
    """Whether a part of a place is a branch of words: "literal['auto']"."""
    return isinstance(part, str) and part.startswith("literal[")


def _fields(models: list[Any]) -> list[str]:
    return sorted({name for model in models for name in getattr(model, "model_fields", {})})


def _kind_of(model: Any) -> Any:
    field = getattr(model, "model_fields", {}).get("kind")
    words = typing.get_args(field.annotation) if field is not None else ()
    return words[0] if words else None


def _models_in_field(model: Any, part: Any) -> list[Any]:
    field = getattr(model, "model_fields", {}).get(part)
    return _models_in(field.annotation) if field is not None else []


def _models_in(annotation: Any) -> list[Any]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for arg in typing.get_args(annotation) for model in _models_in(arg)]

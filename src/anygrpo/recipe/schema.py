"""Types of a recipe's keys in words, from their JSON schema. Torch-free."""

from __future__ import annotations

import json
from typing import Any

from pydantic import BaseModel

LIMITS = {"minimum": ">=", "exclusiveMinimum": ">", "maximum": "<=", "exclusiveMaximum": "<"}


def words_of(section: type[BaseModel]) -> dict[str, str]:
    """Key -> what it may be, in words."""
    schema = json.loads(json.dumps(section.model_json_schema(), default=str))
    made = schema if "properties" in schema else schema["$defs"][section.__name__]
    return {name: in_words(one) for name, one in made["properties"].items()}


def in_words(schema: dict[str, Any]) -> str:
    """One property's schema: "integer >= 1", "number >= 0 and < 1", "a | b | none", "list of text"."""
    options = schema.get("anyOf") or schema.get("oneOf") or [schema]
    said = " | ".join(dict.fromkeys(_option(option) for option in options))
    said = said.replace("path.py:name | table", "path.py:name")
    return said + (_bounds(schema) if options != [schema] else "")


def _option(option: dict[str, Any]) -> str:
    if "enum" in option:
        return " | ".join(str(word).lower() if isinstance(word, bool) else str(word) for word in option["enum"])
    if "const" in option:
        return str(option["const"])
    if "$ref" in option:
        return "schedule" if option["$ref"].endswith("/Schedule") else "table"
    if "anyOf" in option or "oneOf" in option:
        return in_words(option)
    if option.get("type") == "array":
        inside = option.get("items") or {}
        several = {in_words(one) for one in option.get("prefixItems", ())}
        return "list of " + (" and ".join(sorted(several)) or in_words(inside) if inside or several else "values")
    if str(option.get("pattern", "")).startswith(r"\.py:"):
        return "path.py:name"
    words = {"null": "none", "object": "table", "string": "text", "boolean": "true | false"}
    kind = str(option.get("type", "value"))
    return words.get(kind, kind) + _bounds(option)


def _bounds(schema: dict[str, Any]) -> str:
    ends = [f"{sign} {schema[name]:g}" for name, sign in LIMITS.items() if name in schema]
    return " " + " and ".join(ends) if ends else ""

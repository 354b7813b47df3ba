"""The recipe as a JSON schema, for editors, and its types in words. Torch-free."""

from __future__ import annotations

import json
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

LIMITS = {"minimum": ">=", "exclusiveMinimum": ">", "maximum": "<=", "exclusiveMaximum": "<"}


def words_of(section: type[BaseModel]) -> dict[str, str]:
    """Key -> what it may be, in words."""
    schema = json.loads(json.dumps(section.model_json_schema(), default=str))
    made = schema if "properties" in schema else schema["$defs"][section.__name__]
    return {name: in_words(one) for name, one in made["properties"].items()}


def in_words(schema: dict[str, Any]) -> str:
    """One property's schema: "integer >= 1", "a | b | none", "list of text"."""
    options = schema.get("anyOf") or schema.get("oneOf") or [schema]
    said = " | ".join(dict.fromkeys(_option(option) for option in options))
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
    words = {"null": "none", "object": "table", "string": "text", "boolean": "true | false"}
    kind = str(option.get("type", "value"))
    return words.get(kind, kind) + _bounds(option)


def _bounds(schema: dict[str, Any]) -> str:
    return "".join(f" {sign} {schema[name]:g}" for name, sign in LIMITS.items() if name in schema)


def recipe_schema() -> dict[str, Any]:
    """One schema for recipes of every kind of policy and task: what an editor completes and checks .toml files by."""
    from anygrpo.families import kinds, resolve
    from anygrpo.recipe.recipe import Recipe
    from anygrpo.recipe.reference import sentences_of, tables

    own = {name: {k: resolve(v.settings) for k, v in kinds(name).items()} for name in ("policy", "task")}
    models = list(dict.fromkeys([Recipe, *(m for one in own.values() for m in one.values()), *tables().values()]))
    names, whole = models_json_schema([(m, "validation") for m in models], ref_template="#/$defs/{model}")
    definitions = json.loads(json.dumps(whole["$defs"], default=str))
    for model in models:
        key = names[model, "validation"]["$ref"].rpartition("/")[2]
        for name, said in sentences_of(model).items():
            if name in definitions[key].get("properties", {}):
                definitions[key]["properties"][name]["description"] = " ".join(said.split())
    root = definitions.pop(names[Recipe, "validation"]["$ref"].rpartition("/")[2])
    for name, by_kind in own.items():
        refs = [names[m, "validation"] for m in dict.fromkeys(by_kind.values())]
        root["properties"][name] = {"anyOf": refs, "required": ["kind"]}
    return (
        {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "anygrpo recipe"}
        | root
        | {"$defs": definitions}
    )

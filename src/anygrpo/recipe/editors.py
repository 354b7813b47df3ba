"""The recipe as a JSON schema: what an editor completes and checks .toml files by. Torch-free."""

from __future__ import annotations

import json
from typing import Any

from pydantic.json_schema import models_json_schema

from anygrpo.families import kinds, resolve
from anygrpo.recipe.recipe import Recipe
from anygrpo.recipe.reference import sentences_of, tables


def recipe_schema() -> dict[str, Any]:
    """One schema for recipes of every kind of policy and task: what an editor completes and checks .toml files by."""
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

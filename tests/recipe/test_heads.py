"""What a recipe writes for each table of the reference."""

from __future__ import annotations

import re

import pytest

from anygrpo.recipe.heads import written
from anygrpo.recipe.recipe import Recipe
from anygrpo.recipe.reference import named, tables


@pytest.mark.parametrize(
    ("table", "head"),
    [
        ("optimizer", "`[optimizer]`."),
        ("stages", "`[[stages]]`."),
        ("policy.causal_lm", '`[policy]` with `kind = "causal_lm"`.'),
        ("task.data", '`[task]` with `kind = "jsonl" / "data"`.'),
        ("evaluation.success", "`[evaluation.success]`."),
        ("policy.causal_lm.lora", "`[policy.lora]`, for policy kinds causal_lm."),
        ("policy.*.gates", "`[[policy.gates]]`, for policy kinds stochastic, restorer."),
        ("algorithm.filters.top_k_by_reward", '`[[algorithm.filters]]` with `kind = "top_k_by_reward"`.'),
        ("task.judged.scorer.model", '`[task.scorer]` with `kind = "model"`, for task kinds judged.'),
        ("task.restoration.folder", "`[task.folder]` / `[[task.sets]]`, for task kinds restoration."),
    ],
)
def test_a_head_is_what_a_recipe_writes(table, head):
    assert written(table).en == head


def test_no_head_has_a_place_holder_or_a_kind_in_its_path():
    """`policy.*.lora` and `policy.causal_lm` are names of ours: TOML knows [policy] and [policy.lora]."""
    paths = [path for table in tables() for path in re.findall(r"`\[+([^`]*?)\]+`", written(table).en)]
    assert len(paths) > 50
    assert not [path for path in paths if "*" in path or "|" in path]
    assert {path.split(".")[0] for path in paths} <= set(Recipe.model_fields)
    seconds = {path.split(".")[1] for path in paths if path.startswith("policy.")}
    assert seconds == {"lora", "faults", "gates", "turns", "vision"}


def test_a_table_that_several_have_is_found_by_each_whole_name():
    for kind in ("stochastic", "restorer"):
        assert {one.table for one in named(f"policy.{kind}.lora")} == {"policy.stochastic|restorer.lora"}
    assert {one.table for one in named("task.data.rewards.judge")} == {"task.*.rewards.judge"}

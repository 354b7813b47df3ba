"""Every key of a recipe has a type and a sentence, and docs/settings.md is what the code says."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from anygrpo.errors import ConfigError
from anygrpo.recipe.chinese import CHINESE
from anygrpo.recipe.editors import recipe_schema
from anygrpo.recipe.heads import written
from anygrpo.recipe.load import sources
from anygrpo.recipe.reference import every, meaning, named, tables

ROOT = Path(__file__).parents[2]
EVERY = list(every())


def test_no_key_is_without_a_sentence():
    assert [f"{one.table}.{one.name}" for one in EVERY if len(one.sentence) < 3] == []


def test_every_table_of_every_family_is_there():
    names = list(tables())
    for name in (
        "algorithm",
        "optimizer",
        "policy.causal_lm",
        "policy.motion",
        "task.restoration",
        "task.*.rewards.judge",
    ):
        assert name in names
    assert len(set(tables().values())) == len(names)


def test_a_key_has_its_range_and_default():
    (rate,) = named("learning_rate")
    assert (rate.table, rate.default) == ("optimizer", "1e-05")
    assert "number" in rate.type
    assert "schedule" in rate.type
    assert ">= 0" in rate.type
    (low,) = [one for one in EVERY if (one.table, one.name) == ("algorithm", "clip_low")]
    assert low.default == "none"
    (group,) = [one for one in EVERY if (one.table, one.name) == ("policy.causal_lm", "train")]
    assert group.type == "lora | last_n | all"
    (model,) = [one for one in EVERY if (one.table, one.name) == ("policy.causal_lm", "model")]
    assert model.default == ""


def test_sentences_in_several_pieces_are_one():
    (moves,) = [one for one in EVERY if (one.table, one.name) == ("policy.diffusion", "window_moves")]
    assert moves.sentence.endswith("at later places.")


def test_an_unknown_word_is_answered():
    with pytest.raises(ConfigError, match="did you mean 'learning_rate'"):
        named("lerning_rate")


HEADS = sorted({head for name in tables() for head in re.findall(r"`\[+([^`\]]+)\]+`", written(name).en)})


@pytest.mark.parametrize("head", HEADS)
def test_every_head_that_a_recipe_writes_can_be_asked_for(head):
    assert named(head)
    assert named(f"[{head}]") == named(head)


def test_what_a_head_names_is_the_table_itself():
    assert {one.table for one in named("task.rewards")} >= {"task.*.rewards.judge", "task.images.rewards.clip"}
    assert {one.table for one in named("task.rewards.judge")} == {"task.*.rewards.judge"}
    assert {"rank", "alpha"} <= {one.name for one in named("policy.lora")}
    assert {one.name for one in named("policy.lora.rank")} == {"rank"}
    assert {one.table for one in named("algorithm.temperature")} == {"algorithm"}
    assert "`[policy]`" not in written("policy.object").en  # Python's, not a recipe's


def test_the_page_is_printed_from_the_code():
    """`python scripts/settings_page.py` writes it."""
    spec = importlib.util.spec_from_file_location("settings_page", ROOT / "scripts" / "settings_page.py")
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    assert script.PAGE.read_text(encoding="utf-8") == script.page()


def test_the_page_is_checked_in_its_own_language_wherever_it_is_printed():
    command = [sys.executable, str(ROOT / "scripts" / "settings_page.py"), "--check"]
    assert subprocess.run(command, env=os.environ | {"ANYGRPO_LANG": "zh"}, check=False).returncode == 0


@pytest.mark.parametrize("key", ["importance", "kl_controller", "advantage", "credit", "reduction", "parallel"])
def test_the_chinese_of_a_choice_names_the_words_that_the_english_explains(key):
    """A word that has a sentence of its own ("mask: ...") has it in both."""
    for one in named(key):
        if one.table in ("algorithm", "training"):
            said = meaning(one)
            for word in re.findall(r"(?:^|[.;] )(\w+): ", said.en):
                assert word in said.zh, (key, word)


def test_the_schema_takes_our_recipes_and_knows_a_wrong_one():
    """By a validator of its own, where there is one; in any case every reference leads somewhere."""
    schema = recipe_schema()
    text = json.dumps(schema)
    for part in text.split('"#/$defs/')[1:]:
        assert part.partition('"')[0] in schema["$defs"]
    assert schema["properties"]["algorithm"]
    assert len(schema["properties"]["policy"]["anyOf"]) >= 8
    described = [d for d in schema["$defs"].values() for p in d.get("properties", {}).values() if "description" in p]
    assert len(described) > 400


def test_every_value_has_its_source():
    found = sources(ROOT / "recipes/llm/demo.toml", ["--algorithm.preset", "gspo", "--optimizer.learning-rate=3e-5"])
    assert found["policy.model"] == ("smollm2", "recipe")
    assert found["optimizer.learning_rate"] == (3e-5, "flag")
    assert found["algorithm.clip_high"] == (4e-4, 'preset "gspo"')
    assert found["training.keep_checkpoints"] == (2, "default")
    plain = sources(ROOT / "recipes/llm/demo.toml", ["--algorithm.objective", "gspo"])
    assert plain["algorithm.clip_high"] == (4e-4, 'objective "gspo"')


def test_chinese_sentences_are_of_keys_that_exist_and_say_their_names():
    """All of [algorithm] have one, and of the tables that every recipe has nine in ten at the least."""
    by_table = {table: {one.name: one for one in EVERY if one.table == table} for table in tables()}
    for table, sentences in CHINESE.items():
        assert set(sentences) <= set(by_table[table]), table
        assert all(re.search("[\u4e00-\u9fff]", said) and said.endswith("。") for said in sentences.values()), table
    for table in ("", "optimizer", "training", "evaluation", "doctor", "stages", "algorithm"):
        left = [key for key, one in by_table[table].items() if not re.search("[\u4e00-\u9fff]", meaning(one).zh)]
        assert len(left) <= (0 if table == "algorithm" else 0.1 * len(by_table[table])), (table, left)


def test_a_key_without_a_chinese_sentence_keeps_its_english_one():
    (one,) = [one for one in EVERY if (one.table, one.name) == ("policy.motion", "layers")]
    assert meaning(one).zh == meaning(one).en == one.sentence


@pytest.mark.parametrize(("word", "meant"), [("polcy", "policy"), ("taks", "task"), ("algoritm", "algorithm")])
def test_a_mistyped_table_is_answered_with_its_name(word, meant):
    with pytest.raises(ConfigError, match=f"did you mean '{meant}'"):
        named(word)

"""Whatever a recipe, its flags or a dataset hold: success, or an AnygrpoError that says what to change.

300 inputs each by default, 10,000 each with `-m slow`. Logs are fuzzed in tests/doctor/test_fuzz.py and here.
"""

from __future__ import annotations

import contextlib
import copy
import json
import warnings
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from anygrpo.core.build import build_task
from anygrpo.doctor import diagnose_log, read
from anygrpo.errors import AnygrpoError
from anygrpo.language.task_settings import JsonlTaskConfig
from anygrpo.recipe.load import apply_flags, dump_recipe, load_recipe, parse_recipe
from anygrpo.recipe.recipe import Recipe
from anygrpo.recipe.section import Section

RECIPES = sorted((Path(__file__).parents[2] / "recipes").glob("*/*.toml"))
FEW = settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
MANY = settings(max_examples=10_000, deadline=None, suppress_health_check=list(HealthCheck))

KEYS = st.sampled_from(
    [
        *Recipe.model_fields,
        "kind",
        "start",
        "end",
        "steps",
        "k",
        "clip_low",
        "group_size",
        "advantage",
        "method",
        "épée",
        "",
    ]
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=8)
    | st.sampled_from(["causal_lm", "jsonl", "zscore", "grpo", "linear", 0, -1, 1e400, "true"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=6,
)  # fmt: skip
EDITS = st.lists(st.tuples(st.integers(0, 10**6), st.sampled_from(["set", "drop", "add"]), KEYS, VALUES), max_size=4)


def mutated(table: dict[str, Any], edits: list[Any]) -> dict[str, Any]:
    """Values at random places replaced, dropped or added."""
    table = copy.deepcopy(table)
    for number, action, key, value in edits:
        places = list(_places(table))
        holder, name = places[number % len(places)]
        if action == "set":
            holder[name] = value
        elif action == "drop" and isinstance(holder, dict):
            holder.pop(name)
        elif action == "add" and isinstance(holder[name], dict):
            holder[name][key] = value
        if not table:
            break
    return table


def _places(node: Any) -> Any:
    for name, value in node.items() if isinstance(node, dict) else enumerate(node):
        yield node, name
        if isinstance(value, dict | list):
            yield from _places(value)


def survives(action: Any) -> None:
    with contextlib.suppress(AnygrpoError):
        action()


def check_recipe(number: int, edits: list[Any], flags: list[str]) -> None:
    import tomllib

    table = mutated(tomllib.loads(RECIPES[number % len(RECIPES)].read_text()), edits)

    def parse() -> None:
        apply_flags(table, flags)
        recipe = parse_recipe(table)
        again = parse_recipe(tomllib.loads(dump_recipe(recipe)))
        assert dump_recipe(again) == dump_recipe(recipe)

    survives(parse)


FLAG_NAMES = st.sampled_from(
    [
        "--algorithm.clip-high",
        "--seed",
        "--stages.0.steps",
        "--policy",
        "--task.kind",
        "--x.y",
        "--",
        "word",
        "--.",
        "--stages",
    ]
)
FLAGS = st.lists(
    FLAG_NAMES | st.text(max_size=6) | st.builds("{}={}".format, FLAG_NAMES, st.text(max_size=6)), max_size=4
)


@given(st.integers(0, 1000), EDITS, FLAGS)
@FEW
def test_recipes(number, edits, flags):
    check_recipe(number, edits, flags)


@pytest.mark.slow
@given(st.integers(0, 1000), EDITS, FLAGS)
@MANY
def test_many_recipes(number, edits, flags):
    check_recipe(number, edits, flags)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("fuzz")


BYTES = st.binary(max_size=60) | st.text(max_size=60).map(lambda s: s.encode("utf-8", "surrogatepass"))


def check_recipe_file(folder: Path, number: int, cut: int, junk: bytes) -> None:
    data = RECIPES[number % len(RECIPES)].read_bytes()
    at = cut % (len(data) + 1)
    file = folder / "recipe.toml"
    file.write_bytes(data[:at] + junk + data[at + len(junk) :])
    survives(lambda: load_recipe(file))


@given(st.integers(0, 1000), st.integers(0, 10**5), BYTES)
@FEW
def test_recipe_files(folder, number, cut, junk):
    check_recipe_file(folder, number, cut, junk)


@pytest.mark.slow
@given(st.integers(0, 1000), st.integers(0, 10**5), BYTES)
@MANY
def test_many_recipe_files(folder, number, cut, junk):
    check_recipe_file(folder, number, cut, junk)


CELLS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["role", "content", "x"]), inner, max_size=2)
    ),
    max_leaves=4,
)
ROWS = st.dictionaries(st.sampled_from(["prompt", "answer", "extra"]), CELLS, max_size=3)
GOOD = st.builds(
    lambda p, a: {"prompt": p, "answer": a}, st.text(min_size=1, max_size=9), st.text(min_size=1, max_size=4)
)
LINES = st.lists(st.one_of(GOOD, GOOD, ROWS).map(lambda r: json.dumps(r).encode()) | BYTES, max_size=12)


def jsonl_section(path: Path) -> Section:
    rewards = [{"kind": "exact", "column": "answer"}]
    return JsonlTaskConfig.model_validate(
        {"kind": "jsonl", "path": str(path), "held_out_share": 0.4, "rewards": rewards}
    )


def check_dataset(folder: Path, lines: list[bytes]) -> None:
    file = folder / "data.jsonl"
    file.write_bytes(b"\n".join(lines))

    def use() -> None:
        warnings.simplefilter("ignore", UserWarning)  # repeated prompts
        task = build_task(jsonl_section(file), 0)
        try:
            assert len(task.prompts(0, 3)) == 3
            assert task.held_out()
        finally:
            task.close()

    survives(use)


@given(LINES)
@FEW
def test_datasets(folder, lines):
    check_dataset(folder, lines)


@pytest.mark.slow
@given(LINES)
@MANY
def test_many_datasets(folder, lines):
    check_dataset(folder, lines)


LOG_ROWS = st.dictionaries(
    st.sampled_from(["step", "reward/mean", "reward", "kl", "loss/total", "stage", "grad_norm/total", "x"]),
    CELLS,
    max_size=5,
)
LOGS = st.lists(LOG_ROWS.map(lambda r: json.dumps(r).encode()) | BYTES, max_size=15)


def check_log(folder: Path, lines: list[bytes]) -> None:
    file = folder / "metrics.jsonl"
    file.write_bytes(b"\n".join(lines))
    survives(lambda: diagnose_log(read(str(file))))


@given(LOGS)
@FEW
def test_logs(folder, lines):
    check_log(folder, lines)


@pytest.mark.slow
@given(LOGS)
@MANY
def test_many_logs(folder, lines):
    check_log(folder, lines)


def test_the_mutations_reach_both_ends():
    """The fuzz would prove nothing if every input failed, or none did."""
    import tomllib

    table = tomllib.loads(RECIPES[0].read_text())
    parse_recipe(mutated(table, []))
    with pytest.raises(AnygrpoError):
        parse_recipe(mutated(table, [(0, "add", "épée", 1), (1, "set", "", {"x": 1})]))
    assert tomli_w.dumps(table)

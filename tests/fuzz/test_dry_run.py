"""`anygrpo train --dry-run` of recipes spoilt by values of the right type: success, or an error with its cure.

Random types are mostly refused at the door (test_inputs.py); these go on to the derived numbers. Another count than
10,000: `DRY_RUNS=500 SEED=2`.
"""

from __future__ import annotations

import contextlib
import copy
import io
import os
import random
import tomllib
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import tomli_w

from anygrpo.cli.main import main
from anygrpo.families import kinds, resolve
from anygrpo.recipe.recipe import Recipe
from anygrpo.recipe.reference import FIXED, tables

RECIPES = sorted((Path(__file__).parents[2] / "recipes").glob("*/*.toml"))
WHOLE = [0, 1, -1, 2, 3, 7, 10**9, 2**31, 2**63 - 1, 2**63, -(2**63), 10**40]
REAL = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    1e-300,
    5e-324,
    1e300,
    1.7976931348623157e308,
    float("nan"),
    float("inf"),
    -float("inf"),
]
WORDS = [
    "",
    " ",
    "auto",
    "none",
    "a" * 5000,
    "\x1b[31m",
    "../../x",
    "a\x00b",
    "/",
    "~",
    "x.py:",
    ":f",
    "py:f:g",
    "\u202e",
    "{x}",
    "%s",
]
NAMES = [
    "grpo",
    "supervised",
    "rce",
    "zscore",
    "ppo",
    "gspo",
    "k1",
    "exact",
    "tokens",
    "linear",
    "cosine",
    "cpu",
    "cuda:99",
    "bfloat16",
]


def leaves(node: Any) -> list[tuple[Any, Any]]:
    """(holder, key) of each value that is no table."""
    pairs = list(node.items() if isinstance(node, dict) else enumerate(node))
    deeper = [place for _, value in pairs if isinstance(value, dict | list) for place in leaves(value)]
    return [(node, key) for key, value in pairs if not isinstance(value, dict)] + deeper


def like(value: Any, rng: random.Random) -> Any:
    """Another value of this type, and at times of a neighbour's."""
    if isinstance(value, bool):
        return rng.choice([True, False, 0, 1])
    if isinstance(value, int | float):
        return rng.choice(WHOLE if isinstance(value, int) == (rng.random() < 0.8) else REAL)
    if isinstance(value, str):
        return rng.choice(WORDS + NAMES)
    made = list(value) if isinstance(value, list) else []
    return rng.choice([[], made * 2, made[:1], made[::-1], [made], made + [like(x, rng) for x in made[:1]]])


def given(table: dict[str, Any]) -> list[tuple[str, str]]:
    """(table, key) of every setting that this recipe could give."""
    sections = {name: tables()[name] for name in FIXED} | {"": Recipe}
    sections |= {
        name: resolve(kinds(name)[table[name]["kind"]].settings) for name in ("policy", "task") if name in table
    }
    return [(name, key) for name, section in sections.items() for key in section.model_fields]


def spoil(table: dict[str, Any], keys: list[tuple[str, str]], rng: random.Random) -> None:
    """One to three values of the recipe changed, or keys added that it does not give."""
    for _ in range(rng.randrange(1, 4)):
        if rng.random() < 0.6:
            holder, key = rng.choice(leaves(table))
        else:
            name, key = rng.choice(keys)
            holder = table.setdefault(name, {}) if name else table
        if isinstance(holder, dict) or (isinstance(holder, list) and isinstance(key, int)):
            new = [rng.choice(WHOLE), rng.choice(REAL), rng.choice(WORDS + NAMES), True, [], [1, 2]]
            holder[key] = like(holder[key], rng) if isinstance(holder, list) or key in holder else rng.choice(new)


def dry_runs(folder: Path, count: int, seed: int) -> Counter[int]:
    """How many ended with each exit code."""
    rng, ended, file = random.Random(seed), Counter[int](), folder / "recipe.toml"
    recipes = [tomllib.loads(path.read_text()) for path in RECIPES]
    keys = [given(table) for table in recipes]
    for _ in range(count):
        which = rng.randrange(len(recipes))
        table = copy.deepcopy(recipes[which])
        spoil(table, keys[which], rng)
        file.write_text(tomli_w.dumps(table))
        said = io.StringIO()
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(said):
            code = main(["train", str(file), "--dry-run", *(["--all", "--trial", "0"] if rng.random() < 0.3 else [])])
        ended[code] += 1
        assert code in (0, 2, 3), f"{said.getvalue()}\n{file.read_text()}"
        assert (code == 0) == ("anygrpo: " not in said.getvalue()), said.getvalue()
    return ended


def test_some(tmp_path):
    ended = dry_runs(tmp_path, 150, seed=7)
    assert min(ended[0], ended[2]) > 15, ended  # it would prove nothing if every input failed, or none did


@pytest.mark.parametrize("key", ["layers"])
def test_a_network_of_absurd_depth_is_refused_before_it_is_built(key, tmp_path, capsys):
    """A dry run of 10,000,000 layers took all of the machine's memory."""
    recipe = next(path for path in RECIPES if 'kind = "motion"' in path.read_text())
    code = main(["train", str(recipe), "--dry-run", f"--policy.{key}", "10000000"])
    assert code == 2
    assert "1024" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_many_dry_runs(tmp_path):
    count = int(os.environ.get("DRY_RUNS", "10000"))
    ended = dry_runs(tmp_path, count, seed=int(os.environ.get("SEED", "1")))
    print(dict(ended))
    assert sum(ended.values()) == count

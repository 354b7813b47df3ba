"""The recipes of selection are valid, the mended run differs from the flat one in its faults alone, the space fits."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from anygrpo.cli.main import main
from anygrpo.doctor import diagnose_log, read
from anygrpo.recipe.load import load_recipe
from anygrpo.sweep.search import configured, read_space

FOLDER = Path(__file__).parents[2] / "recipes" / "selection"
RECIPES = sorted(p for p in FOLDER.glob("*.toml") if p.name != "space.toml")


@pytest.mark.parametrize("path", RECIPES, ids=lambda p: p.stem)
def test_recipes_are_valid(path):
    assert load_recipe(path).resolved_stages()


def test_the_mended_run_lacks_the_faults_and_keeps_the_rest():
    flat, mended = (load_recipe(FOLDER / f"flat_line{x}.toml") for x in ("", "_mended"))
    assert flat.policy.dropout_in_scoring
    assert not mended.policy.dropout
    assert [f.kind for f in flat.algorithm.filters] == ["top_k_by_reward"]
    assert "top_k_by_reward" not in [f.kind for f in mended.algorithm.filters]
    assert (flat.task.live, flat.policy.model) == (mended.task, mended.policy.model)


def test_the_ready_space_fits_its_recipe():
    space = read_space(FOLDER / "space.toml")
    table = tomllib.loads((FOLDER / "stored.toml").read_text())
    for pick in (0, -1):
        values = {k: v[pick] if isinstance(v, list) else (v.low, v.high)[pick] for k, v in space.settings.items()}
        made = configured(table, values, [])
        assert made.task.reward.hard == space.settings["task.reward.hard"][pick]
        assert made.resolved_stages()[0].epochs == space.settings["stages.0.epochs"][pick]
    assert {"task.subset", "algorithm.beta", "algorithm.advantage", "task.reward.beam"} <= space.settings.keys()


@pytest.mark.slow
def test_the_flat_lines_final_report_names_its_three_causes(tmp_path, monkeypatch):
    """Whole: the start, its candidates, the run, and the doctor on the folder it leaves. Half a minute of CPU."""
    monkeypatch.chdir(tmp_path)
    assert main(["train", str(FOLDER / "flat_line_start.toml"), "--quiet"]) == 0
    file = "runs/flat-line-start/candidates.json"
    assert main(["select", "generate", "runs/flat-line-start", "--queries", "640", "--out", file]) == 0
    assert main(["train", str(FOLDER / "flat_line.toml"), "--quiet"]) == 0
    found = diagnose_log(read(Path("runs/flat-line"))).findings
    heavy = [(f.rule, f.variant) for f in found if f.severity != "info"]
    assert heavy == [("wrong_reference", "scoring"), ("starved_groups", "filter"), ("weights_still", "")]

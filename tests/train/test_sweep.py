"""Sweeps: spaces are checked first, trials are resumable, and the verdict never claims what n cannot show."""

from __future__ import annotations

import pytest

from anygrpo.errors import ConfigError, DataError
from anygrpo.train.sweep import Result, configured, read_space, sweep, verdict

RECIPE = {
    "policy": {"kind": "selector", "features": 448, "width": 8, "shots": 1},
    "task": {"kind": "digits_vqa", "embedding": "ngrams", "pool": 4, "shots": 1, "evaluation_queries": 10},
    "algorithm": {"prompts_per_step": 2, "group_size": 2},
    "training": {"steps": 2, "threads": 1},
    "evaluation": {"metric": "eval/accuracy"},
}


def space(tmp_path, text):
    (tmp_path / "space.toml").write_text(text)
    return read_space(tmp_path / "space.toml")


GRID = """sampler = "grid"
[settings]
"optimizer.learning_rate" = [1e-5, 1e-3]
"algorithm.advantage" = ["zscore", "rank"]
"""


def test_a_grid_runs_whole_and_goes_on_where_it_stopped(tmp_path):
    grid = space(tmp_path, GRID)
    assert grid.count == 4
    two = grid.model_copy(update={"trials": 2})
    assert len(sweep(RECIPE, two, tmp_path / "s")) == 2
    first = (tmp_path / "s" / "trial-0000" / "metrics.jsonl").read_text()
    rows = sweep(RECIPE, grid, tmp_path / "s")
    assert len({tuple(r.settings.items()) for r in rows}) == 4
    assert (tmp_path / "s" / "trial-0000" / "metrics.jsonl").read_text() == first
    assert all(r.n == 10 and r.state == "complete" for r in rows)
    assert [r.value for r in rows] == sorted((r.value for r in rows), reverse=True)


def test_settings_reach_the_recipe():
    recipe = configured(RECIPE, {"optimizer.learning_rate": 1e-7, "algorithm.advantage": "rank"}, ["--seed", "4"])
    assert (recipe.optimizer.learning_rate, recipe.algorithm.advantage, recipe.seed) == (1e-7, "rank", 4)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('sampler = "grid"\n[settings]\n"a.b" = {low = 1, high = 2}', "a.b is a range"),
        ('[settings]\n"a.b" = {low = 2, high = 1}', "range from 2.0 to 1.0"),
        ('[settings]\n"a.b" = {low = 0, high = 1, log = true}', "log scale"),
        ("[settings]", "no settings to search"),
        ("trails = 4", "unknown key 'trails'"),
        ("x = [", "not valid TOML"),
    ],
)
def test_a_space_that_cannot_be_meant_is_refused(tmp_path, text, message):
    with pytest.raises(ConfigError, match=message):
        space(tmp_path, text)


def test_an_unknown_setting_is_found_before_the_first_trial(tmp_path):
    bad = space(tmp_path, '[settings]\n"optimizer.lerning_rate" = [1.0]')
    with pytest.raises(ConfigError, match="lerning_rate"):
        sweep(RECIPE, bad, tmp_path / "s")
    with pytest.raises(DataError, match="no space at"):
        read_space(tmp_path / "none.toml")


def test_the_verdict_says_what_cannot_be_told_apart():
    near = [Result(0, {}, "complete", 0.48, 0.0177, 800), Result(1, {}, "complete", 0.476, 0.0177, 800)]
    assert verdict(near).startswith("These settings are indistinguishable on n = 800: trials 0, 1 (2 of 2)")
    far = [Result(0, {}, "complete", 0.70, 0.01, 1500), Result(1, {}, "complete", 0.43, 0.01, 1500)]
    assert verdict(far).startswith("Trial 0 is better than all others on n = 1500")
    assert verdict([Result(0, {}, "pruned")]) == "No trial finished."

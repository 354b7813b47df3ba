"""Sweeps: spaces are checked first, trials are resumable, and the verdict never claims what n cannot show."""

from __future__ import annotations

import pytest
from sweeps import GRID, RECIPE, Study, answers

from anygrpo.errors import ConfigError, DataError
from anygrpo.sweep.results import Result, results, table, verdict
from anygrpo.sweep.search import configured, open_study, read_space, sweep


def space(tmp_path, text):
    (tmp_path / "space.toml").write_text(text)
    return read_space(tmp_path / "space.toml")


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
    assert all(r.paired for r in rows[1:])  # what each prompt scored was found where it was best
    assert [r.value for r in rows] == sorted((r.value for r in rows), reverse=True)


@pytest.mark.parametrize("sampler", ["tpe", "random"])
def test_who_joins_or_continues_a_sweep_does_not_draw_its_first_settings_again(tmp_path, sampler):
    line = f'sampler = "{sampler}"\n[settings]\n"optimizer.learning_rate" = {{ low = 1e-6, high = 1e-2, log = true }}\n'
    drawn = []
    for _ in range(3):  # three processes that start before any trial is over
        study = open_study(tmp_path / "s", space(tmp_path, line))
        drawn.append(study.ask().suggest_float("optimizer.learning_rate", 1e-6, 1e-2, log=True))
    assert len(set(drawn)) == 3


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


def test_a_metric_of_which_the_smallest_is_the_best_is_refused(tmp_path):
    flags = ["--evaluation.smaller-is-better", "true"]
    with pytest.raises(ConfigError, match="takes larger values of 'eval/accuracy' as better"):
        sweep(RECIPE, space(tmp_path, '[settings]\n"optimizer.learning_rate" = [1.0]'), tmp_path / "s", flags)


def test_pairing_sees_what_two_intervals_apart_cannot(tmp_path):
    answers(tmp_path, 0, range(58))
    answers(tmp_path, 1, range(50))  # wrong on 8 prompts that trial 0 gets right, and never the other way round
    best, other = results(Study(a=0.58, b=0.50), tmp_path)
    assert (best.number, best.gap) == (0, None)
    assert other.paired
    assert other.gap == pytest.approx(-0.08)
    assert other.gap_se == pytest.approx((0.08 * 0.92 * 100 / 99 / 100) ** 0.5)
    assert verdict([best, other]).startswith("Trial 0 is better than all others on n = 100 (95% intervals, paired")
    assert best.factor == pytest.approx(1.9842, abs=1e-4)  # one pair: t of 99
    assert "-0.0800 +- 0.0541" in table([best, other])


def test_without_prompts_in_common_the_intervals_are_unpaired_and_said_to_be(tmp_path):
    answers(tmp_path, 0, range(58))
    answers(tmp_path, 1, range(40), n=80)  # other prompts were judged
    best, other = results(Study(a=0.58, b=0.50), tmp_path)
    assert not other.paired
    assert other.gap_se == pytest.approx(0.05 * 2**0.5)
    assert verdict([best, other]).startswith("These settings are indistinguishable on n = 100: trials 0, 1 (2 of 2")
    assert "(unpaired)" in table([best, other])


def test_a_metric_that_is_no_mean_over_prompts_is_not_paired(tmp_path):
    answers(tmp_path, 0, range(58))
    answers(tmp_path, 1, range(50))
    assert not results(Study(a=0.9, b=0.8), tmp_path)[1].paired


def test_the_verdict_of_little():
    assert verdict([Result(0, {}, "pruned")]) == "No trial finished."
    assert verdict([Result(0, {}, "complete", 0.5, 0.1, 10)]).startswith("There is one value only")


def test_links_in_a_strangers_search_folder_are_not_written_through(tmp_path):
    mine = tmp_path / "mine"
    (mine / "checkpoints" / "step_00000001").mkdir(parents=True)
    (mine / "config.toml").write_text("# another project's")
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / "trial-0000").symlink_to(mine)
    before = sorted(str(p) for p in mine.rglob("*"))
    one = space(tmp_path, 'sampler = "grid"\n[settings]\n"optimizer.learning_rate" = [0.1]')
    assert len(sweep(RECIPE, one, tmp_path / "s")) == 1
    assert sorted(str(p) for p in mine.rglob("*")) == before
    assert not (tmp_path / "s" / "trial-0000").is_symlink()
    (tmp_path / "t").mkdir()
    (tmp_path / "t" / "study.db").symlink_to(tmp_path / "elsewhere.db")
    with pytest.raises(DataError, match=r"study\.db is a link"):
        sweep(RECIPE, one, tmp_path / "t")
    assert not (tmp_path / "elsewhere.db").exists()

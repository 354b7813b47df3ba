"""What `--dry-run --trial` forecasts: by hand, of a toy's real steps, and beside whole runs of three families."""

from __future__ import annotations

import tempfile
from pathlib import Path
from types import SimpleNamespace

import pytest
from runs import table, toml_of

from anygrpo.cli.main import main
from anygrpo.errors import ConfigError
from anygrpo.recipe.load import parse_recipe
from anygrpo.watch import trial
from anygrpo.watch.cost import Cost, total
from anygrpo.watch.forecast import cost_of, forecast, lines
from anygrpo.watch.trial import StageTrial, Trial, measured

ROOT = Path(__file__).parents[2]


def clocks(*seconds: float) -> list[Cost]:
    """Each by the clock, half of it of the processor, a tenth waited for."""
    return [Cost(s, s / 2, s / 10) for s in seconds]


def a_trial(**other) -> Trial:
    stage = StageTrial(100, 4, 10, 10, costs=clocks(9, 2, 4, 2), measured=[True, False, True, False])
    given = {
        "stages": [stage], "start": Cost(5.0), "evaluations": clocks(3, 5), "checkpoint": Cost(0.5), "end": Cost(2.0),
        "memory_gb": 1.5, "device_gb": None, "checkpoint_bytes": 1000, "row_bytes": 10.0, "samples_bytes": 20.0,
        "evaluation_bytes": 30.0, "other_bytes": 7,
    }  # fmt: skip
    return Trial(**given | other)


def test_seconds_of_a_stage_by_hand():
    """The first step 9, nine more that measure at 4, ninety others at 2."""
    clock = 9 + 9 * 4 + 90 * 2
    made = cost_of(a_trial().stages[0])
    assert (made.clock, made.processor) == (clock, clock / 2)
    assert made.alone == pytest.approx(0.9 * clock)


def test_where_only_the_first_step_measured_it_stands_for_the_others():
    assert cost_of(StageTrial(100, 0, 10, 0, clocks(9, 2, 2), [True, False, False])).clock == 10 * 9 + 90 * 2
    assert cost_of(StageTrial(1, 0, 1, 0, clocks(9), [True])).clock == 9
    assert cost_of(StageTrial(0, 0, 0, 0)).clock == 0


def test_a_run_by_hand():
    recipe = parse_recipe(table(training={"steps": 100, "checkpoint_every": 30, "keep_checkpoints": 2}))
    made = forecast(a_trial(), recipe)
    parts = {"start": 5, "steps": 225, "evaluations": 16, "checkpoints": (3 + 2) * 0.5, "end": 2}
    assert {name: part.clock for name, part in made.parts.items()} == parts
    assert made.cost.clock == 250.5
    assert made.cost.waited == pytest.approx((225 + 16) / 10)
    assert made.disk_bytes == 3 * 1000 + 101 * 10 + 10 * 20 + 5 * 30 + 7
    assert made.memory_gb == 1.5
    assert forecast(a_trial(device_gb=7.0), recipe).memory_gb == 7


@pytest.mark.parametrize(("evaluations", "keep", "checkpoints"), [(0, 2, 1), (1, 2, 2), (2, 2, 3), (2, 1, 2)])
def test_checkpoints_that_lie_there_at_the_end(evaluations, keep, checkpoints):
    """40 steps, one every 50: the last; a best one; and under its step a best one from before the end."""
    recipe = parse_recipe(table(training={"steps": 40, "checkpoint_every": 50, "keep_checkpoints": keep}))
    stage = StageTrial(40, evaluations, 0, 0, clocks(1, 1), [False, False])
    given = {"row_bytes": 0.0, "samples_bytes": 0.0, "evaluation_bytes": 0.0, "other_bytes": 0}
    assert forecast(a_trial(stages=[stage], **given), recipe).disk_bytes == checkpoints * 1000


def test_a_busy_machine_is_told_of():
    """Half of the trial waited for a processor: alone the run takes half as long."""
    halves = [Cost(s, s / 2, s / 2) for s in (9, 2, 4, 2)]
    stage = StageTrial(100, 0, 10, 10, halves, [True, False, True, False])
    parts = {"start": Cost(6, 3, 3), "evaluations": [], "checkpoint": Cost(), "end": Cost()}
    busy = a_trial(stages=[stage], **parts)
    head, why, told = lines(forecast(busy, parse_recipe(table())), busy)
    assert "1 min 56 s" in head  # (6 + 225) / 2
    assert "1 min 56 s of processor time" in why
    assert "3 min 51 s" in told
    quiet = a_trial(evaluations=[Cost(4.0)], stages=[StageTrial(1, 0, 1, 0, [Cost(9.0)], [True])])
    assert len(lines(forecast(quiet, parse_recipe(table())), quiet)) == 2


def test_a_trial_takes_the_first_steps_and_the_last_and_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("WORLD_SIZE", "8")  # as for the memory of a rank of eight
    stages = [{"name": "a", "steps": 4000}, {"name": "b", "steps": 2}]
    doctor = {"mode": "act"}  # which must not steer
    recipe = parse_recipe(table(tmp_path / "run", stages=stages, evaluation={"every": 500}, doctor=doctor))
    found = measured(recipe, 3)
    first, second = found.stages
    assert (first.steps, first.evaluations, first.measuring) == (4000, 8, 400)
    assert 3 <= len(first.costs) <= 4000
    assert total(first.costs).clock < 2 * trial.LEAST_SECONDS
    assert total(first.costs).processor > 0
    assert first.measured[:2] == [True, False]
    assert (second.steps, len(second.costs), second.evaluations) == (2, 2, 1)
    assert found.checkpoint_bytes > 100
    assert 0.1 < found.memory_gb < 4
    assert found.start.clock > found.start.waited > 0
    assert found.start.processor > 0
    assert list(tmp_path.iterdir()) == []


def test_checkpoints_that_the_loop_writes_are_no_part_of_a_step(monkeypatch):
    """Steps of 1 s that end at 11, 12 and 13.5 s: the second is a new best, and .5 s went into its checkpoint."""
    clock = [10.0]
    stage, of = SimpleNamespace(end=100), lambda step: 0
    run = SimpleNamespace(stages=[stage], stage_index=of, measuring=of, best_step=-1, step=0)
    monkeypatch.setattr(trial, "_planned", lambda run, planned: StageTrial(100, 4, 0, 0))
    monkeypatch.setattr(trial, "_cost_of_a_checkpoint", lambda run: Cost(0.5))
    monkeypatch.setattr(trial, "now", lambda: Cost(clock[0], clock[0] / 2, 0.0))
    taker = trial._Taker(run, 3)
    for step, (now, best) in enumerate([(11.0, -1), (12.0, 1), (13.5, 1)]):
        clock[0], run.best_step = now, best
        taker({"step": step, "time/step": 1.0}, run)
    assert [cost.clock for cost in taker.stages[0].costs] == [1.0, 1.0, 1.0]
    assert taker.start == Cost(10.0, 5.0, 0.0)


def test_a_trial_that_fails_says_why(tmp_path):
    (tmp_path / "mine.py").write_text("def policy(seed):\n    return 3\n")
    recipe = parse_recipe(table(policy={"kind": "python", "function": f"{tmp_path}/mine.py:policy"}))
    with pytest.raises(ConfigError, match=r"mine\.py:policy"):  # the error of the run itself
        measured(recipe, 3)


def test_the_command_line_forecasts_and_starts_nothing(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(trial, "LEAST_SECONDS", 0.0)
    recipe = toml_of(tmp_path / "run", tmp_path / "r.toml")
    assert main(["train", str(recipe), "--dry-run", "--trial", "2"]) == 0
    out = capsys.readouterr().out
    assert "# forecast: " in out
    assert "from 10 steps" in out  # the subprocess has its own seconds: all ten are short
    assert not (tmp_path / "run").exists()
    assert main(["train", str(recipe), "--trial", "2"]) == 2
    assert "--dry-run" in capsys.readouterr().err


def test_no_trial_where_none_is_asked_for(tmp_path, capsys):
    recipe = toml_of(tmp_path / "run", tmp_path / "r.toml")
    for words in (["--dry-run"], ["--dry-run", "--all", "--trial", "0"]):
        assert main(["train", str(recipe), *words]) == 0
        assert "forecast" not in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        ["recipes/selection/digits_vqa.toml", "--stages.1.steps", "200"],
        ["recipes/diffusion/digits.toml", "--training.steps", "40"],
        ["recipes/llm/demo.toml", "--training.steps", "16"],
        ["recipes/restoration/gates.toml", "--stages.0.steps", "300", "--stages.1.steps", "30"],
    ],
    ids=["selection", "diffusion", "llm", "restoration"],
)
def test_a_forecast_is_within_a_quarter_of_the_run(words, monkeypatch):
    """Seconds less those in which other work had the processor: how busy the machine will be nobody can forecast."""
    import forecast as bench  # bench/forecast.py

    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # what one thread waited for is what the run waited for
    made = bench.compared(words[0], words[1:])
    del made["clock"]
    for what, (said, real) in made.items():
        assert said == pytest.approx(real, rel=0.25), what

"""A run's state and its small acts."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from runs import run_of
from toys import Bandit

from anygrpo.core.rollout import Batch, Rollout
from anygrpo.errors import ConfigError, TrainingError
from anygrpo.train import run as module
from anygrpo.train.batches import prepare
from anygrpo.train.collect import begin
from anygrpo.train.folder import read_rows
from anygrpo.train.loop import train
from anygrpo.train.terms import Tally


@pytest.fixture
def made(tmp_path):
    runs = []

    def make(*flags, **extra):
        runs.append(run_of(tmp_path / f"run{len(runs)}", *flags, **extra))
        return runs[-1]

    yield make
    for run in runs:
        run.close()


def logged(run):
    file = run.folder.path / "log.txt"
    return file.read_text() if file.exists() else ""


def line(start, end):
    return {"kind": "linear", "start": start, "end": end}


# --- seeds and settings


def test_a_seed_for_each_purpose_of_each_step(made):
    run = made("--seed", "5")
    assert run.seed(2, salt=3) == 5 * 1_000_003 + 2 * 101 + 3
    assert run.seed(2) == 5 * 1_000_003 + 202
    big = made("--seed", "3000")
    assert big.seed(1) == 3000 * 1_000_003 + 101 - (2**31 - 1)


def test_entering_a_step_seeds_torch_and_starts_its_clock(made):
    run = made()
    run._seconds, run.memory = {"old": 9.0}, "kept"
    planned, numbers = run.enter(3)
    assert torch.initial_seed() == run.seed(3) == 303
    assert run._seconds == {}
    assert run.memory_before == "kept"
    assert planned is run.stages[0]
    assert numbers.learning_rate == 0.02


def test_a_controller_holds_beta_and_the_doctor_turns_it(made):
    run = made(algorithm={"kl_controller": "band", "beta": 0.5})
    run.controls.beta = 3.0
    assert run.enter(0)[1].beta == 1.5
    run.kl_state = SimpleNamespace(beta=0.25)
    assert run.enter(1)[1].beta == 0.75
    fixed = made(algorithm={"beta": line(1.0, 0.0)}, training={"steps": 5})
    assert fixed.enter(0)[1].beta == 1.0
    fixed.kl_state = SimpleNamespace(beta=99.0)
    assert 0 < fixed.enter(3)[1].beta < 1


def test_the_samplers_temperature_is_in_force(made):
    run = made(algorithm={"temperature": line(2.0, 1.0)}, training={"steps": 5})
    run.enter(0)
    assert run.policy.temperature == run.in_force["temperature"] == 2.0
    run.enter(2)
    assert 1.0 < run.policy.temperature < 2.0
    assert run.settings_at(2) == run.in_force
    run.ahead, run.adaptive.ahead = object(), 1.75  # samples of the step were drawn at that
    run.enter(2)
    assert run.policy.temperature == 1.75
    run.adaptive.ahead = None
    run.enter(2)
    assert run.policy.temperature != 1.75


def test_schedules_count_from_their_stages_first_step(made):
    stages = [
        {"name": "a", "steps": 2},
        {
            "name": "b",
            "steps": 4,
            "algorithm": {"temperature": line(2.0, 1.0)},
            "optimizer": {"learning_rate": line(0.4, 0.0)},
        },
    ]
    run = made(stages=stages)
    assert run.total_steps == 6
    assert run.enter(2)[1].learning_rate == 0.4
    assert run.in_force["temperature"] == 2.0
    assert run.enter(0)[0].stage.name == "a"


# --- stages


def test_what_a_stage_says_of_the_policy(made):
    run = made()
    run.enter(0)
    assert (run.policy.corrects, run.policy.one_update, run.teaches) == (False, True, False)
    for extra in (
        {"algorithm": {"epochs": 2}},
        {"algorithm": {"minibatches": 2}},
        {"algorithm": {"importance": "truncate"}},
        {"training": {"off_policy_steps": 1, "steps": 3}, "algorithm": {"objective": "ppo"}},
        {"stages": [{"name": "s", "method": "grpo", "source": "stored", "steps": 2}]},
    ):
        run = made(**extra)
        run.enter(0)
        assert not run.policy.one_update
        assert run.policy.corrects == ("importance" in extra.get("algorithm", {}))
    both = made(algorithm={"epochs": 2, "minibatches": 2})
    both.enter(0)
    assert not both.policy.one_update
    rce = made(algorithm={"importance": "truncate"}, stages=[{"name": "s", "method": "rce", "steps": 2}])
    rce.enter(0)
    assert not rce.policy.corrects


@pytest.mark.parametrize(
    ("stage", "weight", "targets", "teaches"),
    [
        ("grpo", 0.3, False, True),
        ("grpo", 0.0, False, False),
        ("grpo", 0.3, True, False),
        ("supervised", 0.3, False, False),
    ],
)
def test_which_stages_teach_beside_their_samples(made, stage, weight, targets, teaches):
    run = made(algorithm={"lambda_supervised": weight}, stages=[{"name": "s", "method": stage, "steps": 2}])
    run.policy.targets_in_samples = targets
    run.enter(0)
    assert run.teaches == teaches


def test_a_second_stage_begins_anew(made):
    run = made(stages=[{"name": "a", "steps": 2}, {"name": "b", "steps": 2, "optimizer": {"weight_decay": 0.5}}])
    run.enter(0)
    assert run.anchor is None
    first = run.updater
    run.memory, run.draws, run.first_draws = "kept", 7, {1: 3}
    with torch.no_grad():
        run.policy.net.weight.fill_(0.25)
    run.enter(1)
    assert run.updater is first
    run.enter(2)
    assert run.updater is not first
    assert run.updater.config.weight_decay == 0.5
    assert (run.memory, run.draws, run.first_draws, run.entered) == (None, 0, {}, 1)
    assert torch.equal(run.anchor["weight"], torch.full((5, 5), 0.25))
    with run.policy.reference():
        assert float(run.policy.net.weight[0, 0].detach()) == 0.25


def test_a_stage_that_goes_on_keeps_what_it_had(made):
    run = made(stages=[{"name": "a", "steps": 2}, {"name": "b", "steps": 3}])
    run.memory, run.draws = "kept", 7
    run.enter(3)  # resumed within the second stage
    assert (run.memory, run.draws, run.anchor) == ("kept", 7, None)
    assert [run.stage_index(step) for step in range(5)] == [0, 0, 1, 1, 1]


# --- before and after updates


def batch(rows):
    zeros = torch.zeros(rows, 1)
    samples = {"x": torch.zeros(rows, 5), "arms": torch.zeros(rows, 1, dtype=torch.int64)}
    return Batch(samples, zeros, None, zeros.bool(), zeros, zeros, zeros[:, 0])


def test_speed_is_settled_once_and_kept(made, capsys, monkeypatch):
    run = made()
    run.enter(0)
    asked = []

    def settle(samples, beside):
        asked.append((len(samples["x"]), beside))
        run.policy.speed = {"rows": 3}
        return "three rows"

    monkeypatch.setattr(run.policy, "settle", settle, raising=False)
    run.settle(batch(0))
    assert asked == []
    run.settle(batch(4))
    run.settle(batch(4))
    assert asked == [(4, run.updater.to_come(True))]
    assert run.folder.speed() == {"rows": 3}
    assert "three rows" in (run.folder.path / "log.txt").read_text()
    assert capsys.readouterr().err == "three rows\n"
    assert run._seconds["settle"] > 0


def test_a_policy_with_nothing_open_says_nothing(made, capsys):
    run = made()
    run.enter(0)
    run.settle(batch(2))
    assert capsys.readouterr().err == ""
    assert not (run.folder.path / "speed.json").exists()


def test_the_clock_adds_up_by_phase(made, monkeypatch):
    run = made()
    now = iter([10.0, 11.0, 20.0, 22.5, 30.0, 30.25])
    monkeypatch.setattr(module.time, "perf_counter", lambda: next(now))
    for phase in ("sample", "sample", "score"):
        with run.clock(phase):
            pass
    assert run._seconds == {"sample": 3.5, "score": 0.25}


@pytest.mark.parametrize(("every", "steps"), [(0, []), (1, [0, 1, 2, 3, 4]), (2, [0, 2, 4])])
def test_gradient_norms_on_the_recipes_rhythm(made, every, steps):
    run = made(training={"gradient_norms_every": every})
    assert [s for s in range(5) if run.measuring(s)] == steps
    assert run.measures_updates == (every > 0)


def test_rows_of_a_block(made):
    run = made()
    assert run.block_rows == run.policy.block_rows
    assert made(training={"rows_per_block": 7}).block_rows == 7


def test_updates_are_counted_and_twenty_refusals_in_a_row_end_the_run(made):
    run = made()
    run.apply({"grad_norm/total": 1.0})
    assert (run.version, run.policy.version) == (1, 1)
    for _ in range(19):
        run.apply({"grad_norm/total": math.nan})
    assert run.version == 1
    run.apply({"grad_norm/total": 2.0})
    assert run.version == 2
    for _ in range(19):
        run.apply({"grad_norm/total": math.inf})
    with pytest.raises(TrainingError, match="20 updates in a row"):
        run.apply({"grad_norm/total": math.nan})


# --- the row of a step


def recorded(run, step=0, update=None, **changes):
    planned, numbers = run.enter(step)
    rollout = begin(run, planned, step, run.clock)()
    prepared = prepare(rollout, planned.stage, numbers, None)
    for name, value in changes.items():
        setattr(run, name, value)
    rows = []
    run.observers.append(lambda row, _: rows.append(row))
    run.record(step, planned, numbers, prepared, rollout, Tally(), update or {})
    return rows[-1], rollout


def test_a_row_of_numbers(made, monkeypatch):
    run = made(
        algorithm={"beta": 0.3, "temperature": 0.5, "prompts_per_step": 3, "group_size": 4}, evaluation={"every": 5}
    )
    monkeypatch.setattr(module.measure, "memory_gb", lambda device: 1.5)
    row, _ = recorded(run, 1, {"grad_norm/total": 2.0}, _seconds={"sample": 2.0, "update": 0.5})
    assert (row["step"], row["stage"], row["lr"], row["beta"], row["temperature"]) == (1, "grpo", 0.02, 0.3, 0.5)
    assert (row["samples/seen"], row["steps_refused"], row["grad_norm/total"]) == (12.0, 0.0, 2.0)
    assert (row["time/sample"], row["time/update"], row["time/step"]) == (2.0, 0.5, 2.5)
    assert row["throughput/decisions_per_s"] == 12 / 2.5
    assert row["memory/peak_gb"] == 1.5
    assert "eval/reward" not in row
    assert read_rows(run.folder.metrics)[0][-1]["samples/seen"] == 12.0
    row, _ = recorded(run, 2)
    assert row["samples/seen"] == 24.0


def test_a_short_steps_throughput(made):
    run = made(algorithm={"prompts_per_step": 2, "group_size": 4})
    assert recorded(run, 0, _seconds={"update": 0.5})[0]["throughput/decisions_per_s"] == 16.0
    assert recorded(run, 0, _seconds={})[0]["throughput/decisions_per_s"] == pytest.approx(8e9)


def test_what_follows_the_samples_is_told_of_each_step(made):
    run = made()
    told = []
    run.adaptive.follow = lambda stage, every, row: told.append((stage, every.shape, row["step"]))
    recorded(run, 2)
    assert told == [(run.stages[0].stage, (8, 8, 1), 2)]


def test_what_was_drawn_in_vain_was_drawn(made):
    run = made(algorithm={"prompts_per_step": 2, "group_size": 4})
    planned, numbers = run.enter(0)
    rollout = begin(run, planned, 0, run.clock)()
    prepared = prepare(rollout, planned.stage, numbers, None)
    rows = []
    run.observers.append(lambda row, _: rows.append(row))
    run._seconds = {"update": 2.0}
    run.record(0, planned, numbers, prepared, replace(rollout, discarded=rollout.light()), Tally(), {})
    assert rows[0]["samples/seen"] == 16.0
    assert rows[0]["groups/drawn"] == 4.0
    assert rows[0]["throughput/decisions_per_s"] == 4.0  # of what was trained on


def test_the_controller_follows_what_was_measured(made):
    run = made(algorithm={"kl_controller": "band", "beta": 0.4, "kl_low": 0.1, "kl_high": 0.2, "kl_factor": 2.0})
    recorded(run, 0, {"kl/reference": 5.0})
    assert run.kl_state.beta == 0.8
    recorded(run, 1, {})
    assert run.kl_state.beta == 0.8


def test_a_proportional_controller_counts_the_samples(made):
    run = made(algorithm={"kl_controller": "proportional", "beta": 0.4, "kl_target": 1.0, "kl_horizon": 640})
    recorded(run, 0, {"kl/reference": 5.0})
    assert run.kl_state.beta == pytest.approx(0.4 * (1 + 0.2 * 64 / 640))


@pytest.mark.parametrize(("every", "due"), [(2, [1, 3, 4]), (None, [4]), (5, [4])])
def test_the_last_step_is_evaluated_whatever_the_rhythm(made, monkeypatch, every, due):
    monkeypatch.setattr(module, "evaluate", lambda *given: {"eval/reward": 0.5})
    run = made(training={"steps": 5}, evaluation={} if every is None else {"every": every})
    assert [s for s in range(5) if "eval/reward" in recorded(run, s)[0]] == due


# --- evaluation


def evaluated(run, monkeypatch, *values, metric="eval/reward", **more):
    seen = []

    def evaluate(policy, task, config, seed, file):
        seen.append((seed, file.name))
        return {"eval/reward": 0.0, metric: values[len(seen) - 1], **more}

    monkeypatch.setattr(module, "evaluate", evaluate)
    for step in range(len(values)):
        run.evaluated(run.stages[-1].task, step)
    return seen


def test_the_best_is_the_largest_and_the_first_of_equals(made, monkeypatch):
    run = made()
    seen = evaluated(run, monkeypatch, 0.3, 0.5, 0.5, 0.4)
    assert (run.best, run.best_step, run.evaluations_since_best) == (0.5, 1, 2)
    assert seen == [(run.seed(s, salt=7), f"step_{s + 1:08d}.jsonl") for s in range(4)]
    assert run.stop_reason is None
    assert run._seconds["evaluate"] >= 0


def test_the_best_of_a_distance_is_the_smallest(made, monkeypatch):
    run = made(evaluation={"metric": "eval/distance", "smaller_is_better": True})
    evaluated(run, monkeypatch, 3.0, 2.0, 2.5, metric="eval/distance")
    assert (run.best, run.best_step, run.evaluations_since_best) == (-2.0, 1, 1)


def test_patience_counts_evaluations_without_a_new_best(made, monkeypatch):
    run = made(evaluation={"patience": 2})
    evaluated(run, monkeypatch, 0.5, 0.4)
    assert run.stop_reason is None
    evaluated(run, monkeypatch, 0.5)  # no better
    assert run.stop_reason == "no better eval/reward in 2 evaluations"
    assert "stopping: no better" in (run.folder.path / "log.txt").read_text()


def test_what_decides_nothing_is_no_best(made, monkeypatch):
    run = made()
    evaluated(run, monkeypatch, 0.9, **{"eval/decides": 0.0})
    assert run.best_step == -1
    evaluated(
        run, monkeypatch, 0.9, **{"eval/decides": 1.0, "eval/faults": 0.5}
    )  # enough of it is known, the task says
    assert run.best_step == 0


@pytest.mark.parametrize(("faults", "best"), [(0.01, 0), (0.011, -1)])
def test_too_many_faults_of_the_machine_decide_nothing(made, monkeypatch, faults, best):
    run = made()
    measured = {"eval/reward": 0.9, "eval/faults": faults}
    monkeypatch.setattr(module, "evaluate", lambda *given: dict(measured))
    assert run.evaluated(run.stages[-1].task, 0) == measured
    assert run.best_step == best
    said = "1.1% of the held-out answers went unscored; none is called best" in logged(run)
    assert said == (best == -1)


def test_a_metric_that_is_not_there_is_said_of_the_last_task_alone(made, monkeypatch):
    run = made(evaluation={"metric": "eval/other"})
    monkeypatch.setattr(module, "evaluate", lambda *given: {"eval/reward": 0.5, "eval/invalid": 0.0})
    with pytest.raises(ConfigError, match="eval/other"):
        run.evaluated(run.stages[-1].task, 0)
    assert run.evaluated(object(), 0) == {"eval/reward": 0.5, "eval/invalid": 0.0}
    assert run.best_step == -1


@pytest.mark.parametrize(("step", "at_start", "rows"), [(0, True, 1), (1, True, 0), (0, False, 0)])
def test_numbers_before_the_first_step(made, monkeypatch, step, at_start, rows):
    run = made(evaluation={"at_start": at_start})
    run.step, run._seconds, seen = step, {"old": 1.0}, []

    def evaluate(policy, task, config, seed, file):
        seen.append((seed, file))
        return {"eval/reward": 0.5}

    monkeypatch.setattr(module, "evaluate", evaluate)
    run.evaluate_start()
    assert len(seen) == rows
    if rows:
        assert seen == [(run.seed(0, salt=7), run.folder.path / "evaluations" / "step_00000000.jsonl")]
        assert run._seconds == {}
        assert read_rows(run.folder.metrics)[0] == [{"step": -1, "stage": "start", "eval/reward": 0.5}]


def test_nothing_held_out_writes_no_row(made, monkeypatch):
    run = made()
    monkeypatch.setattr(module, "evaluate", lambda *given: {})
    run.evaluate_start()
    assert not run.folder.metrics.exists()
    monkeypatch.setattr(module, "evaluate", lambda *given: {"eval/reward": 1.0, "eval/invalid": 0.0})
    other = made(evaluation={"metric": "eval/none"})
    with pytest.raises(ConfigError, match="eval/none"):
        other.evaluate_start()


# --- samples, sinks


@pytest.mark.parametrize(("every", "written"), [(0, []), (1, [0, 1, 2, 3]), (2, [0, 2])])
def test_samples_are_written_on_the_recipes_rhythm(made, every, written):
    run = made(training={"samples_every": every, "samples_kept": 2})
    prompts = run.stages[0].task.prompts(0, 3)
    rollout = run.policy.sample(prompts, 4, 0)
    for step in range(4):
        run.show(step, rollout, lambda most: [{"row": i} for i in range(3)][:most])
    names = sorted(f.name for f in (run.folder.path / "samples").iterdir())
    assert names == [f"step_{s:08d}.jsonl" for s in written]
    for name in names:
        assert read_rows(run.folder.path / "samples" / name)[0] == [{"row": 0}, {"row": 1}]
    assert logged(run) == ""


def test_invalid_samples_are_logged_each_step(made):
    run = made(training={"samples_every": 0})
    rollout = Rollout.of({}, torch.zeros(1, 1, 1), torch.ones(1, 1, 1, dtype=torch.bool), reasons={(0, 0): "bad: x"})
    run.show(3, rollout, lambda most: [])
    assert "step 3: sample 0 of prompt 0 is invalid: bad: x" in logged(run)


def test_all_that_is_open_is_closed_and_rows_go_everywhere(made):
    run = made()
    told, closed = [], []
    sink = SimpleNamespace(write=lambda row: told.append(("sink", row)), close=lambda: closed.append("sink"))
    run.sinks.append(sink)
    run.observers.append(lambda row, who: told.append(("observer", who is run)))
    run.stages[0].task.close = lambda: closed.append("task")
    run.emit({"step": 0})
    assert told == [("sink", {"step": 0}), ("observer", True)]
    run.close()
    assert closed == ["sink", "task"]
    assert run.folder._lock.closed


def test_a_run_of_no_steps():
    run = module.Run(SimpleNamespace(training=SimpleNamespace(gradient_norms_every=0)), Bandit(0), [], None, [])
    assert (run.total_steps, run.step, run.version, run.best_step, run.entered) == (0, 0, 0, -1, -1)
    assert (run.best, run.evaluations_since_best, run.samples_seen) == (-math.inf, 0, 0)


def test_a_later_stage_is_told_to_the_policy_and_a_stored_one_is_no_matter_of_samples(made, monkeypatch):
    told, seen = [], []
    run = made(stages=[{"name": "a", "steps": 1}, {"name": "b", "method": "supervised", "steps": 1}])
    monkeypatch.setattr(run.policy, "new_stage", lambda: told.append(1))
    monkeypatch.setattr(run._unusable, "see", lambda rollout, elsewhere=False: seen.append(elsewhere))
    train(run)
    assert told == [1]
    assert seen == [False, True]
    assert run.seed(4) == run.seed(4, 0)

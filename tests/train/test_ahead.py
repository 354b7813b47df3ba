"""One-step-off rollouts: which weights sample what, exact resume, and threads that change nothing."""

from __future__ import annotations

import pytest
import torch
import toy_tasks
from ranks import on_ranks
from runs import cut_after, run_of

from anygrpo.errors import ConfigError
from anygrpo.train import checkpoint
from anygrpo.train.build import resumed_run
from anygrpo.train.folder import read_rows
from anygrpo.train.loop import train

OFF = ["--training.off-policy-steps", "1"]
VOLATILE = ("time/", "throughput/", "memory/")


def finished(folder, *flags, **extra):
    run = run_of(folder, *flags, **extra)
    train(run)
    run.close()
    return run


def rows_of(folder):
    rows = read_rows(folder / "metrics.jsonl")[0]
    return [{k: v for k, v in row.items() if not k.startswith(VOLATILE)} for row in rows]


def weights_of(run):
    return {name: p.detach().clone() for name, p in run.policy.trainable().named_parameters()}


def same_weights(a, b, rtol=0.0, atol=0.0):
    for name, value in weights_of(a).items():
        torch.testing.assert_close(weights_of(b)[name], value, rtol=rtol, atol=atol)


def test_each_batch_is_drawn_by_the_weights_before_the_last_update(tmp_path):
    run = run_of(tmp_path / "run", *OFF, "--training.steps", "5", "--optimizer.learning-rate", "0.05")
    drawn, sample = [], run.policy.sample

    def noted(*arguments):
        drawn.append(run.policy.net.weight.detach().clone())
        return sample(*arguments)

    run.policy.sample = noted
    before = []
    run.observers.append(lambda row, run: before.append(run.policy.net.weight.detach().clone()))
    start = run.policy.net.weight.detach().clone()
    train(run)
    run.close()
    assert len(drawn) == 5
    held = [start, start, *before[:3]]  # after 0, 0, 1, 2, 3 updates
    for mine, expected in zip(drawn, held):
        assert torch.equal(mine, expected)
    rows = rows_of(tmp_path / "run")
    assert [row["staleness"] for row in rows] == [0, 1, 1, 1, 1]
    assert rows[0]["ratio/max"] == pytest.approx(1, abs=1e-6)
    assert all(row["ratio/max"] > 1.0001 for row in rows[1:])  # to the policy that sampled
    assert "staleness" not in rows_of(finished(tmp_path / "on").folder.path)[0]


def test_zero_steps_is_the_plain_loop_bit_for_bit(tmp_path):
    plain = finished(tmp_path / "plain")
    zero = finished(tmp_path / "zero", "--training.off-policy-steps", "0")
    same_weights(plain, zero)
    assert rows_of(tmp_path / "plain") == rows_of(tmp_path / "zero")


@pytest.mark.parametrize("importance", ["none", "truncate"])
def test_it_learns(tmp_path, importance):
    flags = ["--training.steps", "60", "--optimizer.learning-rate", "0.05", "--algorithm.importance", importance]
    finished(tmp_path / "run", *OFF, *flags, "--algorithm.minibatches", "2")
    rows = rows_of(tmp_path / "run")
    assert rows[-1]["eval/reward"] > 0.7
    assert rows[-1]["staleness"] == 2
    assert ("kl/rollout" in rows[-1]) == (importance == "truncate")


def test_the_correction_is_that_of_the_updates_in_between(tmp_path):
    flags = ["--algorithm.importance", "truncate", "--optimizer.learning-rate", "0.05", "--training.steps", "4"]
    finished(tmp_path / "run", *OFF, *flags)
    rows = rows_of(tmp_path / "run")
    assert rows[0]["kl/rollout"] == pytest.approx(0, abs=1e-9)
    assert rows[2]["kl/rollout"] > 1e-4
    assert all(row["ratio/max"] == pytest.approx(1, abs=1e-6) for row in rows)  # old is the policy as a step finds it


STAGES = [
    {"name": "warm", "method": "supervised", "steps": 3},
    {"name": "one", "method": "grpo", "steps": 4, "algorithm": {"minibatches": 2}},
    {"name": "two", "method": "grpo", "steps": 4, "algorithm": {"importance": "truncate", "refill": 2}},
]


def run_stages(folder):
    return run_of(folder, *OFF, stages=STAGES, evaluation={"every": 3, "pass_k": 2}, training={"checkpoint_every": 2})


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole") / "run"
    run = run_stages(folder)
    train(run)
    run.close()
    return run


def test_stages_do_not_reach_into_one_another(uninterrupted):
    ages = {row["step"]: row.get("staleness") for row in rows_of(uninterrupted.folder.path)}
    assert [ages[step] for step in range(3)] == [None] * 3
    assert [ages[step] for step in range(3, 11)] == [0, 2, 2, 2, 0, 1, 1, 1]


@pytest.mark.parametrize("stop_at", [3, 4, 5, 6, 7, 9, 10])
def test_a_run_stopped_anywhere_resumes_exactly(uninterrupted, tmp_path, stop_at):
    run = run_stages(tmp_path / "run")
    cut_after(run, stop_at)
    again = resumed_run(tmp_path / "run")
    train(again)
    again.close()
    same_weights(uninterrupted, again)
    assert rows_of(tmp_path / "run") == rows_of(uninterrupted.folder.path)


def test_a_run_resumed_without_it_draws_anew(tmp_path):
    run = run_of(tmp_path / "run", *OFF, "--training.steps", "4", "--training.checkpoint-every", "1")
    run.observers.append(lambda row, run: run.stop("half-way") if row["step"] == 1 else None)
    train(run)
    run.close()
    assert checkpoint.load(checkpoint.newest(run.folder.checkpoints))[1]["ahead"] is not None
    again = resumed_run(tmp_path / "run", ["--training.off-policy-steps", "0"])
    assert again.ahead is None
    train(again)
    again.close()
    assert rows_of(tmp_path / "run")[2]["ratio/max"] == pytest.approx(1, abs=1e-6)


def test_a_scheduled_temperature_is_that_of_the_step_that_trains(tmp_path):
    flags = ["--algorithm.temperature", "{kind = 'linear', start = 2.0, end = 0.5}", "--optimizer.learning-rate", "0.0"]
    finished(tmp_path / "run", *OFF, *flags)
    assert all(row["log_ratio/abs_max"] < 1e-5 for row in rows_of(tmp_path / "run"))


def on_two(folder):
    run = finished(folder, *OFF, "--training.steps", "3", algorithm={"prompts_per_step": 5, "group_size": 8})
    return {name: p.tolist() for name, p in weights_of(run).items()}


def went_on(folder):
    run = resumed_run(folder, ["--training.steps", "6"])
    start, ahead = run.step, run.ahead
    train(run)
    run.close()
    return start, None if ahead is None else ahead.shape[0], {n: p.tolist() for n, p in weights_of(run).items()}


def stopped(folder):
    run = run_of(folder, *OFF, "--training.steps", "6", algorithm={"prompts_per_step": 5, "group_size": 8})
    run.observers.append(lambda row, run: run.stop("half-way") if row["step"] == 2 else None)
    train(run)
    run.close()


@pytest.mark.cpu
def test_ranks_hold_shares_and_another_number_of_ranks_goes_on(tmp_path):
    first, second = on_ranks(2, on_two, tmp_path / "run")
    assert first == second
    on_ranks(2, stopped, tmp_path / "stopped")
    answers = on_ranks(3, went_on, tmp_path / "stopped")
    assert [(start, size) for start, size, _ in answers] == [(3, 2), (3, 2), (3, 1)]
    assert all(weights == answers[0][2] for _, _, weights in answers)


def test_an_objective_without_a_ratio_needs_the_correction(tmp_path):
    with pytest.raises(ConfigError, match="reinforce"):
        run_of(tmp_path / "a", *OFF, "--algorithm.objective", "reinforce")
    finished(tmp_path / "b", *OFF, "--algorithm.objective", "reinforce", "--algorithm.importance", "truncate")


def test_nothing_to_sample_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="stored actions"):
        run_of(tmp_path / "a", *OFF, stages=[{"name": "warm", "method": "supervised", "steps": 3}])


KINDS = {
    "selector": ({"features": 6, "width": 16}, "Nearest"),
    "motion": ({"features": 7, "frames": 16, "width": 16, "layers": 1, "heads": 2, "steps": 4}, "Still"),
    "restorer": ({"width": 4, "device": "cpu"}, "Mend"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_policy_trains_a_step_off_and_resumes(tmp_path, kind):
    options, task = KINDS[kind]

    def start(folder):
        return run_of(
            folder,
            *OFF,
            policy={"kind": kind, **options},
            task={"kind": "python", "function": f"{toy_tasks.__file__}:{task}"},
            algorithm={"prompts_per_step": 3, "group_size": 4, "importance": "truncate"},
            training={"steps": 4, "checkpoint_every": 1, "sample_chunk": 2},
            evaluation={"at_start": False},
            optimizer={"learning_rate": 1e-3},
        )

    whole = start(tmp_path / "whole")
    train(whole)
    whole.close()
    rows = rows_of(tmp_path / "whole")
    assert [row["staleness"] for row in rows] == [0, 1, 1, 1]
    assert rows[0]["kl/rollout"] == pytest.approx(0, abs=1e-5)
    assert rows[2]["kl/rollout"] > 0
    cut = start(tmp_path / "cut")
    cut.observers.append(lambda row, run: run.stop("power") if row["step"] == 1 else None)
    train(cut)
    cut.close()
    again = resumed_run(tmp_path / "cut")
    assert again.ahead is not None
    train(again)
    again.close()
    if whole.updater.device.type == "cpu":
        same_weights(whole, again)
        assert rows_of(tmp_path / "cut") == rows
    else:  # a GPU adds gradients up in any order, and Adam makes steps of 1e-3 of the smallest
        same_weights(whole, again, atol=2e-4)
        assert [row.keys() for row in rows_of(tmp_path / "cut")] == [row.keys() for row in rows]

"""Advantages from what a prompt earned in earlier steps: the run keeps it, a checkpoint has it, its keys act."""

import pytest
import torch
from runs import TOYS, cut_after, run_of

from anygrpo.denoising.motion.published_task import PublishedMotionTask
from anygrpo.errors import ConfigError
from anygrpo.train.build import resumed_run
from anygrpo.train.folder import read_rows
from anygrpo.train.loop import train
from anygrpo.train.spread import number_of

TASK = {"kind": "python", "function": f"{TOYS}:BestArm", "arguments": {"again": 2}}
OWN = {"prompts_per_step": 4, "group_size": 2, "advantage": "history", "history_least": 4, "history_size": 6}


def new(folder, **more):
    return run_of(folder, task=TASK, algorithm=OWN | more, training={"checkpoint_every": 1, "steps": 6})


def finished(run):
    train(run)
    run.close()
    return run, read_rows(run.folder.path / "metrics.jsonl")[0]


def test_each_prompts_last_rewards_are_kept_and_used(tmp_path):
    run, rows = finished(new(tmp_path / "run"))
    past = [row["groups/own_past"] for row in rows if row["stage"] == "grpo"]
    assert past == [0, 0, 1, 1, 1, 1]  # four prompts a step, back after two steps with four rewards each
    assert sorted(run.memory.rewards) == sorted(number_of(p) for s in (0, 1) for p in run.stages[0].task.prompts(s, 4))
    assert {len(kept) for kept in run.memory.rewards.values()} == {6}


def test_a_checkpoint_has_it(tmp_path):
    whole, _ = finished(new(tmp_path / "whole"))
    cut_after(new(tmp_path / "run"), 3)
    again, _ = finished(resumed_run(tmp_path / "run"))
    assert again.memory == whole.memory
    for a, b in zip(whole.policy.parameters(), again.policy.parameters()):
        assert torch.equal(a, b)


@pytest.mark.parametrize("more", [{"history_size": 4}, {"history_least": 6}, {"group_size": 1, "history_least": 2}])
def test_its_keys_act(tmp_path, more):
    first, _ = finished(new(tmp_path / "a"))
    second, rows = finished(new(tmp_path / "b", **more))
    assert not torch.equal(first.policy.parameters()[0], second.policy.parameters()[0])
    assert max(row["advantage/abs_max"] for row in rows if "advantage/abs_max" in row) > 0


@pytest.mark.parametrize("more", [{"max_staleness": 2}, {"off_policy_steps": 1}])
def test_samples_made_ahead_have_their_own_prompts_past(tmp_path, more):
    run = run_of(tmp_path / "run", task=TASK, algorithm=OWN, training={"checkpoint_every": 1, "steps": 6, **more})
    train(run)
    run.close()
    assert sorted(run.memory.rewards) == sorted(number_of(p) for s in (0, 1) for p in run.stages[0].task.prompts(s, 4))


def test_stored_answers_have_their_own_prompts_past(tmp_path):
    run, _ = finished(run_of(tmp_path / "run", task=TASK, algorithm=OWN, stages=[STORED], training={}))
    assert sorted(run.memory.rewards) == sorted(number_of(p) for s in (0, 1) for p in run.stages[0].task.prompts(s, 4))


STORED = {"name": "s", "method": "grpo", "source": "stored", "steps": 3}


@pytest.mark.parametrize("ahead", [{"max_staleness": 2}, {"off_policy_steps": 1}])
def test_it_may_be_switched_on_at_a_resume(tmp_path, ahead):
    training = {"checkpoint_every": 1, "steps": 6, **ahead}
    cut_after(run_of(tmp_path / "run", task=TASK, algorithm=OWN | {"advantage": "zscore"}, training=training), 3)
    again, rows = finished(resumed_run(tmp_path / "run", ["--algorithm.advantage", "history"]))
    assert len([row for row in rows if row["step"] >= 0]) == 6
    assert 0 not in again.memory.rewards


def test_what_could_never_fill_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="history_least = 20 rewards are never kept"):
        new(tmp_path / "a", history_least=20)


def test_lengths_drawn_anew_do_not_make_another_prompt():
    identity = PublishedMotionTask.identity
    one, other = ({"caption": "he walks", "length": n, "item": 3, "name": "a", "tokens": []} for n in (40, 44))
    assert identity(None, one) == identity(None, other) != identity(None, one | {"caption": "he runs"})

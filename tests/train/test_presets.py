"""Every preset trains, and what it names is what the update is made of."""

from __future__ import annotations

import pytest
import torch
from runs import run_of

from anygrpo.choices.catalogue import PRESETS
from anygrpo.train.batches import prepare, weigh
from anygrpo.train.collect import begin
from anygrpo.train.folder import read_rows
from anygrpo.train.loop import train


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_trains(tmp_path, name):
    run = run_of(tmp_path, "--algorithm.preset", name, "--training.steps", "3", "--policy.arguments", "{picks = 3}")
    before = run.policy.net.weight.detach().clone()
    train(run)
    run.close()
    rows = [row for row in read_rows(run.folder.metrics)[0] if row["step"] >= 0]
    assert len(rows) == 3
    assert not torch.equal(before, run.policy.net.weight)
    assert ("kl/reference" in rows[-1]) == (PRESETS[name].values["beta"] > 0)


def test_dr_grpo_by_hand(tmp_path):
    """Advantages r - mean, weights 1 / (rows x limit), nothing else."""
    run = run_of(tmp_path, "--algorithm.preset", "dr_grpo", "--policy.arguments", "{picks = 3}")
    planned, numbers = run.enter(0)
    rollout = begin(run, planned, 0, run.clock)()
    batch = weigh(prepare(rollout, planned.stage, numbers, None), planned.stage)
    run.close()
    expected = rollout.rewards - rollout.rewards.mean(1, keepdim=True)
    torch.testing.assert_close(batch.advantages, expected.flatten()[:, None])
    torch.testing.assert_close(batch.weights, torch.full((64, 3), 1 / (64 * 3)))
    assert (numbers.clip_low, numbers.clip_high, numbers.beta) == (0.2, 0.2, 0.0)

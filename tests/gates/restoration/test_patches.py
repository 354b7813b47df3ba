"""Patches that earn their own: rewards by hand, and the decisions of a patch paid by it alone."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from anygrpo.errors import ConfigError
from anygrpo.gates.restoration.patches import placed, rewards_by_patch
from anygrpo.recipe.load import parse_recipe
from anygrpo.train.batches import prepare
from anygrpo.train.build import new_run
from anygrpo.train.collect import begin_once
from anygrpo.train.stages import numbers_at


def test_patches_by_hand() -> None:
    clean = torch.zeros(1, 3, 5, 4)
    restored = clean.clone()
    restored[..., :4, :2] = 0.1  # MSE .01: 20 dB
    restored[..., :4, 2:] = 1.0  # 0 dB, below the range
    restored[..., 4:, 2:] = 0.01  # the lower edge, one row high: 40 dB
    found = rewards_by_patch(restored, clean, 2, 10.0, 40.0)
    assert found.tolist()[0] == pytest.approx([1 / 3, 0.0, 1 / 3, 0.0, 1.0, 1.0])
    assert rewards_by_patch(restored, clean, 1, 10.0, 40.0).shape == (1, 20)
    both = placed([(torch.tensor([0]), torch.tensor([1]), found)], (1, 2))
    assert both[0, 1].tolist() == found[0].tolist()
    assert both[0, 0].isnan().all()


def run_with(tmp_path: Path, credit: str, patch: int, reward_patch: int, **policy: object):
    own = {"kind": "restorer", "network": "toolbox", "width": 4, "patch": patch, "steps": 2, "deterministic": "mode"}
    task = {"kind": "restoration", "patch": 32, "crops": 1, "picture_size": 64, "reward_patch": reward_patch}
    table = {
        "policy": own | {"device": "cpu"} | policy,
        "task": task,
        "algorithm": {"prompts_per_step": 3, "group_size": 4, "advantage": "centred", "credit": credit},
        "training": {"steps": 2},
        "folder": str(tmp_path / f"{credit}{patch}{reward_patch}"),
    }
    return new_run(parse_recipe(table))


def prepared(run):
    planned = run.stages[0]
    run.enter(0)
    rollout = begin_once(run, planned, 0, 5, run.clock)()
    return rollout, prepare(rollout, planned.stage, numbers_at(planned.stage, 0, 2), None)


def test_each_patch_is_compared_with_the_same_patch_of_its_group(tmp_path: Path) -> None:
    run = run_with(tmp_path, "parts", 16, 16)
    rollout, out = prepared(run)
    run.close()
    assert rollout.turn[0, 0].tolist() == [0, 1, 2, 3] * 2
    paid = rollout.turn_rewards
    assert paid.shape == (3, 4, 4)
    wanted = (paid - paid.mean(1, keepdim=True)).repeat(1, 1, 2)
    torch.testing.assert_close(out.advantages, wanted, atol=1e-6, rtol=0)
    # the mean over patches is no copy of the picture's: otherwise the test would say nothing
    assert (out.advantages.std(-1) > 1e-3).any()


def test_stopped_patches_decide_nothing_and_are_paid_nothing(tmp_path: Path) -> None:
    run = run_with(tmp_path, "parts", 16, 16, stop=True)
    rollout, out = prepared(run)
    run.close()
    assert not rollout.mask.all()
    assert (out.advantages[~rollout.mask] == 0).all()


def test_parts_that_do_not_fit_or_are_not_paid_are_named(tmp_path: Path) -> None:
    for credit, patch, reward, says in (("parts", 16, 0, "pays no parts"), ("parts", 16, 8, "pays 16 parts")):
        run = run_with(tmp_path, credit, patch, reward)
        with pytest.raises(ConfigError, match=says):
            prepared(run)
        run.close()


def test_the_sample_is_paid_as_before_without_it(tmp_path: Path) -> None:
    run = run_with(tmp_path, "outcome", 16, 16)
    rollout, out = prepared(run)
    run.close()
    torch.testing.assert_close(out.advantages, rollout.rewards - rollout.rewards.mean(1, keepdim=True))

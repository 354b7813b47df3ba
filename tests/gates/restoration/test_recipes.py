"""The recipes run; the faults of the original plan show in the numbers that the doctor reads."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from anygrpo.algorithm import advantages
from anygrpo.algorithm.statistics import RunningState
from anygrpo.gates.restoration.build import build as build_task
from anygrpo.gates.restorer.build import build as build_restorer
from anygrpo.gates.settings import RestorationConfig, RestorerConfig
from anygrpo.recipe.load import load_recipe
from anygrpo.train.folder import read_rows
from tests.gates.restoration.toy import RECIPES, toy_run


def rows_of_run(name: str, folder: Path, steps: int = 2, **more: str) -> list[dict]:
    """The metrics of a recipe at toy size, from before the first step to the end; so many steps a stage."""
    return read_rows(toy_run(name, folder, steps, **more) / "metrics.jsonl")[0]


@pytest.mark.parametrize("name", ["progressive", "improved", "as_published", "gates", "gates_gpu", "toolbox"])
def test_recipe_trains_every_stage(name: str, tmp_path: Path) -> None:
    rows = rows_of_run(name, tmp_path / "run")
    assert [r["step"] for r in rows] == list(range(-1, len(rows) - 1))
    assert "eval/psnr/haze" in rows[-1]
    grpo = [r for r in rows if "loss/policy" in r]
    assert grpo
    assert all(r["update/relative_norm"] > 0 for r in rows[1:])
    if name != "toolbox":
        supervised = {r["stage"] for r in rows if r.get("loss/supervised", 0) > 0}
        assert supervised >= {r["stage"] for r in rows[1:]} - {"grpo"}


@pytest.mark.parametrize(
    ("weight", "expected"),
    [('{kind = "linear", start = 1.0, end = 0.0}', [1.0, 2 / 3, 1 / 3]), ("0.0", [1.0, 1.0, 1.0])],
)
def test_a_warm_up_weighs_its_loss_by_the_schedule_and_by_1_where_there_is_none(
    weight: str, expected: list[float], tmp_path: Path
) -> None:
    path = toy_run("progressive", tmp_path / "run", 3, slice(1), **{"--algorithm.lambda_supervised": weight})
    rows = read_rows(path / "metrics.jsonl")[0][1:]
    assert [r["loss/total"] / r["loss/supervised"] for r in rows] == pytest.approx(expected)


@pytest.mark.parametrize("size", ["", "_gpu"])
def test_adapt_goes_on_where_gates_ended(size: str, tmp_path: Path) -> None:
    gates = toy_run(f"gates{size}", tmp_path / "gates", steps=4)
    ended = read_rows(gates / "metrics.jsonl")[0][-1]
    adapted = rows_of_run(f"adapt{size}", tmp_path / "adapt", steps=4, **{"--policy.model": str(gates)})
    assert adapted[0]["eval/psnr"] == pytest.approx(ended["eval/psnr"], abs=1e-4)
    assert adapted[-1]["eval/psnr"] != adapted[0]["eval/psnr"]


def test_the_larger_pair_differs_from_the_small_one_in_size_alone() -> None:
    """What both were measured with: rates drawn in the warm-up, one update a step there, heads alone afterwards."""
    here, there = (load_recipe(RECIPES / f"gates{size}.toml") for size in ("", "_gpu"))
    for recipe in (here, there):
        warm, grpo = recipe.resolved_stages()
        assert (warm.algorithm.minibatches, grpo.algorithm.minibatches) == (1, 2)
    same = ("width", "skip", "sites", "supervised_gates", "concentration", "window", "gate_features")
    assert [getattr(here.policy, k) for k in same] == [getattr(there.policy, k) for k in same]
    assert (here.optimizer, here.task.w_psnr) == (there.optimizer, there.task.w_psnr)


def test_the_toolbox_goes_on_from_its_supervised_start_with_the_same_choices(tmp_path: Path) -> None:
    start = toy_run("toolbox_supervised", tmp_path / "start", steps=4)
    ended = read_rows(start / "metrics.jsonl")[0][-1]
    rows = rows_of_run("toolbox", tmp_path / "run", steps=2, **{"--policy.model": str(start)})
    assert rows[0]["eval/psnr"] == pytest.approx(ended["eval/psnr"], abs=1e-4)  # sharper draws, the same mode
    assert rows[-1]["update/relative_norm"] > 0


def test_as_published_its_clip_never_acts_and_its_kl_is_none(tmp_path: Path) -> None:
    last = rows_of_run("as_published", tmp_path / "run")[-1]
    assert last["ratio/max"] == pytest.approx(1.0, abs=1e-5)
    assert last["clip/low"] == last["clip/high"] == 0
    assert "kl/reference" not in last
    ours = rows_of_run("progressive", tmp_path / "ours", **{"--optimizer.learning_rate": "1e-2"})[-1]
    assert ours["ratio/max"] > 1.001
    assert ours["kl/reference"] > 0


def test_running_statistics_give_most_groups_one_sign_and_z_scores_none() -> None:
    task = build_task(RestorationConfig(picture_size=64, patch=24, crops=4), 0)
    policy = build_restorer(RestorerConfig(width=4, concentration=300.0, device="cpu"), 0)  # narrow gates
    state = RunningState(decay=0.9)
    one_sign = {"running": 0.0, "zscore": 0.0}
    for step in range(3):
        prompts = task.prompts(step, 12)
        rewards = task.score(prompts, policy.decode(policy.sample(prompts, 2, step).samples)).rewards
        keep = torch.ones_like(rewards, dtype=torch.bool)
        for name in one_sign:
            result = advantages.compute(name, rewards, keep, advantages.AdvantageOptions(running=state))
            state = result.memory if name == "running" else state
            signs = result.values.sign()
            one_sign[name] = float((signs[:, 0] * signs[:, 1] > 0).float().mean())
    assert rewards.mean(1).std() > 5 * rewards.std(1).mean()
    assert one_sign["running"] > 0.8
    assert one_sign["zscore"] == 0


@pytest.mark.parametrize("sign", [1, -1])
def test_toolbox_learns_to_brighten_dark_pictures_and_a_flipped_sign_unlearns(tmp_path: Path, sign: int) -> None:
    changes = {
        "--task.degradations": '[{name = "low_light", low = 0.25, high = 0.5}]',
        "--task.w_psnr": str(0.5 * sign),
        "--task.w_ssim": "0.0",
        "--algorithm.group_size": "8",
        "--optimizer.learning_rate": "3e-2",
    }
    rows = rows_of_run("toolbox", tmp_path / "run", steps=25, **changes)
    assert sign * (rows[-1]["eval/psnr/low_light"] - rows[0]["eval/psnr/low_light"]) > 0.5

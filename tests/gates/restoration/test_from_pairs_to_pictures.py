"""The guide at toy size: a folder of pairs, training, an export, restored pictures; and a network of one's own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from PIL import Image

from anygrpo.gates.apply import apply
from anygrpo.gates.export import export, load
from anygrpo.recipe.load import load_recipe
from anygrpo.train.build import new_run
from anygrpo.train.folder import read_rows
from anygrpo.train.loop import train
from tests.gates.restoration.test_pool import written
from tests.gates.restoration.toy import RECIPES

POLICIES = {
    "own_pairs": ["--policy.width", "4", "--policy.device", "cpu"],
    "own_network": ["--policy.arguments", "{width = 8}", "--policy.device", "cpu"],
}


@pytest.mark.parametrize("name", POLICIES)
def test_from_a_folder_of_pairs_to_restored_pictures(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(RECIPES.parents[1])  # the recipe names its factory from there
    data = tmp_path / "data"
    written(data / "clean", 5, 45)
    written(data / "noisy", 5, 45, change=lambda x: (x + 0.1 * torch.randn(x.shape)).clamp(0, 1))
    flags = [*POLICIES[name], "--task.patch", "24", "--task.crops", "4", "--folder", str(tmp_path / "run")]
    flags += ["--task.folder", f'{{root = "{data}", clean = "clean", degraded = "noisy", name = "mine"}}']
    flags += ["--task.held_out_share", "0.4", "--task.held_out_repeats", "1", "--evaluation.every", "100"]
    recipe = load_recipe(RECIPES / f"{name}.toml", flags)
    stages = tuple(s.model_copy(update={"steps": 3}) for s in recipe.stages)
    run = new_run(recipe.model_copy(update={"stages": stages}))
    run.evaluate_start()
    train(run)
    run.close()
    last = read_rows(run.folder.path / "metrics.jsonl")[0][-1]
    assert "eval/psnr/mine" in last
    assert sum(k.startswith("restoration/gate_spread/") for k in last) == 3
    files = export(run.policy, tmp_path / "export")
    assert json.loads((tmp_path / "export" / "certificate.json").read_text())["right"]
    assert len(files) >= 5
    by_run = apply(run.policy, [data / "noisy"], tmp_path / "a")
    by_export = apply(load(tmp_path / "export", "cpu"), [data / "noisy"], tmp_path / "b")
    for one, other in zip(by_run, by_export):
        assert one["status"] == other["status"] == "made"
        assert one["gates"] == pytest.approx(other["gates"], abs=1e-3)
        with Image.open(one["output"]) as x, Image.open(other["output"]) as y:
            assert x.size == (45, 45)
            assert x.tobytes() == y.tobytes()

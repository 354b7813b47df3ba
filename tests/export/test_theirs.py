"""Somebody else's weights, opened by the recipe of their network (`evaluate --task`, `apply --like`)."""

from __future__ import annotations

import argparse
import json

import pytest
import torch
from runs import TOYS, toml_of
from safetensors.torch import save_file
from torch import nn

import anygrpo
from anygrpo.cli.main import main
from anygrpo.core.build import build_policy
from anygrpo.core.settings import OwnPolicyConfig
from anygrpo.errors import DataError
from anygrpo.gates.settings import StochasticConfig
from anygrpo.selection.settings import SelectorConfig

NET = """
from torch import nn
def make():
    return nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.Conv2d(4, 3, 3, padding=1))
"""


def network(seed):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.Conv2d(4, 3, 3, padding=1))


def test_a_trainers_checkpoint_of_a_restorer(tmp_path):
    """Lightning's: mixed prefixes, a loss's own tensors, an object among the hyperparameters."""
    (tmp_path / "net.py").write_text(NET)
    wanted = network(1)
    state = {("model.net." if n.startswith("2") else "net.") + n: x for n, x in wanted.state_dict().items()}
    more = {"epoch": 3, "hyper_parameters": argparse.Namespace(lr=1e-3)}
    torch.save({"state_dict": state | {"loss_fn.window": torch.ones(11)}, **more}, tmp_path / "last.ckpt")
    save_file({f"module.{n}": x for n, x in wanted.state_dict().items()}, tmp_path / "net.safetensors")
    gate = {"at": "0", "spread": 0.1}
    like = StochasticConfig(function=f"{tmp_path}/net.py:make", gates=[gate], device="cpu")
    for file in ("last.ckpt", "net.safetensors"):
        opened = anygrpo.load(tmp_path / file, like=like)
        assert opened.family.name == "gates"
        found = opened.policy.trainable().state_dict()
        assert all(torch.equal(found[n], x) for n, x in wanted.state_dict().items() if n in found)
        assert len(found.keys() & wanted.state_dict().keys()) >= 7
    with pytest.raises(DataError, match="holds nothing that can be opened") as told:
        anygrpo.load(tmp_path / "last.ckpt")
    assert "--task RECIPE" in str(told.value)
    save_file({"x": torch.ones(2)}, tmp_path / "other.safetensors")
    with pytest.raises(DataError, match="does not fit the network"):
        anygrpo.load(tmp_path / "other.safetensors", like=like)


def test_a_selectors_weights(tmp_path):
    like = SelectorConfig(kind="selector", features=6, width=8, device="cpu")
    wanted = build_policy(like, 3).trainable().state_dict()
    save_file({f"actor.{n}": x.contiguous() for n, x in wanted.items()}, tmp_path / "theirs.safetensors")
    found = anygrpo.load(tmp_path / "theirs.safetensors", like=like).policy.trainable().state_dict()
    assert all(torch.equal(found[n], x) for n, x in wanted.items())


def test_weights_of_a_policy_of_ones_own_are_evaluated_by_command(tmp_path, capsys):
    like = OwnPolicyConfig(kind="python", function=f"{TOYS}:policy")
    state = build_policy(like, 0).trainable().state_dict()
    save_file({f"module.{n}": x + 0.5 for n, x in state.items()}, tmp_path / "theirs.safetensors")
    opened = anygrpo.load(tmp_path / "theirs.safetensors", like=like)
    assert all(torch.equal(x, state[n] + 0.5) for n, x in opened.policy.trainable().state_dict().items())
    recipe = toml_of(tmp_path / "run", tmp_path / "recipe.toml")
    assert main(["evaluate", str(tmp_path / "theirs.safetensors"), "--task", str(recipe), "--json"]) == 0
    assert "eval/reward" in json.loads(capsys.readouterr().out)["runs"][0]["numbers"]

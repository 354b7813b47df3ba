"""Plans of the restoration bench's arms, and one expert's weights for several."""

from __future__ import annotations

import argparse
import importlib.util
from pathlib import Path

import pytest
import torch

FILE = Path(__file__).parents[2] / "bench" / "restoration_plans.py"
SPEC = importlib.util.spec_from_file_location("restoration_plans", FILE)
assert SPEC is not None
assert SPEC.loader is not None
plans = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(plans)


def test_a_plan_is_its_parts_with_their_shares() -> None:
    arms = ["ours=supervised/best:.6+grpo@group=8:.4", "grpo@rows=4", "scratch"]
    assert plans.plans_of(argparse.Namespace(arms=arms)) == {
        "ours": [("supervised/best", 0.6), ("grpo@group=8", 0.4)],
        "grpo@rows=4": [("grpo@rows=4", 1.0)],
        "scratch": [("supervised/mean", 1.0)],
    }


@pytest.fixture
def one(tmp_path: Path) -> Path:
    state = {"own.0.weight": torch.arange(3.0)[None], "router.2.bias": torch.tensor([0.5]), "shared": torch.ones(2)}
    torch.save(state, tmp_path / "network.pt")
    return tmp_path / "network.pt"


def test_one_expert_becomes_each_one_and_shared_weights_stay(one: Path, tmp_path: Path) -> None:
    args = argparse.Namespace(network="experts", experts=4)
    made = plans.spread_out(args, "supervised/best", one, tmp_path / "arm")
    state = torch.load(made, weights_only=True)
    assert torch.equal(state["own.0.weight"], torch.arange(3.0).expand(4, 3))
    assert state["router.2.bias"].tolist() == [0.5] * 4
    assert state["shared"].tolist() == [1.0, 1.0]


def test_experts_of_one_differ_by_a_tenth_of_its_spread(tmp_path: Path) -> None:
    common = 2 * torch.randn(64, 64, generator=torch.Generator().manual_seed(1))
    state = {"common.a.weight": common, "own.a_weight": torch.zeros(1, 64, 64), "router.2.bias": torch.zeros(1)}
    torch.save(state, tmp_path / "one.pt")
    made = plans.spread_out(argparse.Namespace(network="experts", experts=3), "grpo", tmp_path / "one.pt", tmp_path)
    own = torch.load(made, weights_only=True)["own.a_weight"]
    assert own.shape == (3, 64, 64)
    assert own.std((1, 2)).tolist() == pytest.approx([0.2] * 3, rel=0.05)
    assert not torch.equal(own[0], own[1])


@pytest.mark.parametrize(("network", "part"), [("experts", "supervised/mean@experts=1"), ("frequency", "grpo")])
def test_weights_that_fit_are_left_alone(one: Path, tmp_path: Path, network: str, part: str) -> None:
    args = argparse.Namespace(network=network, experts=4)
    assert plans.spread_out(args, part, one, tmp_path) == one


def test_a_first_part_begins_from_nothing(tmp_path: Path) -> None:
    assert plans.spread_out(argparse.Namespace(network="experts", experts=4), "grpo", None, tmp_path) is None

"""Factories, old checkpoints, freezing, adapters."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
import torch

from anygrpo.errors import ConfigError, DataError
from anygrpo.gates.build import build, load_weights
from anygrpo.gates.settings import LoraConfig, StochasticConfig

NETWORK = """
import torch
from torch import nn
from torch.distributions import Beta
from anygrpo import gate

class Net(nn.Module):
    def __init__(self, gated=True):
        super().__init__()
        self.body, self.head, self.gated = nn.Conv2d(3, 3, 3, padding=1), nn.Linear(3, 2), gated
    def forward(self, x):
        y = self.body(x)
        if not self.gated:
            return y
        a, b = (1 + self.head(y.mean((2, 3))).exp()).unbind(1)
        return x + gate("strength", Beta(a, b))[:, None, None, None] * y

def make(**arguments):
    return Net(**arguments)
"""
ALL = slice(None)


@pytest.fixture
def section(tmp_path: Path):
    (tmp_path / "net.py").write_text(NETWORK)
    return lambda **given: StochasticConfig(function=f"{tmp_path / 'net.py'}:make", device="cpu", **given)


def prompt() -> list[dict]:
    return [
        {"degraded": torch.rand(3, 8, 8, generator=torch.Generator().manual_seed(0)), "clean": torch.zeros(3, 8, 8)}
    ]


def test_users_network_becomes_a_policy_with_seeded_weights(section) -> None:
    a, b, c = build(section(), 1), build(section(), 1), build(section(), 2)
    assert a.probe([[3, 8, 8]]) == ["strength"]
    assert torch.equal(a.network.body.weight, b.network.body.weight)
    assert not torch.equal(a.network.body.weight, c.network.body.weight)


def test_network_without_a_site_is_refused_at_once_with_a_probe(section) -> None:
    with pytest.raises(ConfigError, match="no sample site"):
        build(section(arguments={"gated": False}, probe=[[3, 8, 8]]), 0)


def test_strict_loading_refuses_and_loose_loading_reports(section, tmp_path: Path, caplog) -> None:
    old = {"module.body.weight": torch.ones(3, 3, 3, 3), "module.old.bias": torch.zeros(2)}
    old["module.body.bias"] = torch.zeros(5)
    path = str(tmp_path / "old.pt")
    torch.save({"state_dict": old, "epoch": 3}, path)
    with pytest.raises(DataError, match="2 missing"):
        build(section(model=path), 0)
    with caplog.at_level(logging.WARNING, "anygrpo"):
        policy = build(section(model=path, strict=False), 0)
    assert policy.network.body.weight.min() == 1
    report = load_weights(policy.network, path, strict=False)
    assert (report.loaded, report.missing, report.unexpected) == (1, ["head.bias", "head.weight"], ["old.bias"])
    assert report.mismatched == ["body.bias: (5,), (3,)"]
    assert "1 unexpected (old.bias)" in caplog.text


def test_checkpoint_that_shares_nothing_is_refused_even_loosely(section, tmp_path: Path) -> None:
    path = str(tmp_path / "other.pt")
    torch.save({"x": torch.zeros(1)}, path)
    with pytest.raises(DataError, match="0 tensors loaded"):
        build(section(model=path, strict=False), 0)
    with pytest.raises(DataError, match="does not exist"):
        build(section(model=str(tmp_path / "none.pt")), 0)


def test_patterns_choose_what_is_trained(section) -> None:
    trained = lambda p: {n for n, x in p.network.named_parameters() if x.requires_grad}  # noqa: E731
    assert trained(build(section(train=["head.*"]), 0)) == {"head.weight", "head.bias"}
    assert trained(build(section(freeze=["*.bias"]), 0)) == {"head.weight", "body.weight"}
    with pytest.raises(ConfigError, match=r"haed.*matches no parameter"):
        build(section(train=["haed.*"]), 0)
    with pytest.raises(ConfigError, match="no parameter to train"):
        build(section(freeze=["*"]), 0)


def test_adapter_is_the_policy_and_its_absence_the_reference(section) -> None:
    plain = build(section(), 0)
    policy = build(section(train=["head.bias"], lora=LoraConfig(rank=2, targets=["body", "head"])), 0)
    names = {n for n, x in policy.network.named_parameters() if x.requires_grad}
    assert len(names) == 4 + 1  # two adapters of two matrices, and the head's bias
    rollout = policy.sample(prompt(), 2, seed=0)
    rows = {k: v.flatten(0, 1) for k, v in rollout.samples.items()}
    start = plain.evaluate(rows, ALL).log_probs
    torch.testing.assert_close(policy.evaluate(rows, ALL).log_probs, start)
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter.add_(0.3)
    assert (policy.evaluate(rows, ALL).log_probs - start).abs().min() > 1e-3
    with policy.reference():
        torch.testing.assert_close(policy.evaluate(rows, ALL).log_probs, start)
    result = policy.evaluate(rows, ALL, frozenset({"kl"}))
    assert result.kl.min() > 0
    result.kl.sum().backward()
    assert all(x.grad is not None for n, x in policy.network.named_parameters() if n in names)
    with pytest.raises(ConfigError, match="adapter targets"):
        build(section(lora=LoraConfig(targets=["nothing"])), 0)

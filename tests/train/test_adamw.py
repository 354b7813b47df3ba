"""AdamW's moments in 8 bits: close to float32, kept in checkpoints, refused where they cannot be had."""

from __future__ import annotations

import sys
import types

import pytest
import torch
from runs import cut_after, run_of
from torch import nn
from toys import Bandit

from anygrpo.errors import ConfigError, DataError
from anygrpo.recipe.training import OptimizerConfig
from anygrpo.train import adamw as module
from anygrpo.train.build import resumed_run
from anygrpo.train.loop import train
from anygrpo.train.update import Updater


class Wide(Bandit):
    """A weight large enough for 8 bits, and one that is not."""

    def __init__(self):
        super().__init__(0)
        generator = torch.Generator().manual_seed(0)
        sizes = ((64, 128), (7,))
        self.net = nn.ParameterList([nn.Parameter(torch.randn(s, generator=generator)) for s in sizes])


def updater_of(**config):
    return Updater(Wide(), OptimizerConfig(**{"grad_clip": None, "weight_decay": 0.01} | config))


def gradient(step, p):
    generator = torch.Generator().manual_seed(step)
    return torch.randn(p.shape, generator=generator) + 0.3


def stepped(updater, steps):
    for step in steps:
        for p in updater.parameters:
            p.grad = gradient(step, p)
        updater.step(1e-2, measure=False)


def test_eight_bits_follow_float32_in_a_quarter_of_its_memory():
    pytest.importorskip("bitsandbytes")
    plain, small = updater_of(), updater_of(moments="8bit")
    begun = [p.detach().clone() for p in plain.parameters]
    assert (plain.to_come(False), small.to_come(False)) == (8 * 8199, 2 * 8199)
    stepped(plain, range(20)), stepped(small, range(20))
    for a, b, old in zip(plain.parameters, small.parameters, begun):
        assert float((a - old).abs().mean()) > 0.05
        assert float((a - b).abs().max()) < 0.01
    wide, narrow = (small.optimizer.state[p] for p in small.parameters)
    assert (wide["state1"].dtype, wide["state2"].dtype) == (torch.uint8, torch.uint8)
    assert narrow["state1"].dtype == torch.float32


def test_eight_bits_go_on_from_a_checkpoint_to_the_bit():
    pytest.importorskip("bitsandbytes")
    whole, first, second = (updater_of(moments="8bit") for _ in range(3))
    stepped(whole, range(6)), stepped(first, range(3))
    kept = first.state()
    assert all(isinstance(x, torch.Tensor) and "map" not in k for one in kept["moments"] for k, x in one.items())
    for p, q in zip(second.parameters, first.parameters):
        p.data.copy_(q.data)
    second.load(kept)
    stepped(second, range(3, 6))
    assert all(torch.equal(p, q) for p, q in zip(whole.parameters, second.parameters))


@pytest.mark.parametrize(("before", "after"), [("8bit", "float32"), ("float32", "8bit")])
def test_moments_of_the_other_kind_are_refused(before, after):
    pytest.importorskip("bitsandbytes")
    old, new = updater_of(moments=before), updater_of(moments=after)
    stepped(old, range(2))
    with pytest.raises(DataError, match=f"moments are {before}"):
        new.load(old.state())


def test_a_stopped_run_with_eight_bits_resumes_to_the_bit(tmp_path):
    pytest.importorskip("bitsandbytes")
    settings = {
        "optimizer": {"moments": "8bit", "learning_rate": 0.05},
        "training": {"steps": 5, "checkpoint_every": 2},
    }
    whole = run_of(tmp_path / "whole", **settings)
    train(whole)
    cut_after(run_of(tmp_path / "cut", **settings), 2)
    again = resumed_run(tmp_path / "cut")
    assert again.step > 0
    train(again)
    for run in (whole, again):
        run.close()
    assert all(torch.equal(a, b) for a, b in zip(whole.policy.parameters(), again.policy.parameters()))


def test_without_the_package_it_is_refused_by_name(monkeypatch):
    monkeypatch.setattr(module.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match="bitsandbytes is not here"):
        updater_of(moments="8bit")


@pytest.mark.parametrize(
    ("step", "said"), [(None, "fails on cpu: NotImplementedError"), (0.3, "its step on cpu is wrong")]
)
def test_where_the_package_does_not_run_it_is_refused_with_its_words(monkeypatch, step, said):
    class AdamW8bit:
        def __init__(self, parameters, lr):
            self.parameters = parameters

        def step(self):
            if step is None:
                raise NotImplementedError("no kernel for this device")
            self.parameters[0].data.sub_(step)

    optim = types.ModuleType("bitsandbytes.optim")
    optim.AdamW8bit = AdamW8bit
    monkeypatch.setitem(sys.modules, "bitsandbytes.optim", optim)
    monkeypatch.setitem(sys.modules, "bitsandbytes", types.ModuleType("bitsandbytes"))
    monkeypatch.setattr(module.importlib.util, "find_spec", lambda name: object())
    with pytest.raises(ConfigError, match=said):
        updater_of(moments="8bit")

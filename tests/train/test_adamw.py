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
            p.grad = gradient(step, p).to(p.device)
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


def moments(**changed):
    return {"step": torch.tensor(1.0), "exp_avg": torch.ones(64, 128), "exp_avg_sq": torch.ones(64, 128)} | changed


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (moments(exp_avg=torch.ones(3)), r"exp_avg of a weight of shape \(64, 128\) has shape \(3,\), not \(64, 128\)"),
        (moments(exp_avg_sq=torch.ones(128, 64)), r"exp_avg_sq .* has shape \(128, 64\)"),
        (moments(exp_avg_sq=torch.ones(64 * 128)), r"exp_avg_sq .* has shape \(8192,\)"),
        (moments(step=torch.ones(7)), r"step .* has shape \(7,\)"),
        ({k: v for k, v in moments().items() if k != "exp_avg_sq"}, "exp_avg_sq .* is not there"),
        ({k: v for k, v in moments().items() if k != "step"}, "step .* is not there"),
    ],
)
def test_moments_of_another_shape_are_refused(given, said):
    """torch's fused AdamW on a CPU reads past their end: the process ends, or the weights are noise."""
    updater = updater_of()
    with pytest.raises(DataError, match=said):
        updater.load({"moments": [given, {}], "refused": 0})
    updater.load({"moments": [moments(), {}], "refused": 0})
    stepped(updater, range(1))


@pytest.mark.parametrize(("name", "size"), [("state1", (64, 127)), ("absmax1", (31,)), ("absmax2", (33,))])
def test_eight_bits_of_another_shape_are_refused(name, size):
    """8192 values are 32 blocks of 256."""
    optimizer = types.SimpleNamespace(name2qmap=dict.fromkeys(("dynamic", "udynamic"), torch.zeros(256)), state={})
    weight = nn.Parameter(torch.zeros(64, 128))
    whole = {"step": torch.tensor(3)} | dict.fromkeys(("state1", "state2"), torch.zeros(64, 128, dtype=torch.uint8))
    whole |= dict.fromkeys(("absmax1", "absmax2"), torch.zeros(32))
    module.put_back(optimizer, weight, whole)
    assert optimizer.state[weight]["step"] == 3
    with pytest.raises(DataError, match=f"{name} of a weight"):
        module.put_back(optimizer, weight, whole | {name: torch.zeros(size, dtype=whole[name].dtype)})
    narrow = {"step": torch.tensor(3)} | dict.fromkeys(("state1", "state2"), torch.zeros(64, 128))
    module.put_back(optimizer, weight, narrow)  # too small a weight for 8 bits has no scales


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


def updater_on_gpu():
    policy = Wide()
    policy.net.cuda()
    return Updater(policy, OptimizerConfig(grad_clip=None))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_kept_moments_go_on_on_a_gpu():
    plain = updater_on_gpu()
    begun = updater_on_gpu()
    stepped(plain, range(6)), stepped(begun, range(3))
    state = begun.state()
    state["moments"] = [{k: x.cpu() for k, x in one.items()} for one in state["moments"]]
    resumed = updater_on_gpu()
    for p, q in zip(resumed.parameters, begun.parameters):
        p.data.copy_(q.data)
    resumed.load(state)
    stepped(resumed, range(3, 6))
    assert all(torch.equal(p, q) for p, q in zip(plain.parameters, resumed.parameters))

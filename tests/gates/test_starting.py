"""Training goes on from a run of adapters, which are merged into what they sat on, run over run."""

import shutil

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from anygrpo.core import saved as saved_weights
from anygrpo.core.trained import state_of
from anygrpo.errors import DataError
from anygrpo.gates.build import build
from anygrpo.gates.settings import StochasticConfig

NET = """
from torch import nn
def make():
    return nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 2))
"""


def config(tmp_path, **more):
    (tmp_path / "net.py").write_text(NET)
    given = {"function": f"{tmp_path}/net.py:make", "gates": [{"at": "2", "spread": 0.1}], "device": "cpu"}
    return StochasticConfig(kind="stochastic", **given | {"lora": {"rank": 2, "alpha": 6.0}} | more)


def saved(policy, section, seed, run):
    """A run's folder with one checkpoint of what was trained, adapters alone."""
    torch.manual_seed(seed)
    with torch.no_grad():
        for p in policy.parameters():
            p.add_(0.3 * torch.randn_like(p))
    folder = run / "checkpoints" / "step_00000002"
    folder.mkdir(parents=True)
    save_file({n: x.contiguous() for n, x in state_of(policy.trainable()).items()}, folder / "policy.safetensors")
    model = f'model = "{section.model}"' if section.model else ""
    head = f'seed = {seed}\n[policy]\nkind = "stochastic"\nfunction = "{section.function}"\n{model}\n'
    (run / "config.toml").write_text(f"{head}[policy.lora]\nrank = {section.lora.rank}\nalpha = 6.0\n")
    return folder


def said(policy):
    """The network's own output: gates at their means."""
    module: nn.Module = policy.trainable()
    with torch.no_grad():
        return module(torch.linspace(-1, 1, 12).view(4, 3))


def test_a_run_of_adapters_and_one_that_began_from_it(tmp_path):
    first = config(tmp_path)
    one = build(first, 7)
    checkpoint = saved(one, first, 7, tmp_path / "one")
    for place in (tmp_path / "one", checkpoint):  # under another seed: the network is the run's
        torch.testing.assert_close(said(build(config(tmp_path, model=str(place)), 0)), said(one))
    again = build(config(tmp_path, model=str(checkpoint), lora={"rank": 1, "alpha": 2.0}), 1)
    assert {tuple(p.shape) for n, p in again.trainable().named_parameters() if "lora_A" in n} == {(1, 3), (1, 5)}
    second = config(tmp_path, model=str(checkpoint))
    two = build(second, 3)
    saved(two, second, 3, tmp_path / "two")
    assert not torch.allclose(said(two), said(one), atol=1e-2)
    three = build(config(tmp_path, model=str(tmp_path / "two"), lora=None), 5)
    torch.testing.assert_close(said(three), said(two))
    assert not any(".lora_" in name for name in three.trainable().state_dict())


def test_adapters_without_their_run_or_of_another_network_are_refused(tmp_path):
    first = config(tmp_path)
    checkpoint = saved(build(first, 7), first, 7, tmp_path / "one")
    shutil.copytree(checkpoint, tmp_path / "alone" / "checkpoints" / "step_00000002")
    with pytest.raises(DataError, match=r"no config.toml of their run(?s:.*)the run's export"):
        build(config(tmp_path, model=str(tmp_path / "alone")), 0)
    wider = config(tmp_path)
    (tmp_path / "net.py").write_text(NET.replace("5", "6"))
    with pytest.raises(DataError, match="2 of 4 trained tensors do not fit"):
        build(wider.model_copy(update={"model": str(tmp_path / "one")}), 0)


NAMED = """
import torch
from torch import nn
class Own(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.a = nn.Linear(3, 2), nn.Module()
        self.a.lora_A = nn.Linear(3, 2, bias=False)
    def forward(self, x):
        return self.body(x) + self.a.lora_A(x)
def make():
    return Own()
"""


@pytest.mark.parametrize("inside", [True, False])
def test_a_network_whose_own_names_look_like_adapters_starts_from_its_whole_weights(tmp_path, inside):
    section = config(tmp_path, lora=None, gates=[{"at": "body", "spread": 0.1}])
    (tmp_path / "net.py").write_text(NAMED)
    one = build(section, 7)
    folder = tmp_path / "run" / "checkpoints" / "step_00000001"
    folder.mkdir(parents=True)
    save_file(dict(one.trainable().state_dict()), folder / "policy.safetensors")
    if inside:
        (tmp_path / "run" / "config.toml").write_text(
            f'[policy]\nkind = "stochastic"\nfunction = "{section.function}"\n'
        )
    for model in (folder, tmp_path / "run"):
        torch.testing.assert_close(said(build(section.model_copy(update={"model": str(model)}), 0)), said(one))


def test_each_checkpoint_is_read_once(tmp_path, monkeypatch):
    read = []
    real = saved_weights.weights
    monkeypatch.setattr(saved_weights, "weights", lambda folder: read.append(folder.parents[1].name) or real(folder))
    first = config(tmp_path)
    one = build(first, 7)
    saved(one, first, 7, tmp_path / "one")
    second = config(tmp_path, model=str(tmp_path / "one"))
    saved(build(second, 3), second, 3, tmp_path / "two")
    assert read == ["one"]
    read.clear()
    build(config(tmp_path, model=str(tmp_path / "two")), 0)
    assert read == ["two", "one"]
    whole = tmp_path / "whole" / "checkpoints" / "step_00000001"
    whole.mkdir(parents=True)
    save_file(dict(build(config(tmp_path, lora=None), 0).trainable().state_dict()), whole / "policy.safetensors")
    for recipe in (None, '[policy]\nkind = "stochastic"\n'):
        if recipe is not None:
            (tmp_path / "whole" / "config.toml").write_text(recipe)
        read.clear()
        build(config(tmp_path, model=str(whole)), 0)
        assert read == ["whole"]

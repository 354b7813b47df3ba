"""Exports: plain names, merged adapters, and a process of its own that makes the same picture."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from anygrpo.core import user_code
from anygrpo.errors import ConfigError, DataError
from anygrpo.gates.build import StochasticPolicy, build
from anygrpo.gates.export import certify, export, load
from anygrpo.gates.restorer.build import build as build_restorer
from anygrpo.gates.settings import GateConfig, RestorerConfig, StochasticConfig
from tests.gates.test_wrapping import EXAMPLE, net, prompts


def adair(**given: object) -> StochasticPolicy:
    gates = [GateConfig(at=f"fre{i}.rate_conv", distribution="beta", spread=6.0) for i in (1, 2, 3)]
    section = {"function": EXAMPLE, "arguments": {"width": 8}, "multiple": 4, "device": "cpu", "gates": gates} | given
    policy = build(StochasticConfig(**section), 0)  # type: ignore[arg-type]
    with torch.no_grad():
        for x in policy.parameters():
            x.add_(0.02 * torch.randn(x.shape, generator=torch.Generator().manual_seed(1)))
    return policy


@pytest.mark.parametrize("lora", [None, {"rank": 2, "targets": ["attn", "rate_conv"]}])
def test_a_network_goes_back_to_its_own_library(lora: dict | None, tmp_path: Path) -> None:
    policy = adair(lora=lora)
    files = export(policy, tmp_path / "out")
    assert [f.name for f in files] == [
        "certificate.json", "example.safetensors", "load.py", "model.safetensors", "network.py", "sites.json",
    ]  # fmt: skip
    plain = user_code.load(EXAMPLE)(width=8)
    plain.load_state_dict(load_file(tmp_path / "out" / "model.safetensors"), strict=True)
    x = torch.rand(1, 3, 16, 24)
    expected = policy.decode(policy.greedy([{"degraded": x[0]}]).samples)[0][0]
    torch.testing.assert_close(plain.eval()(x)[0], expected, atol=1e-5, rtol=1e-4)
    again = load(tmp_path / "out", "cpu")
    torch.testing.assert_close(
        again.decode(again.greedy([{"degraded": x[0]}]).samples)[0][0], expected, atol=1e-5, rtol=1e-4
    )
    drawn = [p.sample([{"degraded": x[0]}], 2, 3).samples["site/fre1.rate_conv"] for p in (policy, again)]
    torch.testing.assert_close(*drawn, atol=1e-4, rtol=1e-3)
    certificate = json.loads((tmp_path / "out" / "certificate.json").read_text())
    assert certificate["right"]
    assert certificate["anygrpo"] is False  # nothing of it was needed
    sites = json.loads((tmp_path / "out" / "sites.json").read_text())["sites"]
    assert [(s["name"], s["distribution"], s["decisions"]) for s in sites] == [
        (f"fre{i}.rate_conv", "Beta", 1) for i in (1, 2, 3)
    ]


@pytest.mark.parametrize("network", ["frequency", "toolbox", "experts"])
def test_a_built_in_restorer_comes_back_with_its_settings(network: str, tmp_path: Path) -> None:
    policy = build_restorer(RestorerConfig(network=network, width=6, deterministic="mode", device="cpu"), 3)  # type: ignore
    export(policy, tmp_path)
    again = load(tmp_path, "cpu")
    assert again.mode == "mode"
    pictures = [{"degraded": p["degraded"].repeat(1, 4, 4)} for p in prompts(2)]
    for a, b in zip(policy.decode(policy.greedy(pictures).samples), again.decode(again.greedy(pictures).samples)):
        torch.testing.assert_close(a, b)


def test_an_export_that_loads_as_something_else_is_no_export(tmp_path: Path) -> None:
    export(adair(), tmp_path)
    file = tmp_path / "network.py"
    file.write_text(file.read_text().replace("return degraded + self.output(y)", "return self.output(y)"))
    with pytest.raises(DataError, match="away from its own"):
        certify(tmp_path)
    file.write_text("import no_such_module")
    with pytest.raises(DataError, match="no_such_module"):
        certify(tmp_path)


def test_a_network_that_gives_other_numbers_elsewhere_leaves_nothing(tmp_path: Path) -> None:
    """A hook decides its output, which no file of weights holds."""
    policy = adair()
    policy.network.get_submodule("output").register_forward_hook(lambda module, given, y: y + 1.0)
    with pytest.raises(DataError, match="away from its own"):
        export(policy, tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []


def test_bfloat16_is_allowed_twice_what_it_changes_alone(tmp_path: Path) -> None:
    export(adair(dtype="bfloat16"), tmp_path)
    told = json.loads((tmp_path / "certificate.json").read_text())
    assert told["of_bfloat16"] > 1e-4 * told["largest_number"]
    assert told["allowed"] == pytest.approx(2 * told["of_bfloat16"])
    assert told["largest_difference"] <= told["allowed"]
    far = load_file(tmp_path / "example.safetensors")
    far["output"] += 3 * told["of_bfloat16"]
    save_file(far, tmp_path / "example.safetensors")
    with pytest.raises(DataError, match="away from its own"):
        certify(tmp_path)


def test_a_size_that_the_network_takes_needs_no_wider_bound(tmp_path: Path) -> None:
    export(adair(multiple=24), tmp_path)
    told = json.loads((tmp_path / "certificate.json").read_text())
    assert load_file(tmp_path / "example.safetensors")["input/0"].shape == (1, 3, 72, 72)
    assert told["allowed"] == pytest.approx(1e-4 * told["largest_number"])


def test_the_cards_lines_load_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    policy = adair()
    export(policy, tmp_path / "out")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    picture = torch.rand(1, 3, 16, 24)
    lines = {"picture": picture}
    exec(json.loads((tmp_path / "out" / "certificate.json").read_text())["use"], lines)
    expected = policy.decode(policy.greedy([{"degraded": picture[0]}]).samples)[0][0]
    torch.testing.assert_close(lines["restored"].detach()[0], expected, atol=1e-5, rtol=1e-4)


def test_load_py_is_a_command(tmp_path: Path) -> None:
    export(adair(), tmp_path)
    done = subprocess.run([sys.executable, str(tmp_path / "load.py")], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["largest_difference"] < 1e-4
    assert load_file(tmp_path / "example.safetensors")["input/0"].shape == (1, 3, 64, 64)


@pytest.mark.parametrize("output", ["picture", "a.b", 1, "deep.1"])
def test_load_py_takes_the_same_part_of_the_output(output: str | int, tmp_path: Path) -> None:
    made = {"picture": "Fields(y)", "a.b": "{'a': {'b': y}}", 1: "[0 * y, y]", "deep.1": "{'deep': (0 * y, y)}"}[output]
    (tmp_path / "own.py").write_text(
        "from dataclasses import dataclass\nimport torch\nfrom torch import nn\n\n\n"
        "@dataclass\nclass Fields:\n    picture: torch.Tensor\n\n\n"
        "class Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.rate, self.out = nn.Conv2d(3, 1, 1), nn.Conv2d(3, 3, 1)\n"
        f"    def forward(self, x):\n        y = self.out(x) * self.rate(x).sigmoid()\n        return {made}\n\n\n"
        "def make():\n    return Net()\n"
    )
    gates = [GateConfig(at="rate", distribution="normal")]
    config = StochasticConfig(function=f"{tmp_path / 'own.py'}:make", gates=gates, output=output)
    export(build(config, 0), tmp_path / "out")
    told = json.loads((tmp_path / "out" / "certificate.json").read_text())
    assert told["largest_difference"] < 1e-4


def test_what_cannot_be_made_again_and_foreign_folders_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="made in Python"):
        export(StochasticPolicy(net()), tmp_path / "x")
    (tmp_path / "note.txt").write_text("mine")
    with pytest.raises(ConfigError, match="something else"):
        export(adair(), tmp_path)
    with pytest.raises(DataError, match="no exported network"):
        load(tmp_path)

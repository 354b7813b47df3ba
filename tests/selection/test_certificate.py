"""A selector's export is compared in a process of its own, and one that differs is taken away."""

from __future__ import annotations

import json

import pytest
import safetensors.torch
import torch

from anygrpo.errors import TrainingError
from anygrpo.selection.build import build
from anygrpo.selection.export import export
from anygrpo.selection.settings import SelectorConfig


@pytest.fixture
def policy():
    return build(SelectorConfig(kind="selector", features=6, width=16, shots=3, stop=True, device="cpu"), 1)


def test_what_leaves_picks_as_the_policy_does(policy, tmp_path):
    files = export(policy, tmp_path / "out")
    assert [file.name for file in files] == ["selector.safetensors", "selector.json", "export.json"]
    compared = json.loads((tmp_path / "out" / "export.json").read_text())["compared"]
    assert (compared["queries"], compared["other_picks"]) == (16, 0)
    assert compared["probability"] <= 1e-4


def test_weights_that_differ_do_not_leave(policy, tmp_path, monkeypatch):
    save = safetensors.torch.save_file
    wrong = lambda state, file: save({k: x + 0.3 * torch.randn_like(x) for k, x in state.items()}, file)  # noqa: E731
    monkeypatch.setattr(safetensors.torch, "save_file", wrong)
    with pytest.raises(TrainingError, match="loaded by itself, picks otherwise"):
        export(policy, tmp_path / "out")
    assert not list((tmp_path / "out").iterdir())

"""An apply killed midway and called again gives what one undisturbed gives; rows of other weights are not kept."""

from __future__ import annotations

import json
import os
import signal

import numpy as np
import pytest
import tiny_lm
import torch
from PIL import Image
from torch import Tensor, nn
from torch.distributions import Beta

from anygrpo.denoising.apply import apply as denoise
from anygrpo.denoising.motion import policy as motion
from anygrpo.denoising.motion.settings import MotionPolicyConfig
from anygrpo.errors import DataError
from anygrpo.gates.apply import apply as restore
from anygrpo.gates.build import StochasticPolicy, gate
from anygrpo.language.apply import apply as answer
from anygrpo.selection.apply import apply as pick
from anygrpo.selection.build import build as selector
from anygrpo.selection.settings import SelectorConfig


class Gated(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Conv2d(3, 3, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        m = x.mean((1, 2, 3)).clamp(0.1, 0.9)
        return x + gate("g", Beta(1 + 9 * m, 1 + 9 * (1 - m)))[:, None, None, None] * self.body(x)


def language(folder):
    prompts = [f"w{i} w{i + 1}" for i in range(40)]
    return answer, tiny_lm.policy(0), prompts, folder / "out.jsonl", {"seed": 3, "samples": 2}


def denoising(folder):
    small = {"features": 47, "frames": 16, "width": 32, "layers": 1, "heads": 2, "steps": 3}
    return denoise, motion.build(MotionPolicyConfig(**small), 0), [f"walks {i}" for i in range(10)], folder / "out", {}


def selection(folder):
    rows = np.random.default_rng(0).normal(size=(160, 6)).astype(np.float32)
    for name, part in (("q", rows[:140]), ("c", rows[140:])):
        np.savez(folder / f"{name}.npz", ids=np.arange(len(part)), embeddings=part)
    made = selector(SelectorConfig(kind="selector", features=6, width=16, shots=2), 0)
    return pick, made, folder / "q.npz", folder / "out.jsonl", {"candidates": folder / "c.npz", "seed": 1}


def gates(folder):
    torch.manual_seed(0)
    (folder / "in").mkdir()
    for i in range(5):
        x = np.random.default_rng(i).integers(0, 256, (20, 24, 3)).astype(np.uint8)
        Image.fromarray(x).save(folder / "in" / f"{i}.png")
    return restore, StochasticPolicy(Gated()), folder / "in", folder / "out", {"draws": 1, "seed": 2}


def contents(place):
    """Names and bytes of what was made; of logs of rows the rows, without the seconds they took."""
    files = [place] if place.is_file() else sorted(f for f in place.rglob("*") if f.is_file())
    return {f.name: _rows(f) if f.suffix == ".jsonl" else f.read_bytes() for f in files}


def _rows(file):
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    for row in rows:
        for key in ("seconds", "input", "output", "changed"):
            row.pop(key, None)
    return [row for row in rows if row.get("status") != "there"]


@pytest.mark.cpu
@pytest.mark.parametrize("family", [language, denoising, selection, gates])
def test_killed_and_called_again_it_is_the_same(tmp_path, family):
    for name in ("whole", "killed"):
        (tmp_path / name).mkdir()
    act, policy, inputs, out, settings = family(tmp_path / "whole")
    act(policy, inputs, out, **settings)
    whole = contents(out)
    act, policy, inputs, out, settings = family(tmp_path / "killed")
    steps = []

    def dies(*_):
        steps.append(1)
        if len(steps) == 2:
            os.kill(os.getpid(), signal.SIGKILL)

    child = os.fork()
    if child == 0:
        try:
            act(policy, inputs, out, progress=dies, **settings)
        finally:
            os._exit(0)  # whatever happened: a second pytest must not go on from here
    assert os.waitpid(child, 0)[1] == signal.SIGKILL
    if out.is_file():
        with out.open("a") as file:
            file.write('{"index": 99, "pro')  # the line that it was at
    else:
        assert contents(out) != whole
    act(policy, inputs, out, **settings)
    assert contents(out) == whole
    act(policy, inputs, out, **settings)
    assert contents(out) == whole


def test_rows_of_other_weights_are_refused_or_made_again(tmp_path):
    act, policy, inputs, out, settings = language(tmp_path)
    act(policy, inputs, out, **settings)
    with pytest.raises(DataError, match="other weights or settings, from line 1"):
        act(policy, inputs, out, seed=4, samples=2)
    with torch.no_grad():
        policy.parameters()[0].add_(0.5)
    with pytest.raises(DataError, match="other weights or settings"):
        act(policy, inputs, out, **settings)
    act, policy, inputs, out, settings = denoising(tmp_path)
    act(policy, inputs[:2], out)
    before = contents(out)
    with torch.no_grad():
        for p in policy.parameters():
            p.add_(0.1)
    act(policy, inputs[:2], out)
    assert contents(out)["00000.npy"] != before["00000.npy"]

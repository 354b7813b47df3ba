"""Updates that move more than gates: named before a run, and after it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from anygrpo.gates.body import told
from anygrpo.probes import Subject
from anygrpo.probes.check import probe_stage, temporary_run
from anygrpo.recipe.load import load_recipe

NET = """
import torch
from torch import nn
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Conv2d(3, 4, 3, padding=1)
        self.head = nn.Sequential(nn.Linear(4, 1), nn.Sigmoid())
        self.out = nn.Conv2d(4, 3, 3, padding=1)
        nn.init.zeros_(self.out.weight), nn.init.zeros_(self.out.bias)  # the start restores what it was given
    def forward(self, x):
        y = self.body(x)
        strength = self.head(y.mean((2, 3)))[..., None, None]
        return x + 0.02 * strength * y[:, :3] + self.out(y)
def make():
    return Net()
"""


def outcome(tmp_path: Path, features: str, more: str = "") -> tuple[str, dict]:
    (tmp_path / "net.py").write_text(NET)
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(f"""
[policy]
kind = "stochastic"
function = "{tmp_path}/net.py:make"
device = "cpu"
[[policy.gates]]
at = "head"
distribution = "beta"
features = "{features}"
[task]
kind = "restoration"
patch = 16
crops = 1
picture_size = 32
degradations = [{{ name = "noise", low = 20, high = 50 }}]
[algorithm]
prompts_per_step = 4
group_size = 4
{more}
[optimizer]
learning_rate = 0.05
[training]
steps = 4
""")
    with torch.random.fork_rng(), temporary_run(load_recipe(recipe)) as run:
        before = {k: v.clone() for k, v in run.policy.trainable().state_dict().items()}
        (found,) = probe_stage(Subject(run, 0, 2.0), only=["body"])
        assert all(torch.equal(v, before[k]) for k, v in run.policy.trainable().state_dict().items())
        return found.status, found.numbers


def test_gates_alone_move_where_features_are_detached(tmp_path: Path) -> None:
    status, numbers = outcome(tmp_path, "detached")
    assert (status, numbers["change"], numbers["lost"]) == ("ok", 0.0, 0.0)
    assert numbers["drawn"] > 0


def test_a_body_that_nothing_holds_is_named(tmp_path: Path) -> None:
    status, numbers = outcome(tmp_path, "shared")
    assert status in ("serious", "warning")
    assert numbers["change"] > 0.01


@pytest.mark.parametrize(
    ("changed", "supervised", "status"),
    [
        ({}, False, "serious"),
        ({}, True, "warning"),
        ({"headroom": 0.2}, False, "warning"),  # what it lost, gates could win back
        ({"headroom": 0.2}, True, "ok"),
        ({"lost": -0.1}, False, "warning"),  # better now, but nothing holds it
        ({"error": 0.1}, False, "warning"),
        ({"change": 0.0}, False, "ok"),
    ],
)
@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_verdict_by_hand(changed: dict, supervised: bool, status: str, language: str) -> None:
    numbers = {"updates": 10, "rate": 1e-3, "draws": 8, "before": 0.44, "after": 0.34, "headroom": 0.001, "lost": 0.1,
               "error": 0.01, "change": 3.0, "drawn": 0.4}  # fmt: skip
    found = told(numbers | changed, supervised)
    assert found.status == status
    assert found.say(language)
    assert bool(found.prescribe(language)) == (status != "ok")


def test_networks_without_gates_are_left_alone() -> None:
    from anygrpo.gates.body import probe

    class Other:
        policy = nn.Identity()

    assert probe(Other()).status == "not applicable"

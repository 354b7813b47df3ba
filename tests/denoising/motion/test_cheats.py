"""Motions that only seem to move well: what rewards pay for them."""

import types

import pytest
import torch

from anygrpo.core.build import build_task
from anygrpo.core.task import Scores, Stored
from anygrpo.denoising.motion import humanml
from anygrpo.denoising.motion.cheats import CHEATS, LIFT, cheats
from anygrpo.denoising.motion.clips import default_folder
from anygrpo.denoising.motion.features import Scaler
from anygrpo.denoising.motion.skeleton import JOINTS, axis_matrix, forward_kinematics
from anygrpo.probes import cheats as probe
from anygrpo.recipe.load import parse_recipe


def walk(frames=41):
    rotations = torch.eye(3).repeat(frames, len(JOINTS), 1, 1)
    rotations[:, 1] = axis_matrix(2, 0.4 * torch.sin(0.5 * torch.arange(frames)))
    root = torch.stack([0.04 * torch.arange(frames), torch.full((frames,), 0.9), torch.zeros(frames)], 1)
    return humanml.encode(forward_kinematics(rotations, root))


def test_each_cheat_is_what_its_name_says():
    raw = walk()
    made = {name: humanml.recover(change(raw, [walk(21)], 21)) for name, change in CHEATS.items()}
    real = humanml.recover(raw)
    assert torch.allclose(made["hover"], real + torch.tensor([0.0, LIFT, 0.0]), atol=1e-5)
    assert float((made["freeze"] - made["freeze"][:1]).abs().max()) < 1e-6
    glide = made["glide"] - made["glide"][:1]
    assert float(glide[-1, :, 2].min()) == pytest.approx(0.05 * 39, rel=1e-4)
    assert torch.allclose(made["copy"][:20], humanml.recover(walk(21))[:20], atol=1e-5)
    steps = {name: change(raw, [walk(21)], 21)[:, 193:259] for name, change in CHEATS.items()}
    assert float(steps["freeze"].abs().max()) == 0
    assert torch.allclose(steps["glide"][:, 2::3], torch.tensor(0.05))
    assert float(steps["stretch"].norm()) < 0.6 * float(raw[:, 193:259].norm())
    assert made["stretch"][-1, 0].norm() < real[-1, 0].norm()
    assert made["noise"].shape == real.shape


class Task:
    """Pays for speed alone: gliding earns as much as walking, and a longer step more."""

    scaler = Scaler(torch.zeros(263), torch.ones(263))

    def prompts(self, step, count):
        return [{"caption": str(i)} for i in range(count)]

    def stored(self, prompts):
        return Stored([[walk()] for _ in prompts])

    def score(self, prompts, outputs):
        return Scores(torch.tensor([[float(humanml.recover(m)[-1, 0, 2]) for m in row] for row in outputs]))


def test_a_reward_of_speed_pays_gliding_and_hovering():
    rows = {r["cheat"]: r for r in cheats(types.SimpleNamespace(task=Task()))}
    assert set(rows) == set(CHEATS)
    assert rows["glide"]["difference"] > 0
    assert rows["hover"]["difference"] == pytest.approx(0.0, abs=1e-6)
    assert rows["freeze"]["difference"] < 0
    assert cheats(types.SimpleNamespace(task=object())) == []


@pytest.mark.skipif(not any(default_folder().glob("*.txt")), reason="captured clips are not fetched")
def test_our_reward_pays_no_cheat():
    recipe = {"policy": {"kind": "motion", "features": 47, "frames": 40}}
    task = build_task(parse_recipe(recipe | {"task": {"kind": "motion", "layout": "compact", "frames": 40}}).task, 0)
    for row in cheats(types.SimpleNamespace(task=task)):
        assert row["difference"] < -2 * row["error"], row


@pytest.mark.parametrize(
    ("difference", "error", "status"),
    [(0.1, 0.0, "serious"), (5e-6, 0.0, "warning"), (0.1, 0.2, "warning"), (-0.1, 0.2, "warning"), (-0.1, 0.01, "ok")],
)
def test_what_rounding_or_chance_explains_is_not_called_serious(difference, error, status, monkeypatch):
    row = {"cheat": "copy", "paid": 1.5 + difference, "honest": 1.5, "difference": difference, "error": error}
    monkeypatch.setattr("anygrpo.denoising.motion.cheats.cheats", lambda subject: [row])
    recipe = types.SimpleNamespace(policy=types.SimpleNamespace(kind="mdm"))
    subject = types.SimpleNamespace(run=types.SimpleNamespace(recipe=recipe))
    assert probe.cheats(subject).status == status

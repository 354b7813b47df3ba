"""A learning rate that jumps in the middle of a motion run: `--doctor act` sees it, acts, and the run goes on."""

import json
import math

import pytest
import torch

from anygrpo.cli.live import attach_doctor
from anygrpo.config.recipe import Recipe
from anygrpo.train.build import new_run
from anygrpo.train.loop import train

SPIKE = 6
"""Step at which the learning rate is multiplied by 80."""


def frame(t):
    swing = 0.5 * math.sin(2 * math.pi * t)
    still = [1.0, 0.0, 0.0, 0.0]
    hip = [math.cos(swing / 2), 0.0, 0.0, math.sin(swing / 2)]
    leg = [*hip, -0.3, *still, *still, 0.2]
    return [0.05, t, 0.9, 0.0, *still, *still, *still, *leg, *leg]


def recipe(tmp_path, mode):
    for name in ("humanoid3d_walk", "humanoid3d_jump"):
        frames = [frame(i / 20 * (1 + len(name) % 3)) for i in range(21)]
        (tmp_path / f"{name}.txt").write_text(json.dumps({"Loop": "wrap", "Frames": frames}))
    size = {"features": 47, "frames": 24, "width": 16, "layers": 1, "heads": 2, "steps": 6, "event_reduction": "sum"}
    rate = {"kind": "step", "start": 3e-4, "milestones": [SPIKE], "factor": 80.0}
    return Recipe.model_validate(
        {
            "folder": str(tmp_path / mode),
            "policy": {"kind": "motion", **size, "lora": {"rank": 4, "alpha": 8.0}},
            "task": {"kind": "motion", "layout": "compact", "frames": 24, "data": str(tmp_path), "matcher_steps": 5},
            "algorithm": {"prompts_per_step": 4, "group_size": 4, "epochs": 3, "minibatches": 2},
            "optimizer": {"learning_rate": rate, "grad_clip": None},
            "training": {"steps": 14, "checkpoint_every": 2, "keep_checkpoints": 10, "samples_every": 0},
            "evaluation": {"at_start": False},
            "doctor": {"mode": mode, "every": 1},
        }
    )


def ran(tmp_path, mode, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    run = new_run(recipe(tmp_path, mode))
    rows = []
    run.observers.append(lambda row, run: rows.append(row))
    doctor = attach_doctor(run)
    train(run)
    run.close()
    return run, rows, doctor


@pytest.mark.slow
def test_a_learning_rate_spike_is_caught_and_the_run_recovers(tmp_path, monkeypatch):
    """Whether the rate is turned down in place or the run goes back too depends on how far the spike went (tiers)."""
    run, rows, doctor = ran(tmp_path, "act", monkeypatch)
    assert max(r["log_ratio/abs_max"] for r in rows if r["step"] < SPIKE) < 5
    assert next(r for r in rows if r["step"] == SPIKE)["log_ratio/abs_max"] > 5
    first = doctor.actor.actions[0]
    assert first.kind in ("turn", "roll_back")
    assert first.step == SPIKE
    assert run.step == 14
    assert run.controls.learning_rate < 0.2
    assert rows[-1]["log_ratio/abs_max"] < 5
    assert all(bool(torch.isfinite(p).all()) for p in run.policy.parameters())

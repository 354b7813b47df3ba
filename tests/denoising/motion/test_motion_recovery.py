"""A learning rate that jumps in the middle of a motion run: `--doctor act` sees it, goes back, and the run goes on."""

import itertools
import json
import math

import pytest

from anygrpo.recipe.load import parse_recipe
from anygrpo.train.build import new_run
from anygrpo.train.loop import train
from anygrpo.watch.live import attach_doctor

SPIKE = 6
"""Step at which the learning rate jumps."""
FACTOR = {"sum": 300.0, "centred": 300.0}
"""Its factor, under each event reduction."""


def frame(t):
    swing = 0.5 * math.sin(2 * math.pi * t)
    still = [1.0, 0.0, 0.0, 0.0]
    hip = [math.cos(swing / 2), 0.0, 0.0, math.sin(swing / 2)]
    leg = [*hip, -0.3, *still, *still, 0.2]
    return [0.05, t, 0.9, 0.0, *still, *still, *still, *leg, *leg]


def recipe(tmp_path, reduction, seed):
    for name in ("humanoid3d_walk", "humanoid3d_jump"):
        frames = [frame(i / 20 * (1 + len(name) % 3)) for i in range(21)]
        (tmp_path / f"{name}.txt").write_text(json.dumps({"Loop": "wrap", "Frames": frames}))
    size = {
        "features": 47,
        "frames": 24,
        "width": 16,
        "layers": 1,
        "heads": 2,
        "steps": 6,
        "event_reduction": reduction,
    }
    rate = {"kind": "step", "start": 3e-4, "milestones": [SPIKE], "factor": FACTOR[reduction]}
    return parse_recipe(
        {
            "folder": str(tmp_path / "run"),
            "seed": seed,
            "policy": {"kind": "motion", **size, "event_reduction": reduction, "lora": {"rank": 4, "alpha": 8.0}},
            "task": {"kind": "motion", "layout": "compact", "frames": 24, "path": str(tmp_path), "matcher_steps": 5},
            "algorithm": {"prompts_per_step": 4, "group_size": 4, "epochs": 3, "minibatches": 2},
            "optimizer": {"learning_rate": rate, "grad_clip": None},
            "training": {"steps": 14, "checkpoint_every": 2, "keep_checkpoints": 10, "samples_every": 0},
            "evaluation": {"at_start": False},
            "doctor": {"mode": "act", "every": 1},
        }
    )


# "centred": 18 to 53 units against a bound of 20 by the processor's draws; by a GPU's one row alone is above.
@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("reduction", ["sum", pytest.param("centred", marks=pytest.mark.cpu)])
def test_a_learning_rate_spike_is_caught_rolled_back_and_continued(tmp_path, monkeypatch, reduction, seed):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    run = new_run(recipe(tmp_path, reduction, seed))
    rows, weights = [], {}

    def keep(row, run):
        rows.append(row)
        weights[len(rows)] = [p.detach().clone() for p in run.policy.parameters()]

    run.observers.append(keep)
    doctor = attach_doctor(run)
    train(run)
    run.close()
    unit = run.policy.clip.high / 0.2
    acted = next(n for n, (a, b) in enumerate(itertools.pairwise(rows)) if b["step"] <= a["step"])
    steps = [r["step"] for r in rows]
    assert steps == [*range(acted + 1), *range(SPIKE, 14)]  # the spiked steps are taken again, and all that follow
    assert SPIKE < acted <= SPIKE + 4  # one odd row alone is not believed
    before, spiked, again = rows[SPIKE - 1], rows[SPIKE : acted + 1], rows[acted + 1 :]
    assert before["log_ratio/abs_max"] < 5 * unit
    assert max(r["log_ratio/abs_max"] for r in spiked) > 20 * unit
    actions = [(a.kind, a.rule, a.step, a.checkpoint) for a in doctor.actor.actions]
    assert actions == [("roll_back", "log_ratio_explosion", acted, f"step_{SPIKE:08d}")]
    assert again[0]["lr"] == pytest.approx(spiked[0]["lr"] * 0.01)
    jump, step = (distance(weights[n], weights[SPIKE]) for n in (SPIKE + 1, acted + 2))
    assert step < 0.1 * jump  # one small step from where the spike began, not from where it ended
    assert all(r["log_ratio/abs_max"] < 5 * unit for r in again)
    logged = [json.loads(line) for line in (run.folder.path / "metrics.jsonl").read_text().splitlines()]
    assert [r["step"] for r in logged] == [*range(14)]
    assert max(r["log_ratio/abs_max"] for r in logged) < 5 * unit
    assert "doctor roll_back (log_ratio_explosion)" in (run.folder.path / "log.txt").read_text()


def distance(a, b):
    return math.sqrt(sum(float((x - y).double().square().sum()) for x, y in zip(a, b)))

"""Every family's policy on a GPU: it trains, goes on from a checkpoint, and takes rows from the processor."""

import math
from pathlib import Path

import pytest
import tiny_lm
import torch
import toy_tasks
from runs import run_of

from anygrpo.core.tree import tree_map
from anygrpo.train.build import resumed_run
from anygrpo.train.folder import read_rows
from anygrpo.train.loop import train

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")

LM = Path(tiny_lm.__file__)
MOTION = {"features": 7, "frames": 16, "width": 16, "layers": 1, "heads": 2, "steps": 4}
KINDS = {
    "causal_lm": ({"kind": "python", "function": f"{LM}:policy", "arguments": {"device": "cuda"}}, f"{LM}:Even"),
    "selector": ({"kind": "selector", "features": 6, "width": 16}, f"{toy_tasks.__file__}:Nearest"),
    "motion": ({"kind": "motion", **MOTION}, f"{toy_tasks.__file__}:Still"),
    "restorer": ({"kind": "restorer", "width": 4}, f"{toy_tasks.__file__}:Mend"),
}


def begun(folder, kind):
    policy, task = KINDS[kind]
    return run_of(
        folder,
        policy=policy,
        task={"kind": "python", "function": task},
        algorithm={"prompts_per_step": 3, "group_size": 4, "beta": 0.05},
        training={"steps": 2, "checkpoint_every": 1},
        evaluation={"every": 1},
    )


@pytest.mark.parametrize("kind", KINDS)
def test_it_trains_and_goes_on(tmp_path, kind):
    run = begun(tmp_path / "run", kind)
    assert run.policy.parameters()[0].device.type == "cuda"
    train(run)
    run.close()
    again = resumed_run(tmp_path / "run", ["--training.steps", "4"])
    before = [p.detach().clone() for p in again.policy.parameters()]
    train(again)
    again.close()
    assert any(not torch.equal(p, q) for p, q in zip(before, again.policy.parameters()))
    rows = [row for row in read_rows(tmp_path / "run" / "metrics.jsonl")[0] if row["step"] >= 0]
    assert [row["step"] for row in rows] == [0, 1, 2, 3]
    assert all(math.isfinite(row["loss/total"]) and 0 < row["memory/peak_gb"] < 8 for row in rows)


@pytest.mark.parametrize("kind", KINDS)
def test_rows_on_the_processor_are_scored(tmp_path, kind):
    run = begun(tmp_path / "run", kind)
    policy = run.policy
    rollout = policy.sample(run.stages[0].task.prompts(0, 2), 2, 0)
    every = slice(0, rollout.shape[2])
    rows = tree_map(lambda x: x.flatten(0, 1), rollout.samples)
    with torch.no_grad():
        here, there = (policy.evaluate(x, every).log_probs for x in (tree_map(lambda x: x.cpu(), rows), rows))
    torch.testing.assert_close(here, there, rtol=1e-4, atol=1e-5)
    outputs = (policy.decode(x) for x in (tree_map(lambda x: x.cpu(), rollout.samples), rollout.samples))
    for mine, theirs in zip(*outputs, strict=True):
        for a, b in zip(mine, theirs, strict=True):
            assert torch.equal(a.cpu(), b.cpu()) if isinstance(a, torch.Tensor) else a == b
    run.close()

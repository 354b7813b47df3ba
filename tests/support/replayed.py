"""A run of the walker beside its float64 replay: the same weights, or the test fails."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from float64 import DEFAULTS, Step
from float64_run import weights_after
from runs import table

from anygrpo.recipe.load import parse_recipe
from anygrpo.train.build import new_run
from anygrpo.train.loop import train

WALKER = Path(__file__).with_name("walker.py")
BASE = {"prompts_per_step": 4, "group_size": 6}
OPTIMIZER = {"learning_rate": 0.05, "eps": 0.02, "grad_clip": "none"}
"""A coarse eps: at 1e-8 Adam's first step is a sign, and no scale shows in it."""
OFF = {"sampler": 1.7}
"""Ratios that are not 1 before the first update."""


def recipe_of(folder: str, given: dict[str, Any]) -> dict[str, Any]:
    policy = {"kind": "python", "function": f"{WALKER}:{given.get('policy', 'policy')}"}
    stage = [{"name": "only", "method": given["method"], "steps": given.get("steps", 3)}] if "method" in given else []
    return table(
        Path(folder),
        policy=policy | {"arguments": given.get("sampler", {})},
        task={"kind": "python", "function": f"{WALKER}:Walk"},
        algorithm=BASE | given.get("algorithm", {}),
        optimizer=OPTIMIZER | given.get("optimizer", {}),
        training={"steps": given.get("steps", 3), "checkpoint_every": 100, "samples_every": 0},
        evaluation={"at_start": False},
        **({"stages": stage} if stage else {}),
    )


def learnt(folder: Path, given: dict[str, Any], idle: bool = False) -> dict[str, torch.Tensor]:
    """The weights that a run leaves, proven to be the replay's. `idle`: that nothing is learnt proves something too
    (a recipe at random may stop each step before its first update)."""
    run = new_run(parse_recipe(recipe_of(str(folder / "run"), given)))
    policy, start = run.policy, {k: v.detach().clone() for k, v in run.policy.net.state_dict().items()}
    policy.drawn.clear(), policy.replayed.clear(), policy.learnt.clear()  # of the check at the border
    record: list[Step] = []
    method = given.get("method", "grpo")

    def close(row: dict[str, Any], _: Any) -> None:
        record.append(Step(list(policy.drawn), list(policy.replayed), _passes(policy.learnt, method)))
        policy.drawn.clear(), policy.replayed.clear(), policy.learnt.clear()

    run.observers.append(close)
    train(run)
    run.close()
    settings = BASE | given.get("algorithm", {}) | OPTIMIZER | given.get("optimizer", {})
    settings |= {"method": method, "targets": given.get("policy") == "taught"}
    assert settings.keys() <= DEFAULTS.keys()
    expected = weights_after(record, start, policy.anchor, settings)
    found = {k: v.detach().double() for k, v in policy.net.state_dict().items()}
    moved = max(float((expected[k] - start[k]).abs().max()) for k in start)
    assert idle or moved > 1e-4, "nothing was learnt: the case proves nothing"
    for name, value in found.items():
        torch.testing.assert_close(
            value, expected[name], rtol=0, atol=max(2e-4 * moved, 2e-7), msg=lambda m, name=name: f"{name}: {m}"
        )
    return found


def _passes(learnt: list[tuple[list[int], bool]], method: str) -> list[list[int]]:
    """Prompts of each update. Beside another objective a pass over demonstrations ends each update."""
    if method != "grpo" or not any(replayed for _, replayed in learnt):
        return [numbers for numbers, _ in learnt]
    passes, sampled = [], list[int]()
    for numbers, replayed in learnt:
        if replayed:
            passes.append(sampled)
        sampled = [] if replayed else numbers
    return passes

"""The exploding motion run, each fault removed: log-ratios, z2 and the score gradient before any update of the policy.

    python bench/motion_faults.py [--out FILE.json]

Everything is at full size (263 x 196 x 50) and from recipes/motion/exploding.toml: the denoiser is trained by its
supervised stage, then one rollout is drawn and scored, before any GRPO update, so that the right log-ratio is 0. A
second table moves the weights by one ordinary update and shows what each event reduction makes of it.
"""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path
from typing import Any

import torch

from anygrpo.core.build import build_policy, build_task
from anygrpo.core.rollout import Rollout
from anygrpo.core.tree import tree_map
from anygrpo.recipe.load import load_recipe

RECIPE = Path(__file__).parents[1] / "recipes" / "motion" / "exploding.toml"
REMOVED = {
    "nothing (as it was)": {},
    "ratio to the reference": {"ratio_to": "behaviour"},
    "dropout in replay": {"dropout_in_replay": False},
    "attached actions": {"attach_actions": False},
    "padding counted": {"count_padding": False},
    "last step scored": {"score_last_step": False},
    "sum over the trajectory": {"whole_trajectory": False},
}
NONE = {"ratio_to": "behaviour", "dropout_in_replay": False, "attach_actions": False, "count_padding": False,
        "score_last_step": False, "whole_trajectory": False}  # fmt: skip


def trained(recipe: Any, task: Any) -> Any:
    """The policy after the recipe's supervised stage; its reference is the policy then."""
    policy = build_policy(recipe.policy, recipe.seed)
    stage = recipe.resolved_stages()[0]
    optimizer = torch.optim.AdamW(policy.parameters(), float(stage.optimizer.learning_rate))
    for step in range(stage.steps):
        prompts = task.prompts(step, stage.algorithm.prompts_per_step)
        rollout = policy.replay(prompts, task.stored(prompts), step)
        rows = tree_map(lambda x: x.flatten(0, 1), rollout.samples)
        loss = policy.evaluate(rows, slice(0, 1), frozenset({"supervised"})).losses["supervised"].mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    policy.fix_reference()
    return policy


def measure(policy: Any, prompts: list[Any], gradient: bool = True) -> dict[str, float]:
    """One rollout of the policy as its faults say, scored again as training would."""
    torch.manual_seed(0)
    rollout: Rollout = policy.sample(prompts, 2, seed=1)
    rows = tree_map(lambda x: x.flatten(0, 1), rollout.samples)
    policy.trainable().zero_grad()
    new = []
    for t in range(rollout.shape[2]):
        log_prob = policy.evaluate(rows, slice(t, t + 1)).log_probs
        if gradient:
            log_prob.mean().backward()
        new.append(log_prob.detach())
    change = torch.cat(new, 1) - rollout.log_probs.flatten(0, 1)
    z2, n = policy.z2(rollout.samples)
    norm = math.sqrt(sum(float(p.grad.double().square().sum()) for p in policy.parameters() if p.grad is not None))
    return {
        "decisions": rollout.shape[2],
        "log_prob": float(rollout.log_probs.mean()),
        "log_ratio_mean": float(change.mean()),
        "log_ratio_abs_max": float(change.abs().max()),
        "mean_ratio_clamped": float(change.clamp(-20, 20).exp().mean()),
        "z2": z2,
        "z2_bound": 6 * math.sqrt(2 / n),
        "gradient_norm": norm,
    }


def with_faults(policy: Any, faults: dict[str, Any]) -> None:
    policy.faults = policy.config.faults.model_copy(update=faults)


def reductions(policy: Any, prompts: list[Any]) -> dict[str, dict[str, float]]:
    """Log-ratios per step after one Adam step of 1e-5 along a group's advantage, under each event reduction."""
    from anygrpo.denoising.gaussian import REDUCTIONS

    with_faults(policy, NONE)
    start = {k: v.clone() for k, v in policy.trainable().state_dict().items()}
    out = {}
    for name, reduction in REDUCTIONS.items():
        policy.trainable().load_state_dict(start)
        policy.reduction = reduction
        rollout = policy.sample(prompts, 2, seed=1)
        rows = tree_map(lambda x: x.flatten(0, 1), rollout.samples)
        optimizer = torch.optim.Adam(policy.parameters(), 1e-5)
        optimizer.zero_grad()
        advantage = torch.tensor([1.0, -1.0]).repeat(len(prompts))[:, None]
        for t in range(rollout.shape[2]):
            (-(advantage * policy.evaluate(rows, slice(t, t + 1)).log_probs).mean()).backward()
        optimizer.step()
        with torch.no_grad():
            new = [policy.evaluate(rows, slice(t, t + 1)).log_probs for t in range(rollout.shape[2])]
        change = torch.cat(new, 1) - rollout.log_probs.flatten(0, 1)
        clip = reduction.clip(int(torch.Size(policy.parts.shape).numel()))
        outside = (change.exp() - 1).abs() > clip.high
        above = ((change.exp() - 1) > clip.high).float().mean()
        out[name] = {"clip": clip.high, "log_ratio_std": float(change.std()), "log_ratio_mean": float(change.mean()),
                     "log_ratio_abs_max": float(change.abs().max()), "outside": float(outside.float().mean()),
                     "above": float(above)}  # fmt: skip
    policy.trainable().load_state_dict(start)
    return out


def table(title: str, rows: dict[str, dict[str, float]]) -> str:
    names = list(next(iter(rows.values())))
    lines = [f"| {title} | " + " | ".join(names) + " |", "| --- |" + " ---: |" * len(names)]
    return "\n".join(lines + [f"| {k} | " + " | ".join(f"{v:.5g}" for v in r.values()) + " |" for k, r in rows.items()])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--recipe", default=str(RECIPE))
    args = parser.parse_args()
    torch.set_num_threads(1)
    recipe = load_recipe(args.recipe, [])
    task = build_task(recipe.task, recipe.seed)
    policy = trained(recipe, task)
    many = task.prompts(10_000, 64)
    prompts = [min(many, key=lambda p: p["length"]), max(many, key=lambda p: p["length"])]
    removed = {}
    for name, change in REMOVED.items():
        with_faults(policy, change)
        removed[name] = measure(policy, prompts)
    with_faults(policy, NONE)
    removed["all of them"] = measure(policy, prompts)
    after = reductions(policy, prompts)
    print(table("fault removed", removed), table("event reduction, one update", after), sep="\n\n")
    if args.out:
        args.out.write_text(json.dumps({"faults": removed, "reductions": after}, indent=2))


if __name__ == "__main__":
    main()

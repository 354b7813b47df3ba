"""Held-out quality: the deterministic mode, samples and their best, fixed gates, and an oracle over gate values."""

from __future__ import annotations

from typing import Any

import torch

from anygrpo.gates.distributions import middle


@torch.no_grad()
def quality(policy: Any, task: Any, rollout: Any) -> dict[str, list[list[float]]]:
    """PSNR, SSIM and reward of each held-out picture's G outputs."""
    scores = task.score(task.held_out(), policy.decode(rollout.samples))
    return {name: x.tolist() for name, x in (scores.components | {"reward": scores.rewards}).items()}


def evaluated(policy: Any, task: Any, best_of: int, measure: str = "all") -> dict[str, Any]:
    """Quality of the deterministic mode; of fixed gates; of G samples' mean and best by the reward (an upper bound: it
    reads the clean picture); and of the soft mixture where the deterministic mode is a hard choice. `measure` "greedy":
    of the deterministic mode and, where one choice is made for a picture, of the best one and of the mixture."""
    held = task.held_out()
    first = lambda x: {k: [row[0] for row in rows] for k, rows in x.items()}  # noqa: E731
    soft = lambda: first(quality(policy, task, policy.rollout_with(held, 1, lambda name, d: middle(d, "mean"))))  # noqa: E731
    if measure == "greedy":
        kinds = {"greedy": first(quality(policy, task, policy.greedy(held)))}
        return kinds | ({"oracle": oracle(policy, task), "soft": soft()} if policy.mode == "mode" else {})
    many = quality(policy, task, policy.sample(held, best_of, 1))
    pick = [max(range(best_of), key=row.__getitem__) for row in many["reward"]]
    kinds = {
        "greedy": first(quality(policy, task, policy.greedy(held))),
        "fixed": fixed_gates(policy, task),
        "sampled": {k: [sum(row) / best_of for row in x] for k, x in many.items()},
        "best": {k: [row[i] for row, i in zip(x, pick)] for k, x in many.items()},
    }
    if policy.mode == "mode":
        kinds["soft"] = soft()
    return kinds


def fixed_gates(policy: Any, task: Any) -> dict[str, list[float]]:
    """Greedy quality with every gate at one value for all pictures: its mean over the held-out pictures, or the tool
    that is chosen most often.

    What remains of a gain here comes from the body or from better constants; the rest from choosing per picture.
    """
    held = task.held_out()
    samples = policy.greedy(held).samples
    constants = {}
    for key, x in samples.items():  # [P, 1, 2], or one-hot maps [P, 1, h, w, tools], padded with zeros
        if key.startswith("site/"):
            tools = torch.nn.functional.one_hot(x.flatten(0, -2).sum(0).argmax(), x.shape[-1]).to(x)
            constants[key.removeprefix("site/")] = tools if policy.mode == "mode" else x.mean((0, 1))

    def constant(name: str, distribution: Any) -> torch.Tensor:
        return constants[name].expand(distribution.batch_shape + distribution.event_shape)

    rollout = policy.rollout_with(held, 1, constant)
    return {k: [row[0] for row in x] for k, x in quality(policy, task, rollout).items()}


def oracle(policy: Any, task: Any) -> dict[str, list[float]]:
    """Each picture's best quality when one site at a time leaves its deterministic value.

    Tried are .1, .3, .5, .7, .9 for a Beta, each choice everywhere for a one-hot one: a lower bound of the headroom,
    which reads the clean picture.
    """
    held = task.held_out()
    first = policy.greedy(held[:1]).samples
    sites = [k.removeprefix("site/") for k in first if k.startswith("site/")]
    tries = [quality(policy, task, policy.greedy(held))]
    for site in sites:
        for k in range(first[f"site/{site}"].shape[-1] if policy.mode == "mode" else 5):

            def choose(name: str, distribution: Any, site: str = site, k: int = k) -> torch.Tensor:
                value = middle(distribution, policy.mode)
                if name != site:
                    return value
                if policy.mode != "mode":
                    return torch.full_like(value, 0.1 + 0.2 * k)
                return torch.nn.functional.one_hot(torch.full_like(value[..., 0], k).long(), value.shape[-1]).to(value)

            tries.append(quality(policy, task, policy.rollout_with(held, 1, choose)))
    pick = [max(range(len(tries)), key=lambda t, i=i: tries[t]["reward"][i][0]) for i in range(len(held))]
    return {name: [tries[t][name][i][0] for i, t in enumerate(pick)] for name in tries[0]}

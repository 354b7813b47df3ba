"""GRPO on one page: what `anygrpo train` computes with one worker, written out. A test holds both equal.

Notation: P prompts, G samples of each (a group), T decisions of each sample.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from anygrpo.core.policy import Policy
from anygrpo.core.task import Task
from anygrpo.core.tree import tree_map


def advantages(rewards: Tensor) -> Tensor:
    """[P, G] -> [P, G]: how much better a sample was than its group, in the group's own units. No critic: the group's
    mean is the baseline. A group whose rewards are all equal teaches nothing: 0, not 0 / 0."""
    centred = rewards - rewards.mean(1, keepdim=True)
    std = rewards.std(1, keepdim=True)  # n - 1, as published
    return torch.where(std > 0, centred / std.clamp(min=1e-12), 0.0)


def policy_loss(new: Tensor, old: Tensor, advantage: Tensor, clip: float) -> Tensor:
    """PPO's clipped objective for each decision [n, T]. The ratio is 1 in the first epoch: then the gradient is that of
    advantage x log-prob; later it is held near where the samples came from."""
    ratio = (new - old).exp()
    return -torch.minimum(ratio * advantage, ratio.clamp(1 - clip, 1 + clip) * advantage)


def kl_to_reference(new: Tensor, old: Tensor, reference: Tensor) -> Tensor:
    """Has the gradient of KL(policy || reference) for each decision [n, T], from samples of the old policy:
    E_new[d grad log new] = E_old[(new / old) d grad log new] with d = log new - log reference. Differentiating an
    estimate of the KL's *value* (k1, k3) gives something else: docs/algorithm.md."""
    weight = (new - old).exp() * (new - reference)
    return weight.detach() * new


def train(
    policy: Policy,
    task: Task,
    *,
    steps: int,
    prompts_per_step: int = 8,
    group_size: int = 8,
    learning_rate: float = 1e-2,
    epochs: int = 2,
    clip: float = 0.2,
    beta: float = 0.02,
    entropy_coef: float = 0.01,
    seed_of: Callable[[int], int] = lambda step: step,
) -> list[float]:
    """Train `policy` in place; the mean reward of each step.

    Args:
        beta: weight of the KL to the policy as it was at the start.
        seed_of: step -> the seed of its samples.
    """
    parameters = policy.parameters()
    optimizer = torch.optim.AdamW(parameters, lr=learning_rate, weight_decay=0.0)
    history = []
    for step in range(steps):
        # 1. Sample a group of answers for each prompt, with the policy as it is, and ask what they are worth.
        prompts = task.prompts(step, prompts_per_step)
        rollout = policy.sample(prompts, group_size, seed_of(step))
        rewards = task.score(prompts, policy.decode(rollout.samples)).rewards
        history.append(rewards.mean().item())

        # 2. Compare within groups. From here on rows are samples: n = P x G.
        advantage = advantages(rewards).flatten()[:, None]
        rows = tree_map(lambda x: x.flatten(0, 1), rollout.samples)
        old, counts = rollout.log_probs.flatten(0, 1), rollout.mask.flatten(0, 1)
        with torch.no_grad(), policy.reference():
            reference = policy.evaluate(rows, slice(None)).log_probs

        # 3. Move: some updates on the same samples.
        for _ in range(epochs):
            scored = policy.evaluate(rows, slice(None), frozenset({"entropy"}))
            assert scored.entropy is not None
            loss = policy_loss(scored.log_probs, old, advantage, clip)
            loss = loss + beta * kl_to_reference(scored.log_probs, old, reference) - entropy_coef * scored.entropy
            loss = (loss * counts).sum() / counts.sum()  # every decision counts the same ("token mean")
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(parameters, 1.0)
            optimizer.step()
    return history


if __name__ == "__main__":
    from own_policy import Rule, Speller

    rewards = train(Speller(), Rule(), steps=60)
    print(f"share of right letters: {sum(rewards[:5]) / 5:.2f} at first, {sum(rewards[-5:]) / 5:.2f} at last")

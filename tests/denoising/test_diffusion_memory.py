"""Memory of a training step: flat in the number of denoising steps, but for the trajectory itself, which is counted."""

from __future__ import annotations

import weakref
from contextlib import contextmanager

import pytest
import torch
from peers.diffusion import ours
from peers.diffusion.cases import case_named, conditions, reward_of

from anygrpo.core.task import Scores
from anygrpo.recipe.algorithm import AlgorithmConfig
from anygrpo.recipe.recipe import Stage
from anygrpo.recipe.training import OptimizerConfig
from anygrpo.train.batches import prepare, weigh
from anygrpo.train.stages import numbers_at
from anygrpo.train.update import Updater


class Held:
    """A tensor that a graph has saved."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor


class Saved:
    """Bytes that graphs hold, counted as they come and go; storage that several of them hold counts once."""

    def __init__(self) -> None:
        self.now = self.peak = 0
        self.holders: dict[int, int] = {}

    def pack(self, tensor: torch.Tensor) -> Held:
        held, storage = Held(tensor), tensor.untyped_storage()
        key, size = storage.data_ptr(), storage.nbytes()
        self.holders[key] = self.holders.get(key, 0) + 1
        if self.holders[key] == 1:
            self.now += size
        self.peak = max(self.peak, self.now)
        weakref.finalize(held, self.free, key, size)
        return held

    def free(self, key: int, size: int) -> None:
        self.holders[key] -= 1
        if not self.holders[key]:
            self.now -= size


@contextmanager
def saved_bytes():
    saved = Saved()
    with torch.autograd.graph.saved_tensors_hooks(saved.pack, lambda held: held.tensor):
        yield saved


def step(steps: int, time_chunk: int | None = 1) -> tuple[int, int, int]:
    """Peak bytes of saved activations in a step's training pass, bytes of the trajectory, and decisions."""
    case = case_named("tiny-motion", steps=steps)
    policy = ours.policy_of(case, "cpu")
    policy.time_chunk = time_chunk
    given = conditions(case, 0)
    prompts = [{name: x[p] for name, x in given.items()} for p in range(case.prompts)]
    rollout = policy.sample(prompts, case.group, 0)
    rewards = torch.stack([reward_of(torch.stack(row)) for row in policy.decode(rollout.samples)])
    algorithm = AlgorithmConfig(prompts_per_step=case.prompts, group_size=case.group)
    stage = Stage("memory", "grpo", "policy", 1, None, algorithm, OptimizerConfig(learning_rate=1e-5), None)
    batch = weigh(prepare(rollout.scored(Scores(rewards)), stage, numbers_at(stage, 0, 1), None), stage)
    updater = Updater(policy, stage.optimizer)
    with saved_bytes() as saved:
        updater.accumulate(batch, stage, numbers_at(stage, 0, 1), len(batch), measure=False)
    assert saved.now == 0  # no graph outlives the pass
    return saved.peak, rollout.samples["latents"].nbytes, batch.mask.shape[1]


def test_activations_are_those_of_one_step_however_many_there_are():
    (few, small, a), (many, large, b) = step(4), step(32)
    assert (a, b) == (4, 32)
    trajectory = large - small
    assert few <= many <= few + trajectory  # a graph may hold the trajectory itself, once
    assert small == 8 * 5 * 6 * 47 * 4  # samples x (T + 1) latents of 6 frames in float32: what grows


def test_all_steps_at_once_hold_as_many_graphs():
    one, all_ = step(16)[0], step(16, time_chunk=None)[0]
    assert all_ > 4 * one


@pytest.mark.parametrize("steps", [3, 9])
def test_the_gradient_does_not_depend_on_the_cut(steps):
    def gradient(chunk):
        torch.manual_seed(0)
        case = case_named("tiny-motion", steps=steps)
        policy = ours.policy_of(case, "cpu")
        given = conditions(case, 0)
        rollout = policy.sample([{n: x[p] for n, x in given.items()} for p in range(2)], 4, 0)
        rows = {n: x.flatten(0, 1) for n, x in rollout.samples.items() if n != "condition"}
        rows["condition"] = {n: x.flatten(0, 1) for n, x in rollout.samples["condition"].items()}
        for t in range(0, steps, chunk):
            policy.evaluate(rows, slice(t, t + chunk)).log_probs.sum().backward()
        return torch.cat([p.grad.flatten() for p in policy.trainable().parameters() if p.grad is not None])

    whole = gradient(steps)
    assert (gradient(1) - whole).norm() < 1e-4 * whole.norm()

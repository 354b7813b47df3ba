"""Worker process: optimizer steps of a diffusion case with anygrpo. Prints one JSON object on its last line."""

from __future__ import annotations

import argparse
import json
from typing import Any

import torch
from peers.diffusion.cases import Case, conditions, denoiser_of, reward_of, scheduler_of

from anygrpo.bench.meter import Meter, peak_gb
from anygrpo.core.rollout import Batch
from anygrpo.core.task import Scores
from anygrpo.denoising.build import DiffusionPolicy, Parts
from anygrpo.denoising.settings import DenoisingConfig
from anygrpo.denoising.transitions import transitions_of
from anygrpo.recipe.algorithm import AlgorithmConfig
from anygrpo.recipe.recipe import Stage
from anygrpo.recipe.training import OptimizerConfig
from anygrpo.train.batches import prepare, weigh
from anygrpo.train.stages import numbers_at
from anygrpo.train.update import Updater

CLIP = 1e-4
"""DDPO's clip range of log-probs that are means over dimensions."""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--case", type=json.loads, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--save", help="file for the trajectories and the gradient of the first step")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    print(json.dumps(measure(Case(**args.case), args.steps, args.save)))


def policy_of(case: Case, device: str) -> DiffusionPolicy:
    """A prompt is its condition, leaves [...]; an output is a latent."""
    parts = Parts(
        denoiser_of(case),
        scheduler_of(case),
        case.shape,
        encode=lambda prompts: {name: torch.stack([p[name] for p in prompts]) for name in prompts[0]},
        decode=lambda latents, condition: list(latents),
    )
    sampler = "flow_grpo" if case.denoiser == "flow" else "ddim"
    config = DenoisingConfig(steps=case.steps, sampler=sampler, event_reduction="mean", device=device)
    transitions = transitions_of(parts.scheduler, config.steps, config.sampler, config.eta, config.noise_level)
    return DiffusionPolicy(parts, transitions, config, seed=0)


def measure(case: Case, steps: int, save: str | None = None) -> dict[str, Any]:
    """Seconds of each step by phase, peak memory, decisions trained on, trained parameters."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    policy = policy_of(case, device)
    algorithm = AlgorithmConfig(
        prompts_per_step=case.prompts, group_size=case.group, clip_low=CLIP, clip_high=CLIP, filters=()
    )
    stage = Stage("bench", "grpo", "policy", steps, None, algorithm, OptimizerConfig(learning_rate=1e-5), None)
    updater, meter, done = Updater(policy, stage.optimizer), Meter(device), []
    base = peak_gb(device)
    for step in range(steps):
        given = conditions(case, step)
        prompts = [{name: x[p] for name, x in given.items()} for p in range(case.prompts)]
        numbers = numbers_at(stage, step, steps)
        with meter.phase("step"):
            with meter.phase("sample"):
                rollout = policy.sample(prompts, case.group, seed=step)
                rewards = [reward_of(torch.stack(row)) for row in policy.decode(rollout.samples)]
                rollout = rollout.on_host().scored(Scores(torch.stack(rewards).cpu()))
            with meter.phase("train"):
                batch = weigh(prepare(rollout, stage, numbers, None), stage)
                updater.accumulate(batch, stage, numbers, case.rows, measure=False)
            if save and step == 0:
                _save(policy, batch, save)
            with meter.phase("optimizer"):
                updater.step(1e-5, measure=False)
        done.append({"phases": meter.take(), "decisions": int(batch.mask.sum())})
    parameters = sum(p.numel() for p in policy.parameters())
    return {"steps": done, "peak_gb": peak_gb(device), "base_gb": base, "parameters": parameters}


def _save(policy: DiffusionPolicy, batch: Batch, path: str) -> None:
    """Trajectories, old log-probs and advantages of the first step and the gradient by parameter name."""
    gradient = {n: p.grad for n, p in policy.trainable().named_parameters() if p.grad is not None}
    rows = {"samples": batch.samples, "old": batch.old, "advantages": batch.advantages[:, 0]}
    torch.save(rows | {"gradient": gradient}, path)


if __name__ == "__main__":
    main()

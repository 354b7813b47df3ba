"""Worker process: optimizer steps of a selection case with anygrpo. Prints one JSON object on its last line."""

from __future__ import annotations

import argparse
import json
from typing import Any

import torch
from peers.selector.cases import Case, config_of, instances, network_of
from torch import Tensor

from anygrpo.bench.meter import Meter, peak_gb
from anygrpo.core.rollout import Batch, Rollout
from anygrpo.core.task import Scores
from anygrpo.recipe.algorithm import AlgorithmConfig
from anygrpo.recipe.recipe import Stage
from anygrpo.recipe.training import OptimizerConfig
from anygrpo.selection.build import SelectorPolicy
from anygrpo.train.batches import prepare, weigh
from anygrpo.train.stages import numbers_at
from anygrpo.train.update import Updater


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--case", type=json.loads, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--save", help="file for the selections and the gradient of the first step")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    print(json.dumps(measure(Case(**args.case), args.steps, args.save)))


def measure(case: Case, steps: int, save: str | None = None) -> dict[str, Any]:
    """Seconds of each step by phase, peak memory, decisions trained on, trained parameters."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    policy = SelectorPolicy(config_of(case), network_of(case).to(device))
    policy.one_update = True
    # The peer's loss: mean over samples of -(reward - the group's mean) x the summed log-prob of the picks.
    algorithm = AlgorithmConfig(
        prompts_per_step=case.prompts,
        group_size=case.group,
        advantage="centred",
        reduction="constant",
        horizon=1,
        filters=(),
    )
    stage = Stage("bench", "grpo", "policy", steps, None, algorithm, OptimizerConfig(learning_rate=1e-4), None)
    updater, meter, done = Updater(policy, stage.optimizer), Meter(device), []
    for step in range(steps):
        given = instances(case, step)
        prompts = [
            {"id": p, "query": given["query"][p], "candidates": given["candidates"][p]} for p in range(case.prompts)
        ]
        numbers = numbers_at(stage, step, steps)
        with meter.phase("step"):
            with meter.phase("sample"):
                rollout = _scored(policy.sample(prompts, case.group, seed=step), given["values"])
            with meter.phase("train"):
                batch = weigh(prepare(rollout, stage, numbers, None), stage)
                updater.accumulate(batch, stage, numbers, len(batch), measure=False)
            if save and step == 0:
                _save(policy, batch, case, save)
            with meter.phase("optimizer"):
                updater.step(1e-4, measure=False)
        done.append({"phases": meter.take(), "decisions": int(batch.mask.sum())})
    parameters = sum(p.numel() for p in policy.parameters())
    return {"steps": done, "peak_gb": peak_gb(device), "parameters": parameters}


def _scored(rollout: Rollout, values: Tensor) -> Rollout:
    """The rollout with the mean value of each selection, all but the samples on the host as in training."""
    chosen = rollout.samples["chosen"].cpu()
    rewards = values[:, None].expand(-1, chosen.shape[1], -1).gather(-1, chosen).mean(-1)
    return rollout.on_host().scored(Scores(rewards))


def _save(policy: SelectorPolicy, batch: Batch, case: Case, path: str) -> None:
    """Selections [P, G, K] of the first step and the gradient by parameter name, for the peer to compute again."""
    gradient = {n: p.grad for n, p in policy.trainable().named_parameters() if p.grad is not None}
    chosen = batch.samples["chosen"].view(case.prompts, case.group, case.shots)
    torch.save({"chosen": chosen.cpu(), "gradient": gradient}, path)


if __name__ == "__main__":
    main()

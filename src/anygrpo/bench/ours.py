"""Worker process: optimizer steps of a case with anygrpo. Prints one JSON object on its last line."""

from __future__ import annotations

import argparse
import json
from typing import Any

import torch

from anygrpo.bench.cases import Case, prompt_texts, reward_of
from anygrpo.bench.meter import Meter, peak_gb
from anygrpo.core.rollout import Rollout
from anygrpo.core.task import Scores
from anygrpo.language import build as causal_lm
from anygrpo.language.settings import CausalLMConfig
from anygrpo.recipe.algorithm import AlgorithmConfig, OptimizerConfig
from anygrpo.recipe.recipe import Stage
from anygrpo.train.batches import prepare, weigh
from anygrpo.train.stages import numbers_at
from anygrpo.train.update import Updater


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--case", type=json.loads, required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--save", help="file for the rows and the gradient of the first step")
    args = parser.parse_args()
    print(json.dumps(measure(Case(**args.case), args.model, args.steps, args.threads, args.save)))


def measure(case: Case, model: str, steps: int, threads: int, save: str | None) -> dict[str, Any]:
    """Seconds of each step by phase, peak memory, tokens trained on."""
    policy = causal_lm.build(_config(case, model, threads), seed=0)
    policy.one_update = True
    # Completions of equal length without touching the distribution: no token ends one. (The peer forbids end tokens
    # while sampling and scores them as possible, so its scored distribution is the whole one too.)
    policy.prompts.ends = ()
    device = policy.scorer.device.type
    prompts = [{"prompt": t} for t in prompt_texts(policy.prompts.tokenizer, case.prompts, case.prompt_tokens)]
    algorithm = AlgorithmConfig(prompts_per_step=case.prompts, group_size=case.group, reduction="token_mean")
    stage = Stage("bench", "grpo", "policy", steps, None, algorithm, OptimizerConfig(learning_rate=1e-6), None)
    updater, meter, done = Updater(policy, stage.optimizer), Meter(device), []
    for step in range(steps):
        with meter.phase("step"):
            rollout = _rollout(policy, prompts, case, step, meter)
            with meter.phase("train"):
                prepared = prepare(rollout, stage, numbers_at(stage, step, steps), None)
                batch = weigh(prepared, stage)
                updater.accumulate(batch, stage, numbers_at(stage, step, steps), len(batch), measure=False)
            if save and step == 0:
                _save(policy, batch, save)
            with meter.phase("optimizer"):
                updater.step(1e-6, measure=False)
        done.append({"phases": meter.take(), "tokens": int(batch.mask.sum())})
    lengths = rollout.samples["prompt_lengths"][:, 0].tolist()
    return {"steps": done, "peak_gb": peak_gb(device), "prompt_tokens": lengths, "parity": policy.parity}


def _config(case: Case, model: str, threads: int) -> CausalLMConfig:
    return CausalLMConfig(
        kind="causal_lm",
        model=model,
        dtype=case.dtype,  # type: ignore[arg-type]
        train="all",
        threads=threads,
        chat_template=False,
        max_new_tokens=case.new_tokens,
        token_budget=case.prompt_tokens + case.group * case.new_tokens + 100,
    )


def _rollout(policy: causal_lm.CausalLM, prompts: list[Any], case: Case, step: int, meter: Meter) -> Rollout:
    with meter.phase("generate"):
        rollout = policy.sample(prompts, case.group, seed=step)
        texts = policy.decode(rollout.samples)
    rewards = torch.tensor([[reward_of(t) for t in row] for row in texts])
    return rollout.scored(Scores(rewards))


def _save(policy: causal_lm.CausalLM, batch: Any, path: str) -> None:
    """Rows, advantages and the gradient by parameter name, for the peer to compute again."""
    gradient = {n: p.grad for n, p in policy.trainable().named_parameters() if p.grad is not None}
    torch.save({"samples": batch.samples, "advantages": batch.advantages[:, 0], "gradient": gradient}, path)


if __name__ == "__main__":
    main()

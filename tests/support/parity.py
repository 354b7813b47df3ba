"""Five rollouts of a run of ours, replayed in TRL's GRPOTrainer from the same weights: how far apart both end."""

from __future__ import annotations

import copy
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tiny_lm  # makes `tiny` importable
from runs import table
from torch import Tensor, nn

from anygrpo.recipe.load import parse_recipe
from anygrpo.recipe.peers import trl as nearest
from anygrpo.train.build import new_run
from anygrpo.train.loop import train

TINY = Path(tiny_lm.__file__)
STEPS, PROMPTS, GROUP, LIMIT = 5, 4, 4, 8
OPTIMIZER = {"learning_rate": 0.01, "eps": 0.01, "grad_clip": "none"}
"""A coarse eps: with 1e-8 an update is near the gradient's sign, in which neither scale nor small terms show."""


@dataclass
class Recorded:
    """What was drawn, by step, and our weights before and after."""

    prompts: list[list[list[int]]]
    completions: list[list[list[int]]]
    rewards: list[list[float]]
    parts: list[dict[str, list[float]]]
    start: dict[str, Tensor]
    end: dict[str, Tensor]
    model: nn.Module
    tokenizer: Any
    settings: dict[str, Any]


def ours(folder: Path, algorithm: dict[str, Any], optimizer: dict[str, Any]) -> Recorded:
    """Five steps of a tiny language model; every rollout kept."""
    recipe = parse_recipe(
        table(
            folder,
            policy={"kind": "python", "function": f"{TINY}:policy", "arguments": {"max_new_tokens": LIMIT}},
            task={"kind": "python", "function": f"{TINY}:Parts"},
            algorithm={"prompts_per_step": PROMPTS, "group_size": GROUP} | algorithm,
            optimizer=OPTIMIZER | optimizer,
            training={"steps": STEPS, "checkpoint_every": 100, "samples_every": 0},
            evaluation={"at_start": False},
        )
    )
    run = new_run(recipe)
    import tiny

    policy, net = run.policy, run.policy.trainable()
    start, model = {n: p.detach().clone() for n, p in net.named_parameters()}, copy.deepcopy(net)
    drawn: list[Any] = []
    sample = policy.sample

    def recording(*given: Any, **named: Any) -> Any:
        drawn.append(sample(*given, **named))
        return drawn[-1]

    policy.sample = recording
    train(run)
    run.close()
    made = Recorded([], [], [], [], start, {n: p.detach().clone() for n, p in net.named_parameters()}, model,
                    tiny.tokenizer(), nearest(recipe.algorithm, recipe.optimizer).settings)  # fmt: skip
    task = run.stages[0].task
    for step, rollout in enumerate(drawn):
        _keep(made, rollout, task.score(task.prompts(step, PROMPTS), policy.decode(rollout.samples)))
    return made


def _keep(made: Recorded, rollout: Any, scores: Any) -> None:
    s = rollout.samples
    lengths = s["completion_lengths"].flatten().tolist()
    ids, prompts = s["completion_ids"].flatten(0, 1).tolist(), s["prompt_ids"].flatten(0, 1).tolist()
    sizes = s["prompt_lengths"].flatten().tolist()
    made.completions.append([row[:n] for row, n in zip(ids, lengths)])
    made.prompts.append([row[:n] for row, n in zip(prompts, sizes)])
    made.rewards.append(scores.rewards.flatten().tolist())
    made.parts.append({name: part.flatten().tolist() for name, part in scores.components.items()})


def theirs(folder: Path, made: Recorded, changed: dict[str, Any], rows: int = PROMPTS * GROUP) -> dict[str, Tensor]:
    """TRL's weights after the same rollouts. `rows`: of a forward and backward pass; the rest is accumulated."""
    os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    asked = iter(range(STEPS))
    by_parts = made.settings.get("multi_objective_aggregation") is not None
    now = {"step": -1}

    def rollout(prompts: list[Any], trainer: Any) -> dict[str, Any]:
        now["step"] = k = next(asked)
        assert [int(p) for p in prompts] == [k * PROMPTS + i // GROUP for i in range(len(prompts))]
        none = [[0.0] * len(c) for c in made.completions[k]]
        return {"prompt_ids": made.prompts[k], "completion_ids": made.completions[k], "logprobs": none}

    def reward(part: str | None) -> Any:
        def give(completions: list[Any], **_: Any) -> list[float]:
            return made.rewards[now["step"]] if part is None else made.parts[now["step"]][part]

        give.__name__ = part or "reward"
        return give

    settings = {k: v for k, v in made.settings.items() if k != "temperature"} | {"lr_scheduler_type": "constant"}
    epochs = settings["num_iterations"]
    config = GRPOConfig(
        output_dir=str(folder), per_device_train_batch_size=rows, num_generations=GROUP, shuffle_dataset=False,
        gradient_accumulation_steps=PROMPTS * GROUP // rows, max_steps=STEPS * epochs, max_completion_length=LIMIT,
        temperature=1.0, use_cpu=True, bf16=False, gradient_checkpointing=False, report_to="none", save_strategy="no",
        model_init_kwargs={"dtype": "float32"},
        logging_strategy="no", disable_tqdm=True, seed=0, **(settings | changed),
    )  # fmt: skip
    made.model.save_pretrained(folder / "start")  # a reference is loaded by its path
    made.tokenizer.save_pretrained(folder / "start")
    trainer = GRPOTrainer(
        model=str(folder / "start"),
        reward_funcs=[reward(part) for part in (made.parts[0] if by_parts else [None])],
        args=config,
        train_dataset=Dataset.from_dict({"prompt": [str(i) for i in range(STEPS * PROMPTS)]}),
        processing_class=made.tokenizer,
        rollout_func=rollout,
    )
    trainer.train()
    return {name: p.detach() for name, p in trainer.model.named_parameters()}


def apart(made: Recorded, other: dict[str, Tensor]) -> float:
    """Largest difference of a weight, as a share of the largest change that training made."""
    moved = max(float((made.end[n] - made.start[n]).abs().max()) for n in made.start)
    assert moved > 1e-3, "nothing was learnt: equal weights say nothing"
    return max(float((made.end[n] - other[n]).abs().max()) for n in made.start) / moved

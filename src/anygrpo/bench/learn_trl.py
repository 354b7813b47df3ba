"""Worker process: a recipe's task, model and settings with TRL's GRPOTrainer and the library's own generate; held-out
accuracy by seconds of training. Prints one JSON object on its last line.

The prompts of each step, rewards, held-out prompts and their measure are the recipe's task's own; prompts are rendered
as our policy renders them. Learning rate schedule, clipping, adapters and sizes are the recipe's.
"""

# pyright: reportMissingImports=false

from __future__ import annotations

import json
import logging
import time
import warnings
from pathlib import Path
from typing import Any

import torch

from anygrpo.bench.learn_ours import arguments, flags
from anygrpo.errors import ConfigError
from anygrpo.language.prompts import Prompts
from anygrpo.models.loading import context_length, end_ids, load_tokenizer, resolve
from anygrpo.recipe.load import load_recipe
from anygrpo.recipe.recipe import number
from anygrpo.recipe.section import Schedule
from anygrpo.scratch import Scratch, for_this_process
from anygrpo.spoken import Text
from anygrpo.train.stages import plan_stages

LOOK = 64
"""Held-out prompts answered at once."""

REDUCTIONS = {"token_mean": "dapo", "sequence_mean": "grpo"}
"""Reductions that both sides have, by TRL's names."""


class Side:
    """The recipe's parts as TRL takes them."""

    def __init__(self, recipe: Any) -> None:
        self.recipe, self.config = recipe, recipe.policy
        self.stage, self.task = (lambda p: (p.stage, p.task))(plan_stages(recipe, None)[0])
        if self.config.kind != "causal_lm" or self.stage.method != "grpo" or self.config.train != "lora":
            raise ConfigError(
                Text(
                    "bench learn compares GRPO of a language model's adapters", "bench learn 比较语言模型适配器的 GRPO"
                ),
                Text("give such a recipe", "请给出这样的配方"),
            )
        self.tokenizer = load_tokenizer(self.config.model)
        self.tokenizer.padding_side = "left"
        self.prompts = Prompts(self.tokenizer, self.config, None, (self.tokenizer.eos_token_id,))
        every = self.recipe.training.steps
        count = self.stage.algorithm.prompts_per_step
        self.records = [record for step in range(every) for record in self.task.prompts(step, count)]

    def text(self, record: Any) -> str:
        """A prompt as the policy's own tokenizer call reads it."""
        return self.tokenizer.decode(self.prompts.encode([record], 0)[0])

    def rewards(self, completions: list[str], number: list[int], **_: Any) -> list[float | None]:
        """TRL's reward function: completions and the numbers of their prompts."""
        scores = self.task.score([self.records[n] for n in number], [[text] for text in completions])
        valid = torch.ones_like(scores.rewards, dtype=torch.bool) if scores.valid is None else scores.valid
        return [float(r) if v else None for r, v in zip(scores.rewards[:, 0], valid[:, 0])]

    @torch.no_grad()
    def accuracy(self, model: Any) -> float:
        """The recipe's metric on the held-out prompts, by greedy answers of the library's generate."""
        held = self.task.held_out()[: self.recipe.evaluation.prompts]
        answers = []
        for a in range(0, len(held), LOOK):
            rows = self.prompts.encode(held[a : a + LOOK], 0)
            inputs = self.tokenizer.pad({"input_ids": rows}, return_tensors="pt").to(model.device)
            made = model.generate(**inputs, do_sample=False, max_new_tokens=self.config.max_new_tokens)
            ids = made[:, inputs["input_ids"].shape[1] :].tolist()
            answers += [[self.tokenizer.decode(row, skip_special_tokens=True)] for row in ids]
        return float(self.task.measure(held, answers)[self.recipe.evaluation.metric])


def trainer_for(side: Side, steps: int) -> Any:
    """TRL's trainer with the recipe's settings."""
    from datasets import Dataset
    from datasets.table import InMemoryTable
    from peft import LoraConfig
    from trl import GRPOConfig, GRPOTrainer

    a, o, lora = side.stage.algorithm, side.stage.optimizer, side.config.lora
    given: Any = o.learning_rate
    rate, kind = getattr(given, "start", given), getattr(given, "kind", "constant")
    if kind not in ("cosine", "constant", "linear") or a.reduction not in REDUCTIONS or a.objective != "ppo":
        raise ConfigError(
            Text(
                f"TRL has no {kind} rate with {a.objective} and {a.reduction} as we mean them",
                f"TRL 在 {a.objective} 与 {a.reduction} 下没有与我们含义相同的 {kind} 学习率",
            ),
            Text("another recipe", "请换一个配方"),
        )
    if moving := [name for name in ("beta", "clip_low", "clip_high") if isinstance(getattr(a, name), Schedule)]:
        raise ConfigError(
            Text(f"{moving[0]} follows a schedule, which TRL has none of", f"{moving[0]} 随调度变化，TRL 没有这种调度"),
            Text("give a number in the recipe", "请在配方中给出一个数"),
        )
    config = GRPOConfig(
        output_dir=str(for_this_process("bench")),
        per_device_train_batch_size=a.typical_group,
        gradient_accumulation_steps=a.prompts_per_step,
        num_generations=a.typical_group,
        max_completion_length=side.config.max_new_tokens,
        beta=number(a.beta),
        loss_type=REDUCTIONS[str(a.reduction)],
        epsilon=0.2 if a.clip_low is None else number(a.clip_low),
        epsilon_high=0.2 if a.clip_high is None else number(a.clip_high),
        gradient_checkpointing=False,
        max_steps=steps,
        learning_rate=rate,
        lr_scheduler_type=kind,
        warmup_steps=getattr(given, "warmup", 0),
        weight_decay=o.weight_decay,
        adam_beta1=o.betas[0],
        adam_beta2=o.betas[1],
        max_grad_norm=o.grad_clip or 0.0,
        seed=side.recipe.seed,
        shuffle_dataset=False,
        logging_steps=1,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        use_cpu=not torch.cuda.is_available(),
        bf16=torch.cuda.is_available(),
        model_init_kwargs={"dtype": "float32"},
    )
    table = {"prompt": [side.text(r) for r in side.records], "number": list(range(len(side.records)))}
    return GRPOTrainer(
        model=resolve(side.config.model),
        reward_funcs=side.rewards,
        args=config,
        # With a name given nothing is hashed: hashing pickles pyarrow's own types, which Python 3.12 refuses.
        train_dataset=Dataset(InMemoryTable.from_pydict(table), fingerprint="bench"),
        processing_class=side.tokenizer,
        peft_config=LoraConfig(r=lora.rank, lora_alpha=lora.alpha, target_modules=lora.targets, task_type="CAUSAL_LM"),
    )


def curve_of(trainer: Any, side: Side, every: int) -> list[list[float]]:
    """[seconds of training, step, accuracy] at the start and every few steps."""
    from transformers import TrainerCallback

    points = [[0.0, 0, side.accuracy(trainer.model)]]
    clock = {"spent": 0.0, "since": 0.0}

    class Looks(TrainerCallback):
        def on_step_begin(self, *given: Any, **named: Any) -> None:
            clock["since"] = time.perf_counter()

        def on_step_end(self, args: Any, state: Any, control: Any, **named: Any) -> None:
            clock["spent"] += time.perf_counter() - clock["since"]
            if state.global_step % every == 0 or state.global_step == args.max_steps:
                trainer.model.eval()
                points.append([round(clock["spent"], 3), state.global_step, side.accuracy(trainer.model)])
                trainer.model.train()

    trainer.add_callback(Looks())
    trainer.train()
    return points


def main() -> None:
    args = arguments()
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    torch.set_num_threads(args.threads)
    with Scratch("bench") as scratch:
        side = Side(load_recipe(Path(args.recipe), flags(args, scratch / "run")))
        trainer = trainer_for(side, args.steps)
        model: Any = trainer.model
        side.prompts.context = context_length(model)
        side.prompts.ends = end_ids(model, side.tokenizer, side.config.eos)
        points = curve_of(trainer, side, args.every)
    print(json.dumps({"curve": points}))


if __name__ == "__main__":
    main()

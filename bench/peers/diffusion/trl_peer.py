"""Worker process: optimizer steps of a U-Net case with TRL's DDPOTrainer. Prints one JSON object on its last line.

The trainer left TRL after 0.23.1, so that it needs an environment of its own (`--peer-python`). Its steps are its own
(`DDPOTrainer.step`), and so are its transition and log-prob; around the U-Net stands the least that it asks of a
pipeline: prompts are looked up in a table, and the latent is the image.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import warnings
from typing import Any

import torch
from peers.diffusion.cases import Case, conditions, denoiser_of, reward_of, scheduler_of
from torch import Tensor, nn

from anygrpo.bench.meter import Meter, peak_gb
from anygrpo.bench.rounds import relative_distance
from anygrpo.scratch import for_this_process


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--case", type=json.loads, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--check", help="file with trajectories and a gradient to compare with, instead of steps")
    args = parser.parse_args()
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    torch.set_num_threads(args.threads)
    case = Case(**args.case)
    print(json.dumps(compare(case, args.check) if args.check else measure(case, args.steps)))


class Ids:
    """What TRL takes from a tokenizer: prompts are numbers of rows in a table, 0 the empty one."""

    model_max_length = 1

    def __call__(self, prompts: Any, **kwargs: Any) -> Ids:
        many = [prompts] if isinstance(prompts, str) else prompts
        self.input_ids = torch.tensor([[int(p or 0)] for p in many])
        return self


class Texts(nn.Module):
    """What TRL takes from a text encoder: ids [n, 1] -> a tuple of embeddings [n, W, E]."""

    def __init__(self, table: Tensor) -> None:
        super().__init__()
        self.register_buffer("table", table)

    def forward(self, ids: Tensor) -> tuple[Tensor]:
        return (self.table[ids[:, 0]],)  # type: ignore[index]


def pipeline_of(case: Case, table: Tensor) -> Any:
    """The case as the pipeline that DDPOTrainer asks for."""
    from trl.models.modeling_sd_base import (  # pyright: ignore[reportMissingImports, reportAttributeAccessIssue]
        DDPOPipelineOutput,
        DDPOStableDiffusionPipeline,
        scheduler_step,
    )

    class Pipeline(DDPOStableDiffusionPipeline):
        unet: Any = denoiser_of(case).model
        vae, text_encoder, tokenizer, scheduler = nn.Identity(), Texts(table), Ids(), scheduler_of(case)
        autocast = contextlib.nullcontext

        @torch.no_grad()
        def __call__(self, prompt_embeds: Tensor, eta: float, **kwargs: Any) -> Any:
            x = torch.randn(len(prompt_embeds), *case.shape, device=prompt_embeds.device)
            latents, log_probs = [x], []
            for t in self.scheduler.timesteps:
                out = self.unet(x, t, encoder_hidden_states=prompt_embeds, return_dict=False)[0]
                made = scheduler_step(self.scheduler, out, t, x, eta)
                x = made.latents
                latents.append(x)
                log_probs.append(made.log_probs)
            return DDPOPipelineOutput(x, latents, log_probs)

        def scheduler_step(self, *args: Any, **kwargs: Any) -> Any:
            return scheduler_step(self.scheduler, *args, **kwargs)

        def set_progress_bar_config(self, *args: Any, **kwargs: Any) -> None:
            """There is none."""

        def get_trainable_layers(self) -> nn.Module:
            return self.unet

    return Pipeline()


def trainer_for(case: Case, steps: int) -> Any:
    """TRL's trainer on the prompts of as many steps, its settings those of the other side: no guidance, float32."""
    from accelerate import PartialState
    from trl import DDPOConfig, DDPOTrainer  # pyright: ignore[reportAttributeAccessIssue]

    PartialState()  # the trainer logs before it has made one
    texts = torch.cat([conditions(case, step)["encoder_hidden_states"] for step in range(steps)])
    ids = iter([i + 1 for i in range(len(texts)) for _ in range(case.group)])
    config = DDPOConfig(
        sample_num_steps=case.steps,
        sample_eta=1.0,
        sample_guidance_scale=1.0,
        sample_batch_size=case.samples,
        sample_num_batches_per_epoch=1,
        train_batch_size=case.rows,
        train_gradient_accumulation_steps=case.samples // case.rows,
        train_learning_rate=1e-5,
        train_cfg=False,
        mixed_precision="no",
        allow_tf32=False,
        save_freq=10**9,
        project_kwargs={"project_dir": str(for_this_process("bench"))},
    )
    return DDPOTrainer(
        config,
        lambda images, prompts, metadata: (reward_of(images), {}),
        lambda: (str(next(ids)), {}),
        pipeline_of(case, torch.cat([torch.zeros_like(texts[:1]), texts])),
    )


def measure(case: Case, steps: int) -> dict[str, Any]:
    """Seconds of each step by phase, peak memory, decisions trained on, trained parameters."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    trainer = trainer_for(case, steps)
    meter, done = Meter(device), []
    meter.watch(trainer, "_generate_samples", "sample")
    meter.watch(trainer, "_train_batched_samples", "train")
    base = peak_gb(device)
    for step in range(steps):
        with meter.phase("step"):
            trainer.step(step, step)
        done.append({"phases": meter.take(), "decisions": case.samples * trainer.num_train_timesteps})
    parameters = sum(p.numel() for p in trainer.sd_pipeline.unet.parameters())
    return {"steps": done, "peak_gb": peak_gb(device), "base_gb": base, "parameters": parameters}


def compare(case: Case, path: str) -> dict[str, float]:
    """Relative distance of the given gradient of our first step to TRL's on the same trajectories."""
    trainer, given = trainer_for(case, 1), torch.load(path)
    samples, device = given["samples"], trainer.accelerator.device
    trainer.sd_pipeline.unet.train()
    for a in range(0, case.samples, case.rows):
        part = slice(a, a + case.rows)
        rows = {name: samples[name][part].to(device) for name in ("latents", "timesteps")}
        texts = samples["condition"]["encoder_hidden_states"][part].to(device)
        old, advantages = given["old"][part].to(device), given["advantages"][part].to(device)
        for j in range(case.steps):
            x, after = rows["latents"][:, j], rows["latents"][:, j + 1]
            loss, _, _ = trainer.calculate_loss(x, rows["timesteps"][:, j], after, old[:, j], advantages, texts)
            (loss / (case.samples // case.rows * case.steps)).backward()
    theirs = {f"model.{name}": p.grad for name, p in trainer.sd_pipeline.unet.named_parameters() if p.grad is not None}
    return relative_distance(given["gradient"], theirs)


if __name__ == "__main__":
    main()

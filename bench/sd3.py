"""Image diffusion at the size of Stable Diffusion 3 (medium) on one GPU: is what is scored what was sampled, what
does a step cost, does a reward rise?

    python bench/sd3.py --out runs/sd3 [--seconds 400] [--layers 24 --heads 24 --size 64 --device cuda]

It is recipes/diffusion/sd3.toml (Flow-GRPO's SDE, a window, guidance, LoRA, bfloat16, gradient checkpointing, JPEG's
size as reward) on a transformer of SD3's shape: 24 layers of 24 heads, latents of 16 x 64 x 64. Its weights are
**random**, prompts are hashed to random text states, the first three channels of a latent are its picture: nothing is
said about pictures. Further flags are the recipe's. Prints and writes OUT/summary.json.
"""

from __future__ import annotations

import argparse
import json
import time
import zlib
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from anygrpo.core.tree import tree_map
from anygrpo.denoising.build import Parts
from anygrpo.denoising.denoiser import DiffusersDenoiser
from anygrpo.recipe.load import load_recipe
from anygrpo.train.build import new_run
from anygrpo.train.loop import train

RECIPE = Path(__file__).parent.parent / "recipes" / "diffusion" / "sd3.toml"
TEXT = {"tokens": 154, "width": 4096, "pooled": 2048}
SHAPE = {"layers": 24, "heads": 24, "size": 64}
"""Arguments of `parts`; the command line changes them."""
ROWS = ("reward/mean", "log_ratio/abs_max", "kl/reference", "reward/std_within", "ratio/mean", "clip/low", "clip/high",
        "grad_norm/total", "memory/peak_gb", "time/sample", "time/update", "time/step")  # fmt: skip


def parts(seed: int, layers: int = 24, heads: int = 24, size: int = 64) -> Parts:
    """The recipe's policy.function."""
    from diffusers import FlowMatchEulerDiscreteScheduler, SD3Transformer2DModel

    torch.manual_seed(seed)
    model = SD3Transformer2DModel(
        sample_size=size, num_layers=layers, num_attention_heads=heads,
        attention_head_dim=64, joint_attention_dim=TEXT["width"], caption_projection_dim=64 * heads,
        pooled_projection_dim=TEXT["pooled"], pos_embed_max_size=192,
    )  # fmt: skip
    return Parts(
        denoiser=DiffusersDenoiser(model),
        scheduler=FlowMatchEulerDiscreteScheduler(shift=3.0),
        shape=(16, size, size),
        encode=encode,
        decode=lambda latents, condition: list((latents[:, :3].float() / 4 + 0.5).clamp(0, 1)),
        null=encode([""]),
    )


def encode(prompts: list[Any]) -> dict[str, Tensor]:
    texts = [p["prompt"] if isinstance(p, dict) else p for p in prompts]
    draws = [torch.Generator().manual_seed(zlib.crc32(t.encode())) for t in texts]
    return {
        "encoder_hidden_states": torch.stack([torch.randn(TEXT["tokens"], TEXT["width"], generator=g) for g in draws]),
        "pooled_projections": torch.stack([torch.randn(TEXT["pooled"], generator=g) for g in draws]),
    }


@torch.no_grad()
def before_any_update(run: Any, rows_at_once: int) -> dict[str, float]:
    """Sampled in one batch, scored in smaller ones: the largest log-ratio (it should be 0) and z2 (1 +- its bound)."""
    rollout = run.policy.sample(run.stages[-1].task.prompts(0, 2), 4, seed=5)
    rows = tree_map(lambda x: x.flatten(0, 1), rollout.samples)
    largest = 0.0
    for a in range(0, len(rows["steps"]), rows_at_once):
        some = tree_map(lambda x: x[a : a + rows_at_once], rows)  # noqa: B023
        scored = run.policy.evaluate(some, slice(0, rollout.shape[2])).log_probs.cpu()
        old = rollout.log_probs.flatten(0, 1)[a : a + rows_at_once].cpu()
        largest = max(largest, float((scored - old).abs().max()))
    z2, n = run.policy.z2(rollout.samples)
    return {"log_ratio": largest, "z2": z2, "z2_bound": 6 * (2 / n) ** 0.5}


@torch.no_grad()
def held_out_rewards(run: Any) -> Tensor:
    task = run.stages[-1].task
    prompts = task.held_out()
    outputs = [
        x for a in range(0, len(prompts), 8) for x in run.policy.decode(run.policy.greedy(prompts[a : a + 8]).samples)
    ]
    return task.score(prompts, outputs).rewards[:, 0].double()


class Watch:
    """Observer: keeps and prints rows, and stops the run when its seconds are over."""

    def __init__(self, seconds: float):
        self.until, self.rows = time.perf_counter() + seconds, []

    def __call__(self, row: dict[str, Any], run: Any) -> None:
        self.rows.append(row)
        print({k: row.get(k) for k in ("step", *ROWS[:4], "time/step")}, flush=True)
        if time.perf_counter() > self.until:
            run.stop("its seconds are over")


def measure(run: Any, watch: Watch) -> dict[str, Any]:
    """Train, and say what was seen before, all along and after."""
    run.observers.append(watch)
    tensors = list(run.policy.trainable().parameters())
    out: dict[str, Any] = {"parameters": sum(p.numel() for p in tensors if not p.requires_grad)}
    out["trained"] = sum(p.numel() for p in tensors if p.requires_grad)
    out["start"] = before_any_update(run, run.recipe.training.rows_per_block or 4)
    before = held_out_rewards(run)
    train(run)
    change = held_out_rewards(run) - before
    se = float(change.std() / len(change) ** 0.5)
    out["held_out"] = {"before": float(before.mean()), "change": float(change.mean()), "se": se}
    out["rows"] = {name: [float(f"{row[name]:.4g}") for row in watch.rows if name in row] for name in ROWS}
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=400, help="training stops after these")
    parser.add_argument("--device", default="cuda")
    for name, value in SHAPE.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    args, flags = parser.parse_known_args()
    shape = ", ".join(f"{name} = {getattr(args, name)}" for name in SHAPE)
    words = ["--policy.model", "none", "--policy.function", f"{__file__}:parts", "--policy.device", args.device]
    words += ["--policy.arguments", "{ " + shape + " }"]
    words += ["--folder", str(args.out / "run"), "--evaluation.every", "1000", "--evaluation.at-start", "false"]
    watch = Watch(args.seconds)
    run = new_run(load_recipe(str(RECIPE), [*words, "--task.arguments", "{scale=4.0}", *flags]))
    out = measure(run, watch)
    run.close()
    out["device"] = torch.cuda.get_device_name(0) if args.device.startswith("cuda") else "CPU"
    (args.out / "summary.json").write_text(json.dumps(out, indent=1))
    print(json.dumps(out))


if __name__ == "__main__":
    main()

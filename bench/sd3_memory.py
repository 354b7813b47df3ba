"""Peak memory of training a whole Stable Diffusion 3 pipeline (transformer, two CLIP, T5-XXL, VAE) beside what
`--dry-run` works out for it. Weights are random and of the published sizes; nothing is said about pictures.

    PYTHONPATH=src python bench/sd3_memory.py --out runs/sd3-memory        15 GB on disk, removed afterwards; one GPU
    PYTHONPATH=src python bench/sd3_memory.py --out DIR --size tiny --device cpu

Further flags are settings of recipes/diffusion/sd3.toml. Prints one JSON object: GB (2^30 bytes) worked out by part,
the allocator's peak after loading and over two steps, seconds.
"""

from __future__ import annotations

import argparse
import json
import shutil
import string
import time
from pathlib import Path
from typing import Any

import torch
from torch import nn

from anygrpo.denoising.memory import report
from anygrpo.recipe.load import load_recipe
from anygrpo.train.build import new_run
from anygrpo.train.loop import train

RECIPE = Path(__file__).parents[1] / "recipes" / "diffusion" / "sd3.toml"
GB = 2**30
SIZES: dict[str, dict[str, Any]] = {
    "medium": {
        "net": {"num_layers": 24, "num_attention_heads": 24, "caption_projection_dim": 1536, "sample_size": 128},
        "clip": [(768, 12, 12, 3072), (1280, 32, 20, 5120)],
        "t5": {"d_model": 4096, "d_ff": 10240, "num_layers": 24, "num_heads": 64, "d_kv": 64, "vocab_size": 32128},
        "vae": {"block_out_channels": (128, 256, 512, 512), "layers_per_block": 2, "norm_num_groups": 32},
        "words": 49408,
    },
    "tiny": {
        "net": {"num_layers": 1, "num_attention_heads": 1, "caption_projection_dim": 64, "sample_size": 8},
        "clip": [(16, 1, 2, 16), (16, 1, 2, 16)],
        "t5": {"d_model": 32, "d_ff": 32, "num_layers": 1, "num_heads": 2, "d_kv": 8, "vocab_size": 64},
        "vae": {"block_out_channels": (8, 8), "layers_per_block": 1, "norm_num_groups": 4},
        "words": 64,
    },
}


def random(make: Any, device: str) -> nn.Module:
    """A module with small random numbers in bfloat16, made on the device: on a CPU 4.8 billion take minutes."""
    with torch.device("meta"):
        module = make()
    module = module.to(torch.bfloat16).to_empty(device=device)
    for tensor in [*module.parameters(), *module.buffers()]:
        if tensor.is_floating_point():
            tensor.data.normal_(0, 0.02)
    return module.eval()


def clip_words(folder: Path) -> Any:
    from transformers import CLIPTokenizer

    folder.mkdir(parents=True)
    letters = string.ascii_lowercase
    words = [*letters, *(c + "</w>" for c in letters), "<|startoftext|>", "<|endoftext|>"]
    (folder / "vocab.json").write_text(json.dumps({w: i for i, w in enumerate(words)}))
    (folder / "merges.txt").write_text("#version: 0.2\n")
    return CLIPTokenizer(str(folder / "vocab.json"), str(folder / "merges.txt"), model_max_length=77)


def t5_words() -> Any:
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    made = Tokenizer(models.WordLevel({"<pad>": 0, "</s>": 1, "<unk>": 2}, unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(
        tokenizer_object=made, unk_token="<unk>", pad_token="<pad>", eos_token="</s>", model_max_length=512
    )


def save_pipeline(folder: Path, size: dict[str, Any], device: str) -> None:
    from diffusers import (
        AutoencoderKL,
        FlowMatchEulerDiscreteScheduler,
        SD3Transformer2DModel,
        StableDiffusion3Pipeline,
    )
    from transformers import CLIPTextConfig, CLIPTextModelWithProjection, T5Config, T5EncoderModel

    def clip(width: int, layers: int, heads: int, inner: int) -> nn.Module:
        sizes = {"hidden_size": width, "num_hidden_layers": layers, "num_attention_heads": heads}
        config = CLIPTextConfig(**sizes, intermediate_size=inner, projection_dim=width, vocab_size=size["words"])
        return random(lambda: CLIPTextModelWithProjection(config), device)

    text = size["t5"]["d_model"]
    pooled = sum(width for width, *_ in size["clip"])
    net = {"attention_head_dim": 64, "joint_attention_dim": text, "pooled_projection_dim": pooled} | size["net"]
    blocks = len(size["vae"]["block_out_channels"])
    vae = {"down_block_types": ("DownEncoderBlock2D",) * blocks, "up_block_types": ("UpDecoderBlock2D",) * blocks}
    vae |= {"latent_channels": 16, "scaling_factor": 1.5305, "shift_factor": 0.0609, "use_quant_conv": False}
    one, two = (clip(*c) for c in size["clip"])
    StableDiffusion3Pipeline(
        transformer=random(lambda: SD3Transformer2DModel(in_channels=16, out_channels=16, **net), device),
        scheduler=FlowMatchEulerDiscreteScheduler(shift=3.0),
        vae=random(lambda: AutoencoderKL(**vae, **size["vae"], use_post_quant_conv=False), device),
        text_encoder=one,
        tokenizer=clip_words(folder / "one"),
        text_encoder_2=two,
        tokenizer_2=clip_words(folder / "two"),
        text_encoder_3=random(lambda: T5EncoderModel(T5Config(feed_forward_proj="gated-gelu", **size["t5"])), device),
        tokenizer_3=t5_words(),
    ).save_pretrained(folder / "pipe")


def peak(device: str) -> float | None:
    return torch.cuda.max_memory_allocated() / GB if device.startswith("cuda") else None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--size", choices=tuple(SIZES), default="medium")
    parser.add_argument("--device", default="cuda")
    args, flags = parser.parse_known_args()
    began, out = time.perf_counter(), {"size": args.size}
    seconds = lambda: round(time.perf_counter() - began, 1)  # noqa: E731
    try:
        save_pipeline(args.out / "model", SIZES[args.size], args.device)
        if args.device.startswith("cuda"):
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
        out["saved_s"] = seconds()
        given = ["--policy.model", str(args.out / "model" / "pipe"), "--policy.device", args.device]
        given += ["--folder", str(args.out / "run"), "--training.steps", "2", "--evaluation.at-start", "false"]
        given += ["--evaluation.prompts", "2", "--algorithm.prompts-per-step", "2", "--algorithm.group-size", "6"]
        recipe = load_recipe(str(RECIPE), [*given, *flags])
        out["worked_out"] = report(recipe, 1)
        run = new_run(recipe)
        out["loaded_gb"], out["loaded_s"] = peak(args.device), seconds()
        rows: list[dict[str, Any]] = []
        run.observers.append(lambda row, _: rows.append(row))
        train(run)
        run.close()
        out["measured_gb"], out["done_s"] = peak(args.device), seconds()
        out["rows"] = [{k: r[k] for k in ("time/step", "log_ratio/abs_max", "ratio/mean") if k in r} for r in rows]
    finally:
        shutil.rmtree(args.out / "model", ignore_errors=True)
        print(json.dumps(out), flush=True)


if __name__ == "__main__":
    main()

"""The golden runs: ten steps of each family and method, kept number by number in tests/golden.

    python scripts/golden.py                   make all again
    python scripts/golden.py language_gdpo     make some
    python scripts/golden.py --check [NAME...] compare with what is kept

The cases are in tests/golden/cases.toml. They use what stays as it is while modules move: the command `anygrpo train`,
the keys of a recipe, the names of `anygrpo` itself and metrics.jsonl. Numbers are equal on the machine that made them
(the same CPU model and torch, one thread); elsewhere they agree to 1e-4.
"""

from __future__ import annotations

import argparse
import io
import json
import math
import os
import platform
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import torch

SETTINGS = {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "OMP_NUM_THREADS": "1"}
HERE = Path(__file__).resolve().parents[1] / "tests" / "golden"
RELATIVE, ABSOLUTE, OF_DIFFERENCES = 1e-4, 1e-6, 1e-4
DIFFERENCES = ("log_ratio/", "loss/policy", "loss/total")
"""Small differences of large sums, about 0 on policy: elsewhere they have an absolute tolerance of their own."""
CLOCKS = ("time/", "throughput/", "memory/")
"""Metrics of the machine."""
ALWAYS = {
    "training": {"steps": 10, "threads": 1, "gradient_norms_every": 1, "checkpoint_every": 1000, "samples_every": 0},
    "doctor": {"mode": "off"},
}

Golden = dict[str, Any]
"""{"machine": {...}, "metrics": {name: a value, or None, for each row of metrics.jsonl}}."""


def cases() -> dict[str, dict[str, Any]]:
    """The recipe of each case, by name."""
    table = tomllib.loads((HERE / "cases.toml").read_text(encoding="utf-8"))
    return {
        name: merged(merged(ALWAYS, table["recipes"][case["recipe"]]), {k: v for k, v in case.items() if k != "recipe"})
        for name, case in table["cases"].items()
    }


def merged(base: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """`base` with `changes`, table by table; a table with another `kind` replaces the old one."""
    out = dict(base)
    for key, new in changes.items():
        old = base.get(key)
        both = isinstance(old, dict) and isinstance(new, dict) and "kind" not in new
        out[key] = merged(old, new) if both else new
    return out


def run(name: str, files: Path) -> Golden:
    """Train a case in a folder of its own, in this process; `files` is what `make_files` returned."""
    import tomli_w

    from anygrpo.cli.main import main

    with tempfile.TemporaryDirectory() as folder, alone(files / "cache"):
        recipe, out, said = Path(folder) / "recipe.toml", Path(folder) / "run", io.StringIO()
        text = tomli_w.dumps(cases()[name]).replace("{files}", str(files)).replace("{here}", str(HERE))
        recipe.write_text(text, encoding="utf-8")
        with redirect_stdout(said), redirect_stderr(said):
            code = main(["train", str(recipe), "--folder", str(out), "--quiet"])
        if code:
            raise RuntimeError(f"{name}: anygrpo train left with {code}: {said.getvalue()}")
        rows = [json.loads(line) for line in (out / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    names = sorted({key for row in rows for key in row if not key.startswith(CLOCKS)})
    return {"machine": machine(), "metrics": {key: [row.get(key) for row in rows] for key in names}}


@contextmanager
def alone(cache: Path) -> Iterator[None]:
    """One thread, no network, a cache of our own, torch's own way to multiply (a language policy changes it for all
    that comes later in the process); afterwards as it was. So neither the order of runs nor what ran before counts."""
    before, threads, random = dict(os.environ), torch.get_num_threads(), torch.get_rng_state()
    products = torch.backends.mkldnn.matmul
    precision = products.fp32_precision
    os.environ.update(SETTINGS, XDG_CACHE_HOME=str(cache))
    torch.set_num_threads(1)
    products.fp32_precision = "none"
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
        torch.set_num_threads(threads)
        products.fp32_precision = precision
        torch.set_rng_state(random)


def machine() -> dict[str, Any]:
    """Numbers are exactly equal where this is."""
    info = Path("/proc/cpuinfo")
    pairs = [line.partition(":") for line in info.read_text().splitlines()] if info.is_file() else []
    first = {name.strip(): value.strip() for name, _, value in reversed(pairs)}
    keys = ("model name", "cpu family", "model", "stepping")  # a cloud's name of a model says little
    cpu = ", ".join(f"{key} {first[key]}" for key in keys if key in first) or platform.processor()
    return {"cpu": cpu, "torch": torch.__version__, "threads": 1}


def differences(kept: Golden, new: Golden) -> list[str]:
    """What differs, a line each: any bit on the same machine, more than the tolerance elsewhere."""
    exact = kept["machine"] == new["machine"]
    out = [f"{name} is in one of the two alone" for name in sorted(kept["metrics"].keys() ^ new["metrics"].keys())]
    for name in sorted(kept["metrics"].keys() & new["metrics"].keys()):
        a, b = kept["metrics"][name], new["metrics"][name]
        if len(a) != len(b):
            out.append(f"{name}: {len(a)} rows were kept, {len(b)} are here")
        absolute = OF_DIFFERENCES if name.startswith(DIFFERENCES) else ABSOLUTE
        wrong = [i for i, (x, y) in enumerate(zip(a, b)) if not _equal(x, y, exact, absolute)]
        if wrong:
            i = wrong[0]
            out.append(f"{name}: row {i} was {a[i]!r} and is {b[i]!r} ({len(wrong)} of {len(a)} rows)")
    return out


def _equal(a: Any, b: Any, exact: bool, absolute: float) -> bool:
    if exact or not (isinstance(a, int | float) and isinstance(b, int | float)):
        return a == b or (a != a and b != b)  # not a number, twice
    return math.isclose(a, b, rel_tol=RELATIVE, abs_tol=absolute)


def load(name: str) -> Golden:
    return json.loads((HERE / f"{name}.json").read_text(encoding="utf-8"))


def save(name: str, golden: Golden) -> None:
    """Sorted keys, a metric a line, numbers in full."""
    lines = [f"  {json.dumps(k)}: {json.dumps(v)}" for k, v in sorted(golden["metrics"].items())]
    head = json.dumps(golden["machine"], sort_keys=True)
    text = f'{{\n "machine": {head},\n "metrics": {{\n' + ",\n".join(lines) + "\n }\n}\n"
    (HERE / f"{name}.json").write_text(text, encoding="utf-8")


# --- what the recipes need


def make_files(folder: Path) -> Path:
    """Everything that {files} stands for."""
    with alone(folder / "cache"), redirect_stderr(io.StringIO()):  # progress bars
        language(folder)
        candidates(folder)
        clips(folder / "clips")
        pictures(folder / "pictures")
        stable_diffusion(folder)
    return folder


def language(folder: Path) -> None:
    """A random Llama with a tokenizer of 60 words, and prompts of words, each with a gold answer."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    words = ["<s>", "</s>", "<pad>", "<turn>", *(f"w{i}" for i in range(60))]
    inner = Tokenizer(models.WordLevel({w: i for i, w in enumerate(words)}, unk_token="w0"))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    special = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>"}
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=inner, additional_special_tokens=["<turn>"], **special)
    tokenizer.chat_template = (
        "{% for m in messages %}<turn> {{ m['content'] }} </s> {% endfor %}"
        "{% if add_generation_prompt %}<turn> {% endif %}"
    )
    torch.manual_seed(0)
    sizes = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 48, "max_position_embeddings": 128}
    layers = {"num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "tie_word_embeddings": True}
    model = LlamaForCausalLM(LlamaConfig(**sizes, **layers, bos_token_id=0, eos_token_id=1, pad_token_id=2))
    with torch.no_grad():  # far from uniform
        for name, p in model.named_parameters():
            p.mul_(4.0) if p.ndim > 1 else p.add_(0.1 * torch.randn_like(p)) if "norm" in name else None
    model.save_pretrained(folder / "model")
    tokenizer.save_pretrained(folder / "model")
    drawn = [" ".join(f"w{n}" for n in torch.randint(0, 60, (2 + i % 3,)).tolist()) for i in range(24)]
    rows = [{"prompt": text, "answer": f"w{2 * (i % 20)}"} for i, text in enumerate(drawn)]
    labelled = [{"text": f"w{i % 60} w{7 * i % 60}", "label": f"w{1 + i % 2}"} for i in range(60)]
    for name, table in {"words": rows, "labelled": labelled}.items():
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in table), encoding="utf-8")


def candidates(folder: Path) -> None:
    """Scored candidates of 20 queries, six each, and features of six numbers."""
    import numpy as np

    torch.manual_seed(1)
    names, table = [f"c{i}" for i in range(12)], {}
    for q in range(20):
        pool = [names[i] for i in torch.randperm(12)[:8].tolist()]
        rows = []
        for k in range(6):
            positions = torch.randperm(8)[:2].tolist()
            parts = dict(zip(("vqa_acc_score", "vqa_gt_prob"), torch.rand(2).tolist()))
            made = {"gen_method": "beam" if k == 5 else "sample", "logprob_score": -3.5 - float(torch.rand(1))}
            ids = {"pointer": [pool[i] for i in positions], "pointer_pos": positions}
            rows.append(ids | parts | made | {"vqa_correct": float(parts["vqa_gt_prob"] > 0.6), "temperature": 1.0})
        table[f"q{q}"] = {"query": {}, "candidate_pool_ids": pool, "pointer_candidates": rows}
    (folder / "candidates.json").write_text(json.dumps(table), encoding="utf-8")
    ids = [*table, *names]
    np.savez(folder / "candidates.npz", ids=np.array(ids), embeddings=torch.randn(len(ids), 6).numpy())


def clips(folder: Path) -> None:
    """Three made-up motions of DeepMimic's humanoid."""
    folder.mkdir()
    still = [1.0, 0.0, 0.0, 0.0]
    for name, tempo in {"humanoid3d_walk": 1.0, "humanoid3d_kick": 3.0, "turn_left0": 0.3}.items():
        frames = []
        for t in (i / 20 for i in range(21)):
            swing = 0.25 * math.sin(2 * math.pi * tempo * t)
            hip, back = [[math.cos(swing), 0.0, 0.0, math.sin(s)] for s in (swing, -swing)]
            first, second = [[*leg, -0.3, *still, *still, 0.2] for leg in (hip, back)]
            frames.append([0.05, tempo * t, 0.9, 0.0, *still, *still, *still, *first, *second])
        (folder / f"{name}.txt").write_text(json.dumps({"Loop": "wrap", "Frames": frames}), encoding="utf-8")


def pictures(folder: Path) -> None:
    """Four smooth pictures of 24 pixels."""
    from PIL import Image

    folder.mkdir()
    for i in range(4):
        pixels = (torch.rand(5, 5, 3, generator=torch.Generator().manual_seed(i)) * 255).byte().numpy()
        Image.fromarray(pixels).resize((24, 24), Image.Resampling.BICUBIC).save(folder / f"{i}.png")


def stable_diffusion(folder: Path) -> None:
    """Random pipelines in the shapes of Stable Diffusion 1 and 3, with a tokenizer of single letters."""
    import diffusers as d
    import transformers as t

    letters = [c + end for end in ("", "</w>") for c in "abcdefghijklmnopqrstuvwxyz"]
    words = {w: i for i, w in enumerate([*letters, "<|startoftext|>", "<|endoftext|>"])}
    vocabulary, merges, last = folder / "vocab.json", folder / "merges.txt", len(words) - 1
    vocabulary.write_text(json.dumps(words), encoding="utf-8")
    merges.write_text("#version: 0.2\n", encoding="utf-8")
    tokenizer = t.CLIPTokenizer(str(vocabulary), str(merges), model_max_length=77)
    torch.manual_seed(0)
    special = {"bos_token_id": last - 1, "eos_token_id": last, "pad_token_id": last, "vocab_size": last + 1}
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
    text = t.CLIPTextConfig(**special, **sizes, max_position_embeddings=77, projection_dim=12)
    blocks = {"down_block_types": ("DownEncoderBlock2D",) * 2, "up_block_types": ("UpDecoderBlock2D",) * 2}
    vae = d.AutoencoderKL(block_out_channels=(8, 8), norm_num_groups=4, latent_channels=4, **blocks)
    down, up = ("CrossAttnDownBlock2D", "DownBlock2D"), ("UpBlock2D", "CrossAttnUpBlock2D")
    channels = {"in_channels": 4, "out_channels": 4, "sample_size": 8}
    unet = d.UNet2DConditionModel(
        **channels, layers_per_block=1, block_out_channels=(8, 16), down_block_types=down, up_block_types=up,
        cross_attention_dim=16, attention_head_dim=4, norm_num_groups=4,
    )  # fmt: skip
    d.StableDiffusionPipeline(
        vae=vae, text_encoder=t.CLIPTextModel(text), tokenizer=tokenizer, unet=unet, safety_checker=None,
        scheduler=d.DDPMScheduler(beta_schedule="scaled_linear", clip_sample=False, steps_offset=1),
        feature_extractor=None, requires_safety_checker=False,
    ).save_pretrained(folder / "stable_diffusion")  # fmt: skip
    transformer = d.SD3Transformer2DModel(
        **channels, patch_size=2, num_layers=2, attention_head_dim=8, num_attention_heads=2, joint_attention_dim=32,
        caption_projection_dim=16, pooled_projection_dim=24,
    )  # fmt: skip
    t5 = t.T5Config(vocab_size=64, d_model=32, d_kv=8, d_ff=16, num_layers=1, num_heads=2, pad_token_id=2)
    d.StableDiffusion3Pipeline(
        transformer=transformer, scheduler=d.FlowMatchEulerDiscreteScheduler(shift=3.0), vae=vae,
        text_encoder=t.CLIPTextModelWithProjection(text), tokenizer=tokenizer,
        text_encoder_2=t.CLIPTextModelWithProjection(text), tokenizer_2=tokenizer, text_encoder_3=t.T5EncoderModel(t5),
        tokenizer_3=t.AutoTokenizer.from_pretrained(folder / "model"),
    ).save_pretrained(folder / "stable_diffusion_3")  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description="Make the golden runs again, or compare with them.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="cases; none: all")
    parser.add_argument("--check", action="store_true", help="compare with what is kept, and write nothing")
    args = parser.parse_args()
    if unknown := set(args.names) - cases().keys():
        parser.error(f"no case {', '.join(sorted(unknown))}")
    failed = False
    with tempfile.TemporaryDirectory() as folder:
        files = make_files(Path(folder))
        for name in args.names or cases():
            start, golden = time.perf_counter(), run(name, files)
            found = differences(load(name), golden) if args.check else save(name, golden) or []
            failed = failed or bool(found)
            print("\n    ".join([f"{time.perf_counter() - start:5.1f} s  {name}", *found]), flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())

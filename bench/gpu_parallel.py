"""Two GPUs against one on the same total work, at the shape of Qwen2.5-1.5B with random weights.

    bench/gpu_parallel.sh OUT          needs two GPUs, no network; about five minutes

Each line: mode, ranks, median step seconds of the last steps, tokens per second, peak GB of the fullest rank, and the
efficiency: seconds on one GPU / (ranks x seconds here).
"""

from __future__ import annotations

import json
import random
import statistics
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

import torch

from anygrpo.rollout import Scores
from anygrpo.tasks.base import BaseTask

SIZES = {
    "vocab_size": 151936,
    "hidden_size": 1536,
    "intermediate_size": 8960,
    "num_hidden_layers": 28,
    "num_attention_heads": 12,
    "num_key_value_heads": 2,
    "max_position_embeddings": 32768,
}
STEPS, PROMPTS, GROUP, PROMPT_TOKENS, NEW_TOKENS = 4, 16, 8, 256, 256
RUNS: list[tuple[str, int, dict[str, str]]] = [
    ("lora", 1, {"policy.train": "lora"}),
    ("lora", 2, {"policy.train": "lora"}),
    ("full", 1, {"policy.train": "all"}),
    ("full", 2, {"policy.train": "all"}),
    ("full-fsdp", 2, {"policy.train": "all", "policy.dtype": "float32", "training.parallel": "fsdp",
                      "training.fsdp_dtype": "bfloat16"}),
]  # fmt: skip


class Words(BaseTask):
    """Prompts of random words; a reward that differs between any two answers."""

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed

    def prompts(self, step: int, count: int) -> list[Any]:
        rng = random.Random(self.seed * 7919 + step)
        return [{"prompt": " ".join(f"w{rng.randrange(150_000)}" for _ in range(PROMPT_TOKENS))} for _ in range(count)]

    def held_out(self) -> list[Any]:
        return []

    def score(self, prompts: list[Any], outputs: list[list[Any]]) -> Scores:
        return Scores(torch.tensor([[zlib.crc32(text.encode()) % 1000 / 1000 for text in row] for row in outputs]))


def save_model(folder: Path) -> None:
    """Random bfloat16 weights in this shape and a tokenizer of numbered words."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    words = ["<eos>", "<pad>"] + [f"w{i}" for i in range(SIZES["vocab_size"] - 2)]
    inner = Tokenizer(models.WordLevel({w: i for i, w in enumerate(words)}, unk_token="<pad>"))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    PreTrainedTokenizerFast(tokenizer_object=inner, eos_token="<eos>", pad_token="<pad>").save_pretrained(folder)
    ends = {"bos_token_id": None, "eos_token_id": 0, "pad_token_id": 1}
    torch.manual_seed(0)
    with torch.device("cuda" if torch.cuda.is_available() else "cpu"):
        model = LlamaForCausalLM(LlamaConfig(**SIZES, **ends, attention_bias=True, tie_word_embeddings=True))
    model.to(torch.bfloat16).save_pretrained(folder)


def recipe(model: Path, run: Path) -> dict[str, Any]:
    return {
        "name": "parallel",
        "folder": str(run),
        "policy": {
            "kind": "causal_lm", "model": str(model), "max_new_tokens": NEW_TOKENS, "min_new_tokens": NEW_TOKENS,
            "token_budget": 16384, "gradient_checkpointing": True,
        },
        "task": {"kind": "python", "task": f"{Path(__file__).resolve()}:Words"},
        "algorithm": {"prompts_per_step": PROMPTS, "group_size": GROUP},
        "training": {"steps": STEPS, "checkpoint_every": 1000, "gradient_norms_every": 0, "samples_every": 0},
        "evaluation": {"at_start": False},
        "doctor": {"mode": "off"},
    }  # fmt: skip


def measure(scratch: Path, mode: str, ranks: int, flags: dict[str, str]) -> dict[str, Any]:
    """Train a few steps in `ranks` processes.

    Raises:
        SystemExit: the run failed; its last lines are printed.
    """
    import tomli_w

    folder = scratch / f"{mode}-{ranks}"
    file = scratch / f"{mode}-{ranks}.toml"
    file.write_text(tomli_w.dumps(recipe(scratch / "model", folder)))
    settings = [word for name, value in flags.items() for word in (f"--{name}", value)]
    start = ["-m", "torch.distributed.run", "--standalone", "--local-addr", "127.0.0.1", "--nproc-per-node", str(ranks)]
    command = [sys.executable, *start, "-m", "anygrpo", "train", str(file), "--quiet", *settings]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{mode} on {ranks}:\n{(done.stdout + done.stderr)[-3000:]}")
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    seconds = statistics.median(row["time/step"] for row in rows[2:])
    tokens = PROMPTS * GROUP * NEW_TOKENS
    return {
        "mode": mode,
        "ranks": ranks,
        "step_seconds": round(seconds, 3),
        "tokens_per_second": round(tokens / seconds),
        "peak_gb": round(max(row["memory/peak_gb"] for row in rows), 2),
        "phases": {k: round(rows[-1][k], 3) for k in ("time/sample", "time/update") if k in rows[-1]},
    }


def main() -> None:
    scratch = Path(sys.argv[1])
    scratch.mkdir(parents=True, exist_ok=True)
    if not (scratch / "model" / "config.json").is_file():
        save_model(scratch / "model")
    alone: dict[str, float] = {}
    for mode, ranks, flags in RUNS:
        row = measure(scratch, mode, ranks, flags)
        if ranks == 1:
            alone[mode] = row["step_seconds"]
        one = alone[mode.split("-")[0]]
        row["efficiency"] = round(one / (ranks * row["step_seconds"]), 3)
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()

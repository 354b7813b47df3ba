"""Two GPUs against one on the same total work, at the shape of Qwen2.5-1.5B with random weights.

    bash bench/gpu_parallel.sh OUT            needs two GPUs, no network; stops after 195 seconds
    python3 bench/gpu_parallel.py DIR --tiny  the same on CPUs (gloo) with a tiny model: does it run?

Each line: mode, ranks, median step seconds without the first step, tokens per second, peak GB of the fullest rank, the
efficiency: seconds on one GPU / (ranks x seconds here). A run that failed, or for which no time was left, says so.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import time
import zlib
from pathlib import Path
from typing import Any

import torch

from anygrpo.core.task import Scores, Task

SIZES = {
    "vocab_size": 151936,
    "hidden_size": 1536,
    "intermediate_size": 8960,
    "num_hidden_layers": 28,
    "num_attention_heads": 12,
    "num_key_value_heads": 2,
    "max_position_embeddings": 32768,
}
TINY = {
    "vocab_size": 512, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 1024,
}  # fmt: skip
STEPS, PROMPTS, GROUP, PROMPT_TOKENS, NEW_TOKENS = 3, 16, 8, 256, 128
SECONDS = 195.0
"""For everything, the model's making included."""

RUNS: list[tuple[str, int, dict[str, str]]] = [
    ("lora", 1, {"policy.train": "lora"}),
    ("lora", 2, {"policy.train": "lora"}),
    ("full", 1, {"policy.train": "all"}),
    ("full", 2, {"policy.train": "all"}),
    ("full-fsdp", 2, {"policy.train": "all", "policy.dtype": "float32", "training.parallel": "fsdp",
                      "training.fsdp_dtype": "bfloat16"}),
]  # fmt: skip


class Words(Task):
    """Prompts of random words; a reward that differs between any two answers."""

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed

    def prompts(self, step: int, count: int) -> list[Any]:
        rng = random.Random(self.seed * 7919 + step)
        return [{"prompt": " ".join(f"w{rng.randrange(500)}" for _ in range(PROMPT_TOKENS))} for _ in range(count)]

    def held_out(self) -> list[Any]:
        return []

    def score(self, prompts: list[Any], outputs: list[list[Any]]) -> Scores:
        return Scores(torch.tensor([[zlib.crc32(text.encode()) % 1000 / 1000 for text in row] for row in outputs]))


def save_model(folder: Path, sizes: dict[str, Any]) -> None:
    """Random bfloat16 weights in a shape and a tokenizer of numbered words."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    words = ["<eos>", "<pad>"] + [f"w{i}" for i in range(sizes["vocab_size"] - 2)]
    inner = Tokenizer(models.WordLevel({w: i for i, w in enumerate(words)}, unk_token="<pad>"))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    PreTrainedTokenizerFast(tokenizer_object=inner, eos_token="<eos>", pad_token="<pad>").save_pretrained(folder)
    ends = {"bos_token_id": None, "eos_token_id": 0, "pad_token_id": 1}
    torch.manual_seed(0)
    with torch.device("cuda" if torch.cuda.is_available() else "cpu"):
        model = LlamaForCausalLM(LlamaConfig(**sizes, **ends, attention_bias=True, tie_word_embeddings=True))
    model.to(torch.bfloat16).save_pretrained(folder)


def recipe(model: Path, run: Path) -> dict[str, Any]:
    return {
        "name": "parallel",
        "folder": str(run),
        "policy": {
            "kind": "causal_lm", "model": str(model), "max_new_tokens": NEW_TOKENS, "min_new_tokens": NEW_TOKENS,
            "token_budget": 16384, "gradient_checkpointing": True,
        },
        "task": {"kind": "python", "function": f"{Path(__file__).resolve()}:Words"},
        "algorithm": {"prompts_per_step": PROMPTS, "group_size": GROUP},
        "training": {"steps": STEPS, "checkpoint_every": 1000, "gradient_norms_every": 0, "samples_every": 0},
        "evaluation": {"at_start": False},
        "doctor": {"mode": "off"},
    }  # fmt: skip


def until_measured(command: list[str], metrics: Path, said: Path, seconds: float) -> int | None:
    """Run until all steps are logged, then end it: its last checkpoint, many GB, is not wanted. None: out of time."""
    end = time.monotonic() + seconds
    with said.open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, start_new_session=True)
        try:
            while time.monotonic() < end:
                if metrics.is_file() and metrics.read_text().count("\n") >= STEPS:
                    return 0
                if process.poll() is not None:
                    return process.returncode or 1
                time.sleep(0.1)
            return None
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # the ranks too
            process.wait()


def measure(scratch: Path, mode: str, ranks: int, flags: dict[str, str], seconds: float) -> dict[str, Any]:
    """Train a few steps in `ranks` processes; what went wrong under "error"."""
    import tomli_w

    folder = scratch / f"{mode}-{ranks}-{time.time_ns()}"
    file = folder.with_suffix(".toml")
    file.write_text(tomli_w.dumps(recipe(scratch / "model", folder)))
    settings = [word for name, value in flags.items() for word in (f"--{name}", value)]
    start = ["-m", "torch.distributed.run", "--standalone", "--local-addr", "127.0.0.1", "--nproc-per-node", str(ranks)]
    start += ["--log-dir", str(scratch / "torchrun")]
    command = [sys.executable, *start, "-m", "anygrpo", "train", str(file), "--quiet", *settings]
    row: dict[str, Any] = {"mode": mode, "ranks": ranks}
    said = folder.with_suffix(".log")
    code = until_measured(command, folder / "metrics.jsonl", said, seconds)
    if code is None:
        return row | {"error": f"not finished in the {seconds:.0f} s left"}
    if code:
        return row | {"error": said.read_text()[-3000:]}
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    step = statistics.median(r["time/step"] for r in rows[1:])
    return row | {
        "step_seconds": round(step, 3),
        "tokens_per_second": round(PROMPTS * GROUP * NEW_TOKENS / step),
        "peak_gb": round(max(r["memory/peak_gb"] for r in rows), 2),
        "phases": {k: round(v, 3) for k, v in rows[-1].items() if k.startswith("time/")},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scratch", type=Path)
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--seconds", type=float, default=SECONDS)
    args = parser.parse_args()
    end = time.monotonic() + args.seconds
    args.scratch.mkdir(parents=True, exist_ok=True)
    if not (args.scratch / "model" / "config.json").is_file():
        save_model(args.scratch / "model", TINY if args.tiny else SIZES)
    alone: dict[str, float] = {}
    for mode, ranks, flags in RUNS:
        row = measure(args.scratch, mode, ranks, flags, max(end - time.monotonic(), 1.0))
        if ranks == 1 and "step_seconds" in row:
            alone[mode] = row["step_seconds"]
        one = alone.get(mode.split("-")[0])
        if one and "step_seconds" in row:
            row["efficiency"] = round(one / (ranks * row["step_seconds"]), 3)
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()

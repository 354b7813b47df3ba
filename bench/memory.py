"""Measured peaks of memory beside what `--dry-run` works out, for whole training steps on random weights.

    PYTHONPATH=src python3 bench/memory.py --out DIR                        one GPU: Qwen2.5-0.5B's shape, 90 s at most
    PYTHONPATH=src python3 bench/memory.py --out DIR --shape smollm2-135m   a CPU: resident memory above that of imports

One JSON line a case. GB are 2^30 bytes; on a GPU the tensors' own (`max_memory_allocated`), and beside it what the
allocator held.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from anygrpo.bench.cases import model_folder
from anygrpo.core.task import Scores, Task
from anygrpo.language.memory import estimate, read_shape
from anygrpo.recipe.load import parse_recipe

GB = 2**30
PROMPT_TOKENS, STEPS = 128, 2
CASES: dict[str, dict[str, Any]] = {
    "lora-8": {"train": "lora", "group": 8},
    "lora-16": {"train": "lora", "group": 16, "checkpointing": True},
    "full-8": {"train": "all", "group": 8},
    "full-16": {"train": "all", "group": 16, "checkpointing": True},
}
"""Two kinds of training, two sizes of groups, with and without recomputed activations."""


class Words(Task):
    """Prompts of `PROMPT_TOKENS` numbered words; a reward that differs between answers."""

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed

    def prompts(self, step: int, count: int) -> list[Any]:
        word = lambda p, i: f"w{zlib.crc32(repr((step, p, i)).encode()) % 40_000}"  # noqa: E731
        return [{"prompt": " ".join(word(p, i) for i in range(PROMPT_TOKENS))} for p in range(count)]

    def held_out(self) -> list[Any]:
        return []

    def score(self, prompts: list[Any], outputs: list[list[Any]]) -> Scores:
        return Scores(torch.tensor([[zlib.crc32(text.encode()) % 1000 / 1000 for text in row] for row in outputs]))


def recipe(case: dict[str, Any], model: str, run: Path, gpu: bool) -> dict[str, Any]:
    new = 128 if gpu else 16
    return {
        "name": "memory",
        "folder": str(run),
        "policy": {
            "kind": "causal_lm", "model": model, "train": case["train"], "chat_template": False,
            "max_new_tokens": new, "min_new_tokens": new, "token_budget": 8192 if gpu else 512,
            "gradient_checkpointing": case.get("checkpointing", False), "dtype": "bfloat16" if gpu else "float32",
        },
        "task": {"kind": "python", "function": f"{Path(__file__).resolve()}:Words"},
        "algorithm": {"prompts_per_step": 8 if gpu else 1, "group_size": case["group"]},
        "training": {"steps": STEPS, "checkpoint_every": 1000, "gradient_norms_every": 1, "samples_every": 0},
        "evaluation": {"at_start": False},
        "doctor": {"mode": "off"},
    }  # fmt: skip


def resident(peak: bool) -> float:
    """This process's resident memory in GB, mapped weights included: now, or its peak since it was last forgotten."""
    name = "VmHWM" if peak else "VmRSS"
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name)) / 2**20


class Peaks:
    """The peak of each phase, and of all."""

    def __init__(self, gpu: bool) -> None:
        self.gpu, self.base = gpu, 0.0 if gpu else resident(peak=False)
        self.found: dict[str, float] = {}

    def watch(self, owner: Any, method: str, name: str) -> None:
        """Every call of a method is a phase of its own."""
        inner: Callable[..., Any] = getattr(owner, method)

        def measured(*args: Any, **kwargs: Any) -> Any:
            self._forget()
            try:
                return inner(*args, **kwargs)
            finally:
                self.found[name] = max(self.found.get(name, 0.0), self._peak())

        setattr(owner, method, measured)

    def _forget(self) -> None:
        gc.collect()
        if self.gpu:
            torch.cuda.reset_peak_memory_stats()
        else:
            Path("/proc/self/clear_refs").write_text("5")

    def _peak(self) -> float:
        return torch.cuda.max_memory_allocated() / GB if self.gpu else resident(peak=True) - self.base


def measure(name: str, model: str, scratch: Path) -> dict[str, Any]:
    """Train `STEPS` steps and set the peaks beside the estimate."""
    from anygrpo.train.build import new_run
    from anygrpo.train.loop import train
    from anygrpo.train.update import Updater

    case, gpu = CASES[name], torch.cuda.is_available()
    parsed = parse_recipe(recipe(case, model, scratch / f"{name}-{os.getpid()}", gpu))
    peaks = Peaks(gpu)
    run = new_run(parsed)
    run.save = lambda **given: None  # type: ignore[method-assign]  a checkpoint of many GB is not wanted
    peaks.watch(run.policy, "sample", "sampling")
    peaks.watch(Updater, "accumulate", "training")
    peaks.watch(Updater, "step", "stepping")
    train(run)
    run.close()
    worked = estimate(parsed, read_shape(parsed.policy), 1, 2 if gpu else 4, gpu, PROMPT_TOKENS)  # type: ignore[arg-type]
    measured = {k: round(v, 3) for k, v in peaks.found.items()}
    row = {"case": name, "device": torch.cuda.get_device_name() if gpu else "cpu", "measured_gb": measured}
    row["estimated_gb"] = worked
    row["ratio"] = {k: round(worked[f"peak_{k}"] / v, 3) for k, v in measured.items()}
    row["ratio"]["peak"] = round(worked["peak"] / max(measured.values()), 3)
    if gpu:
        row["reserved_gb"] = round(torch.cuda.max_memory_reserved() / GB, 3)
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--shape", default="qwen2.5-0.5b")
    parser.add_argument("--case", action="append", choices=list(CASES))
    parser.add_argument("--one", help=argparse.SUPPRESS)  # a case in this process: peaks of one do not hide another's
    parser.add_argument("--model", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        print(json.dumps(measure(args.one, args.model, args.out)))
        return
    args.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        compare(args.case or list(CASES), model_folder(f"shape:{args.shape}", Path(scratch)), args.out, scratch)


def compare(cases: list[str], model: str, out: Path, scratch: str) -> None:
    """Every case in a process of its own; lines go to memory.jsonl in `out`."""
    for name in cases:
        command = [sys.executable, __file__, "--out", scratch, "--model", model, "--one", name]
        # Freed memory goes back at once, so that a CPU's resident memory is what is in use.
        exact = os.environ | {"MALLOC_MMAP_THRESHOLD_": "65536"}
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=exact)
        if done.returncode:
            print(f"{name}: {done.stderr[-2000:]}", file=sys.stderr)
            continue
        line = done.stdout.splitlines()[-1]
        print(line, flush=True)
        with (out / "memory.jsonl").open("a") as file:
            file.write(line + "\n")


if __name__ == "__main__":
    main()

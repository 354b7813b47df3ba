"""Which setting of recipes/motion/grpo.toml teaches most? One supervised start, then each setting on its own CPU core.

    bash bench/motion_grid.sh OUT SECONDS        (or: python bench/motion_grid.py --out OUT --seconds 500 --cores 16-27)

Every setting starts from the same weights and is measured on the same held-out captions and noise. Writes
OUT/NAME.json for each setting (bench/motion.py's summary of a seed) and OUT/table.md.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
RECIPES = HERE.parent / "recipes" / "motion"
TAIL = 50
"""Seconds a job needs besides training: imports, windows, the held-out motions before and after."""


def rate(value: float) -> list[str]:
    """A cosine from `value` to 0: at a constant rate the last updates' noise stays in the weights."""
    return ["--optimizer.learning-rate", f'{{ kind = "cosine", start = {value}, end = 0.0, warmup = 5 }}']


def physical(weight: float) -> list[str]:
    return [x for name in ("skating", "floor", "jerk", "limits") for x in (f"--task.{name}", str(weight))]


def groups(prompts: int, size: int) -> list[str]:
    return ["--algorithm.prompts-per-step", str(prompts), "--algorithm.group-size", str(size)]


PARTS = "{ matching = 1.0, skating = 0.1, floor = 0.1, jerk = 0.1, limits = 0.1 }"
COMMON = ["--policy.shared-start", "true", "--policy.lora.rank", "8", "--policy.lora.alpha", "16",
          "--algorithm.beta", "0.05", "--task.held-out-repeats", "8", *groups(16, 4)]  # fmt: skip
BASE = [*COMMON, *physical(0.0), *rate(3e-4), "--training.steps", "120", "--evaluation.every", "30"]
FULL = [*COMMON, *physical(0.0), *rate(1e-4), "--training.steps", "100", "--policy.window-starts", "[0, 20]"]
SETTINGS: dict[str, dict[str, list[str]]] = {
    "small": {
        "base": BASE,
        "base_1": BASE,
        "rate_1e-3": BASE + rate(1e-3),
        "rate_1e-4": BASE + rate(1e-4),
        "physical": BASE + physical(0.03),
        "parts": [*BASE, *physical(0.1), "--algorithm.advantage", "components",
                  "--algorithm.component-weights", PARTS],
        "kl_high": [*BASE, "--algorithm.beta", "0.3"],
        "p16g8": BASE + groups(16, 8),
        "p8g8": BASE + groups(8, 8),
        "own_start": [*BASE, "--policy.shared-start", "false"],
        "window8": [*BASE, "--policy.window", "8"],
        "early": [*BASE, "--policy.window-starts", "[0, 4]"],
    },
    "full": {
        "base": FULL,
        "rate_3e-5": FULL + rate(3e-5),
        "physical": FULL + physical(0.03),
    },
}  # fmt: skip
"""Size -> name -> flags on the recipe. A name that ends in _1 is seed 1, all others seed 0."""


def command(args: argparse.Namespace, out: Path, *more: str) -> list[str]:
    prefix = "full_" if args.size == "full" else ""
    recipes = [str(RECIPES / f"{prefix}{kind}.toml") for kind in ("supervised", "grpo")]
    base = ["--supervised", recipes[0], "--grpo", recipes[1], "--out", str(out)]
    base += ["--device", "cuda"] if args.size == "full" else []
    data = ["--task.data", str(args.data)] if args.data else []
    return [sys.executable, str(HERE / "motion.py"), *base, *data, *more]


def on_core(core: int, words: list[str], log: Path) -> int:
    with log.open("w") as file:
        return subprocess.run(["taskset", "-c", str(core), *words], stdout=file, stderr=subprocess.STDOUT).returncode


def run_all(args: argparse.Namespace, weights: Path, deadline: float) -> None:
    """Every core takes the next setting until none is left; each trains for its share of the time that remains."""
    jobs: queue.Queue[str] = queue.Queue()
    settings = SETTINGS[args.size]
    for name in args.settings or settings:
        jobs.put(name)

    def work(core: int) -> None:
        while True:
            try:
                name = jobs.get_nowait()
            except queue.Empty:
                return
            rounds = 1 + -(-jobs.qsize() // len(args.cores)) if jobs.qsize() else 1
            seconds = (deadline - time.monotonic()) / rounds - TAIL
            if seconds < 1:
                print(f"{name}: no time left", flush=True)
                continue
            seed = name.rsplit("_", 1)[-1] if name.endswith("_1") else "0"
            flags = [
                "--weights",
                str(weights),
                "--seeds",
                "1",
                "--first-seed",
                seed,
                "--seed-seconds",
                f"{seconds:.0f}",
            ]
            flags += settings[name]
            folder = args.out / "jobs" / name
            code = on_core(core, command(args, folder, *flags), args.out / f"{name}.log")
            print(f"{name}: exit {code}", flush=True)
            if code == 0:
                shutil.copy(folder / f"summary_{seed}.json", args.out / f"{name}.json")

    threads = [threading.Thread(target=work, args=(core,)) for core in args.cores]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


COLUMNS = ("matching", "judge", "frechet", "diversity", "skating", "floor", "jerk", "limits")


def table(out: Path) -> str:
    """One line a setting: changes with their standard errors, and health over the whole run."""
    lines = ["| setting | steps | " + " | ".join(COLUMNS) + " | KL last | log-ratio max | clip max | ratio |"]
    lines.append("| --- |" + " ---: |" * (len(COLUMNS) + 5))
    for file in sorted(out.glob("*.json")):
        seed: dict[str, Any] = json.loads(file.read_text())["seeds"][0]
        cells = [f"{seed['changes'][c]['change']:+.3f} ({seed['changes'][c]['se']:.3f})" for c in COLUMNS]
        health = seed["health"]
        clip = max(health["clip/low"]["max"], health["clip/high"]["max"])
        ratio = health["ratio/mean"]
        kl = f"{health['kl/reference']['last']:.4f}" if health["kl/reference"] else "-"
        cells += [kl, f"{health['log_ratio/abs_max']['max']:.3f}", f"{clip:.2f}"]
        cells.append(f"{ratio['min']:.4f}-{ratio['max']:.4f}")
        lines.append(f"| {file.stem} | {seed['steps']} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def cores_of(text: str) -> list[int]:
    low, _, high = text.partition("-")
    return list(range(int(low), int(high or low) + 1))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=500, help="for everything; the start takes a fifth")
    parser.add_argument("--cores", type=cores_of, default=cores_of("16-27"))
    parser.add_argument("--size", choices=list(SETTINGS), default="small", help="full: on the GPU")
    parser.add_argument("--settings", nargs="*", help="names of SETTINGS; default: all")
    parser.add_argument("--start-seconds", type=float, help="of supervised training; default: a fifth of --seconds")
    parser.add_argument("--data", type=Path, help="folder of the clips")
    parser.add_argument("--weights", type=Path, help="a run folder of recipes/motion/supervised.toml, trained already")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    os.environ["OMP_NUM_THREADS"] = "1"
    deadline = time.monotonic() + args.seconds
    weights = args.weights
    if weights is None:
        flags = ["--seeds", "0", "--supervised-seconds", f"{args.start_seconds or args.seconds / 5:.0f}"]
        if code := on_core(args.cores[0], command(args, args.out / "jobs", *flags), args.out / "supervised.log"):
            sys.exit(f"the supervised start ended with exit code {code}: {args.out / 'supervised.log'}")
        weights = args.out / "jobs" / "supervised"
        shutil.copytree(weights / "checkpoints", args.out / "start", dirs_exist_ok=True)
    run_all(args, weights, deadline)
    (args.out / "table.md").write_text(table(args.out) + "\n")
    print(table(args.out))


if __name__ == "__main__":
    main()

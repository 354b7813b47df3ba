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
TAIL = 30
"""Seconds a job needs besides training: imports, windows, the held-out motions before and after."""


def rate(value: float) -> list[str]:
    return ["--optimizer.learning-rate", f'{{ kind = "constant", start = {value}, warmup = 5 }}']


def weighted(matching: float, physical: float) -> list[str]:
    names = ("skating", "floor", "jerk", "limits")
    return ["--task.matching", str(matching), *(x for n in names for x in (f"--task.{n}", str(physical)))]


SHARED = ["--policy.shared-start", "true", *rate(6e-4)]
EARLY = ["--policy.window-starts", "[0, 4]"]
SETTINGS: dict[str, list[str]] = {
    "own_start": rate(6e-4),
    "own_start_2e-3": rate(2e-3),
    "shared": SHARED,
    "rate_2e-4": SHARED + rate(2e-4),
    "rate_2e-3": SHARED + rate(2e-3),
    "rate_6e-3": SHARED + rate(6e-3),
    "mean": [*SHARED, "--policy.event-reduction", "mean"],
    "inner4": [*SHARED, "--algorithm.minibatches", "4"],
    "p4g16": [*SHARED, "--algorithm.prompts-per-step", "4", "--algorithm.group-size", "16"],
    "p16g4": [*SHARED, "--algorithm.prompts-per-step", "16", "--algorithm.group-size", "4"],
    "p16g8": [*SHARED, "--algorithm.prompts-per-step", "16"],
    "matching_only": SHARED + weighted(1.0, 0.0),
    "physical3": SHARED + weighted(1.0, 0.3),
    "rank4": [*SHARED, "--policy.lora.rank", "4", "--policy.lora.alpha", "8"],
    "early": SHARED + EARLY,
    "early_2e-3": SHARED + EARLY + rate(2e-3),
    "late": [*SHARED, "--policy.window-starts", "[8, 14]"],
    "window8": [*SHARED, "--policy.window", "8", "--policy.window-starts", "[0, 10]"],
    "no_kl": [*SHARED, "--algorithm.beta", "0.0"],
    "kl_high": [*SHARED, "--algorithm.beta", "0.2"],
    "epochs2": [*SHARED, "--algorithm.epochs", "2"],
    "clip_wide": [*SHARED, "--algorithm.clip-low", "0.1", "--algorithm.clip-high", "0.1"],
    "shared_1": SHARED,
    "rate_2e-3_1": SHARED + rate(2e-3),
}
"""Name -> flags on the recipe. A name that ends in _1 is seed 1, all others seed 0."""


def command(args: argparse.Namespace, out: Path, *more: str) -> list[str]:
    base = ["--supervised", str(RECIPES / "supervised.toml"), "--grpo", str(RECIPES / "grpo.toml"), "--out", str(out)]
    data = ["--task.data", str(args.data)] if args.data else []
    return [sys.executable, str(HERE / "motion.py"), *base, *data, *more]


def on_core(core: int, words: list[str], log: Path) -> int:
    with log.open("w") as file:
        return subprocess.run(["taskset", "-c", str(core), *words], stdout=file, stderr=subprocess.STDOUT).returncode


def run_all(args: argparse.Namespace, weights: Path, deadline: float) -> None:
    """Every core takes the next setting until none is left; each trains for its share of the time that remains."""
    jobs: queue.Queue[str] = queue.Queue()
    for name in args.settings:
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
            flags += ["--training.steps", "100000", *SETTINGS[name]]
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
    parser.add_argument("--settings", nargs="*", default=list(SETTINGS), choices=list(SETTINGS))
    parser.add_argument("--data", type=Path, help="folder of the clips")
    parser.add_argument("--weights", type=Path, help="a run folder of recipes/motion/supervised.toml, trained already")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    os.environ["OMP_NUM_THREADS"] = "1"
    deadline = time.monotonic() + args.seconds
    weights = args.weights
    if weights is None:
        flags = ["--seeds", "0", "--supervised-seconds", f"{args.seconds / 5:.0f}"]
        if code := on_core(args.cores[0], command(args, args.out / "jobs", *flags), args.out / "supervised.log"):
            sys.exit(f"the supervised start ended with exit code {code}: {args.out / 'supervised.log'}")
        weights = args.out / "jobs" / "supervised"
        shutil.copytree(weights / "checkpoints", args.out / "start", dirs_exist_ok=True)
    run_all(args, weights, deadline)
    (args.out / "table.md").write_text(table(args.out) + "\n")
    print(table(args.out))


if __name__ == "__main__":
    main()

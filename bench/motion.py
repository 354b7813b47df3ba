"""Does GRPO teach motions their captions? Supervised training, then GRPO in several seeds, on the same held-out
captions and noise seeds before and after.

    python bench/motion.py --supervised recipes/motion/supervised.toml --grpo recipes/motion/grpo.toml --out runs/motion

Prints and writes OUT/summary_N.json (N: the first seed): for each seed the paired change of the held-out reward with
its standard error, every measure that was not optimised, and the range of each health metric over the whole run; with
--kl-every also the KL to the start on the same held-out prompts, noise and windows all along. OUT/seed_N is the run
folder of a seed, with pictures/ before and after. Further flags (--task.path FOLDER) are settings of both recipes.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from pathlib import Path
from typing import Any

import torch

from anygrpo.core.build import build_task
from anygrpo.core.trained import state_of
from anygrpo.core.tree import tree_map
from anygrpo.denoising.motion.measures import diversity, frechet
from anygrpo.recipe.load import load_recipe
from anygrpo.train import checkpoint
from anygrpo.train.build import new_run
from anygrpo.train.loop import train
from anygrpo.train.run import Run

HEALTH = ("reward/mean", "ratio/mean", "ratio/max", "log_ratio/abs_max", "kl/behaviour", "kl/reference", "clip/low",
          "clip/high", "grad_norm/total", "advantage/mean", "advantage/std", "reward/std_within", "loss/policy",
          "loss/supervised", "groups/live", "invalid/share", "memory/peak_gb", "time/step")  # fmt: skip
CURVE = ("step", "eval/reward", "eval/component/matching", "eval/motion/judge", "eval/motion/frechet",
         "eval/motion/diversity", "kl/reference")  # fmt: skip
PICTURES = 6
KL_PROMPTS = 16
WINDOW_SEEDS = (105, 47, 68)
"""These draw an early, a middle and a late window: of 16 places 0, 7 and 15, of 11 places 0, 5 and 10."""


class Watch:
    """Observer: keeps rows, prints one in ten, measures the KL every `kl_every` steps (0: never), and stops the run
    when its seconds are over."""

    def __init__(self, seconds: float | None, began: float, kl_every: int = 0):
        self.seconds, self.began, self.kl_every = seconds, began, kl_every
        self.rows: list[dict[str, Any]] = []
        self.kl: dict[int, dict[int, float]] = {}

    def __call__(self, row: dict[str, Any], run: Run) -> None:
        self.rows.append(row)
        if self.kl_every and (row["step"] + 1) % self.kl_every == 0:
            self.kl[row["step"] + 1] = kl_by_window(run)
        if row["step"] % 10 == 0:
            said = ("reward/mean", "loss/supervised", "kl/reference", "log_ratio/abs_max", "clip/high", "time/step")
            print(row["step"], {k: round(row[k], 5) for k in said if k in row}, flush=True)
        if self.seconds is not None and time.perf_counter() - self.began > self.seconds:
            run.stop(f"{self.seconds:g} seconds are over")


def go(recipe_file: str, flags: list[str], folder: Path, seconds: float | None) -> tuple[Run, list[dict[str, Any]]]:
    """Train one recipe; the run and its rows."""
    run = new_run(load_recipe(recipe_file, [*flags, "--folder", str(folder)]))
    watch = Watch(seconds, time.perf_counter())
    run.observers.append(watch)
    train(run)
    return run, watch.rows


@torch.no_grad()
def held_out(run: Run) -> tuple[list[list[Any]], dict[str, float]]:
    """The motions of all held-out prompts, and their measures."""
    task = run.stages[-1].task
    prompts = task.held_out()
    outputs = []
    for a in range(0, len(prompts), 64):
        outputs += run.policy.decode(run.policy.greedy(prompts[a : a + 64]).samples)
    scores = task.score(prompts, outputs)
    row = task.measure(prompts, outputs)
    row |= {f"eval/component/{k}": float(v.mean()) for k, v in scores.components.items()}
    return outputs, row | {"eval/reward": float(scores.rewards.mean())}


@torch.no_grad()
def kl_by_window(run: Run) -> dict[int, float]:
    """First step of the window -> exact KL to the reference a decision; prompts, noise and windows are the same in each
    call, so that a curve shows the policy's own way, which the training rows' random windows hide."""
    policy, prompts, out = run.policy, run.stages[-1].task.held_out(), {}
    for seed in WINDOW_SEEDS:
        rollout = policy.sample(prompts[:: max(1, len(prompts) // KL_PROMPTS)], 1, seed)
        rows = tree_map(lambda x: x.flatten(0, 1), rollout.samples)
        each = [policy.evaluate(rows, slice(t, t + 1), frozenset({"kl"})).kl for t in range(rows["steps"].shape[1])]
        out[int(rows["steps"][0, 0])] = float(torch.cat(each, 1).mean())
    return out


@torch.no_grad()
def paired(task: Any, before: list[list[Any]], after: list[list[Any]]) -> dict[str, dict[str, Any]]:
    """Change and its standard error over the same prompts and noise: of the reward, of each part of it (weighted or
    not), of the judge, of the diversity within captions (over captions), and of the Frechet distance (bootstrap).
    `se` is over motions; `se_captions`, over the means of captions (`captions`), holds for other captions too."""
    prompts = task.held_out()
    values = []
    for outputs in (before, after):
        pairs = [(p, row[0]) for p, row in zip(prompts, outputs)]
        parts = task.parts(pairs)
        columns = {name: torch.tensor([x[name] for x in parts]) for name in parts[0]}
        columns["reward"] = task.score(prompts, outputs).rewards[:, 0]
        columns["judge"] = torch.tensor(task.agreement(task.judge, pairs))
        groups: dict[str, list[tuple[str, torch.Tensor]]] = {}
        for prompt, motion in pairs:
            groups.setdefault(str(prompt.get("caption", prompt.get("captions"))), []).append(("", motion))
        columns["diversity"] = torch.tensor([diversity(rows) for rows in groups.values()])
        values.append(columns)
    out: dict[str, dict[str, Any]] = {}
    for name, old in values[0].items():
        change = (values[1][name] - old).double()
        rows = change.reshape(-1, task.config.held_out_repeats).mean(1) if len(change) == len(prompts) else change
        se, over_captions = (float(x.std() / math.sqrt(len(x))) for x in (change, rows))
        out[name] = {"change": float(change.mean()), "se": se, "se_captions": over_captions}
        out[name]["captions"] = [round(x, 5) for x in rows.tolist()]
    return out | {"frechet": frechet_change(task, prompts, before, after)}


def frechet_change(task: Any, prompts: list[Any], before: list[list[Any]], after: list[list[Any]]) -> dict[str, float]:
    """Of the judge's embeddings to captured motion; the standard error from 200 resamples of whole captions."""
    real = task.judge.embed_motions([task.captured_like(p, i) for i, p in enumerate(prompts)])
    old, new = (task.judge.embed_motions([row[0] for row in x]) for x in (before, after))
    repeats = task.config.held_out_repeats
    generator = torch.Generator().manual_seed(0)
    drawn = []
    for _ in range(200):
        first = torch.randint(len(prompts) // repeats, (len(prompts) // repeats,), generator=generator) * repeats
        rows = (first[:, None] + torch.arange(repeats)).flatten()
        drawn.append(frechet(new[rows], real[rows]) - frechet(old[rows], real[rows]))
    change = frechet(new, real) - frechet(old, real)
    return {"change": change, "se": float(torch.tensor(drawn).std())}


def seed_summary(args: argparse.Namespace, seed: int, weights: Path) -> dict[str, Any]:
    folder = args.out / f"seed_{seed}"
    flags = ["--seed", str(seed), "--policy.model", str(weights), "--policy.device", args.device, *args.flags]
    flags += ["--evaluation.at-start", "false"]  # measured here
    run = new_run(load_recipe(args.grpo, [*flags, "--folder", str(folder)]))
    before, row_before = held_out(run)
    watch = Watch(seconds_left(args), time.perf_counter(), args.kl_every)
    run.observers.append(watch)
    train(run)
    after, row_after = held_out(run)
    task = run.stages[-1].task
    prompts = task.held_out()
    every = max(1, len(prompts) // PICTURES)
    pick = lambda rows: rows[::every][:PICTURES]  # noqa: E731
    task.pictures(pick(prompts), pick(before), pick(after), run.folder.pictures)
    run.close()
    curve = [{k: row[k] for k in CURVE if k in row} for row in watch.rows if "eval/reward" in row]
    return {
        "seed": seed,
        "flags": args.flags,
        "steps": len(watch.rows),
        "updates": run.version,
        "changes": paired(task, before, after),
        "before": row_before,
        "after": row_after,
        "health": {k: spread([r[k] for r in watch.rows if k in r]) for k in HEALTH},
        "curve": curve,
        "kl_by_window": watch.kl,
        "rewards": [round(r["reward/mean"], 4) for r in watch.rows if "reward/mean" in r],
    }


def seconds_left(args: argparse.Namespace) -> float | None:
    """Seconds that a seed may train."""
    limits = [args.seed_seconds, args.until and args.until - time.time()]
    return min((x for x in limits if x is not None), default=None)


def wait_for_weights(args: argparse.Namespace) -> None:
    """Make windows and encoders ready (they are kept in memory), then wait until the denoiser is trained."""
    recipe = load_recipe(args.grpo, args.flags)
    build_task(recipe.task, recipe.seed)
    while not list(args.weights.glob("checkpoints/step_*/policy.safetensors")):
        if args.until and time.time() > args.until:
            raise SystemExit(f"no weights at {args.weights} in time")
        time.sleep(1)
    time.sleep(3)  # the supervised process writes its last checkpoint twice


def spread(values: list[float]) -> dict[str, float]:
    if not values:
        return {}
    quarter = max(1, len(values) // 4)
    means = [
        sum(part) / len(part) for part in (values[a : a + quarter] for a in range(0, 4 * quarter, quarter)) if part
    ]
    return {"first": values[0], "min": min(values), "max": max(values), "last": values[-1], "quarters": means}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--supervised", required=True)
    parser.add_argument("--grpo", required=True)
    parser.add_argument("--weights", type=Path, help="a trained denoiser: skips the supervised run")
    parser.add_argument("--wait", action="store_true", help="the --weights are being trained beside this")
    parser.add_argument("--seeds", type=int, default=3, help="0: only the supervised run")
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--supervised-seconds", type=float)
    parser.add_argument("--seed-seconds", type=float)
    parser.add_argument("--kl-every", type=int, default=0, help="steps from one measurement of the KL to the next")
    parser.add_argument("--until", type=float, help="stop training at this time (seconds of the epoch)")
    parser.add_argument("--out", type=Path, required=True)
    args, args.flags = parser.parse_known_args()
    args.out.mkdir(parents=True, exist_ok=True)
    began = time.perf_counter()
    summary: dict[str, Any] = {"device": device_name(args.device), "torch": torch.__version__}
    weights = args.weights
    if args.wait:
        wait_for_weights(args)
    if weights is None:
        torch.set_float32_matmul_precision("high")
        folder = args.out / "supervised"
        flags = ["--policy.device", args.device, *args.flags]
        run, rows = go(args.supervised, flags, folder, args.supervised_seconds)
        checkpoint.save(run.folder.checkpoints, run.step, state_of(run.policy.trainable()), {}, 1, best=False)
        summary["supervised"] = {"steps": len(rows), "loss": spread([r["loss/supervised"] for r in rows])}
        run.close()
        weights = folder
    torch.set_float32_matmul_precision("highest")
    summary["seeds"] = []
    for seed in range(args.first_seed, args.first_seed + args.seeds):
        summary["seeds"].append(seed_summary(args, seed, weights))
        summary["seconds"] = round(time.perf_counter() - began, 1)
        (args.out / f"summary_{args.first_seed}.json").write_text(json.dumps(summary, indent=2))
    print(json.dumps(summary))


def device_name(device: str) -> str:
    return torch.cuda.get_device_name(0) if device.startswith("cuda") else "CPU"


if __name__ == "__main__":
    main()

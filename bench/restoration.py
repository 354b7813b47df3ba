"""Does GRPO on the gates beat the same network trained only by supervision for the same time?

    python bench/restoration.py --seeds 3 --warm 90 --seconds 60            # CPU, small
    python bench/restoration.py --device cuda --seeds 3 --warm 40 --seconds 25 --width 32 --patch 64 --picture-size 256
    python bench/restoration.py --network toolbox --warm 15 --seconds 30 --arms supervised/mean grpo
    python bench/restoration.py --network experts --pictures data/photographs --arms ...   # bench/gpu_photographs.sh

Per seed: a supervised warm-up, then every arm goes on from its weights for the same time. An arm is a plan of parts,
"NAME=PART:SHARE+PART:SHARE" (or one PART, which is also its name), each with settings of its own ("grpo@group=8:0.5"):
  supervised/mean      supervision with gates at their mean (their gradient included wherever there is one)
  supervised/sampled   supervision with sampled gates
  supervised/best      supervision with the best of --taught-of draws
  grpo                 groups of the gates in --sites, of the parameters in --train, with the supervised loss of the
                       sampled rows beside it where --lambda-supervised is not 0
An arm whose name begins with "scratch" starts where the warm-up did and has the time of both ("scratch" alone is
scratch=supervised/mean). Toolbox: "soft" is the mixture of filters that supervision trains, "greedy" one per patch.
What was measured is kept in --out: a run goes on where it stopped, --only S measures seed S in a process of its own,
--pieces N measures N more arms at most; tables and pictures are of what is there (--pieces 0: measure nothing).
Held-out pictures are whole; gains are paired (same picture, same degradation, same seed), intervals draw pictures.
Time is CPU time of the process on a CPU, wall time on a GPU; making pictures worse is outside of it. Steps of all parts
are timed in turn after the warm-up, and an arm gets the steps that fit its time by that.
"""

from __future__ import annotations

import argparse
import itertools
import json
import shutil
import statistics
import time
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from restoration_arguments import arguments
from restoration_plans import plans_of, spread_out
from restoration_quality import evaluated, oracle
from restoration_table import tables

from anygrpo.core.build import build_policy, build_task
from anygrpo.recipe.load import parse_recipe
from anygrpo.recipe.recipe import Recipe
from anygrpo.train.build import new_run
from anygrpo.train.loop import train

SAMPLES: dict[tuple[int, int], Any] = {}
"""The pool of samples already made, by seed and patch."""
STEP_SECONDS: dict[str, float] = {}
"""Of each part, measured once in a process, parts in turn: what else runs on the machine then falls on all alike."""


def clock(device: str) -> float:
    """Seconds of work: of this process on a CPU, of the world on a GPU."""
    if device == "cpu":
        return time.process_time()
    torch.cuda.synchronize()
    return time.perf_counter()


def recipe_of(args: argparse.Namespace, seed: int, part: str, steps: int, folder: Path, weights: Path | None) -> Recipe:
    """The recipe of one part with so many steps."""
    part, *own = part.split("@")
    args = argparse.Namespace(**vars(args))
    for name, value in (setting.split("=") for setting in own):
        setattr(args, name, type(getattr(args, name))(value))
    grpo = part == "grpo"
    rate = args.grpo_rate if grpo else args.rate if weights is None else args.further_rate
    table: dict[str, Any] = {
        "name": part.replace("/", "-"),
        "seed": seed,
        "folder": str(folder),
        "policy": {
            "kind": "restorer",
            "network": args.network,
            "width": args.width,
            "blocks": args.blocks,
            "window": args.window,
            "skip": args.skip,
            "concentration": args.concentration,
            "experts": args.experts,
            "patch": args.tool_patch,
            "sharpness": args.sharpness,
            "device": args.device,
            "graphs": args.graphs and args.device != "cpu",
            "supervised": dict(args.loss),
            "supervised_gates": part.partition("/")[2] or "mean",
            "best_of": args.taught_of,
            "sites": ["*"] if part == "supervised/mean" else args.sites.split(","),
            "train": args.train.split(",") if grpo and args.train else None,
            "deterministic": "mean" if args.network == "frequency" else "mode",
            "model": None if weights is None else str(weights),
            "rows_at_once": args.rows,
        },
        "task": {
            "kind": "restoration",
            "patch": args.grpo_patch or args.patch if grpo else args.patch,
            **sets_of(args),
            "crops": args.crops,
            "margin": 0,  # as measured
            "held_out_repeats": args.held_out_draws,
            "w_psnr": args.w_psnr,
            "w_ssim": 1 - args.w_psnr,
        },
        "algorithm": {
            "prompts_per_step": args.grpo_prompts if grpo else args.prompts,
            "group_size": args.group,
            "minibatches": 2 if grpo else 1,
            "advantage": args.advantage,
            "advantage_clip": 3.0,
            "entropy_coef": args.entropy if grpo else 0.0,
            "beta": args.beta if grpo else 0.0,
            "kl": "exact",
            "lambda_pg": args.lambda_pg,
            "lambda_supervised": args.lambda_supervised if grpo else 0.0,
        },
        "optimizer": {"learning_rate": {"kind": "cosine", "start": rate, "end": args.final * rate}},
        "stages": [{"name": "part", "method": "grpo" if grpo else "supervised", "steps": steps}],
        "training": {
            "rows_per_block": args.rows,
            "checkpoint_every": 10**6,
            "samples_every": 0,
            "gradient_norms_every": 0,
            "threads": 1 if args.device == "cpu" else None,
        },
        "evaluation": {"at_start": False, "prompts": 1},
        "doctor": {"mode": "off"},
    }
    return parse_recipe(table)


def sets_of(args: argparse.Namespace) -> dict[str, Any]:
    """The photographs that packages ship, or those of --pictures beside them, tested on one of its folders."""
    if args.pictures is None:
        return {"picture_size": args.picture_size}
    ours = [{"clean": str(args.pictures / side), "name": side, "part": part, "scene": "{scene}-*"}
            for side, part in (("train", "train"), (args.test_on, "test"))]  # fmt: skip
    return {
        "picture_size": 256,
        "augment": "flips",
        "sets": [*ours, {"layout": "shipped", "name": "shipped", "part": "train"}],
    }


def run_of(
    args: argparse.Namespace, seed: int, part: str, steps: int, folder: Path, weights: Path | None
) -> tuple[Any, list[float], list[dict[str, float]]]:
    """A finished run of so many steps, the clock before it and after each step, and its rows."""
    shutil.rmtree(folder, ignore_errors=True)  # of a run that was cut off
    run = new_run(recipe_of(args, seed, part, steps, folder, weights))
    task: Any = run.stages[0].task
    task._pool = SAMPLES.setdefault((seed, task.config.patch), task._pool)
    stamps, rows = [clock(args.device)], []

    def watch(row: dict[str, float], run: Any) -> None:
        stamps.append(clock(args.device))
        rows.append(row)

    run.observers.append(watch)
    train(run)
    return run, stamps, rows


def time_steps(args: argparse.Namespace, seed: int, parts: list[str], out: Path, weights: Path | None) -> None:
    """Fill `STEP_SECONDS`: every part runs three times in turn, the first time to load libraries and choose kernels."""
    times: dict[str, list[float]] = {part: [] for part in parts if part not in STEP_SECONDS}
    for steps in (3, args.probe, args.probe):
        for part in times:
            _, stamps, _ = run_of(args, seed, part, steps, out / "probe", weights)
            times[part] += [b - a for a, b in itertools.pairwise(stamps[1:-1])]  # the last step evaluates
    STEP_SECONDS.update({part: statistics.median(seconds[1:]) for part, seconds in times.items()})


def trained(args: argparse.Namespace, seed: int, part: str, seconds: float, out: Path, weights: Path | None) -> Any:
    """A policy trained for as many steps as `seconds` hold by `STEP_SECONDS`; the seconds it took, and its steps."""
    weights = spread_out(args, part, weights, out)
    time_steps(args, seed, [part], out, weights)
    steps = max(1, round(seconds / STEP_SECONDS[part]))
    run, stamps, rows = run_of(args, seed, part, steps, out / "run", weights)
    spent = stamps[-1] - stamps[0]
    torch.save(run.policy.network.state_dict(), out / "network.pt")
    shares = {
        k: 1000 * statistics.median(row.get(f"time/{k}", 0.0) for row in rows) for k in ("sample", "score", "update")
    }
    told = ", ".join(f"{name} {ms:.0f}" for name, ms in shares.items())
    print(f"seed {seed} {out.name} {part}: {steps} steps in {spent:.1f} s (ms a step: {told})", flush=True)
    return run.policy, spent, run.total_steps


def piece(args: argparse.Namespace, seed: int, arm: str, out: Path) -> dict[str, Any]:
    """One arm of one seed (or its warm-up, or the oracles), trained and evaluated."""
    task = build_task(recipe_of(args, seed, "grpo", 1, out, None).task, seed)
    if args.test_on != "validation":  # what was trained before
        return evaluated(loaded(args, seed, arm, out), task, args.best_of, args.measure)
    if arm == "oracle":
        ours = trained_by_grpo(args)[:1] if args.network == "frequency" else []  # the toolbox's takes minutes
        return {a: oracle(loaded(args, seed, a, out), task) for a in ("supervised/mean", *ours)}
    if arm == "warm":
        plan, seconds, start = [(f"supervised/{args.warm_gates}", 1.0)], args.warm, None
    elif arm.startswith("scratch"):
        plan, seconds, start = plans_of(args)[arm], args.warm + args.seconds, None
    else:
        plan, seconds, start = plans_of(args)[arm], args.seconds, out / "warm" / "network.pt"
    parts = list(dict.fromkeys(part for p in (plan, *plans_of(args).values()) for part, _ in p))
    make_samples(args, seed, parts, out)
    if start:  # before the warm-up no gate moves the output, and GRPO's steps would be empty
        time_steps(args, seed, parts, out, start)
    spent, steps, folder = 0.0, 0, out / arm.replace("/", "-")
    for i, (part, share) in enumerate(plan):
        where = folder if i == len(plan) - 1 else folder / f"part{i}"
        policy, taken, count = trained(args, seed, part, share * seconds, where, start)
        start, spent, steps = where / "network.pt", spent + taken, steps + count
    policy = loaded(args, seed, arm, out)
    return evaluated(policy, task, args.best_of, args.measure) | {"seconds": spent, "steps": steps}


def make_samples(args: argparse.Namespace, seed: int, parts: list[str], out: Path) -> None:
    """Every training sample of these parts, on the device, before any clock runs."""
    for part in parts:
        task = build_task(recipe_of(args, seed, part, 1, out, None).task, seed)
        task._pool = SAMPLES.setdefault((seed, task.config.patch), task._pool)
        task._pool._samples.limit = 2**34  # all of them: crops of 96 are more than what is kept by default
        for index in task.pool:
            sample = task.sample(index)  # the one that is kept
            sample.update({k: x.to(args.device) for k, x in sample.items() if isinstance(x, torch.Tensor)})


def trained_by_grpo(args: argparse.Namespace) -> list[str]:
    return [arm for arm, plan in plans_of(args).items() if any(part.startswith("grpo") for part, _ in plan)]


def loaded(args: argparse.Namespace, seed: int, arm: str, out: Path) -> Any:
    """The policy an arm ended with, every site in --sites sampled, as sharply as in its last part."""
    path = out / arm.replace("/", "-") / "network.pt"
    last = plans_of(args).get(arm, [("", 1.0)])[-1][0].split("@")
    part = "@".join(["grpo", *(setting for setting in last if setting.startswith(("sharpness=", "experts=")))])
    whole = argparse.Namespace(**vars(args) | {"graphs": False})  # whole pictures: not worth recording
    return build_policy(recipe_of(whole, seed, part, 1, out, path).policy, seed)


def measured(args: argparse.Namespace) -> list[dict[str, Any]]:
    """Every piece, read from --out where it was measured before; what is not there after --pieces more is left out."""
    results, new = [], 0
    for number, seed in enumerate(args.only or range(args.seeds)):
        out = args.out / f"seed{seed}"
        arms: dict[str, Any] = {}
        first = [] if all(arm.startswith("scratch") for arm in plans_of(args)) else ["warm"]
        last = ["oracle"] if number < args.oracles and "supervised/mean" in plans_of(args) else []
        for arm in (*first, *plans_of(args), *last):
            name = "result.json" if args.test_on == "validation" else f"result_{args.test_on}.json"
            path = out / arm.replace("/", "-") / name
            if not path.exists() and new != args.pieces:
                result, new = piece(args, seed, arm, out), new + 1
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(json.dumps(result))
            if path.exists():
                arms[arm] = json.loads(path.read_text())
        for arm, best in arms.pop("oracle", {}).items():
            arms[arm]["oracle"] = best
        results.append({"seed": seed, "arms": arms})
    return results


def main() -> None:
    args = arguments(__doc__)
    torch.set_num_threads(1 if args.device == "cpu" else torch.get_num_threads())
    results = measured(args)
    if args.only and args.pieces:
        return
    (args.out / "results.json").write_text(json.dumps({"args": vars(args), "results": results}, default=str))
    task = build_task(recipe_of(args, 0, "grpo", 1, args.out, None).task, 0)
    held = task.held_out()
    names, pictures = [p["degradation"] for p in held], [p["picture"] for p in held]
    ours = trained_by_grpo(args)
    (args.out / "summary.json").write_text(json.dumps(tables(results, list(plans_of(args)), ours, names, pictures)))
    both = {"supervised/mean", *ours[:1]}
    if seeds := [r["seed"] for r in results if len(both) == 2 and both <= r["arms"].keys()]:
        out = args.out / f"seed{seeds[-1]}"
        policies = (loaded(args, seeds[-1], arm, out) for arm in ("supervised/mean", ours[0]))
        for path in task.pictures(held, *(p.decode(p.greedy(held).samples) for p in policies), args.out / "pictures"):
            Image.open(path).save(path.with_suffix(".jpg"), quality=92)
            path.unlink()  # a tenth of the size


if __name__ == "__main__":
    main()

"""A choice of experts by GRPO against its rivals, on photographs that nobody tuned on: training.

    python bench/photographs_arms.py --out OUT --warm 240 --seeds 3 --pictures data/photographs

Every arm of a start has the same time (`--warm`: seconds of its own process; a process that waits for a GPU spins). The
first .4 of it is one part that all share, so that gains are paired: one expert, supervised ("warm"). Then
  fixed   one expert, supervised: what a network without gates is
  mean    a mixture of all experts, supervised, with its gradient
  drawn   experts drawn, supervised
  nogrpo  the best of the draws supervised (experts part), then what is drawn
  ours    the same with GRPO on the router, in between and at the end
Experts begin as the one that was warmed up, each with some noise: alike ones would have like gradients for ever.
A rate falls by the time that is spent, so an arm is through its schedule when its time is. Samples are made once a
start, and a start's arms are forks of its process. What was trained: OUT/seedS/ARM/network.pt; `photographs_table.py`
measures it, `gpu_photographs.sh` does both.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import time
import traceback
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch._dynamo
import torchmetrics.functional.image  # noqa: F401  both would be loaded in each arm's time
from restoration import SAMPLES, make_samples, recipe_of
from restoration_arguments import arguments
from restoration_plans import plans_of, spread_out

from anygrpo.train.build import new_run
from anygrpo.train.loop import train

PLANS = {
    "warm": "supervised/mean@experts=1:.4",
    "fixed": "supervised/mean@experts=1:.35+supervised/mean@experts=1{late}:.25",
    "mean": "supervised/mean:.35+supervised/mean{late}:.25",
    "drawn": "supervised/sampled:.35+supervised/sampled{late}:.25",
    "nogrpo": "supervised/best:.12+supervised/sampled@sharpness=4{late}:.48",
    "ours": "supervised/best:.12+grpo:.1+supervised/sampled@sharpness=4{late}:.26+grpo:.12",
}
LATE = "@patch=64@prompts=8"
"""Of crops below 64 pixels, the last part has larger ones."""
WORDS = """--network experts --crops 3 --w-psnr .5 --rate 3e-3 --further-rate 2e-3 --grpo-patch 96 --grpo-rate 2e-2
  --entropy .3 --train router.* --seconds 0 --grpo-prompts 8 --width 16 --patch 32 --prompts 32 --loss l1=1,ssim=0.2"""


def words(given: list[str]) -> argparse.Namespace:
    """The comparison's settings; what is given wins. --arms NAME (a plan of `PLANS`) or NAME=PLAN."""
    sys.argv[1:] = [*WORDS.split(), *given]
    args = arguments(__doc__ or "")
    chosen = args.arms if "--arms" in given else list(PLANS)
    late = LATE if args.patch < 64 else ""
    args.arms = [arm if "=" in arm else f"{arm}={PLANS[arm].format(late=late)}" for arm in chosen]
    return args


def part(args: argparse.Namespace, seed: int, name: str, seconds: float, out: Path, weights: Path | None) -> float:
    """Train one part for so many seconds of this process; the seconds it took. Its weights: out/network.pt."""
    recipe = recipe_of(args, seed, name, 10**6, out / "run", spread_out(args, name, weights, out))
    run = new_run(recipe)
    task: Any = run.stages[0].task
    task._pool = SAMPLES.setdefault((seed, task.config.patch), task._pool)
    begin, steps = time.process_time(), 0

    def watch(row: dict[str, float], run: Any) -> None:
        nonlocal steps
        steps += 1
        gone = (time.process_time() - begin) / seconds
        rate = args.final + (1 - args.final) * (1 + math.cos(math.pi * min(gone, 1.0))) / 2
        run.controls = replace(run.controls, learning_rate=rate)
        if gone >= 1:
            run.stop_reason = "its time is over"

    run.observers.append(watch)
    train(run)
    spent = time.process_time() - begin
    out.mkdir(parents=True, exist_ok=True)
    half = {k: x.cpu().half() for k, x in run.policy.network.state_dict().items()}  # what is kept is what is tested
    torch.save(half, out / "network.pt")
    print(f"seed {seed} {out.name} {name}: {steps} steps in {spent:.1f} s", flush=True)
    return spent


def arm(args: argparse.Namespace, seed: int, name: str) -> None:
    """Train an arm, whose weights and time are written when it is through."""
    torch.set_num_threads(1)
    folder = args.out / f"seed{seed}"
    weights = None if name == "warm" else folder / "warm" / "network.pt"
    plan, spent = plans_of(args)[name], 0.0
    for i, (one, share) in enumerate(plan):
        last = i == len(plan) - 1
        where = folder / name if last else folder / name / f"part{i}"
        spent += part(args, seed, one, share * args.warm, where, weights)
        weights = where / "network.pt"
    (folder / name / "time.json").write_text(json.dumps({"seconds": spent}))


def forked(args: argparse.Namespace, seed: int, name: str) -> int:
    """The process that trains an arm, started."""
    sys.stdout.flush()
    if pid := os.fork():
        return pid
    code = 1
    try:
        if args.device == "cpu":
            os.environ["CUDA_VISIBLE_DEVICES"] = ""
        arm(args, seed, name)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(code)


def start(args: argparse.Namespace, seed: int) -> None:
    """Every arm of a start: the warm-up, then all beside each other."""
    plans = plans_of(args)
    begun, here = time.time(), argparse.Namespace(**vars(args) | {"device": "cpu"})  # a fork must not have met a GPU
    for name, plan in plans.items():
        make_samples(here, seed, [one for one, _ in plan], args.out / f"seed{seed}" / name)
    print(f"seed {seed}: samples in {time.time() - begun:.1f} s", flush=True)
    if not (args.out / f"seed{seed}" / "warm" / "network.pt").exists():
        os.waitpid(forked(args, seed, "warm"), 0)
    for pid in [forked(args, seed, name) for name in plans if name != "warm"]:
        os.waitpid(pid, 0)


def main() -> None:
    args = words(sys.argv[1:])
    torch.set_num_threads(1)
    children = []
    for seed in args.only or range(args.seeds):
        if pid := os.fork():
            children.append(pid)
            continue
        start(args, seed)
        sys.stdout.flush()
        os._exit(0)
    for pid in children:
        os.waitpid(pid, 0)


if __name__ == "__main__":
    main()

"""Does GRPO on the gates beat the same network trained only by supervision for the same time?

    python bench/restoration.py --seeds 3 --warm 90 --seconds 60            # CPU, small
    python bench/restoration.py --device cuda --seeds 3 --warm 40 --seconds 25 --width 32 --patch 64 --picture-size 256

    python bench/restoration.py --network toolbox --warm 15 --seconds 30 --share 1

Per seed: a supervised warm-up, then from its weights and for the same time each:
  supervised/mean      goes on with gates at their mean (their gradient included wherever there is one)
  supervised/sampled   goes on with sampled gates
  grpo                 supervised/mean for a part of that time, GRPO on groups of the same gates for the rest (--share)
(toolbox: "soft" is the mixture of filters that supervision trained, "greedy" one filter a patch.)
What was measured is kept in --out: a run goes on where it stopped, --pieces N stops after N arms, and --only S measures
seed S in a process of its own; the same command without them prints the tables.
Held-out pictures are whole; gains are paired (same picture, same degradation, same seed), intervals draw pictures.
Time is CPU time of the process on a CPU, wall time on a GPU.
"""

from __future__ import annotations

import argparse
import json
import shutil
import time
from pathlib import Path
from typing import Any

import torch
from restoration_table import tables

from anygrpo.config.recipe import Recipe
from anygrpo.policies import build_policy
from anygrpo.policies.stochastic.distributions import middle
from anygrpo.tasks import build_task
from anygrpo.train.build import new_run
from anygrpo.train.loop import train

ARMS = {
    "frequency": ("supervised/mean", "supervised/sampled", "grpo"),
    "toolbox": ("supervised/mean", "grpo"),  # drawn choices leave supervision nothing to train
}
SAMPLES: dict[int, dict[int, Any]] = {}
"""Training samples already made, by seed: degrading pictures on the CPU is no part of what is compared."""


def clock(device: str) -> float:
    """Seconds of work: of this process on a CPU, of the world on a GPU."""
    if device == "cpu":
        return time.process_time()
    torch.cuda.synchronize()
    return time.perf_counter()


def recipe_of(args: argparse.Namespace, seed: int, arm: str, steps: int, folder: Path, weights: Path | None) -> Recipe:
    """The recipe of one arm (or of the warm-up: arm "warm") with so many steps."""
    grpo = arm == "grpo"
    gates = "mean" if arm == "supervised/mean" else "sampled"
    rate = args.grpo_rate if grpo else args.rate
    table: dict[str, Any] = {
        "name": arm.replace("/", "-"),
        "seed": seed,
        "folder": str(folder),
        "policy": {
            "kind": "restorer",
            "network": args.network,
            "width": args.width,
            "device": args.device,
            "supervised_gates": gates,
            "sites": args.sites.split(",") if grpo else ["*"],
            "train": args.train.split(",") if grpo and args.train else None,
            "deterministic": "mode" if args.network == "toolbox" else "mean",
            "weights": None if weights is None else str(weights),
            "rows_at_once": args.rows,
        },
        "task": {"kind": "restoration", "patch": args.patch, "picture_size": args.picture_size, "crops": args.crops},
        "algorithm": {
            "prompts_per_step": args.grpo_prompts if grpo else args.prompts,
            "group_size": args.group,
            "minibatches": 2 if grpo else 1,
            "advantage_clip": 3.0,
            "lambda_pg": args.lambda_pg,
            "lambda_supervised": args.lambda_supervised if grpo else 0.0,
        },
        "optimizer": {"learning_rate": {"kind": "cosine", "start": rate, "end": 0.1 * rate}},
        "stages": [{"name": arm, "method": "grpo" if grpo else "supervised", "steps": steps}],
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
    return Recipe.model_validate(table)


def trained(args: argparse.Namespace, seed: int, arm: str, seconds: float, out: Path, weights: Path | None) -> Any:
    """A policy trained for `seconds`: a few steps are timed first, then the whole run gets as many as fit."""
    stamps: list[float] = []

    def run_of(steps: int, folder: Path) -> Any:
        shutil.rmtree(folder, ignore_errors=True)  # of a run that was cut off
        run = new_run(recipe_of(args, seed, arm, steps, folder, weights))
        task = run.stages[0].task
        task.cache = SAMPLES.setdefault(seed, task.cache)
        run.observers.append(lambda row, run: stamps.append(clock(args.device)))
        stamps[:] = [clock(args.device)]
        train(run)
        return run

    probe = max(6, args.probe)
    run_of(2, out / "cold")  # libraries load, kernels are chosen
    run_of(probe, out / "probe")
    per_step = (stamps[-2] - stamps[1]) / (probe - 2)  # the last step evaluates
    run = run_of(max(1, round(seconds / per_step)), out / "run")
    spent = stamps[-1] - stamps[0]
    torch.save(run.policy.network.state_dict(), out / "network.pt")
    print(f"seed {seed} {arm}: {run.total_steps} steps in {spent:.1f} s", flush=True)
    return run.policy, spent, run.total_steps


@torch.no_grad()
def quality(policy: Any, task: Any, rollout: Any) -> dict[str, list[list[float]]]:
    """PSNR, SSIM and reward of each held-out picture's G outputs."""
    scores = task.score(task.held_out(), policy.decode(rollout.samples))
    return {name: x.tolist() for name, x in (scores.components | {"reward": scores.rewards}).items()}


def evaluated(policy: Any, task: Any, best_of: int) -> dict[str, Any]:
    """Quality of the deterministic mode; of fixed gates; of G samples' mean and best by the reward (an upper bound: it
    reads the clean picture); and of the soft mixture where the deterministic mode is a hard choice."""
    held = task.held_out()
    first = lambda x: {k: [row[0] for row in rows] for k, rows in x.items()}  # noqa: E731
    many = quality(policy, task, policy.sample(held, best_of, 1))
    pick = [max(range(best_of), key=row.__getitem__) for row in many["reward"]]
    kinds = {
        "greedy": first(quality(policy, task, policy.greedy(held))),
        "fixed": fixed_gates(policy, task),
        "sampled": {k: [sum(row) / best_of for row in x] for k, x in many.items()},
        "best": {k: [row[i] for row, i in zip(x, pick)] for k, x in many.items()},
    }
    if policy.mode == "mode":
        kinds["soft"] = first(quality(policy, task, policy.rollout_with(held, 1, lambda name, d: middle(d, "mean"))))
    return kinds


def fixed_gates(policy: Any, task: Any) -> dict[str, list[float]]:
    """Greedy quality with every gate at one value for all pictures: its mean over the held-out pictures.

    What remains of a gain here comes from the body or from better constants; the rest from choosing per picture.
    """
    held = task.held_out()
    samples = policy.greedy(held).samples
    constants = {k.removeprefix("site/"): x.mean((0, 1)) for k, x in samples.items() if k.startswith("site/")}

    def constant(name: str, distribution: Any) -> torch.Tensor:
        return constants[name].expand(distribution.batch_shape + distribution.event_shape)

    rollout = policy.rollout_with(held, 1, constant)
    return {k: [row[0] for row in x] for k, x in quality(policy, task, rollout).items()}


def oracle(policy: Any, task: Any) -> dict[str, list[float]]:
    """Each picture's best quality when one site at a time leaves its deterministic value.

    Tried are .1, .3, .5, .7, .9 for a Beta, each tool everywhere for a one-hot choice: a lower bound of the headroom,
    which reads the clean picture.
    """
    held = task.held_out()
    sites = [k.removeprefix("site/") for k in policy.greedy(held[:1]).samples if k.startswith("site/")]
    tries = [quality(policy, task, policy.greedy(held))]
    for site in sites:
        for k in range(9 if "round" in site else 5):

            def choose(name: str, distribution: Any, site: str = site, k: int = k) -> torch.Tensor:
                value = middle(distribution, policy.mode)
                if name != site:
                    return value
                if value.dim() < 3:
                    return torch.full_like(value, 0.1 + 0.2 * k)
                return torch.nn.functional.one_hot(torch.full_like(value[..., 0], k).long(), value.shape[-1]).to(value)

            tries.append(quality(policy, task, policy.rollout_with(held, 1, choose)))
    pick = [max(range(len(tries)), key=lambda t, i=i: tries[t]["reward"][i][0]) for i in range(len(held))]
    return {name: [tries[t][name][i][0] for i, t in enumerate(pick)] for name in tries[0]}


def arguments() -> argparse.Namespace:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in (
        ("seeds", 3), ("width", 8), ("patch", 32), ("picture-size", 128), ("crops", 32), ("prompts", 8),
        ("grpo-prompts", 8), ("group", 8), ("rows", 64), ("best-of", 8), ("probe", 8), ("oracles", 1), ("pieces", -1),
    ):  # fmt: skip
        p.add_argument(f"--{name}", type=int, default=value)
    for name, value in (
        ("warm", 90.0), ("seconds", 60.0), ("rate", 2e-3), ("grpo-rate", 2e-3), ("lambda-pg", 1.0),
        ("lambda-supervised", 0.0), ("share", 0.4),
    ):  # fmt: skip
        p.add_argument(f"--{name}", type=float, default=value)
    p.add_argument("--network", choices=("frequency", "toolbox"), default="frequency")
    p.add_argument("--warm-gates", choices=("mean", "sampled"), default="sampled")
    p.add_argument("--device", default="cpu")
    p.add_argument("--only", type=int, nargs="*", help="measure these seeds, print no table")
    p.add_argument("--arms", nargs="*", help="default: all that make sense for the network")
    p.add_argument("--sites", default="*", help="patterns of the sites that GRPO samples, separated by commas")
    p.add_argument("--train", default="", help="patterns of the parameters that GRPO trains (default: all)")
    p.add_argument("--out", type=Path, default=Path("runs/bench-restoration"))
    return p.parse_args()


def piece(args: argparse.Namespace, seed: int, arm: str, out: Path) -> dict[str, Any]:
    """One arm of one seed (or its warm-up, or the oracles), trained and evaluated."""
    task = build_task(recipe_of(args, seed, "grpo", 1, out, None).task, seed)
    SAMPLES[seed] = task.cache
    if arm == "oracle":
        return {a: oracle(loaded(args, seed, a, out), task) for a in ("supervised/mean", "grpo")}
    for index in task.pool:
        task.sample(index)
    if arm == "warm":
        policy, spent, steps = trained(args, seed, f"supervised/{args.warm_gates}", args.warm, out / "warm", None)
    else:
        start, seconds = out / "warm" / "network.pt", args.seconds
        if arm == "grpo" and args.share < 1:
            seconds = args.seconds * args.share
            trained(args, seed, "supervised/mean", args.seconds - seconds, out / "grpo-before", start)
            start = out / "grpo-before" / "network.pt"
        policy, spent, steps = trained(args, seed, arm, seconds, out / arm, start)
    return evaluated(policy, task, args.best_of) | {"seconds": spent, "steps": steps}


def loaded(args: argparse.Namespace, seed: int, arm: str, out: Path) -> Any:
    """The policy an arm ended with."""
    return build_policy(recipe_of(args, seed, arm, 1, out, out / arm / "network.pt").policy, seed)


def measured(args: argparse.Namespace) -> list[dict[str, Any]] | None:
    """Every piece, read from --out where it was measured before; None where --pieces ran out."""
    results, new = [], 0
    for seed in args.only or range(args.seeds):
        out = args.out / f"seed{seed}"
        arms: dict[str, Any] = {}
        for arm in ("warm", *(args.arms or ARMS[args.network]), *(["oracle"] if seed < args.oracles else [])):
            path = out / arm / "result.json"
            if not path.exists():
                if new == args.pieces:
                    return None
                result, new = piece(args, seed, arm, out), new + 1
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(json.dumps(result))
            arms[arm] = json.loads(path.read_text())
        for arm, best in arms.pop("oracle", {}).items():
            arms[arm]["oracle"] = best
        results.append({"seed": seed, "arms": arms})
    return results


def main() -> None:
    args = arguments()
    torch.set_num_threads(1 if args.device == "cpu" else torch.get_num_threads())
    results = measured(args)
    if results is None or args.only:
        return
    (args.out / "results.json").write_text(json.dumps({"args": vars(args), "results": results}, default=str))
    seed, out = args.seeds - 1, args.out / f"seed{args.seeds - 1}"
    task = build_task(recipe_of(args, seed, "grpo", 1, out, None).task, seed)
    held = task.held_out()
    names, pictures = [p["degradation"] for p in held], [p["picture"] for p in held]
    policies = (loaded(args, seed, arm, out) for arm in ("supervised/mean", "grpo"))
    task.pictures(held, *(p.decode(p.greedy(held).samples) for p in policies), args.out / "pictures")
    (args.out / "summary.json").write_text(json.dumps(tables(results, names, pictures)))


if __name__ == "__main__":
    main()

"""A choice of experts by GRPO against its rivals, on photographs that nobody tuned on: measuring what was trained.

    python bench/photographs_table.py --out OUT --seeds 3 --pictures data/photographs --device cuda     # validation
    python bench/photographs_table.py --out OUT ... --test-on test                                      # after `open`

--only S measures one start, --pieces 0 nothing. Every photograph, whole, in every degradation. Of each arm: "greedy",
its router's most probable expert; "oracle", the expert of the highest reward for each picture (reads the clean one);
"soft", the mixture, which runs all of them. Gains are paired over start, photograph and degradation; intervals are
Student's t over starts and photographs.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import torch
from photographs_arms import words
from restoration import loaded, recipe_of
from restoration_plans import plans_of
from restoration_table import scenes_of

from anygrpo.core.build import build_task
from anygrpo.core.intervals import arms as two_arms
from anygrpo.gates.restorer.heads import statistics

METRICS = ("psnr", "ssim")
AT_ONCE = 12


@torch.no_grad()
def qualities(args: argparse.Namespace, seed: int, arm: str, task: Any) -> dict[str, dict[str, list[float]]]:
    """PSNR, SSIM and reward of each held-out picture by greedy, oracle and soft choice. Each expert runs once."""
    policy = loaded(args, seed, arm, args.out / f"seed{seed}")
    network, held = policy.network, task.held_out()
    experts = len(network.router[-1].bias)
    rows: dict[str, dict[str, list[float]]] = {k: {} for k in ("greedy", "oracle", "soft")}
    for at in range(0, len(held), AT_ONCE):
        prompts = held[at : at + AT_ONCE]
        bad, clean = (torch.stack([p[k] for p in prompts]).to(args.device) for k in ("degraded", "clean"))
        logits = network.sharpness * network.router(statistics(bad)).float()
        made = torch.stack([network.expert(k, bad) for k in range(experts)])
        soft = (logits.softmax(1).T[:, :, None, None, None] * made).sum(0)
        each = [measured(task, x, clean) for x in made]
        by = {name: torch.stack([e[name] for e in each]) for name in each[0]}  # [K, n]
        n = torch.arange(len(prompts), device=bad.device)
        for kind, k in (("greedy", logits.argmax(1)), ("oracle", by["reward"].argmax(0))):
            add(rows[kind], {name: x[k, n] for name, x in by.items()})
        add(rows["soft"], measured(task, soft, clean))
    return rows


def measured(task: Any, restored: torch.Tensor, clean: torch.Tensor) -> dict[str, torch.Tensor]:
    values = task.quality.measures(restored, clean)
    return {"psnr": values["psnr"], "ssim": values["ssim"], "reward": task.quality.reward(values)}


def add(row: dict[str, list[float]], values: dict[str, torch.Tensor]) -> None:
    for name, x in values.items():
        row.setdefault(name, []).extend(x.tolist())


def everything(args: argparse.Namespace, task: Any) -> dict[int, dict[str, Any]]:
    """Of each start its arms' qualities, read where they were measured before."""
    found: dict[int, dict[str, Any]] = {}
    for seed in args.only or range(args.seeds):
        for arm in plans_of(args):
            folder = args.out / f"seed{seed}" / arm
            kept = folder / f"{args.test_on}.json"
            if not kept.exists() and not (args.pieces and (folder / "network.pt").exists()):
                continue
            if not kept.exists():
                kept.write_text(json.dumps(qualities(args, seed, arm, task)))
            found.setdefault(seed, {})[arm] = json.loads(kept.read_text())
    return found


def gain(found: dict[int, dict[str, Any]], a: str, b: str, places: list[int], pictures: list[str]) -> dict[str, Any]:
    """Of b ("ARM:KIND") over a in starts that have both: base, gain, interval; over `places` of the held-out list."""
    (arm_a, kind_a), (arm_b, kind_b) = a.split(":"), b.split(":")
    both = [r for r in found.values() if arm_a in r and arm_b in r]
    row: dict[str, Any] = {"starts": len(both)}
    for metric in METRICS:
        sides = [torch.tensor([r[arm][kind][metric] for r in both])[:, places] for arm, kind in
                 ((arm_a, kind_a), (arm_b, kind_b))]  # fmt: skip
        names = [pictures[i] for i in places]
        paired = scenes_of(list(sides[1] - sides[0]), names)
        told = two_arms(torch.zeros_like(paired), paired) if len(both) > 1 else None
        spread = [told.low, told.high] if told else [float("nan")] * 2
        row[metric] = [float(sides[0].mean()), float(paired.mean()), *spread, paired.mean(1).tolist()]
    return row


def printed(title: str, rows: list[tuple[str, dict[str, Any]]]) -> None:
    print(f"\n{title}\n| | PSNR dB | gain [95%] | SSIM | gain [95%] | gain of each start, dB |")
    print("|---|---|---|---|---|---|")
    for name, r in rows:
        p, s = r["psnr"], r["ssim"]
        each = " ".join(f"{x:+.2f}" for x in p[4])
        print(f"| {name} | {p[0]:.2f} | {p[1]:+.3f} [{p[2]:+.3f}, {p[3]:+.3f}] "
              f"| {s[0]:.4f} | {s[1]:+.4f} [{s[2]:+.4f}, {s[3]:+.4f}] | {each} |")  # fmt: skip


def main() -> None:
    args = words(sys.argv[1:])
    torch.backends.cudnn.allow_tf32 = False
    torch.set_num_threads(1)
    plans = plans_of(args)
    task: Any = build_task(recipe_of(args, 0, "grpo", 1, args.out, None).task, 0)
    found = everything(args, task)
    held = task.held_out()
    names, pictures = [p["degradation"] for p in held], [p["picture"] for p in held]
    everywhere = list(range(len(names)))
    for arm in plans:
        have = [r[arm] for r in found.values() if arm in r]
        for kind in ("greedy", "oracle", "soft") if have else ():
            p, s = (torch.tensor([x[kind][m] for x in have]).mean(1) for m in METRICS)
            each = " ".join(f"{x:.2f}/{y:.3f}" for x, y in zip(p.tolist(), s.tolist()))
            print(f"{arm}:{kind} {float(p.mean()):.3f} dB {float(s.mean()):.4f} ({each})")
    grpo = [a for a, plan in plans.items() if any(one.startswith("grpo") for one, _ in plan)]
    summary = {}
    for ours in grpo:
        for rival in [f"{a}:greedy" for a in plans if a != ours] + ["mean:soft", f"{ours}:oracle"]:
            one = f"{ours}:greedy"
            if not any({rival.split(":")[0], ours} <= r.keys() for r in found.values()):
                continue
            rows = [(kind, gain(found, rival, one, [i for i, n in enumerate(names) if n == kind], pictures))
                    for kind in dict.fromkeys(names)]  # fmt: skip
            rows.append(("all", gain(found, rival, one, everywhere, pictures)))
            printed(f"{rival} -> {one} ({rows[-1][1]['starts']} starts)", rows)
            summary[f"{rival} -> {one}"] = dict(rows)
    (Path(args.out) / f"summary_{args.test_on}.json").write_text(json.dumps(summary))


if __name__ == "__main__":
    main()

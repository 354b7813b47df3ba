"""Plans of a comparison's arms, and how weights pass from one part of a plan to the next."""

from __future__ import annotations

import argparse
from pathlib import Path

import torch

NOISE = 0.1


def plans_of(args: argparse.Namespace) -> dict[str, list[tuple[str, float]]]:
    """Arm -> its parts with their share of the time."""
    plans = {}
    for arm in args.arms:
        name, _, plan = arm.partition("=") if "=" in arm.partition("@")[0] else ("", "", arm)
        parts = [p.partition(":") for p in plan.split("+")]
        named = [(part, float(share or 1)) for part, _, share in parts]
        plans[name or plan] = [("supervised/mean", 1.0)] if plan == "scratch" else named
    return plans


def spread_out(args: argparse.Namespace, part: str, weights: Path | None, out: Path) -> Path | None:
    """Weights for a part with several experts: those of one expert, if the part before had one, become each one's, with
    noise of `NOISE` of each tensor's spread (a mixture of equal experts would keep them equal)."""
    if args.network != "experts" or weights is None:
        return weights
    experts = next((int(s.partition("=")[2]) for s in part.split("@") if s.startswith("experts=")), args.experts)
    state = torch.load(weights, weights_only=True)
    if len(state["router.2.bias"]) == experts:
        return weights
    own = {k: x.expand(experts, *x.shape[1:]).clone() for k, x in state.items() if k.startswith(("own.", "router.2."))}
    generator = torch.Generator().manual_seed(0)
    for name in [k for k in state if k.startswith("common.")]:
        x = own["own." + name.removeprefix("common.").replace(".", "_")]
        spread = NOISE * state[name].float().std(correction=0)
        x += (spread * torch.randn(x.shape, generator=generator)).to(x.dtype)
    out.mkdir(parents=True, exist_ok=True)
    torch.save(state | own, made := out / "spread.pt")
    return made

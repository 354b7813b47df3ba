"""Diffusion: a step of ours beside a DDPO step, each in its own process."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from peers.diffusion.cases import Case

from anygrpo.bench.rounds import Measured, Worker, alternate, record
from anygrpo.errors import ConfigError

HOME = str(Path(__file__).parents[2])
INSTALL = "pip install 'trl==0.23.1' pandas in an environment of its own, and name its python with --peer-python"


def compare(
    case: Case,
    peer: str | None = "ddpo",
    rounds: int = 2,
    steps: int = 2,
    threads: int = 1,
    gradient: bool = True,
    python: str = sys.executable,
    here: bool = False,
) -> dict[str, Any]:
    """One record of a case.

    Args:
        peer: "ddpo", the plain loop of `ddpo_peer`; "flow_grpo", the same with Flow-GRPO's step (flow cases only);
            "trl", TRL's DDPOTrainer (a U-Net only); "bare", the denoiser's own passes; None measures ours alone.
        rounds: alternations; the spread of the ratio is over them.
        steps: optimizer steps in a process; the first is warm-up where there are more.
        gradient: compare the gradients of one step.
        python: interpreter of the peer's environment.
        here: both sides in this process, in alternation (no start of Python each time); memory and gradients are not
            compared then.

    Raises:
        ConfigError: a peer that has no such denoiser. DataError: the peer is not installed.
        TrainingError: a process failed, or the two did not do the same work.
    """
    if peer == "trl" and case.denoiser != "unet":
        raise ConfigError(f"TRL trains U-Nets, and case {case.name!r} has a {case.denoiser} denoiser", "--vs ddpo")
    if (peer == "flow_grpo") != (case.denoiser == "flow") and peer in ("flow_grpo", "ddpo"):
        fitting = "flow_grpo" if case.denoiser == "flow" else "ddpo"
        raise ConfigError(f"case {case.name!r} has a {case.denoiser} denoiser", f"--vs {fitting}")
    workers = {"anygrpo": Worker("anygrpo", "peers.diffusion.ours", home=HOME)}
    if peer:
        workers[peer] = Worker(peer, f"peers.diffusion.{peer}_peer", python, HOME)
        if peer == "trl":
            workers[peer].need(("trl.trainer.ddpo_trainer",), INSTALL)
    if here:
        sides, agreement = in_turn(case, list(workers), rounds, steps), {}
    else:
        gradient = gradient and peer != "bare"
        sides, agreement = alternate(case.name, case.as_dict(), workers, rounds, steps, threads, gradient)
    found = record(case.name, sides, threads) | {"denoising_steps": case.steps}
    if here:  # one process: its peak is of all sides together, and no side's
        return {key: value for key, value in found.items() if not key.endswith("_peak_gb")}
    grown = {"ours_grown_gb": max(run["peak_gb"] - run["base_gb"] for run in sides["anygrpo"])}
    if peer:
        grown["peer_grown_gb"] = max(run["peak_gb"] - run["base_gb"] for run in sides[peer])
    return found | grown | agreement


def in_turn(case: Case, sides: list[str], rounds: int, steps: int) -> dict[str, list[Measured]]:
    """What each side's worker would print, measured in this process. Peak memory is of all sides together."""
    from peers.diffusion import bare_peer, ddpo_peer, flow_grpo_peer, ours

    measure: dict[str, Callable[[], Measured]] = {
        "anygrpo": lambda: ours.measure(case, steps),
        "bare": lambda: bare_peer.measure(case, steps),
        "ddpo": lambda: ddpo_peer.Loop(case, ddpo_peer.ddim).measure(steps),
        "flow_grpo": lambda: ddpo_peer.Loop(case, flow_grpo_peer.transition).measure(steps),
    }
    out: dict[str, list[Measured]] = {side: [] for side in sides}
    for _ in range(rounds):
        for side in sides:
            out[side].append(measure[side]())
            gc.collect()
            torch.cuda.empty_cache()
    return out

"""Diffusion: a step of ours beside a DDPO step, each in its own process."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from peers.diffusion.cases import Case

from anygrpo.bench.rounds import Worker, alternate, record
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
) -> dict[str, Any]:
    """One record of a case.

    Args:
        peer: "ddpo", the plain loop of `ddpo_peer`; "flow_grpo", the same with Flow-GRPO's step (flow cases only);
            "trl", TRL's DDPOTrainer (a U-Net only); "bare", the denoiser's own passes; None measures ours alone.
        rounds: alternations; the spread of the ratio is over them.
        steps: optimizer steps in a process; the first is warm-up where there are more.
        gradient: compare the gradients of one step.
        python: interpreter of the peer's environment.

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
    gradient = gradient and peer != "bare"
    sides, agreement = alternate(case.name, case.as_dict(), workers, rounds, steps, threads, gradient)
    grown = {"ours_grown_gb": max(run["peak_gb"] - run["base_gb"] for run in sides["anygrpo"])}
    if peer:
        grown["peer_grown_gb"] = max(run["peak_gb"] - run["base_gb"] for run in sides[peer])
    return record(case.name, sides, threads) | {"denoising_steps": case.steps} | grown | agreement

"""Selection: a step of ours beside RL4CO's REINFORCE step, each in its own process."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from peers.selector.cases import Case

from anygrpo.bench.rounds import Worker, alternate, record

HOME = str(Path(__file__).parents[2])
INSTALL = "pip install rl4co, here or in an environment that --peer-python names"


def compare(
    case: Case,
    peer: str | None = "rl4co",
    rounds: int = 2,
    steps: int = 2,
    threads: int = 1,
    gradient: bool = True,
    python: str = sys.executable,
) -> dict[str, Any]:
    """One record of a case.

    Args:
        peer: "rl4co", or None to measure this project alone.
        rounds: alternations; the spread of the ratio is over them.
        steps: optimizer steps in a process; the first is warm-up where there are more.
        gradient: compare the gradients of one step, where both train the same network.
        python: interpreter of the peer's environment.

    Raises:
        DataError: the peer is not installed. TrainingError: a process failed, or the two did not do the same work.
    """
    workers = {"anygrpo": Worker("anygrpo", "peers.selector.ours", home=HOME)}
    if peer:
        workers[peer] = Worker(peer, "peers.selector.rl4co_peer", python, HOME)
        workers[peer].need(("rl4co",), INSTALL)
    same = gradient and case.network == "same"
    sides, agreement = alternate(case.name, case.as_dict(), workers, rounds, steps, threads, same)
    return record(case.name, sides, threads) | {"network": case.network} | agreement

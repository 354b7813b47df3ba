"""anygrpo and TRL on the same work, in alternation, each in its own process."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from anygrpo.bench.cases import Case, model_folder
from anygrpo.errors import DataError, TrainingError

MODULES = {"anygrpo": "anygrpo.bench.ours", "trl": "anygrpo.bench.trl_peer"}


def compare(
    case: Case,
    peer: str | None = "trl",
    rounds: int = 2,
    steps: int = 2,
    threads: int = 1,
    precision: str = "",
    gradient: bool = True,
) -> dict[str, Any]:
    """One record of a case.

    Args:
        peer: "trl", or None to measure this project alone.
        rounds: alternations; the spread of the ratio is over them.
        steps: optimizer steps in a process; the first is warm-up where there are more.
        threads: CPU threads of both sides.
        precision: oneDNN's fp32_precision for the peer ("" leaves the peer as it comes).
        gradient: also let the peer compute the gradient of our first step's rows, and compare.

    Raises:
        DataError: the peer is not installed. TrainingError: a process failed, or the two did not do the same work.
    """
    if peer:
        _need(peer)
    with tempfile.TemporaryDirectory() as scratch:
        model = model_folder(case.model, Path(scratch))
        saved, check = Path(scratch) / "rows.pt", gradient and peer == "trl"
        sides: dict[str, list[dict[str, Any]]] = {"anygrpo": []} | ({peer: []} if peer else {})
        for index in range(rounds):
            for side, runs in sides.items():
                extra = ["--save", str(saved)] if side == "anygrpo" and index == 0 and check else []
                extra += ["--precision", precision] if side == "trl" and precision else []
                runs.append(_run(side, case, model, steps, threads, extra))
        agreement = _run("trl", case, model, 1, threads, ["--check", str(saved)]) if check else {}
    return record(case, sides, peer, threads) | agreement


def record(case: Case, sides: dict[str, list[dict[str, Any]]], peer: str | None, threads: int) -> dict[str, Any]:
    """The record of measured runs: medians over all counted steps, ratios round by round."""
    ours = sides["anygrpo"]
    row: dict[str, Any] = {
        "case": case.name,
        "dtype": case.dtype,
        "threads": threads,
        "tokens": _tokens(ours),
        "prompt_tokens": ours[0]["prompt_tokens"],
        "ours_s": _median(ours, 0),
        "ours_cpu_s": _median(ours, 1),
        "ours_peak_gb": max(run["peak_gb"] for run in ours),
        "phases": {"ours": _phases(ours)},
        "tokens_per_s": _tokens(ours) / _median(ours, 0),
        "load": os.getloadavg()[0],
    }
    if peer is None:
        return row
    theirs = sides[peer]
    if _tokens(theirs) != row["tokens"] or theirs[0]["prompt_tokens"] != row["prompt_tokens"]:
        raise TrainingError(
            f"not the same work: anygrpo trained on {row['tokens']} tokens of prompts {row['prompt_tokens']}, "
            f"{peer} on {_tokens(theirs)} of {theirs[0]['prompt_tokens']}"
        )
    ratios = [_median([b], 0) / _median([a], 0) for a, b in zip(ours, theirs)]
    cpu = [_median([b], 1) / _median([a], 1) for a, b in zip(ours, theirs)]
    return row | {
        "peer": peer,
        "peer_s": _median(theirs, 0),
        "peer_cpu_s": _median(theirs, 1),
        "peer_peak_gb": max(run["peak_gb"] for run in theirs),
        "ratio": statistics.median(ratios),
        "ratio_min": min(ratios),
        "ratio_max": max(ratios),
        "cpu_ratio": statistics.median(cpu),
        "cpu_ratio_min": min(cpu),
        "cpu_ratio_max": max(cpu),
        "phases": row["phases"] | {"peer": _phases(theirs)},
    }


def _counted(run: dict[str, Any]) -> list[dict[str, Any]]:
    """The steps that count: all but the first, where there are several."""
    return run["steps"][1:] or run["steps"]


def _median(runs: list[dict[str, Any]], clock: int) -> float:
    return statistics.median(step["phases"]["step"][clock] for run in runs for step in _counted(run))


def _tokens(runs: list[dict[str, Any]]) -> int:
    return runs[0]["steps"][0]["tokens"]


def _phases(runs: list[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """Median wall and CPU seconds of each phase."""
    names = [name for name in _counted(runs[0])[0]["phases"] if name != "step"]
    steps = [step for run in runs for step in _counted(run)]
    return {
        name: {
            "s": statistics.median(s["phases"][name][0] for s in steps),
            "cpu_s": statistics.median(s["phases"][name][1] for s in steps),
        }
        for name in names
    }


def _need(peer: str) -> None:
    import importlib.util

    missing = [name for name in (peer, "datasets") if importlib.util.find_spec(name) is None]
    if missing:
        raise DataError(f"the peer needs {' and '.join(missing)}, not installed here", "pip install trl datasets")


def _run(side: str, case: Case, model: str, steps: int, threads: int, extra: list[str]) -> dict[str, Any]:
    # -P: a folder of the working directory must not pass for a package that a side looks for.
    command = [sys.executable, "-P", "-m", MODULES[side], "--case", json.dumps(case.as_dict()), "--model", model]
    command += ["--steps", str(steps), "--threads", str(threads), *extra]
    environment = os.environ | {
        "OMP_NUM_THREADS": str(threads),
        "TOKENIZERS_PARALLELISM": "false",
        "HF_HUB_OFFLINE": "1",
    }
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode or not lines:
        raise TrainingError(f"the {side} process of case {case.name} failed:\n{done.stderr[-2000:]}")
    return json.loads(lines[-1])

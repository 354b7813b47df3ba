"""Two sides on the same work, in alternation, each in a process of its own, and one record of what they took."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from anygrpo.errors import DataError, TrainingError
from anygrpo.scratch import Scratch
from anygrpo.spoken import Text

Measured = dict[str, Any]
"""What a worker process prints: "steps" (each with "phases": name -> [wall, CPU seconds], "step" among them, and counts
of what was trained on), "peak_gb", and what the comparison wants to know of the work."""


@dataclass(frozen=True)
class Worker:
    """How one side is started.

    Attributes:
        name: of the side, for messages.
        module: run as `python -m module`; prints a `Measured` as its last line.
        python: interpreter of the side's environment.
        home: folder that the module is found in, where it is not of this package.
    """

    name: str
    module: str
    python: str = sys.executable
    home: str = ""

    def need(self, packages: tuple[str, ...], install: str) -> None:
        """Raises DataError where the side's environment lacks a package."""
        if self.python != sys.executable and not Path(self.python).is_file():
            raise DataError(
                Text(
                    f"no interpreter {self.python!r} for the peer {self.name}",
                    f"没有对照方 {self.name} 所用的解释器 {self.python!r}",
                ),
                install,
            )
        missing = [p for p in packages if not self._finds(p)]
        if missing:
            where = (
                Text("here", "本环境")
                if self.python == sys.executable
                else Text(f"in {self.python}'s environment", f"{self.python} 的环境")
            )
            raise DataError(
                Text(
                    f"the peer {self.name} needs {' and '.join(missing)}, not installed {where.en}",
                    f"对照方 {self.name} 需要 {'、'.join(missing)}，但没有安装（{where.zh}）",
                ),
                install,
            )

    def _finds(self, package: str) -> bool:
        if self.python == sys.executable:
            import importlib.util

            try:
                return importlib.util.find_spec(package) is not None
            except ImportError:  # of the package that it is part of
                return False
        look = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({package!r}) is None)"
        return subprocess.run([self.python, "-P", "-c", look], check=False, env=self._environment(1)).returncode == 0

    def run(self, arguments: list[str], threads: int, case: str) -> Measured:
        """One process to its end.

        Raises:
            TrainingError: it failed or printed no record.
        """
        # -P: a folder of the working directory must not pass for a package that a side looks for.
        command = [self.python, "-P", "-m", self.module, *arguments, "--threads", str(threads)]
        done = subprocess.run(command, capture_output=True, text=True, env=self._environment(threads), check=False)
        lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
        if done.returncode or not lines:
            raise TrainingError(
                Text(
                    f"the {self.name} process of case {case} failed:\n{done.stderr[-2000:]}",
                    f"用例 {case} 的 {self.name} 进程失败：\n{done.stderr[-2000:]}",
                )
            )
        return json.loads(lines[-1])

    def _environment(self, threads: int) -> dict[str, str]:
        package = [] if self.python == sys.executable else [str(Path(__file__).parents[2])]
        places = [place for place in (*package, self.home, os.environ.get("PYTHONPATH")) if place]
        own = {"PYTHONPATH": os.pathsep.join(places)}
        fixed = {"OMP_NUM_THREADS": str(threads), "TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1"}
        return os.environ | own | fixed


def measured(case: str, ours: list[Measured], peer: str | None, theirs: list[Measured]) -> dict[str, Any]:
    """The part of a record that all comparisons share: medians over all counted steps, ratios round by round."""
    row: dict[str, Any] = {
        "case": case,
        "ours_s": median(ours, 0),
        "ours_cpu_s": median(ours, 1),
        "ours_peak_gb": max(run["peak_gb"] for run in ours),
        "phases": {"ours": phases(ours)},
        "load": os.getloadavg()[0],
    }
    if peer is None:
        return row
    ratios = [median([b], 0) / median([a], 0) for a, b in zip(ours, theirs)]
    cpu = [median([b], 1) / median([a], 1) for a, b in zip(ours, theirs)]
    return row | {
        "peer": peer,
        "peer_s": median(theirs, 0),
        "peer_cpu_s": median(theirs, 1),
        "peer_peak_gb": max(run["peak_gb"] for run in theirs),
        "ratio": statistics.median(ratios),
        "ratio_min": min(ratios),
        "ratio_max": max(ratios),
        "cpu_ratio": statistics.median(cpu),
        "cpu_ratio_min": min(cpu),
        "cpu_ratio_max": max(cpu),
        "phases": row["phases"] | {"peer": phases(theirs)},
    }


def counted(run: Measured) -> list[dict[str, Any]]:
    """The steps that count: all but the first, where there are several."""
    return run["steps"][1:] or run["steps"]


def median(runs: list[Measured], clock: int) -> float:
    """Median seconds of a step: wall (clock 0) or CPU (1)."""
    return statistics.median(step["phases"]["step"][clock] for run in runs for step in counted(run))


def phases(runs: list[Measured]) -> dict[str, dict[str, float]]:
    """Median wall and CPU seconds of each phase."""
    names = [name for name in counted(runs[0])[0]["phases"] if name != "step"]
    steps = [step for run in runs for step in counted(run)]
    return {
        name: {
            "s": statistics.median(s["phases"][name][0] for s in steps),
            "cpu_s": statistics.median(s["phases"][name][1] for s in steps),
        }
        for name in names
    }


def relative_distance(ours: dict[str, Any], theirs: dict[str, Any]) -> dict[str, float]:
    """How far our gradient is from the peer's, by parameter name, relative to the norm of the peer's.

    Raises:
        TrainingError: the peer has a gradient of a parameter that we have none of, or the other way round.
    """
    if set(ours) != set(theirs):
        raise TrainingError(
            Text(
                f"gradients of different parameters: {sorted(set(ours) ^ set(theirs))[:4]}",
                f"梯度所属的参数不同：{sorted(set(ours) ^ set(theirs))[:4]}",
            )
        )
    distance = sum(float((theirs[n] - ours[n].to(theirs[n])).double().square().sum()) for n in theirs)
    total = sum(float(g.double().square().sum()) for g in theirs.values())
    return {"gradient_relative_difference": (distance / total) ** 0.5, "gradient_norm": total**0.5}


def alternate(
    name: str, case: dict[str, Any], workers: dict[str, Worker], rounds: int, steps: int, threads: int, gradient: bool
) -> tuple[dict[str, list[Measured]], dict[str, Any]]:
    """Runs of each side in turn, and how far the gradients of one step differ.

    Args:
        case: given to every worker as `--case`.
        workers: the first one is ours; it saves the actions and the gradient of its first step.
        gradient: let the other one compute the gradient of the same actions (`--check`), and compare.
    """
    sides: dict[str, list[Measured]] = {side: [] for side in workers}
    (ours, *others), agreement = workers, {}
    with Scratch("bench") as scratch:
        saved = str(scratch / "first_step.pt")
        work = ["--case", json.dumps(case), "--steps"]
        for index in range(rounds):
            for side, worker in workers.items():
                extra = ["--save", saved] if side == ours and index == 0 and gradient and others else []
                sides[side].append(worker.run([*work, str(steps), *extra], threads, name))
        if gradient and others:
            agreement = workers[others[0]].run([*work, "1", "--check", saved], threads, name)
    return sides, agreement


def record(name: str, sides: dict[str, list[Measured]], threads: int) -> dict[str, Any]:
    """The record of a comparison counted in decisions.

    Raises:
        TrainingError: the two sides did not train on the same number of decisions.
    """
    (ours, mine), *others = sides.items()
    peer, theirs = others[0] if others else (None, [])
    counts = {side: runs[0]["steps"][0]["decisions"] for side, runs in sides.items()}
    if len(set(counts.values())) > 1:
        raise TrainingError(
            Text(f"not the same work: decisions of a step {counts}", f"工作量不同：每步的决策数 {counts}")
        )
    row = measured(name, mine, peer, theirs)
    parameters = {"ours" if side == ours else "peer": runs[0]["parameters"] for side, runs in sides.items()}
    work = {"threads": threads, "decisions": counts[ours], "parameters": parameters}
    return row | work | {"decisions_per_s": counts[ours] / row["ours_s"]}

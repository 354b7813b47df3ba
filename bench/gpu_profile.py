"""Where a step's time goes: kernels of the update and of decoding by torch's profiler, and what a step spends on
metrics, doctor and records. On a GPU, or (tiny) on a CPU.

    PYTHONPATH=src python3 bench/gpu_profile.py --case gpu-short [--top 30]
"""

from __future__ import annotations

import argparse
import contextlib
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from anygrpo.bench import ours
from anygrpo.bench.cases import Case, case_named, model_folder
from anygrpo.train.collect import begin
from anygrpo.train.loop import train
from anygrpo.train.run import Run
from anygrpo.train.update import Updater
from anygrpo.watch.live import attach_doctor


def kernels(made: Any, top: int, steps: int) -> dict[str, Any]:
    """The device's (on a CPU: all) operations of a profile: milliseconds and launches a step."""
    gpu = torch.cuda.is_available()
    rows = []
    for event in made.key_averages():
        spent = event.self_device_time_total if gpu else event.self_cpu_time_total
        if spent and (not gpu or str(event.device_type).endswith("CUDA")):
            rows.append((spent / 1e3 / steps, event.count / steps, event.key[:90]))
    rows.sort(reverse=True)
    return {
        "ms": round(sum(r[0] for r in rows), 3),
        "launches": round(sum(r[1] for r in rows)),
        "top": [[round(ms, 3), round(n, 1), name] for ms, n, name in rows[:top]],
    }


def profiled(work: Any, top: int, steps: int = 1) -> dict[str, Any]:
    gpu = torch.cuda.is_available()
    start = time.perf_counter()
    with profile(activities=[ProfilerActivity.CUDA if gpu else ProfilerActivity.CPU]) as made:
        work()
        if gpu:
            torch.cuda.synchronize()
    return {"wall_ms": round(1e3 * (time.perf_counter() - start) / steps, 1)} | kernels(made, top, steps)


def own_share(case: Case, model: str, steps: int) -> dict[str, float]:
    """Seconds of a step, and of it in `Run.record` (metrics, files, doctor), median of the last steps."""
    spent: list[float] = []
    record = Run.record

    def timed(self: Run, *given: Any, **named: Any) -> None:
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        start = time.perf_counter()
        try:
            record(self, *given, **named)
        finally:
            spent.append(time.perf_counter() - start)

    Run.record = timed  # type: ignore[method-assign]
    try:
        made = ours.measure(case, model, steps, 1)
    finally:
        Run.record = record  # type: ignore[method-assign]
    whole = sorted(s["phases"]["step"][0] for s in made["steps"][1:])[(steps - 1) // 2]
    own = sorted(spent[1:])[(steps - 1) // 2]
    return {"step_s": whole, "record_s": own, "share": own / whole}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--case", default="gpu-short")
    parser.add_argument("--top", type=int, default=30)
    parser.add_argument("--steps", type=int, default=4)
    args = parser.parse_args()
    case = case_named(args.case)
    with tempfile.TemporaryDirectory() as scratch:
        model = model_folder(case.model, Path(scratch), saved=False)
        print(json.dumps({"own": own_share(case, model, args.steps)}), flush=True)
        run, policy = ours._run(case, model, 2, 1, Path(scratch) / "run", {})
        attach_doctor(run)
        run.observers.append(ours.Steps(case, 2, policy.scorer.device.type))
        with contextlib.suppress(ours._Enough):
            train(run)
        print(json.dumps({"speed": dict(policy.speed)}), flush=True)
        planned, _ = run.enter(1)
        accumulate, found = Updater.accumulate, {}

        def watched(self: Updater, *given: Any, **named: Any) -> Any:
            found["update"] = profiled(lambda: found.setdefault("made", accumulate(self, *given, **named)), args.top)
            return found["made"]

        found["sample"] = profiled(lambda: begin(run, planned, 1, run.clock)(), args.top)
        Updater.accumulate = watched  # type: ignore[method-assign]
        run.observers[:] = [ours.Steps(case, 1, policy.scorer.device.type)]
        with contextlib.suppress(ours._Enough):
            train(run)
        for name in ("sample", "update"):
            top = found[name].pop("top")
            print(json.dumps({name: found[name]}))
            for row in top:
                print("   ", *row)
        run.close()


if __name__ == "__main__":
    main()

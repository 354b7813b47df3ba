"""How a step's cost grows with group size, prompt length, completion length and model size: numbers and a picture.

PYTHONPATH=src python3 bench/curves.py --out runs/curves [--base gpu-short] [--points 4]
"""

from __future__ import annotations

import argparse
import json
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from anygrpo.bench.cases import Case, case_named, model_folder
from anygrpo.bench.ours import measure

MODELS = {"shape:smollm2-135m": 0.135, "shape:qwen2.5-0.5b": 0.49}
"""Model shapes by billions of weights."""


def axes(base: Case, points: int) -> dict[str, list[tuple[float, Case]]]:
    """For each axis, (value, case) with everything else as in `base`."""
    scales = [2.0 ** (i - 1) for i in range(points)]
    whole = lambda x, s: max(1, round(x * s))  # noqa: E731
    return {
        "group size": [(whole(base.group, s), replace(base, group=whole(base.group, s))) for s in scales],
        "prompt tokens": [
            (whole(base.prompt_tokens, s), replace(base, prompt_tokens=whole(base.prompt_tokens, s))) for s in scales
        ],
        "new tokens": [
            (whole(base.new_tokens, s), replace(base, new_tokens=whole(base.new_tokens, s))) for s in scales
        ],
        "weights, 1e9": [(size, replace(base, model=name)) for name, size in MODELS.items()],
    }


def run(base: Case, points: int, threads: int) -> dict[str, list[dict[str, float]]]:
    """Seconds of the second of two steps at each point."""
    rows: dict[str, list[dict[str, float]]] = {}
    with tempfile.TemporaryDirectory() as scratch:
        for axis, cases in axes(base, points).items():
            for value, case in cases:
                made = measure(case, model_folder(case.model, Path(scratch)), 2, threads, None)
                phases = {name: wall for name, (wall, _) in made["steps"][-1]["phases"].items()}
                row = {"value": value, "peak_gb": made["peak_gb"], "tokens": made["steps"][-1]["tokens"], **phases}
                rows.setdefault(axis, []).append(row)
                print(axis, json.dumps(row), flush=True)
                if torch.cuda.is_available():
                    torch.cuda.empty_cache()
                    torch.cuda.reset_peak_memory_stats()
    return rows


def picture(rows: dict[str, list[dict[str, float]]], path: Path) -> None:
    """One panel an axis: seconds of generation and training."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(1, len(rows), figsize=(4 * len(rows), 3.2), constrained_layout=True)
    for panel, (axis, points) in zip(panels, rows.items()):
        for phase in ("generate", "train"):
            panel.plot([p["value"] for p in points], [p[phase] for p in points], marker="o", label=phase)
        panel.set_xlabel(axis)
        panel.set_ylim(bottom=0)
    panels[0].set_ylabel("seconds a step")
    panels[0].legend(frameon=False)
    figure.savefig(path, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--base", default="gpu-short")
    parser.add_argument("--model", help="in place of the base case's")
    parser.add_argument("--points", type=int, default=4)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", default="runs/curves")
    args = parser.parse_args()
    out = Path(args.out)
    out.mkdir(parents=True, exist_ok=True)
    base = case_named(args.base, model=args.model)
    rows: dict[str, Any] = run(base, args.points, args.threads)
    (out / "curves.json").write_text(json.dumps({"base": base.as_dict(), "axes": rows}, indent=1))
    picture(rows, out / "curves.png")


if __name__ == "__main__":
    main()

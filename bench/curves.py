"""How a step's cost grows with group size, prompt length, completion length and model size: numbers, table, picture.

    PYTHONPATH=src python3 bench/curves.py --out runs/curves [--base gpu-short] [--points 4] [--seconds 150]
    PYTHONPATH=src python3 bench/curves.py --draw runs/curves/curves.json --out docs/pictures

The second form makes the picture and prints the table of numbers measured elsewhere. Numbers are written after each
point, so that a run which is cut off leaves what it has.
"""

from __future__ import annotations

import argparse
import gc
import json
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

from anygrpo.bench.cases import Case, case_named, model_folder
from anygrpo.bench.ours import measure

MODELS = {"shape:smollm2-135m": 0.135, "shape:qwen2.5-0.5b": 0.49}
"""Model shapes by billions of weights."""

Point = dict[str, Any]


def axes(base: Case, points: int) -> dict[str, list[tuple[float, Case]]]:
    """For each axis, (value, case) with everything else as in `base`, from half of its value on in powers of two."""
    scales = [2.0 ** (i - 1) for i in range(points)]
    whole = lambda x, s: max(1, round(x * s))  # noqa: E731
    cases: dict[str, list[tuple[float, Case]]] = {
        axis: [(whole(getattr(base, name), s), replace(base, **{name: whole(getattr(base, name), s)})) for s in scales]
        for axis, name in (("group size", "group"), ("prompt tokens", "prompt_tokens"), ("new tokens", "new_tokens"))
    }
    return cases | {"weights, 1e9": [(size, replace(base, model=name)) for name, size in MODELS.items()]}


def order(base: Case, points: int) -> Iterator[tuple[Case, list[tuple[str, float]]]]:
    """Each case once, with the axes it lies on: the base first, then one more point of every axis in turn, so that a
    run which ends early has some of all of them."""
    where: dict[Case, list[tuple[str, float]]] = {base: []}
    lists = axes(base, points)
    for turn in range(max(map(len, lists.values()))):
        for axis, cases in lists.items():
            if turn < len(cases):
                value, case = cases[turn]
                where.setdefault(case, []).append((axis, value))
    yield from where.items()


def run(
    base: Case, points: int, threads: int, seconds: float, keep: Callable[[dict[str, list[Point]]], None]
) -> dict[str, list[Point]]:
    """Seconds of the second of two steps at each point; no point is begun that the last one's duration would not leave
    time for. `keep` gets what there is after each point."""
    rows: dict[str, list[Point]] = {axis: [] for axis in axes(base, points)}
    start, longest = time.monotonic(), 0.0
    with tempfile.TemporaryDirectory() as scratch:
        for case, places in order(base, points):
            begun = time.monotonic()
            if begun - start + longest > seconds:
                print(f"no time left for {case.name} {places}", flush=True)
                break
            row = _point(case, scratch, threads)
            longest = max(longest, time.monotonic() - begun)
            for axis, value in places:
                rows[axis] = sorted([*rows[axis], {"value": value, **row}], key=lambda p: p["value"])
            print(json.dumps({"places": places, **row}), flush=True)
            keep(rows)
    return rows


def _point(case: Case, scratch: str, threads: int) -> Point:
    gc.collect()  # of the last point's policy, whose parts point at each other
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    made = measure(case, model_folder(case.model, Path(scratch)), 2, threads, None)
    last = made["steps"][-1]
    phases = {name: wall for name, (wall, _) in last["phases"].items()}
    # A process on a CPU has one peak, that of its largest point.
    peak = made["peak_gb"] if torch.cuda.is_available() else None
    return {"peak_gb": peak, "tokens": last["tokens"], **phases}


def table(rows: dict[str, list[Point]]) -> str:
    """The numbers as a Markdown table."""
    lines = ["| | value | step, s | generation, s | training, s | trained tokens/s | peak GB |", "|" + " --- |" * 7]
    for axis, points in rows.items():
        for p in points:
            numbers = [f"{p['step']:.2f}", f"{p['generate']:.2f}", f"{p['train']:.2f}"]
            lines.append(
                f"| {axis} | {p['value']:g} | {' | '.join(numbers)} | {p['tokens'] / p['step']:,.0f} | "
                f"{'' if p['peak_gb'] is None else format(p['peak_gb'], '.1f')} |"
            )
    return "\n".join(lines)


def picture(rows: dict[str, list[Point]], path: Path, title: str) -> None:
    """One panel an axis: seconds of generation and of training."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    filled = {axis: points for axis, points in rows.items() if points}
    figure, panels = plt.subplots(
        1, len(filled), figsize=(3.2 * len(filled), 3.0), constrained_layout=True, sharey=True, squeeze=False
    )
    for panel, (axis, points) in zip(panels[0], filled.items()):
        for phase, label in (("generate", "generation"), ("train", "training"), ("step", "step")):
            panel.plot([p["value"] for p in points], [p[phase] for p in points], marker="o", label=label)
        panel.set_xlabel(axis)
        panel.grid(alpha=0.3)
    panels[0][0].set_ylim(bottom=0)  # shared; set once all is drawn, since it stops the scaling
    panels[0][0].set_ylabel("seconds")
    panels[0][0].legend(frameon=False)
    figure.suptitle(title, fontsize=10)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _title(made: dict[str, Any]) -> str:
    base = made["base"]
    return (
        f"{base['model'].removeprefix('shape:')}, {base['prompts']} prompts of {base['prompt_tokens']} tokens x "
        f"{base['group']}, {base['new_tokens']} new, {base['dtype']}; {made['device']}"
    )


def _draw(made: dict[str, Any], out: Path) -> None:
    print(table(made["axes"]))
    try:
        picture(made["axes"], out / "curves.png", _title(made))
    except ModuleNotFoundError as e:
        print(f"{e}: draw it elsewhere from {out / 'curves.json'} with --draw")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--base", default="gpu-short")
    parser.add_argument("--model", help="in place of the base case's")
    parser.add_argument("--points", type=int, default=4)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin nothing that would end after this")
    parser.add_argument("--draw", help="a curves.json to draw, in place of measuring")
    parser.add_argument("--out", default="runs/curves")
    args = parser.parse_args()
    out = Path(args.out)
    out.mkdir(parents=True, exist_ok=True)
    if args.draw:
        _draw(json.loads(Path(args.draw).read_text()), out)
        return
    base = case_named(args.base, model=args.model)
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else f"{args.threads} CPU threads"
    made: dict[str, Any] = {"base": asdict(base), "device": device}

    def keep(rows: dict[str, list[Point]]) -> None:
        (out / "curves.json").write_text(json.dumps(made | {"axes": rows}, indent=1))

    made["axes"] = run(base, args.points, args.threads, args.seconds, keep)
    _draw(made, out)


if __name__ == "__main__":
    main()

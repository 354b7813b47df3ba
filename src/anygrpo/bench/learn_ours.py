"""Worker process: a recipe trained as it is, its held-out accuracy by seconds of training. Prints one JSON object."""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

from anygrpo.recipe.load import load_recipe
from anygrpo.scratch import Scratch
from anygrpo.train.build import new_run
from anygrpo.train.loop import train
from anygrpo.train.run import Run
from anygrpo.watch.live import attach_doctor


def arguments() -> argparse.Namespace:
    """What every side of the comparison is given."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--recipe", required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--every", type=int, required=True)
    parser.add_argument("--threads", type=int, required=True)
    return parser.parse_args()


def flags(args: argparse.Namespace, folder: Path) -> list[str]:
    """The recipe's keys that the comparison sets."""
    given = {"--seed": args.seed, "--folder": folder, "--training.steps": args.steps, "--policy.threads": args.threads}
    looks = {"--evaluation.every": args.every, "--evaluation.at-start": "true"}
    return [str(x) for pair in (given | looks).items() for x in pair]


class Curve:
    """Held-out accuracy by seconds of training: wall time without that of the looks."""

    def __init__(self, metric: str) -> None:
        self.metric, self.points, self.spent, self._since = metric, [], 0.0, time.perf_counter()

    def __call__(self, row: dict[str, Any], run: Run) -> None:
        now = time.perf_counter()
        if row["step"] >= 0:
            self.spent += now - self._since - row.get("time/evaluate", 0.0)
        if self.metric in row:
            self.points.append([round(self.spent, 3), row["step"] + 1, row[self.metric]])
        self._since = time.perf_counter()


def main() -> None:
    args = arguments()
    with Scratch("bench") as scratch:
        recipe = load_recipe(Path(args.recipe), flags(args, scratch / "run"))
        run = new_run(recipe)
        attach_doctor(run)
        curve = Curve(recipe.evaluation.metric)
        run.observers.append(curve)
        run.evaluate_start()
        train(run)
        run.close()
    print(json.dumps({"curve": curve.points}))


if __name__ == "__main__":
    main()

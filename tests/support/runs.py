"""Recipes and runs of the toy policy, for tests of the loop and the command line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from anygrpo.cli.main import main
from anygrpo.recipe.load import apply_flags, parse_recipe
from anygrpo.train.build import new_run
from anygrpo.train.loop import train
from anygrpo.train.run import Run

TOYS = Path(__file__).with_name("toys.py")


def table(folder: Path | None = None, **extra: Any) -> dict[str, Any]:
    """A toy recipe as a table; keyword arguments replace whole tables."""
    base: dict[str, Any] = {
        "name": "toy",
        "policy": {"kind": "python", "function": f"{TOYS}:policy"},
        "task": {"kind": "python", "function": f"{TOYS}:BestArm"},
        "algorithm": {"prompts_per_step": 8, "group_size": 8},
        "optimizer": {"learning_rate": 0.02},
        "training": {"steps": 10, "checkpoint_every": 4},
        "evaluation": {},
        "doctor": {"mode": "off"},
    }
    if folder is not None:
        base["folder"] = str(folder)
    return base | extra


def run_of(folder: Path, *flags: str, **extra: Any) -> Run:
    """A new run; `flags` as on the command line."""
    recipe = table(folder, **extra)
    apply_flags(recipe, flags)
    return new_run(parse_recipe(recipe))


def toml_of(folder: Path, path: Path, **extra: Any) -> Path:
    """The toy recipe written to `path`."""
    import tomli_w

    path.write_text(tomli_w.dumps(table(folder, **extra)))
    return path


def trained(folder: Path) -> Path:
    """A run folder with all that a run writes: two checkpoints, evaluations, the doctor's word. Made by the command."""
    toml_of(folder / "run", folder / "r.toml", training={"steps": 4, "checkpoint_every": 2}, evaluation={"every": 2},
            doctor={"mode": "watch"})  # fmt: skip
    assert main(["train", str(folder / "r.toml"), "--quiet"]) == 0
    return folder / "run"


def cut_after(run: Run, step: int) -> None:
    """Train until the row of `step` is written, and die there as at a power cut."""

    class PowerCut(Exception):
        pass

    def cut(row: dict[str, Any], _: Any) -> None:
        if row["step"] == step:
            raise PowerCut

    run.observers.append(cut)
    with pytest.raises(PowerCut):
        train(run)
    run.close()

"""A run that the doctor takes back, and the moments of that act at which it may end."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

from anygrpo.recipe.load import parse_recipe
from anygrpo.recipe.recipe import Recipe
from anygrpo.train import checkpoint, places, snapshot
from anygrpo.train.folder import read_rows
from anygrpo.watch import live
from anygrpo.watch.acting import Actor

LETTERS = Path(__file__).parents[2] / "bench" / "faults" / "letters.py"
VOLATILE = ("time/", "throughput/", "memory/")
MOMENTS = {
    "before the act": (live.RunLevers, "turn"),
    "turned, not gone back": (live.RunLevers, "roll_back"),
    "before the state is set": (snapshot, "_set"),
    "before it is saved": (snapshot, "save"),
    "before it is whole": (checkpoint, "_seal"),
    "before the old checkpoint of that step is aside": (Path, "rename"),
    "before the new one is in its place": (places.os, "replace"),
    "before the old one goes": (places, "flush"),
    "before later checkpoints go": (checkpoint, "drop_after"),
    "one of the later checkpoints half gone": (checkpoint.shutil, "rmtree"),
    "before later rows go": (snapshot, "cut_after"),
}
"""Where in a roll-back the run ends: before the call of this function."""


def explosive(folder: Path) -> Recipe:
    """Sound for four steps, then at a rate that explodes: it goes back, with checkpoints before and after."""
    table: dict[str, Any] = {
        "folder": str(folder),
        "policy": {"kind": "python", "function": f"{LETTERS}:build", "arguments": {"width": 16, "length": 4}},
        "task": {"kind": "python", "function": f"{LETTERS}:Letters", "arguments": {}},
        "algorithm": {"prompts_per_step": 8, "group_size": 4, "epochs": 2},
        "optimizer": {"learning_rate": {"kind": "step", "start": 5e-3, "factor": 1000.0, "milestones": [4]}},
        "training": {"steps": 24, "threads": 1, "checkpoint_every": 2, "keep_checkpoints": 3},
        "doctor": {"mode": "act", "every": 5},
    }
    return parse_recipe(table)


def alert(monkeypatch: Any) -> None:
    """The doctor looks at every row, however long that takes, and takes a turn back after few calm ones."""
    monkeypatch.setattr(live, "COST", 1e9)
    monkeypatch.setattr(live, "Actor", partial(Actor, calm=5))


def outcome(folder: Path) -> tuple[list[dict], dict[str, list], list[dict]]:
    rows, broken = read_rows(folder / "metrics.jsonl")
    assert broken == 0
    newest = checkpoint.newest(folder / "checkpoints")
    weights = {name: w.tolist() for name, w in checkpoint.load(newest)[0].items()}
    actions = json.loads((folder / "doctor.json").read_text())["actions"]
    return [{k: v for k, v in r.items() if not k.startswith(VOLATILE)} for r in rows], weights, actions


def deal(moment: str, blow: Any, monkeypatch: Any) -> None:
    """`blow` is called at this moment of the first roll-back."""
    holder, name = MOMENTS[moment]
    if holder is live.RunLevers:
        monkeypatch.setattr(holder, name, lambda *_, **__: blow())
        return
    real = snapshot.roll_back

    def at_that_moment(run: Any, path: Path) -> None:
        monkeypatch.setattr(holder, name, lambda *_, **__: blow())
        real(run, path)

    monkeypatch.setattr(snapshot, "roll_back", at_that_moment)

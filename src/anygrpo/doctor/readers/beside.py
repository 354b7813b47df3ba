"""Settings that a framework recorded beside its log: ms-swift's args.json, Hydra's config, RLlib's params, wandb's."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from anygrpo.doctor.log import Log
from anygrpo.errors import DataError

RECORDED: dict[str, tuple[str, ...]] = {
    "args.json": ("logging.jsonl", "trainer_state.json"),  # ms-swift
    ".hydra/config.yaml": (),  # verl and others started by Hydra
    "params.json": ("result.json", "progress.csv"),  # RLlib, Ray Tune
    "training_args.yaml": ("trainer_state.json", "trainer_log.jsonl"),  # LLaMA-Factory
    "files/config.yaml": (),  # wandb, beside run-*.wandb
}
"""File of settings -> names of the logs that it is believed for (none: any log of a folder that was given)."""


def add_settings(log: Log, path: Path) -> Log:
    """The log with the settings recorded beside it, in its folder or the one above; its own settings win.

    Args:
        path: the log, or the folder that was given.
    """
    path = Path(os.path.abspath(path))
    whole = path.is_dir()
    for name, logs in RECORDED.items():
        if not whole and path.name not in logs:
            continue
        for place in (path, path.parent) if whole else (path.parent, path.parent.parent):
            file = place / name
            if file.is_file() and (found := recorded(file)):
                log.settings = found | log.settings
                log.notes.append(f"settings read from {file}")
                return log
    return log


def recorded(path: Path) -> dict[str, Any]:
    """concept -> value, and the seed; empty where the file holds no setting that is known."""
    from anygrpo.doctor.configs import parse, read_settings

    if path.stat().st_size > 4 << 20:
        return {}
    try:
        found = read_settings(path)
        flat = parse(path.read_text("utf-8", "replace"), path.suffix)
    except (DataError, ImportError):  # PyYAML may be absent
        return {}
    return found | ({"seed": flat["seed"]} if "seed" in flat else {})

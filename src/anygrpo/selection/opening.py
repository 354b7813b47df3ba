"""A portable selector's folder, as a policy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from anygrpo.selection.export import SETTINGS, load
from anygrpo.selection.policy import SelectorPolicy


def opened(path: str, like: Any = None, **settings: Any) -> SelectorPolicy | None:
    """The selector; None where `path` is something else."""
    return load(Path(path)) if (Path(path) / SETTINGS).is_file() else None

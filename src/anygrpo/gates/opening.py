"""An exported network with gates, as a policy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from anygrpo.gates.export import load
from anygrpo.gates.policy import StochasticPolicy


def opened(path: str, like: Any = None, device: str = "auto", **settings: Any) -> StochasticPolicy | None:
    """The network with its gates; None where `path` is something else."""
    return load(Path(path), device) if (Path(path) / "sites.json").is_file() else None

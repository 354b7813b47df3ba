"""An exported network with gates, as a policy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from anygrpo.errors import ConfigError
from anygrpo.gates.export import has_code, load
from anygrpo.gates.policy import StochasticPolicy


def opened(
    path: str, like: Any = None, device: str = "auto", trust: bool = False, **settings: Any
) -> StochasticPolicy | None:
    """The network with its gates; None where `path` is something else.

    Args:
        trust: run the network's code (network.py) that lies in the folder.

    Raises:
        ConfigError: there is such code, and it is not trusted.
    """
    folder = Path(path)
    if not (folder / "sites.json").is_file():
        return None
    if has_code(folder) and not trust:
        raise ConfigError(
            f"{folder} holds the code of its network (network.py), which opening it runs",
            "read it; then --trust, or load(path, trust=True)",
        )
    return load(folder, device)

"""An exported network with gates, as a policy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from anygrpo.errors import ConfigError
from anygrpo.gates.export import has_code, load
from anygrpo.gates.policy import StochasticPolicy
from anygrpo.spoken import Text


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
            Text(
                f"{folder} holds the code of its network (network.py), which opening it runs",
                f"{folder} 含有它的网络代码（network.py），打开时会运行",
            ),
            Text(
                "read it; then --trust, or load(path, trust=True)", "请先阅读；再加 --trust，或 load(path, trust=True)"
            ),
        )
    return load(folder, device)

"""Where a run's numbers go."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

from anygrpo.errors import ConfigError


class Sink(Protocol):
    """Receives one flat dict of numbers (and a few strings) a step."""

    def write(self, row: dict[str, Any]) -> None: ...

    def close(self) -> None: ...


def build_sink(kind: str, folder: Path, project: str, name: str, config: dict[str, Any]) -> Sink:
    """A sink by name.

    Raises:
        ConfigError: the extra it needs is not installed; names the pip command.
    """
    from anygrpo.train.sinks import trackers

    try:
        return trackers.TRACKERS[kind](folder, project, name, config)
    except ImportError as error:
        raise ConfigError(f"sink {kind!r} needs a package: {error}", f"pip install 'anygrpo[{kind}]'") from None

"""From a [task.scorer] section to the scorer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from anygrpo.errors import ConfigError
from anygrpo.selection.scorers.scorer import Kept, Scorer
from anygrpo.spoken import Text


def build(config: Any, default_cache: Path) -> Kept:
    """The scorer of a [task.scorer] section, kept on disk.

    Raises:
        ConfigError: an unknown kind, or a section that cannot be meant.
    """
    made: Scorer
    if config.kind == "python":
        from anygrpo.selection.scorers.python import FromPython

        made = FromPython(config)
    elif config.kind == "model":
        from anygrpo.selection.scorers.model import FromModel

        made = FromModel(config)
    elif config.kind == "endpoint":
        from anygrpo.selection.scorers.endpoint import FromEndpoint

        made = FromEndpoint(config)
    else:
        raise ConfigError(
            Text(f"scorer.kind = {config.kind!r} is not known", f"scorer.kind = {config.kind!r} 不在可选值中"),
            Text("python, model or endpoint", "可用：python、model 或 endpoint"),
        )
    return Kept(made, Path(config.cache) if config.cache else default_cache, config.budget)

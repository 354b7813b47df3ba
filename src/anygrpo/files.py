"""Where the user's cache is."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder() -> Path:
    """$XDG_CACHE_HOME/anygrpo, or ~/.cache/anygrpo."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "anygrpo"

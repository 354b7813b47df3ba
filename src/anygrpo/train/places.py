"""One folder in the place of another, so that a kill at any moment leaves one of the two."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

_ASIDE = ".old"


def put(fresh: Path, target: Path) -> None:
    """`fresh` becomes `target`. Of two renames: killed between them, `mend` brings back what was there before."""
    aside = target.with_name(f".{target.name}{_ASIDE}")
    remove(aside)
    if target.is_symlink():
        remove(target)
    if target.exists():
        target.rename(aside)
    os.replace(fresh, target)
    flush(target.parent)
    remove(aside)


def mend(folder: Path) -> None:
    """What `put` had moved aside when it was killed is in its place again; what was replaced goes."""
    for aside in sorted(folder.glob(f".*{_ASIDE}")):
        target = folder / aside.name[1 : -len(_ASIDE)]
        if target.exists() or target.is_symlink():
            remove(aside)
        elif not aside.is_symlink():
            aside.rename(target)


def flush(path: Path) -> None:
    """A file's bytes, or a folder's entries, to the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def remove(folder: Path) -> None:
    """What lies in the place of a folder of the run's; of a link the link alone."""
    if folder.is_symlink():
        folder.unlink()
    else:
        shutil.rmtree(folder, ignore_errors=True)

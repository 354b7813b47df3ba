"""Temporary folders that go when the work ends, and what killed processes left of theirs. Standard library only."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import tempfile
import time
import weakref
from pathlib import Path
from types import TracebackType

try:
    import fcntl
except ImportError:  # no POSIX: nothing tells a killed process's folder from a living one's
    fcntl = None

_OURS = re.compile(r"anygrpo-[a-z]+-\w{8}\.tmp")
_YOUNG = 10.0
"""Seconds in which a folder may have been made and not yet locked."""
_kept: list[Scratch] = []


class Scratch:
    """A folder in the system's place for such, locked while its owner lives; `with Scratch("check") as folder: ...`.

    It goes at the end of the block, by `close()`, with the object, or when the process ends by itself. What a killed
    process left (a folder of our form, of this user, that nobody locks) goes when the next one is made.

    Args:
        kind: lower-case letters, for whoever looks there.
    """

    def __init__(self, kind: str) -> None:
        sweep()
        self.path = Path(tempfile.mkdtemp(prefix=f"anygrpo-{kind}-", suffix=".tmp"))
        self.close = weakref.finalize(self, _remove, self.path, _locked(self.path), os.getpid())

    def __enter__(self) -> Path:
        return self.path

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


def for_this_process(kind: str) -> Path:
    """A folder that goes when the process ends."""
    _kept.append(Scratch(kind))
    return _kept[-1].path


def sweep() -> None:
    """Remove folders of ours whose owner is gone."""
    if fcntl is None:
        return
    with contextlib.suppress(OSError), os.scandir(tempfile.gettempdir()) as found:
        for entry in [e for e in found if _OURS.fullmatch(e.name) and e.is_dir(follow_symlinks=False)]:
            with contextlib.suppress(OSError):
                made = entry.stat(follow_symlinks=False)
                old = made.st_uid == os.getuid() and time.time() - made.st_mtime > _YOUNG
                if old and (held := _locked(Path(entry.path))) is not None:
                    _remove(Path(entry.path), held, os.getpid())


def _locked(folder: Path) -> int | None:
    """A handle that holds the folder's lock until it is closed; None where another one does."""
    if fcntl is None:
        return None
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        return None
    return handle


def _remove(folder: Path, handle: int | None, owner: int) -> None:
    if os.getpid() != owner:
        return  # a forked child: the folder is its parent's
    shutil.rmtree(folder, ignore_errors=True)
    if handle is not None:
        with contextlib.suppress(OSError):
            os.close(handle)

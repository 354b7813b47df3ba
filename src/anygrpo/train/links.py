"""Links in a run folder. A user's may lead to a larger disk; a stranger's, to what is yours, and a run writes,
overwrites and prunes."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from pathlib import Path

from anygrpo.errors import DataError
from anygrpo.spoken import Text

MARK = ".anygrpo-run"
"""A file in a folder that is reached by a link: the path of the run it belongs to, which only its owner can say."""
_CHECKPOINTS = "checkpoints"


def settle(run: Path) -> None:
    """Before a run writes. A linked folder is taken where it is empty or says that it is this run's (`MARK`, which is
    written here); a link that stays in its own folder (a tracker's `latest-run`) is left alone. What is linked within
    checkpoints/ is never written through: the run replaces it.

    Raises:
        DataError: a link that leads to a file, or to a folder that is not this run's.
        OSError: an empty folder that cannot be written.
    """
    home = Path(os.path.realpath(run))
    linked = [Path(os.path.realpath(path)) for path in _leading_out(run, home)]
    for folder in linked:
        if not (folder / MARK).exists():
            (folder / MARK).write_text(f"{home}\n", encoding="utf-8")


def _leading_out(run: Path, home: Path) -> Iterator[Path]:
    """Links to folders of this run that lie elsewhere.

    Raises:
        DataError: as `settle`.
    """
    for path in _links(run):
        target = Path(os.path.realpath(path))
        parts = path.relative_to(run).parts
        if len(parts) > 1 and target.is_relative_to(home / parts[0]):
            continue
        if not target.is_dir():
            what = Text(f"{path} is a link: a run would write over {target}", f"{path} 是链接：运行会覆盖 {target}")
            cure = "put a copy in its place (cp --remove-destination)"
            raise DataError(what, Text(cure, "请用副本代替链接（cp --remove-destination）"))
        if target.is_relative_to(home) and target != home:
            continue
        if not _is_of(target, home):
            words = f"echo {shlex.quote(str(home))} > {shlex.quote(str(target / MARK))}"
            raise DataError(
                Text(
                    f"{path} is a link to {target}, which holds other things: a run would write and remove there",
                    f"{path} 是指向 {target} 的链接，其中另有内容：运行会在那里写入和删除",
                ),
                Text(f"remove the link; or, where it is yours: {words}", f"请删除链接；若是您自己的：{words}"),
            )
        yield path


def _links(run: Path) -> Iterator[Path]:
    for root, folders, files in os.walk(run):
        here = Path(root)
        if here == run / _CHECKPOINTS:
            folders.clear()
            continue
        yield from (here / name for name in [*folders, *files] if (here / name).is_symlink())


def _is_of(folder: Path, home: Path) -> bool:
    """Whether it is empty (but for what a disk's root holds), or says that it is this run's."""
    try:
        inside = set(os.listdir(folder)) - {"lost+found"}
        return not inside or (folder / MARK).read_text(encoding="utf-8").strip() == str(home)
    except (OSError, ValueError):
        return False

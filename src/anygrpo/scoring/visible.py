"""What a sandbox sees of the files: the interpreter, its standard library, the shared libraries those need. No more.

A folder of the system holds more than programs: a data set under /usr, packages, sources. So single files are bound,
and of the library's folder all that is not the library's is covered up.
"""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

_UNNEEDED = ("test", "idlelib", "ensurepip", "turtledemo", "tkinter", "lib2to3", "pydoc_data")
_WITHOUT = ("_tkinter",)
"""Extension modules whose libraries are many and of no use here."""


def interpreter() -> str:
    """The Python that runs inside, without virtual environment."""
    return str(Path(getattr(sys, "_base_executable", sys.executable)).resolve())


@functools.cache
def binds() -> tuple[str, ...]:
    """Words of the bwrap command that show these files and nothing else."""
    shown = [interpreter(), *_libraries_of([interpreter(), *map(str, _extensions())]), "/etc/ld.so.cache"]
    library = _library_folders()
    words = _parents([*shown, *library])
    for path in dict.fromkeys(shown):
        if os.path.exists(path):
            words += ["--ro-bind", os.path.realpath(path), path]
    for folder in library:
        words += ["--ro-bind", folder, folder, *_covered(folder)]
    return tuple(words)


def _library_folders() -> list[str]:
    variables = {"base": sys.base_prefix, "platbase": sys.base_exec_prefix}
    found = [sysconfig.get_path(name, vars=variables) for name in ("stdlib", "platstdlib")]
    return [str(Path(f).resolve()) for f in dict.fromkeys(found) if os.path.isdir(f)]


def _extensions() -> list[Path]:
    files = [file for folder in _library_folders() for file in Path(folder, "lib-dynload").glob("*.so")]
    return [file for file in files if not file.name.startswith(_WITHOUT)]


def _libraries_of(programs: list[str]) -> list[str]:
    """Shared libraries that these need, under the names by which the loader finds them; the loader itself too.

    Raises: OSError where `ldd` cannot say.
    """
    done = subprocess.run(["ldd", *programs], capture_output=True, text=True, check=False)
    lines = [line.split() for line in done.stdout.splitlines() if "(0x" in line]
    found = [words[words.index("=>") + 1] if "=>" in words else words[0] for words in lines]
    return sorted({path for path in found if path.startswith("/")})


def _covered(folder: str) -> list[str]:
    """Words that cover what lies in the library's folder and is not of the library. A link (Debian's sitecustomize.py
    leads to /etc) leads nowhere in a sandbox, and could not be covered there."""
    words: list[str] = []
    for entry in sorted(os.listdir(folder)):
        name, path = entry.split(".")[0], os.path.join(folder, entry)
        of_library = name in sys.stdlib_module_names or entry in ("lib-dynload", "__pycache__")
        if (of_library or entry.startswith("_sysconfigdata")) and entry not in _UNNEEDED:
            continue
        if os.path.islink(path):
            continue
        if os.path.isdir(path):
            words += ["--tmpfs", path, "--remount-ro", path]
        elif os.path.isfile(path):
            words += ["--ro-bind", "/dev/null", path]
    return words


def _parents(paths: list[str]) -> list[str]:
    """Words that make the folders above, open to whoever runs inside."""
    folders = [str(parent) for path in paths for parent in reversed(Path(path).parents[:-1])]
    return [word for folder in dict.fromkeys(folders) for word in ("--dir", folder)]

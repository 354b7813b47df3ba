"""The compiled kernels of this machine: made at the first use, in about a second, and kept in the user's cache."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import logging
import os
import platform
import shutil
import subprocess
import tempfile
from pathlib import Path

import torch

from anygrpo.files import cache_folder

log = logging.getLogger("anygrpo")

SOURCES = sorted(Path(__file__).parent.glob("*.cpp"))
HEADER = Path(__file__).with_name("common.h")

FLAGS = ("-std=c++17", "-O3", "-march=native", "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=fast",
         "-fopenmp", "-shared", "-fPIC")  # fmt: skip

OF_X86 = ("-mprefer-vector-width=512",)

SWITCH = "ANYGRPO_NATIVE"
"""Environment variable: "0" leaves the kernels out."""


@functools.cache
def library() -> ctypes.CDLL | None:
    """The loaded kernels; None where they are switched off, or no compiler is there or fails, which is logged once."""
    if os.environ.get(SWITCH) == "0":
        return None
    try:
        return ctypes.CDLL(str(_built(cache_folder() / "native")))
    except (OSError, subprocess.SubprocessError) as error:
        said = getattr(error, "stderr", None) or str(error)
        log.warning("kernels for the CPU are not used, torch's operations are: %s", said.strip().splitlines()[-1][:200])
        return None


def _built(folder: Path) -> Path:
    """The library in `folder`, compiled where it isn't there yet.

    Raises:
        OSError, subprocess.SubprocessError: no compiler; it fails; the folder can't be written.
    """
    compiler = next(filter(None, map(shutil.which, (os.environ.get("CXX", ""), "c++", "g++", "clang++"))), None)
    if compiler is None:
        raise OSError("no C++ compiler (c++, g++, clang++; CXX names another)")
    path = folder / f"{_key(compiler)}.so"
    if path.exists():
        return path
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as work:  # several processes may do this at once
        made = Path(work) / path.name
        command = [compiler, *_flags(), *map(str, SOURCES), "-o", str(made)]
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=120)
        os.replace(made, path)
    return path


def _flags() -> tuple[str, ...]:
    return (*FLAGS, *(OF_X86 if platform.machine() in ("x86_64", "AMD64") else ()))


def _key(compiler: str) -> str:
    """What the binary depends on: the source, the compiler, and the processor, for homes may be shared by machines."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        processor = next((line for line in lines if line.startswith(("flags", "Features"))), "")
    except OSError:
        processor = platform.processor()
    parts = (
        *(path.read_text() for path in (HEADER, *SOURCES)),
        " ".join(_flags()),
        compiler,
        platform.machine(),
        processor,
    )
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:20]


TYPES = {torch.float32: "float32", torch.bfloat16: "bfloat16"}


def usable(x: torch.Tensor) -> bool:
    """Whether kernels for a CPU may take this tensor."""
    return x.device.type == "cpu" and x.dtype in TYPES and library() is not None

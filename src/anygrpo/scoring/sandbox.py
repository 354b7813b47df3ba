"""Running a stranger's Python under bubblewrap: no network, nothing writable, nothing of the user's readable.

Inside are Python's standard library and /usr, read-only, and nothing else: no /proc, no /tmp, no home, no data files.
Bounded are wall clock, CPU, memory of each process, processes, open files and output; a seccomp filter closes the ways
around those bounds (System V memory, memfd, new namespaces) and the sockets. Where no such sandbox can be had, running
code is refused: there is no weaker mode.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import platform
import secrets
import select
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from anygrpo.errors import ConfigError
from anygrpo.scoring import _inside, seccomp

MEGABYTE = 1 << 20


@dataclass(frozen=True)
class Limits:
    """Attributes: seconds of wall clock (and of CPU time of each process); memory_mb of address space of each process;
    processes alive at once, threads included; output_mb of all it may write; files open at once."""

    seconds: float = 5.0
    memory_mb: int = 256
    processes: int = 8
    output_mb: int = 1
    files: int = 64

    def resources(self) -> dict[str, int]:
        return {
            "RLIMIT_CPU": int(self.seconds) + 1,
            "RLIMIT_AS": self.memory_mb * MEGABYTE,
            "RLIMIT_NPROC": self.processes,
            "RLIMIT_FSIZE": self.output_mb * MEGABYTE,
            "RLIMIT_NOFILE": self.files,
            "RLIMIT_CORE": 0,
            "RLIMIT_MSGQUEUE": 0,
            "RLIMIT_MEMLOCK": 0,
        }


@dataclass(frozen=True)
class Run:
    """What became of a run.

    Attributes:
        output: what it wrote to standard output (or its results), at most Limits.output_mb.
        code: exit code; negative where a signal ended it; None where time ran out.
        fault: why the *sandbox* failed before the code ran; "" where it worked. No fault of the code's.
    """

    output: bytes
    code: int | None
    fault: str = ""


_START_SECONDS = 30.0
"""How long a busy machine may take to set the sandbox up."""


def run(code: str, calls: list[str] | None, given: str, limits: Limits) -> Run:
    """Run `code` in a fresh sandbox.

    Args:
        code: Python source.
        calls: expressions to evaluate after it; the output is then one JSON line each (see `_inside.call`).
        given: standard input of a program (where `calls` is None).
    """
    request = json.dumps({"code": code, "calls": calls, "limits": limits.resources()}) + "\n"
    with contextlib.ExitStack() as stack:
        stdin = stack.enter_context(_memory_file(request.encode() + given.encode(errors="replace")))
        stdout = stack.enter_context(_memory_file())
        filters = stack.enter_context(_memory_file(seccomp.program()))
        reading, writing = os.pipe()
        ready = stack.enter_context(os.fdopen(reading, "rb"))
        try:
            process = subprocess.Popen(
                _command(filters.fileno(), writing),
                stdin=stdin,
                stdout=stdout,
                stderr=subprocess.PIPE,
                pass_fds=(filters.fileno(), writing),
                env={},
                cwd="/",
                start_new_session=True,
            )
        finally:
            os.close(writing)
        select.select([ready], [], [], _START_SECONDS)  # the code's clock runs from its start, not the sandbox's
        exit_code, words = _finish(process, limits.seconds)
        started = ready.read(1) == b"1"
        stdout.seek(0)
        fault = "" if started else f"the sandbox did not start: {words or exit_code}"
        return Run(stdout.read(limits.output_mb * MEGABYTE), exit_code, fault)


def _finish(process: subprocess.Popen[bytes], seconds: float) -> tuple[int | None, str]:
    """(exit code, None where it had to be killed; what the sandbox itself said)."""
    assert process.stderr is not None
    with process.stderr:
        try:
            code: int | None = process.wait(seconds)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        return code, process.stderr.read(2000).decode(errors="replace").strip()


@contextlib.contextmanager
def _memory_file(content: bytes = b""):
    with os.fdopen(os.memfd_create("sandbox"), "w+b") as file:
        file.write(content)
        file.flush()
        file.seek(0)
        yield file


def _command(filters: int, ready: int) -> list[str]:
    """The bwrap command. Root needs no user namespace but must become somebody else inside, because the limit on
    processes does not bind root; a fresh id each time keeps the counts of parallel sandboxes apart."""
    root = os.geteuid() == 0
    bwrap = shutil.which("bwrap") or "bwrap"
    spaces = ["--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"]
    rights = ["--cap-drop", "ALL", "--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"] if root else ["--unshare-user"]
    lasting = ["--new-session", "--die-with-parent", "--seccomp", str(filters)]
    folders = [str(parent) for path in _visible() for parent in reversed(Path(path).parents[:-1])]
    open_to_all = [word for folder in dict.fromkeys(folders) for word in ("--dir", folder)]
    binds = open_to_all + [word for path in _visible() for word in ("--ro-bind", path, path)]
    closed = ["--dev", "/dev", "--remount-ro", "/dev", "--remount-ro", "/", "--chdir", "/"]
    identity = 20_000 + secrets.randbelow(40_000) if root else -1
    python = [_python(), "-I", "-S", "-B", "-c", _source(), str(ready), str(identity)]
    return [bwrap, *spaces, *rights, *lasting, *binds, *closed, "--", *python]


def _python() -> str:
    return str(Path(getattr(sys, "_base_executable", sys.executable)).resolve())


@functools.cache
def _source() -> str:
    return Path(_inside.__file__).read_text(encoding="utf-8")


@functools.cache
def _visible() -> list[str]:
    """The only paths inside: the system's libraries and the interpreter's own installation."""
    wanted = ["/usr", "/bin", "/lib", "/lib64", "/lib32", "/etc/ld.so.cache", str(Path(sys.base_prefix).resolve())]
    inside_usr = lambda p: p.startswith("/usr/")  # noqa: E731
    return [path for path in dict.fromkeys(wanted) if os.path.exists(path) and not inside_usr(path)]


@functools.cache
def refusal() -> str | None:
    """Why no sandbox can be had on this machine, or None where one was just tried and worked."""
    if sys.platform != "linux":
        return f"bubblewrap needs Linux, this is {sys.platform}"
    if not seccomp.known():
        return f"no system call filter for {platform.machine()}"
    if shutil.which("bwrap") is None:
        return "bubblewrap (bwrap) is not installed"
    trial = run("def works(): return 6 * 7", ["works()"], "", Limits(seconds=20.0))
    if trial.fault:
        return trial.fault
    return None if trial.output == b'{"value": 42}\n' else f"a trial run gave {trial.output!r}, exit code {trial.code}"


def require() -> None:
    """Raises: ConfigError where code cannot be run safely here."""
    if (reason := refusal()) is not None:
        raise ConfigError(
            f"no sandbox for generated code: {reason}",
            "apt-get install bubblewrap, and allow it to make namespaces (in a container, by how that is started); "
            "without a sandbox there is no code reward",
        )

"""Running a stranger's Python under bubblewrap: no network, nothing writable, nothing of the user's readable.

Inside are Python's standard library and the libraries it needs, read-only, and nothing else: no /proc, no /tmp, no
home, no data files. Bounded are CPU time, wall clock, memory, processes, open files and output; a seccomp filter
closes the ways around those bounds (System V memory, memfd, new namespaces) and the sockets. Where no such sandbox
can be had, running code is refused: there is no weaker mode.
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
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from anygrpo.errors import ConfigError
from anygrpo.scoring import _arrival, _inside, _plain, _tester, seccomp, visible
from anygrpo.scoring.usage import Watch, memory_kills
from anygrpo.spoken import Text

MEGABYTE = 1 << 20
START_SECONDS = 60.0
"""How long a busy machine may take to set a sandbox up."""
IDLE = 2.0
"""Seconds beyond `Limits.seconds` in which nothing may run and nothing wait for a CPU."""
STARVED = 20.0
"""Wall clock, in units of `Limits.seconds`, after which an answer that waits for a CPU is given up."""


@dataclass(frozen=True)
class Limits:
    """Attributes: seconds of CPU time, of all processes together; memory_mb of all processes together (and address
    space of each); processes alive at once, threads included; output_mb of all it may write; files open at once."""

    seconds: float = 5.0
    memory_mb: int = 256
    processes: int = 8
    output_mb: int = 1
    files: int = 64

    def resources(self) -> dict[str, int]:
        return {
            "RLIMIT_CPU": int(self.seconds) + 2,
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
        output: what it wrote to standard output, at most Limits.output_mb.
        code: exit code; negative where a signal ended it; None where it was stopped.
        fault: why there is no verdict: the sandbox did not start, or time ran out with CPU time to spare. "" else.
        stopped: "cpu" or "memory" where it used up what it may use. That is the code's own fault.
    """

    output: bytes
    code: int | None
    fault: str = ""
    stopped: str = ""


class Box:
    """One sandboxed process: started, watched, killed. Its standard output is a file in memory."""

    def __init__(self, process: subprocess.Popen[bytes], ready: BinaryIO, out: BinaryIO, limits: Limits) -> None:
        self.process, self.limits, self._ready, self._out = process, limits, ready, out
        self.watch, self.code, self.killed = Watch(process.pid), None, False
        self._exited = os.pidfd_open(process.pid)

    def started(self) -> bool:
        """Wait until the sandbox stands; False where it ended before."""
        return bool(select.select([self._ready], [], [], START_SECONDS)[0]) and self._ready.read(1) == b"1"

    def exited(self, seconds: float = 0.0) -> bool:
        """Whether the process has ended, waiting so long for it."""
        return bool(select.select([self._exited], [], [], seconds)[0])

    def overused(self) -> str:
        """ "cpu" or "memory" where its processes used more than they may, else ""."""
        used = self.watch.look()
        if used.cpu > self.limits.seconds:
            return "cpu"
        return "memory" if used.memory > self.limits.memory_mb * MEGABYTE else ""

    def kill(self) -> None:
        """End it and all it started (its process namespace ends with its first process)."""
        self.killed = True
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)

    def finish(self) -> int:
        """Kill what is left, wait; the exit code (negative: a signal's number)."""
        if not self.exited():
            self.kill()
        code = self.process.wait()
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        return 128 - code if code > 128 else code

    def output(self) -> bytes:
        self._out.seek(0)
        return self._out.read(self.limits.output_mb * MEGABYTE)

    def words(self) -> str:
        """What the sandbox itself said, where it did not start."""
        assert self.process.stderr is not None
        return self.process.stderr.read(2000).decode(errors="replace").strip()

    def close(self) -> None:
        self.finish()
        os.close(self._exited)


@contextlib.contextmanager
def box(
    source: str, request: dict[str, Any], limits: Limits, given: bytes = b"", pipes: tuple[int, ...] = ()
) -> Iterator[Box]:
    """Start `source` in a sandbox; leaving kills it.

    Args:
        request: what `_inside.start` reads; the limits are added.
        given: the rest of its standard input.
        pipes: descriptors that it inherits.
    """
    line = (json.dumps(request | {"limits": limits.resources()}) + "\n").encode()
    with contextlib.ExitStack() as stack:
        stdin = stack.enter_context(_memory_file(line + given))
        stdout = stack.enter_context(_memory_file())
        filters = stack.enter_context(_memory_file(seccomp.program()))
        reading, writing = os.pipe()
        ready = stack.enter_context(os.fdopen(reading, "rb"))
        try:
            process = subprocess.Popen(
                _command(filters.fileno(), writing, source),
                stdin=stdin,
                stdout=stdout,
                stderr=subprocess.PIPE,
                pass_fds=(filters.fileno(), writing, *pipes),
                env={},
                cwd="/",
                start_new_session=True,
            )
        finally:
            os.close(writing)
        assert process.stderr is not None
        stack.enter_context(process.stderr)
        made = Box(process, ready, stdout, limits)
        stack.callback(made.close)
        yield made


@dataclass
class Clock:
    """Tells the three ends of patience apart: used up, idle, starved."""

    limits: Limits
    began: float
    kills: int

    @staticmethod
    def start(limits: Limits) -> Clock:
        return Clock(limits, time.monotonic(), memory_kills())

    def fault(self, boxes: list[Box]) -> str:
        """Why these boxes are waited for no longer, by no proven fault of the code; "" while they are."""
        wall = time.monotonic() - self.began
        used = [b.watch.used for b in boxes]
        cpu, waited = sum(u.cpu for u in used), sum(u.waited for u in used)
        if wall - cpu - waited > self.limits.seconds + IDLE:
            return f"timed out after {wall:.1f} s with CPU time to spare: {cpu:.1f} s used, it waits for something"
        if wall > STARVED * self.limits.seconds + START_SECONDS:
            return f"timed out after {wall:.0f} s on a busy machine: {cpu:.1f} s of CPU time, {waited:.1f} s without"
        return ""

    def memory_fault(self) -> str:
        """Why a process killed from outside is not at fault: the machine ran out of memory meanwhile."""
        return "killed while the machine was out of memory" if memory_kills() > self.kills else ""


def pauses() -> Iterator[float]:
    """Seconds between looks: short at first."""
    yield from (0.05, 0.05)
    while True:
        yield 0.1


def run(code: str, given: str, limits: Limits) -> Run:
    """Run `code` as a program in a fresh sandbox, with `given` on its standard input."""
    with box(inside(), {"code": code}, limits, given.encode(errors="replace")) as one:
        if not one.started():
            return Run(b"", one.finish(), f"the sandbox did not start: {one.words() or one.finish()}")
        clock, stopped, fault = Clock.start(limits), "", ""
        for pause in pauses():
            if one.exited(pause) or (stopped := one.overused()) or (fault := clock.fault([one])):
                break
        ended = one.exited()
        exit_code = one.finish()
        if exit_code == -signal.SIGKILL and ended:
            fault = fault or clock.memory_fault()
        return Run(one.output(), exit_code if ended else None, fault, stopped)


@contextlib.contextmanager
def _memory_file(content: bytes = b"") -> Iterator[BinaryIO]:
    with os.fdopen(os.memfd_create("sandbox"), "w+b") as file:
        file.write(content)
        file.flush()
        file.seek(0)
        yield file


_VICTIM = 'echo 1000 2>/dev/null >/proc/self/oom_score_adj; exec "$0" "$@"'
"""Where memory runs out, the sandbox is to die and not the trainer."""


def _command(filters: int, ready: int, source: str) -> list[str]:
    """The bwrap command. Root needs no user namespace but must become somebody else inside, because the limit on
    processes does not bind root; a fresh id each time keeps the counts of parallel sandboxes apart."""
    root = os.geteuid() == 0
    bwrap = shutil.which("bwrap") or "bwrap"
    spaces = ["--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"]
    rights = ["--cap-drop", "ALL", "--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"] if root else ["--unshare-user"]
    lasting = ["--new-session", "--die-with-parent", "--seccomp", str(filters)]
    closed = ["--dev", "/dev", "--remount-ro", "/dev", "--remount-ro", "/", "--chdir", "/"]
    identity = 20_000 + secrets.randbelow(40_000) if root else -1
    python = [visible.interpreter(), "-I", "-S", "-B", "-c", source, str(ready), str(identity)]
    return ["/bin/sh", "-c", _VICTIM, bwrap, *spaces, *rights, *lasting, *visible.binds(), *closed, "--", *python]


@functools.cache
def inside() -> str:
    """The text that loads or runs an answer."""
    return _joined(_plain, _inside)


@functools.cache
def judge() -> str:
    """The text that runs tests."""
    return _joined(_plain, _inside, _arrival, _tester)


def _joined(*modules: Any) -> str:
    """One text of several modules; only the last one's `main` runs."""
    texts = [Path(module.__file__).read_text(encoding="utf-8") for module in modules]
    texts = [text.replace("from __future__ import annotations\n", "") for text in texts]
    start = '\nif __name__ == "__main__":'
    return "\n".join([*(text.partition(start)[0] for text in texts[:-1]), texts[-1]])


@functools.cache
def refusal() -> str | None:
    """Why no sandbox can be had on this machine, or None where one was just tried and worked."""
    if sys.platform != "linux":
        return f"bubblewrap needs Linux, this is {sys.platform}"
    if not seccomp.known():
        return f"no system call filter for {platform.machine()}"
    if shutil.which("bwrap") is None:
        return "bubblewrap (bwrap) is not installed"
    if shutil.which("ldd") is None:
        return "ldd is not installed, by which the libraries that Python needs are found"
    trial = run("print(6 * 7)", "", Limits(seconds=20.0))
    if trial.fault:
        return trial.fault
    return None if trial.output == b"42\n" else f"a trial run gave {trial.output!r}, exit code {trial.code}"


def require() -> None:
    """Raises: ConfigError where code cannot be run safely here."""
    if (reason := refusal()) is not None:
        raise ConfigError(
            Text(f"no sandbox for generated code: {reason}", f"生成的代码没有沙箱：{reason}"),
            Text(
                "apt-get install bubblewrap, and allow it to make namespaces (in a container, by how that is started); "
                "without a sandbox there is no code reward",
                "apt-get install bubblewrap，并允许它建立命名空间（在容器中由启动方式决定）；没有沙箱就没有代码奖励",
            ),
        )

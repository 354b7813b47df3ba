"""What stands between the trainer and a reward worker: it ends the worker, and all that the worker started, when the
trainer ends, however that ends and whatever the worker is doing.

It is the worker's parent and runs no code of the user's, so it always answers. Processes that the reward starts become
its descendants, also those that leave their process group or whose parent has ended (PR_SET_CHILD_SUBREAPER).
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
import time
from collections.abc import Callable
from pathlib import Path

_PARENT_DEATH_SIGNAL, _CHILD_SUBREAPER = 1, 36
STOP = signal.SIGUSR1
"""What the trainer sends to end it."""


def prctl(option: int, value: int) -> None:
    """Linux's prctl; nothing elsewhere."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


def keep(work: Callable[[], None], fd: int, trainer: int, memory: int) -> None:
    """Run `work` in a child until it ends, `STOP` comes or the process `trainer` is gone; then end all descendants, and
    end as the child did. Never returns.

    Args:
        fd: the child's socket. It is closed here, so that the trainer sees its end when the child ends.
        memory: bytes of private memory that the child, and each of its children, may have; 0 for no bound.
    """
    prctl(_CHILD_SUBREAPER, 1)
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD, signal.SIGTERM, STOP])
    prctl(_PARENT_DEATH_SIGNAL, signal.SIGTERM)
    keeper, child = os.getpid(), os.fork()
    if child == 0:
        _become_child(keeper, memory)
        work()
        os._exit(0)
    os.close(fd)
    status = _wait(child, trainer)
    end_descendants()
    _end_like(status)


def _become_child(keeper: int, memory: int) -> None:
    prctl(_PARENT_DEATH_SIGNAL, signal.SIGKILL)
    if os.getppid() != keeper:
        os._exit(0)
    os.setpgid(0, 0)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGCHLD, signal.SIGTERM, STOP])
    if memory:
        resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))
    with contextlib.suppress(OSError):  # where memory runs out, this process is to die and not the trainer
        Path("/proc/self/oom_score_adj").write_text("1000")


def _wait(child: int, trainer: int) -> int | None:
    """The child's wait status, None where it is to be ended."""
    while os.getppid() == trainer:
        got = _signal()
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                if ended[0] == child:
                    return ended[1]
        if got == STOP:
            return None  # SIGTERM comes too when the trainer's thread, not the trainer, has ended: the loop looks
    return None


def _signal() -> int | None:
    """The next signal, or None after a while."""
    if hasattr(signal, "sigtimedwait"):
        got = signal.sigtimedwait([signal.SIGCHLD, signal.SIGTERM, STOP], 1.0)
        return None if got is None else got.si_signo
    time.sleep(0.1)
    return STOP if STOP in signal.sigpending() else None


def end_descendants() -> None:
    """Kill every descendant until there is none: what ends hands its children to this process."""
    for _ in range(100):
        found = _descendants()
        for stop in (signal.SIGSTOP, signal.SIGKILL):  # stopped first, so that none starts another meanwhile
            for pid in found:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, stop)
        try:
            while os.waitpid(-1, 0)[0]:
                pass
        except ChildProcessError:
            return


def _descendants() -> list[int]:
    parents: dict[int, int] = {}
    for name in os.listdir("/proc") if os.path.isdir("/proc") else ():
        with contextlib.suppress(OSError, ValueError, IndexError):
            parents[int(name)] = int(Path("/proc", name, "stat").read_bytes().rpartition(b")")[2].split()[1])
    found = [os.getpid()]
    for one in found:
        found += [pid for pid, parent in parents.items() if parent == one]
    return found[1:]


def _end_like(status: int | None) -> None:
    if status is not None and os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        with contextlib.suppress(OSError, ValueError):
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    os._exit(0 if status is None else os.waitstatus_to_exitcode(status) & 0xFF)

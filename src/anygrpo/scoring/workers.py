"""A pool of worker processes that may hang, die or flood their output without harm to the trainer.

Each worker is a fresh Python started once (no fork: torch's threads and CUDA would not survive one; no re-import of the
user's main script either). A call that outlives its time-out is answered by ending the worker and all that it started;
the next call starts another. When the trainer ends, by whatever, so do they (`_keeper`).
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import queue
import signal
import socket
import subprocess
import sys
import time
import weakref
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from anygrpo.scoring import _keeper, _worker
from anygrpo.scoring.machine import usable_memory
from anygrpo.scoring.outcome import Outcome, outcome_of

_HOME = str(Path(_worker.__file__).parents[2])
_PROGRAM = "import sys; sys.path.insert(0, sys.argv[1]); from anygrpo.scoring import _worker; _worker.main()"
KEEPER_SECONDS = 20.0
"""How long a busy machine may take to end a worker and what it started."""
CALLS = 10_000
"""A worker is begun anew after so many calls, and when it has grown to half of its bound."""
LOAD_SECONDS = 120.0
"""Importing a reward's module may take long (sympy, a judge model); its calls have their own time-out."""


class WorkerFailure(Exception):
    """A call that gave no list of verdicts. `retry` says whether fewer rows at once might; `trace` is the traceback
    where the function itself raised, else ""; `shape`: it returned no list of as many values."""

    def __init__(self, reason: str, retry: bool = True, trace: str = "", shape: bool = False) -> None:
        super().__init__(reason)
        self.reason, self.retry, self.trace, self.shape = reason, retry, trace, shape


class LoadFailure(WorkerFailure):
    """The target cannot be loaded. `missing` and `known` are names, where the file lacks the function."""

    def __init__(self, reason: str, missing: str = "", known: tuple[str, ...] = ()) -> None:
        super().__init__(reason, retry=False)
        self.missing, self.known = missing, known


class Worker:
    """One process and the socket to it. Not shared between threads."""

    def __init__(self, memory: int = 0, calls: int = 0) -> None:
        self.memory, self.calls = memory, calls
        self.process: subprocess.Popen[bytes] | None = None
        self.socket: socket.socket | None = None
        self.loaded: dict[str, dict[str, Any]] = {}
        self.closed = False
        self.served, self.resident = 0, 0

    def start(self) -> None:
        ours, theirs = socket.socketpair()
        command = [sys.executable, "-P", "-c", _PROGRAM, _HOME, str(theirs.fileno())]
        command += [str(os.getpid()), str(self.memory)]
        environment = {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"} | os.environ
        self.process = subprocess.Popen(
            command,
            pass_fds=(theirs.fileno(),),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=environment,
            start_new_session=True,
        )
        theirs.close()
        self.socket = ours

    def load(self, target: str) -> dict[str, Any]:
        """Load `target` unless this worker has it; its parameters. Raises LoadFailure."""
        if target not in self.loaded:
            request = {"op": "load", "target": target, "path": [str(Path(p).resolve()) for p in sys.path]}
            reply = self._ask(request, LOAD_SECONDS)
            if "error" in reply:
                raise LoadFailure(reply["error"], reply.get("missing", ""), tuple(reply.get("known", ())))
            self.loaded[target] = reply
        return self.loaded[target]

    def call(self, target: str, arguments: dict[str, Any], count: int, timeout: float, form: str = "") -> list[Outcome]:
        """`count` verdicts of one call. Raises WorkerFailure; never takes longer than `timeout` once loaded."""
        if self._is_worn():
            self.kill()
        self.load(target)
        request = {"op": "call", "target": target, "arguments": arguments, "count": count, "form": form}
        reply = self._ask(request, timeout)
        self.served, self.resident = self.served + 1, int(reply.get("memory", 0))
        if "error" in reply:
            shape = bool(reply.get("shape"))
            raise WorkerFailure(reply["error"], not shape, reply.get("trace", ""), shape)
        return [outcome_of(verdict) for verdict in reply["values"]]

    def _is_worn(self) -> bool:
        """Whether it has served its calls, or grown to half of its memory: a reward that leaks is begun anew."""
        return self.served >= self.calls > 0 or self.resident > self.memory / 2 > 0

    def _ask(self, request: dict[str, Any], timeout: float) -> dict[str, Any]:
        try:
            body = _worker.frame(pickle.dumps(request))
        except Exception as error:
            raise WorkerFailure(f"the prompt's columns cannot be sent to a worker: {error}", retry=False) from None
        if self.closed:
            raise WorkerFailure("the task was closed", retry=False)
        if self.process is None or self.process.poll() is not None:
            self.kill()
            self.start()
        try:
            return self._exchange(body, timeout)
        except TimeoutError:
            self.kill()
            raise WorkerFailure(f"timed out after {timeout:g} s") from None
        except (OSError, EOFError, ValueError) as error:
            code = self.kill(grace=0.2)
            raise WorkerFailure(f"worker died (exit code {code}): {error}") from None

    def _exchange(self, body: bytes, timeout: float) -> dict[str, Any]:
        assert self.socket
        deadline = time.monotonic() + timeout
        self.socket.settimeout(timeout)
        self.socket.sendall(body)
        reply = bytearray()
        want = _worker.HEADER
        while len(reply) < want:
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError
            self.socket.settimeout(left)
            piece = self.socket.recv(1 << 20)
            if not piece:
                raise EOFError("it closed its socket")
            reply += piece
            if len(reply) >= _worker.HEADER:
                want = _worker.HEADER + int.from_bytes(reply[: _worker.HEADER], "big")
        return json.loads(reply[_worker.HEADER :])

    def kill(self, grace: float = 0.0) -> int | None:
        """Kill the process and whatever it started; its exit code, None where there was none.

        `grace` is how many seconds a process that is ending gets, so that its own exit code is seen and not our signal.
        """
        if self.socket is not None:
            self.socket.close()
        process = self.process
        self.loaded, self.process, self.socket = {}, None, None
        self.served, self.resident = 0, 0
        if process is None:
            return None
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(grace)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            process.send_signal(_keeper.STOP)  # it ends the worker and all that the worker started
        with contextlib.suppress(subprocess.TimeoutExpired):
            return process.wait(KEEPER_SECONDS)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        return process.wait()


class Pool:
    """`size` workers, started when first needed, shared by every reward of a task.

    Example:
        >>> with Pool(1) as pool:
        ...     pool.submit("math:fsum", {"seq": [1.0]}, count=1, timeout=5.0).exception() is not None
        True
    """

    def __init__(self, size: int, memory_mb: int | None = None, calls: int = CALLS) -> None:
        """`memory_mb`: bound of each worker's private memory, and of each process that it starts; half of what this
        process may use where not given, 0 for none."""
        self.size = size
        memory = usable_memory() // 2 if memory_mb is None else memory_mb << 20
        self._idle: queue.SimpleQueue[Worker] = queue.SimpleQueue()
        self._workers = [Worker(memory, calls) for _ in range(size)]
        for worker in self._workers:
            self._idle.put(worker)
        self._threads = ThreadPoolExecutor(size, thread_name_prefix="reward")
        self._finalizer = weakref.finalize(self, _stop, self._workers, self._threads)

    def submit(
        self, target: str, arguments: dict[str, Any], count: int, timeout: float, form: str = ""
    ) -> Future[list[Outcome]]:
        """Call `target` in the next free worker; the future gives `count` outcomes or raises WorkerFailure.

        `form`: see `signatures`; without it, `arguments` are the function's own.
        """
        return self._threads.submit(self._with_worker, lambda w: w.call(target, arguments, count, timeout, form))

    def inspect(self, target: str) -> dict[str, Any]:
        """Load `target` in one worker: what `signatures.described` says. Raises LoadFailure."""
        return self._threads.submit(self._with_worker, lambda w: w.load(target)).result()

    def _with_worker(self, work: Any) -> Any:
        worker = self._idle.get()
        try:
            return work(worker)
        finally:
            self._idle.put(worker)

    def close(self) -> None:
        """Kill every worker. Calls in flight fail."""
        self._finalizer()

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _stop(workers: list[Worker], threads: ThreadPoolExecutor) -> None:
    threads.shutdown(wait=False, cancel_futures=True)
    for worker in workers:
        worker.closed = True
        worker.kill()

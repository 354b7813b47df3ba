"""The trainer's side of tools and environments: a session for each sample, asked without waiting."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import pickle
import select
import signal
import socket
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from anygrpo.core import user_code
from anygrpo.errors import ConfigError
from anygrpo.language.tools.contract import said_of
from anygrpo.language.tools.settings import TurnsConfig
from anygrpo.scoring import _keeper, _worker
from anygrpo.scoring.machine import usable_memory
from anygrpo.spoken import Text

_HOME = str(Path(_worker.__file__).parents[2])
_PROGRAM = "import sys; sys.path.insert(0, sys.argv[1]); from anygrpo.language.tools import _inside; _inside.main()"
_LOAD_SECONDS = 120.0
_LONGEST_REPLY = 16 << 20
NAMED = {
    "openenv": "anygrpo.language.tools.openenv:OpenEnv",
    "verifiers": "anygrpo.language.tools.verifiers:Verifiers",
}
"""Environments that are spoken to as they are, by the word of a recipe."""


class _Server:
    """One process that has loaded the user's code."""

    def __init__(self, sessions: Sessions) -> None:
        ours, theirs = socket.socketpair()
        command = [sys.executable, "-P", "-c", _PROGRAM, _HOME, str(theirs.fileno()), str(os.getpid())]
        command.append(str(sessions.memory))
        self.process = subprocess.Popen(
            command,
            pass_fds=(theirs.fileno(),),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"} | os.environ,
            start_new_session=True,
        )
        theirs.close()
        self.socket, self.lock = ours, threading.Lock()
        ours.settimeout(_LOAD_SECONDS)
        path = [str(Path(p).resolve()) for p in sys.path]
        request = {"op": "load", "targets": sessions.targets, "path": path, "environment": sessions.environment}
        self.send(request | {"settings": sessions.config.arguments})
        try:
            body = _worker.receive(ours)
        except TimeoutError:
            self.end()
            self.said: dict[str, Any] = {"error": f"it took more than {_LOAD_SECONDS:g} s"}
            return
        self.said = json.loads(body) if body else {"error": "the process ended"}

    def send(self, request: dict[str, Any], fds: tuple[int, ...] = ()) -> None:
        body = _worker.frame(pickle.dumps(request))
        with self.lock:
            if fds:
                sent = socket.send_fds(self.socket, [body], list(fds))
                body = body[sent:]
            self.socket.sendall(body)

    def end(self) -> None:
        self.socket.close()
        with contextlib.suppress(ProcessLookupError, PermissionError):
            self.process.send_signal(_keeper.STOP)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(20.0)
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)


class Sessions:
    """Opens sessions. Servers are started when the first is opened, and again where one has died.

    Args:
        tools: functions, "path.py:name". environment: a class or function named so, a key of `NAMED`, or None.
    """

    def __init__(self, tools: tuple[str, ...], environment: str | None, config: TurnsConfig) -> None:
        self.tools, self.config = tools, config
        self.environment = NAMED.get(environment or "", environment)
        self.memory = usable_memory() // 2 if config.memory_mb is None else config.memory_mb << 20
        self._servers: list[_Server] = []
        self._numbers, self._lock = itertools.count(), threading.Lock()
        self._finalizer = weakref.finalize(self, _end_all, self._servers)

    @property
    def targets(self) -> list[str]:
        return [*self.tools, *([self.environment] if self.environment else [])]

    def check(self) -> str | None:
        """Load everything; "class" or "function" of the environment (None: there is none).

        Raises:
            ConfigError: it cannot be loaded, or is no environment. DataError: no such file.
        """
        for target in self.targets:
            if target not in NAMED.values():
                user_code.check(target)
        said = self._server(0).said
        if "lost" in said:
            target, name, known = said["lost"]
            raise user_code.missing(target, name, tuple(known))
        if "error" in said:
            raise ConfigError(
                Text(
                    f"loading {', '.join(self.targets)} failed: {said['error']}",
                    f"加载 {', '.join(self.targets)} 失败：{said['error']}",
                ),
                Text("mend the file", "请修正文件"),
            )
        if "wrong" in said:
            what, cure = said_of(said["wrong"])
            file = Text(f" ({self.environment})", f"（{self.environment}）")
            raise ConfigError(what + file, cure)
        return said["kinds"].get(self.environment)

    def open(self) -> Session:
        """A new process for one sample, begun beside the caller."""
        number = next(self._numbers)
        ours, theirs = socket.socketpair()
        request = {
            "op": "open", "key": number, "tools": self.tools, "environment": self.environment,
            "settings": self.config.arguments, "output": self.config.output,
        }  # fmt: skip
        for again in (False, True):
            server = self._server(number % self.config.servers, again)
            try:
                server.send(request, (theirs.fileno(),))
                break
            except OSError:
                if again:
                    raise
        theirs.close()
        return Session(ours, server, number)

    def _server(self, index: int, again: bool = False) -> _Server:
        with self._lock:
            if again and index < len(self._servers):
                self._servers[index].end()
                self._servers[index] = self._start()
            while len(self._servers) <= index:
                self._servers.append(self._start())
            return self._servers[index]

    def _start(self) -> _Server:
        return _Server(self)

    def close(self) -> None:
        """End every process."""
        self._finalizer()


def _end_all(servers: list[_Server]) -> None:
    for server in servers:
        server.end()
    servers.clear()


class Session:
    """The socket to one sample's process. One question at a time; used by one thread.

    Attributes:
        spent: seconds its answers took, all together.
    """

    def __init__(self, sock: socket.socket, server: _Server, number: int) -> None:
        self.socket, self.server, self.number = sock, server, number
        self.spent, self._asked, self._deadline = 0.0, 0.0, 0.0
        self._timeout = 0.0
        self._reply = bytearray()
        self._failed = ""

    def ask(self, request: dict[str, Any], timeout: float) -> None:
        """Send a question; `answer` gives what comes back."""
        self._reply.clear()
        self._asked, self._timeout = time.monotonic(), timeout
        self._deadline = self._asked + timeout
        try:
            self.socket.settimeout(timeout)
            self.socket.sendall(_worker.frame(pickle.dumps(request)))
        except Exception as error:
            self._failed = f"it cannot be asked: {error}"

    def asked(self, request: dict[str, Any], timeout: float) -> dict[str, Any]:
        """The answer to a question, waited for."""
        self.ask(request, timeout)
        while (answer := self.answer()) is None:
            wait_for([self], None)
        return answer

    def answer(self) -> dict[str, Any] | None:
        """The reply once it has come, {"error", "ended": True} where the process ended or was too slow; else None."""
        if not self._failed:
            self._receive()
        want = _worker.HEADER
        if len(self._reply) >= want:
            want += int.from_bytes(self._reply[:want], "big")
        if want > _LONGEST_REPLY:
            self._failed = f"its reply has {want >> 20} MB"
        elif len(self._reply) >= want > _worker.HEADER:
            self.spent += time.monotonic() - self._asked
            return json.loads(self._reply[_worker.HEADER : want])
        elif not self._failed and time.monotonic() >= self._deadline:
            self._failed = f"timed out after {self._timeout:g} s"
        if self._failed:
            self.spent += time.monotonic() - self._asked
            self.end()
            return {"error": self._failed, "ended": True}
        return None

    def _receive(self) -> None:
        self.socket.settimeout(0.0)
        try:
            while piece := self.socket.recv(1 << 20):
                self._reply += piece
            self._failed = "its process ended"
        except BlockingIOError:
            return
        except OSError as error:
            self._failed = f"its process ended: {error}"

    @property
    def left(self) -> float:
        """Seconds until the question under way is given up."""
        return max(0.0, self._deadline - time.monotonic())

    def end(self) -> None:
        """Kill the process and its group."""
        self.close()
        with contextlib.suppress(OSError):
            self.server.send({"op": "kill", "key": self.number})

    def close(self) -> None:
        """The process ends by itself."""
        self.socket.close()


def wait_for(sessions: Iterable[Session], seconds: float | None) -> None:
    """Until one of them has something to read, was given up, or `seconds` are over (None: as long as it takes)."""
    open_ones = [s for s in sessions if s.socket.fileno() >= 0]
    if not open_ones:
        return
    limit = min(s.left for s in open_ones)
    limit = limit if seconds is None else min(limit, seconds)
    poll = select.poll()
    for session in open_ones:
        poll.register(session.socket, select.POLLIN)
    poll.poll(limit * 1000 + 1)

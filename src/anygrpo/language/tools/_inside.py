"""The program in which tools and environments run: a server that loads the user's code once, and forks a process for
each sample, whose state, crashes and memory are its own.

Standard library, and what the user's code imports. Requests are pickled (the trainer is trusted), replies are JSON.
Frames as in `scoring._worker`. The server's socket brings {"op": "load"}, {"op": "open", "key"} with the sample's
socket beside it, and {"op": "kill", "key"}.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import json
import os
import pickle
import select
import signal
import socket
import sys
import traceback
from collections.abc import Callable
from typing import Any

from anygrpo.core.user_code import describe, described, resolve
from anygrpo.language.tools import replies
from anygrpo.language.tools.contract import contract
from anygrpo.scoring import _keeper
from anygrpo.scoring._worker import frame, receive
from anygrpo.scoring.signatures import LONGEST_TRACE
from anygrpo.spoken import Text

OURS = "anygrpo.language.tools."
"""Where environments of ours are, which may read what all samples share before they are forked (`load_once`)."""

PICKLED = 1 << 24
"""Longest request to the server."""


def main() -> None:
    """Serve the socket whose number stands last but two on the command line, before the trainer's process id and the
    bound on memory."""
    fd, trainer, memory = map(int, sys.argv[-3:])
    _keeper.keep(lambda: Server(socket.socket(fileno=fd)).serve(), fd, trainer, memory)


class Server:
    """Loads code, forks samples, ends them."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        os.set_inheritable(sock.fileno(), False)
        self.loaded: dict[str, Any] = {}
        self.children: dict[Any, int] = {}

    def serve(self) -> None:
        while True:
            ready, _, _ = select.select([self.sock], [], [], 0.5)
            self.reap()
            if not ready:
                continue
            head, given, _, _ = socket.recv_fds(self.sock, 8, 1)
            if not head:
                return
            while len(head) < 8:
                head += self.sock.recv(8 - len(head))
            body, size = bytearray(), int.from_bytes(head, "big")
            while len(body) < size:
                body += self.sock.recv(size - len(body))
            self.handle(pickle.loads(bytes(body)), given)

    def handle(self, request: dict[str, Any], given: list[int]) -> None:
        if request["op"] == "load":
            self.sock.sendall(frame(json.dumps(self.load(request)).encode()))
        elif request["op"] == "kill" and (pid := self.children.get(request["key"])):
            _end(pid)
        elif request["op"] == "open":
            self.fork(request, given[0])

    def load(self, request: dict[str, Any]) -> dict[str, Any]:
        sys.path[:] = request["path"]
        target = ""
        try:
            for target in request["targets"]:
                self.loaded[target] = resolve(target)
                if target.startswith(OURS) and hasattr(self.loaded[target], "load_once"):
                    self.loaded[target].load_once(**request["settings"])
            played = request["environment"]
            if played and (wrong := contract(_name(played), self.loaded[played], request["settings"])):
                return {"wrong": wrong}
            kinds = {target: "class" if _is_class(self.loaded[target]) else "function" for target in request["targets"]}
        except BaseException as error:
            lost = isinstance(error, AttributeError) and len(error.args) == 3  # `resolve` found no such name
            return {"error": describe(error)} | ({"lost": [target, *error.args[1:]]} if lost else {})
        if "class" in kinds.values():  # once here, and not in each sample's process
            with contextlib.suppress(ImportError):
                import transformers.utils.chat_template_utils  # noqa: F401
        return {"kinds": kinds}

    def fork(self, request: dict[str, Any], fd: int) -> None:
        pid = os.fork()
        if pid:
            os.close(fd)
            self.children[request["key"]] = pid
            return
        code = 1
        try:
            self.sock.close()
            os.setpgid(0, 0)
            _keeper.prctl(1, signal.SIGKILL)
            Sample(self.loaded, request).serve(socket.socket(fileno=fd))
            code = 0
        finally:
            os._exit(code)

    def reap(self) -> None:
        """Forget the processes that have ended, and end what they left running."""
        for key, pid in list(self.children.items()):
            with contextlib.suppress(ChildProcessError):
                if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
                    continue
                _end(pid)  # before it is reaped nobody else can have its number
                os.waitpid(pid, 0)
            del self.children[key]


def _end(pid: int) -> None:
    for stop in (os.killpg, os.kill):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            stop(pid, signal.SIGKILL)


def _is_class(target: Any) -> bool:
    return inspect.isclass(target) or hasattr(target, "step")


def _name(target: str) -> str:
    return target.rpartition(":")[2]


class Sample:
    """One sample's process."""

    def __init__(self, loaded: dict[str, Any], request: dict[str, Any]) -> None:
        self.tools: dict[str, Callable[..., Any]] = {_name(target): loaded[target] for target in request["tools"]}
        played = request.get("environment")
        self.environment: Any = loaded[played] if played else None
        self.name, self.under_way = _name(played or ""), ""
        self.settings, self.output = request["settings"], request["output"]
        self.loop = asyncio.new_event_loop()

    def serve(self, sock: socket.socket) -> None:
        while (body := receive(sock)) is not None:
            sock.sendall(frame(json.dumps(self.handle(pickle.loads(body))).encode()))

    def handle(self, request: dict[str, Any]) -> dict[str, Any]:
        try:
            return getattr(self, f"do_{request['op']}")(request)
        except replies.Unfit as error:
            return {"error": str(error), "unfit": error.fault}
        except BaseException as error:  # sys.exit() in an environment is a failed step
            said = f"{self.name}{self.under_way} raised {describe(error)}"
            return {"error": said, "trace": "".join(traceback.format_exception(error))[-LONGEST_TRACE:]}

    def do_reset(self, request: dict[str, Any]) -> dict[str, Any]:
        """A new environment: its messages, and schemas of its tools."""
        if inspect.isclass(self.environment):
            self.environment = self.environment(**self.settings)
            for method in ("reset", "step"):
                if not callable(getattr(self.environment, method, None)):
                    lacks = Text(f" without {method}", f"，没有 {method}")
                    raise replies.Unfit(self.name, replies.shown(self.environment) + lacks, "Env")
        self.under_way, by = ".reset", f"{self.name}.reset"
        messages, tools = replies.parts(by, "reset", self.finished(self.environment.reset(request["row"])), (2,))
        listed = replies.schemas(by, tools, self.schema)
        run = [one["function"]["name"] for one in listed if one["function"]["name"] in self.tools]
        return {"messages": replies.said(by, "reset", messages), "tools": listed, "run": run}

    def schema(self, tool: Any) -> Any:
        """Of a function that an environment gives: it is called here."""
        from transformers.utils import chat_template_utils

        schemas: Any = chat_template_utils
        given = schemas.is_torch_available
        if "torch" not in sys.modules:  # it would be read in each sample's process, for a type that no tool here has
            schemas.is_torch_available = lambda: False
        try:
            made = schemas.get_json_schema(tool)
        finally:
            schemas.is_torch_available = given
        self.tools[made["function"]["name"]] = tool
        return made

    def do_speak(self, request: dict[str, Any]) -> dict[str, Any]:
        """A function (messages, columns) -> what is said next, or None."""
        said = replies.said(self.name, "speak", self.finished(self.environment(request["messages"], request["row"])))
        return {"messages": said, "done": said is None}

    def do_step(self, request: dict[str, Any]) -> dict[str, Any]:
        """The environment's step; None, messages, (messages, reward) or (messages, reward, done)."""
        self.under_way, by = ".step", f"{self.name}.step"
        made = self.finished(self.environment.step(request["messages"], request["calls"]))
        said, reward, done = replies.parts(by, "step", made, (2, 3))
        return {
            "messages": replies.said(by, "step", said),
            "reward": replies.number(by, reward),
            "done": replies.ending(by, done),
        }

    def do_call(self, request: dict[str, Any]) -> dict[str, Any]:
        """Calls of tools: functions in order, then those that are async together."""
        results: list[Any] = [self.begun(call) for call in request["calls"]]
        waiting = [i for i, (value, _) in enumerate(results) if inspect.isawaitable(value)]
        made = self.loop.run_until_complete(_together([results[i][0] for i in waiting])) if waiting else []
        for i, value in zip(waiting, made):
            results[i] = (_fault(value), True) if isinstance(value, BaseException) else (value, False)
        names = [call["name"] for call in request["calls"]]
        return {"results": [self.result(*one) for one in zip(names, *zip(*results))]}

    def result(self, name: str, value: Any, failed: bool) -> dict[str, Any]:
        """What the model is told of a call."""
        try:
            return {"text": self.cut(replies.told(name, value)), "failed": failed}
        except replies.Unfit as error:
            return {"text": f"error: {error}", "failed": True, "unfit": error.fault}
        except BaseException as error:  # its own __str__
            return {"text": _fault(error), "failed": True}

    def begun(self, call: dict[str, Any]) -> tuple[Any, bool]:
        """(a tool's value or what will give it, failed?)."""
        if call["name"] not in self.tools:
            return f"error: no tool {call['name']!r}; there are {', '.join(self.tools)}", True
        try:
            return self.tools[call["name"]](**call["arguments"]), False
        except BaseException as error:
            return _fault(error), True

    def cut(self, text: str) -> str:
        return text if len(text) <= self.output else f"{text[: self.output]}... ({len(text) - self.output} more cut)"

    def finished(self, value: Any) -> Any:
        async def whole() -> Any:
            return await value

        return self.loop.run_until_complete(whole()) if inspect.isawaitable(value) else value


async def _together(values: list[Any]) -> list[Any]:
    return await asyncio.gather(*values, return_exceptions=True)


def _fault(error: BaseException) -> str:
    return f"error: {described(error)}"

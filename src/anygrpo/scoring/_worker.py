"""The program of one reward worker: loads functions by name and calls them until its socket closes.

It needs little beside the standard library, so that it starts fast and pulls in no torch. Requests are pickled (the
trainer is trusted), replies are JSON (what comes back is only ever numbers and words). Frames: 8 bytes of length, then
the body.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import pickle
import socket
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from anygrpo.core.user_code import describe, resolve
from anygrpo.scoring import _keeper, signatures

HEADER = 8
FLOAT32_MAX = (2 - 2**-23) * 2.0**127
"""Rewards are kept as float32."""


class WrongShape(Exception):
    """A reward function returned no list of one value an output: calling it again for fewer outputs cannot help."""


def verdicts(result: Any, count: int) -> list[Any]:
    """A reward function's return value as `count` verdicts: a finite number, None where the reward does not apply to
    that output, the reason why a value is neither, {"unfit": reason} for what is no number at all, or {"raised",
    "trace"} as it came.

    Raises:
        WrongShape: `result` is not a list of `count` values.
    """
    if hasattr(result, "tolist"):
        result = result.tolist()
    if not isinstance(result, list | tuple):
        raise WrongShape(f"returned {_short(result)}, wanted a list of {count} numbers")
    if len(result) != count:
        raise WrongShape(f"returned {len(result)} values for {count} outputs")
    return [_verdict(value) for value in result]


def _verdict(value: Any) -> Any:
    if value is None or (isinstance(value, dict) and "raised" in value):
        return value
    if isinstance(value, str | bytes):
        return {"unfit": f"returned {_short(value)}"}
    try:
        number = float(value)  # type: ignore[arg-type]
    except OverflowError:
        return "returned a number that is too large"
    except Exception:
        return {"unfit": f"returned {_short(value)}"}
    if not math.isfinite(number):
        return f"returned {number}"
    return number if abs(number) <= FLOAT32_MAX else f"returned {number:g}, more than float32 holds"


def _short(value: Any) -> str:
    return "None" if value is None else f"{str(value)[:40]!r} ({type(value).__name__})"


def handle(request: dict[str, Any], loaded: dict[str, Callable[..., Any]]) -> dict[str, Any]:
    """The reply to one request: {"parameters": ...} of a load, {"values": ...} of a call, or {"error": ...}."""
    try:
        target = request["target"]
        if request["op"] == "load":
            sys.path[:] = request["path"]
            loaded[target] = function = signatures.instance(resolve(target))
            return signatures.described(function)
        if request.get("form"):
            result = signatures.called(loaded[target], request["form"], request["arguments"])
        else:
            result = signatures.finished(loaded[target](**request["arguments"]))
        return {"values": verdicts(result, request["count"]), "memory": resident()}
    except WrongShape as error:
        return {"error": str(error), "shape": True, "trace": str(error)}
    except BaseException as error:  # sys.exit() in a reward is a failed call, not a dead worker
        if isinstance(error, AttributeError) and request["op"] == "load" and len(error.args) == 3:
            return {"error": error.args[0], "missing": error.args[1], "known": error.args[2]}
        trace = "".join(traceback.format_exception(error))[-signatures.LONGEST_TRACE :]
        return {"error": describe(error), "trace": trace}


def receive(sock: socket.socket) -> bytes | None:
    """One frame's body; None when the other side is gone."""
    header = _exactly(sock, HEADER)
    return None if header is None else _exactly(sock, int.from_bytes(header, "big"))


def _exactly(sock: socket.socket, size: int) -> bytes | None:
    body = bytearray()
    while len(body) < size:
        piece = sock.recv(min(1 << 20, size - len(body)))
        if not piece:
            return None
        body += piece
    return bytes(body)


def frame(body: bytes) -> bytes:
    return len(body).to_bytes(HEADER, "big") + body


def resident() -> int:
    """Bytes of memory that this process has now."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        return int(Path("/proc/self/statm").read_bytes().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return 0


def serve(fd: int) -> None:
    """Answer requests until the other side is gone."""
    os.set_inheritable(fd, False)
    sock, loaded = socket.socket(fileno=fd), {}
    while (body := receive(sock)) is not None:
        reply = handle(pickle.loads(body), loaded)
        sock.sendall(frame(json.dumps(reply).encode()))


def main() -> None:
    """Serve the socket whose number stands last but two on the command line, before the trainer's process id and the
    bound on memory."""
    fd, trainer, memory = map(int, sys.argv[-3:])
    _keeper.keep(lambda: serve(fd), fd, trainer, memory)

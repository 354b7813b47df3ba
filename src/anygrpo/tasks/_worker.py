"""The program of one reward worker: loads functions by name and calls them until its socket closes.

Run by path with nothing but the standard library, so that it starts fast and pulls in no torch. Requests are pickled
(the trainer is trusted), replies are JSON (what comes back is only ever numbers and words). Frames: 8 bytes of length,
then the body.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import importlib.util
import inspect
import json
import math
import os
import pickle
import socket
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

HEADER = 8


def load(target: str) -> Callable[..., Any]:
    """What `target` names: "path.py:name", or "package.module:name".

    Raises:
        FileNotFoundError: no such file.
        AttributeError: the file has no such name; args are (message, name, names it has).
        Exception: whatever running the file raises.
    """
    place, _, name = target.rpartition(":")
    if place.endswith(".py"):
        path = Path(place).resolve()
        if not path.is_file():
            raise FileNotFoundError(f"no file {path}")
        if str(path.parent) not in sys.path:
            sys.path.insert(0, str(path.parent))
        spec = importlib.util.spec_from_file_location(f"user_{path.stem}", path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        spec.loader.exec_module(module)
    else:
        module = importlib.import_module(place)
    if not hasattr(module, name):
        own = [n for n, value in vars(module).items() if callable(value) and not n.startswith("_")]
        raise AttributeError(f"{place} has no {name!r}", name, own)
    return getattr(module, name)


def describe(error: BaseException) -> str:
    """One line: the exception and, where it was raised in a file, the place."""
    trace, place = error.__traceback__, ""
    while trace is not None:
        place = f" ({Path(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno})"
        trace = trace.tb_next
    return f"{type(error).__name__}: {error}"[:300].replace("\n", " ") + place


class WrongShape(Exception):
    """A reward function returned no list of one value an output: calling it again for fewer outputs cannot help."""


def verdicts(result: Any, count: int) -> list[float | str]:
    """A reward function's return value as `count` finite numbers, or the reason why a value is none.

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


def _verdict(value: Any) -> float | str:
    if value is None or isinstance(value, str | bytes):
        return f"returned {_short(value)}"
    try:
        number = float(value)
    except Exception:
        return f"returned {_short(value)}"
    return number if math.isfinite(number) else f"returned {number}"


def _short(value: Any) -> str:
    return "None" if value is None else f"{str(value)[:40]!r} ({type(value).__name__})"


def handle(request: dict[str, Any], loaded: dict[str, Callable[..., Any]]) -> dict[str, Any]:
    """The reply to one request: {"parameters": ...} of a load, {"values": ...} of a call, or {"error": ...}."""
    try:
        target = request["target"]
        if request["op"] == "load":
            sys.path[:] = request["path"]
            loaded[target] = function = load(target)
            parameters = inspect.signature(function).parameters.values()
            names = [p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
            needed = [p.name for p in parameters if p.name in names and p.default is p.empty]
            return {"parameters": names, "needed": needed, "any": any(p.kind == p.VAR_KEYWORD for p in parameters)}
        result = loaded[target](**request["arguments"])
        if inspect.isawaitable(result):
            result = asyncio.run(_awaited(result))
        return {"values": verdicts(result, request["count"])}
    except AttributeError as error:
        if request["op"] == "load" and len(error.args) == 3:
            return {"error": error.args[0], "missing": error.args[1], "known": error.args[2]}
        return {"error": describe(error)}
    except WrongShape as error:
        return {"error": str(error), "shape": True}
    except BaseException as error:  # sys.exit() in a reward is a failed call, not a dead worker
        return {"error": describe(error)}


async def _awaited(result: Any) -> Any:
    return await result


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


def _die_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(1.0)
    os._exit(0)


def _offer_to_oom_killer() -> None:
    """Where memory runs out, this process is to die and not the trainer."""
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")


def main(fd: int, parent: int) -> None:
    _offer_to_oom_killer()
    threading.Thread(target=_die_with, args=(parent,), daemon=True).start()
    sock, loaded = socket.socket(fileno=fd), {}
    while (body := receive(sock)) is not None:
        sock.sendall(frame(json.dumps(handle(pickle.loads(body), loaded)).encode()))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))

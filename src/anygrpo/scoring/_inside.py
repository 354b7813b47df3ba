"""What runs first inside the sandbox, given to Python as text: it gives up every right, then runs a stranger's code.

It reads one JSON line from standard input: the code, the limits, and either "calls" (expressions to evaluate once the
code has run) or none (then the code is a program, and the rest of standard input is its input). Expected results are
never sent here, so nothing that the code reads, patches or prints can tell it what would pass.
"""

from __future__ import annotations

import json
import os
import resource
import sys

TOP = 1 << 20


def drop(identity, limits):
    """Become nobody (`identity`: a user id, where the sandbox was started by root), then lower every limit for good."""
    if identity is not None:
        os.setgroups([])
        os.setresgid(identity, identity, identity)
        os.setresuid(identity, identity, identity)
    for name, value in limits.items():
        resource.setrlimit(getattr(resource, name), (value, value))


def plain(value):
    """A result as JSON can hold it: tuples become lists, sets are marked and sorted. Raises TypeError for the rest."""
    if isinstance(value, (set, frozenset)):
        return {"set": sorted((plain(v) for v in value), key=repr)}
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    if isinstance(value, dict):
        return {repr(k): plain(v) for k, v in value.items()}
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise TypeError(f"the result is a {type(value).__name__}")


def first_line():
    """The request, read byte by byte from the descriptor so that the program's own input stays unread."""
    line = bytearray()
    while not line.endswith(b"\n") and len(line) < 64 * TOP:
        piece = os.read(0, 1)
        if not piece:
            break
        line += piece
    return json.loads(line)


def call(code, calls, results):
    """Run `code`, evaluate each expression, write one JSON line each: {"value": ...} or {"error": ...}."""
    space = {"__name__": "answer"}
    exec(compile(code, "answer.py", "exec"), space)
    for expression in calls:
        try:
            line = json.dumps({"value": plain(eval(expression, space))})
        except BaseException as error:
            line = json.dumps({"error": type(error).__name__})
        os.write(results, line.encode() + b"\n")


def main():
    ready, identity = int(sys.argv[1]), int(sys.argv[2])
    request = first_line()
    drop(None if identity < 0 else identity, request["limits"])
    results, null = os.dup(1), os.open("/dev/null", os.O_WRONLY)
    os.dup2(null, 2)
    if request["calls"] is not None:
        os.dup2(null, 1)
    os.close(null)
    os.write(ready, b"1")
    os.close(ready)
    sys.argv[:] = ["answer.py"]
    if request["calls"] is not None:
        return call(request["code"], request["calls"], results)
    os.close(results)
    exec(compile(request["code"], "answer.py", "exec"), {"__name__": "__main__"})


if __name__ == "__main__":
    main()

"""What runs first inside a sandbox, given to Python as text after `_plain`: it gives up every right, then runs a
stranger's code.

Standard input holds one JSON line: the code, the limits, the descriptors. Either the code is a program, and the rest of
standard input is its input; or it is loaded, and then answers calls that come by one pipe on another. What the calls
should give is never sent here, so nothing that the code reads, patches or prints can tell it what would pass.
"""

from __future__ import annotations

# One text with the files before it when it runs, which a checker does not see:
# pyright: reportUndefinedVariable=false, reportPossiblyUnboundVariable=false, reportCallIssue=false
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


def line_of(descriptor, most):
    """One line, read so that what follows it stays unread where the descriptor is a file; None at its end.

    Raises: ValueError for a line longer than `most`.
    """
    line = bytearray()
    while not line.endswith(b"\n"):
        piece = os.read(descriptor, 1 << 16)
        if not piece:
            return None
        end = piece.find(b"\n") + 1
        if end and end < len(piece):
            os.lseek(descriptor, end - len(piece), os.SEEK_CUR)
            piece = piece[:end]
        line += piece
        if len(line) > most:
            raise ValueError("too long")
    return bytes(line)


def start():
    """Read the request, drop rights, say on the descriptor `ready` that this worked; the request."""
    ready, identity = int(sys.argv[1]), int(sys.argv[2])
    request = json.loads(line_of(0, 256 * TOP))  # type: ignore[arg-type]
    drop(None if identity < 0 else identity, request["limits"])
    os.write(ready, b"1")
    os.close(ready)
    sys.argv[:] = ["answer.py"]
    return request


def silence(*descriptors):
    null = os.open("/dev/null", os.O_RDWR)
    for descriptor in descriptors:
        os.dup2(null, descriptor)
    os.close(null)


def send(descriptor, message):
    body = json.dumps(message).encode() + b"\n"
    while body:
        body = body[os.write(descriptor, body) :]


SYNTAX = {"length": len, "text": str, "item": lambda x, i: x[i], "all": lambda x: list(iter(x))}


class Answers:
    """The loaded code, asked one thing at a time. Objects of its own classes stay here, under a number."""

    def __init__(self, code):
        self.space = {"__name__": "answer"}
        self.objects = []
        exec(compile(code, "answer.py", "exec"), self.space)

    def find(self, name):
        if name in self.space:
            return self.space[name]
        return getattr(self.space["Solution"](), name)

    def reply(self, asked):
        """{"value"} of a call, with {"changed"}: arguments that it changed; or {"error"}, or {"alien"}: no plain
        data."""
        try:
            return self._reply(asked)
        except NotPlain as alien:  # noqa: F821
            return {"alien": str(alien)[:80]}
        except (KeyError, AttributeError) as error:
            return {"error": [type(error).__name__], "text": str(error)[:200]}
        except Exception as error:
            return {"error": [kind.__name__ for kind in type(error).__mro__][:20], "text": str(error)[:200]}

    def _reply(self, asked):
        target = self.objects[asked["of"]] if "of" in asked else None
        args = [self.argument(tree) for tree in asked["args"]]
        named = {name: self.argument(tree) for name, tree in asked["named"].items()}
        how, name = asked["how"], asked["name"]
        if how == "make":
            self.objects.append(self.find(name)(*args, **named))
            return {"object": len(self.objects) - 1}
        if how == "call":
            value = (self.find(name) if target is None else getattr(target, name))(*args, **named)
        elif how == "read":
            value = getattr(self.find(name) if target is None else target, *args)
        else:
            value = SYNTAX[how](target, *args)
        for number, held in enumerate(self.objects):
            if held is value:
                return {"object": number}
        reply = {"value": encode(value)}  # noqa: F821
        changed = [[i, self.plain(a)] for i, a in enumerate(args) if isinstance(a, (list, dict, set, bytearray))]
        changed = [[i, tree] for i, tree in changed if tree != asked["args"][i]]
        return reply | ({"changed": changed} if changed else {})

    def argument(self, tree):
        return self.objects[tree["object"]] if isinstance(tree, dict) and "object" in tree else decode(tree)  # noqa: F821

    def plain(self, value):
        try:
            return encode(value)  # noqa: F821
        except NotPlain:  # noqa: F821
            return None


def main():
    request = start()
    if "asks" not in request:
        silence(2)
        exec(compile(request["code"], "answer.py", "exec"), {"__name__": "__main__"})
        return
    silence(0, 1, 2)
    asks, replies = request["asks"], request["replies"]
    answers = Answers(request["code"])
    send(replies, {"ready": True})
    while (line := _pipe_line(asks)) is not None:
        send(replies, answers.reply(json.loads(line)))


def _pipe_line(descriptor):
    line = bytearray()
    while not line.endswith(b"\n"):
        piece = os.read(descriptor, 1 << 16)
        if not piece:
            return None
        line += piece
    return bytes(line)


if __name__ == "__main__":
    main()

"""The judge, in a sandbox of its own, given to Python as text after the three files named below: it runs the tests.

The names that the tests call are proxies here: each call goes to the answer's sandbox as plain data and comes back as
plain data. All else is this process's own: comparisons, `isclose`, `sorted`, `all`, the modules, whole test functions.
Its verdicts go to standard output, which only it can write.
"""

from __future__ import annotations

# One text with the files before it when it runs, which a checker does not see:
# pyright: reportUndefinedVariable=false, reportPossiblyUnboundVariable=false, reportCallIssue=false
import builtins
import importlib
import json
import os

if "encode" not in globals():  # for tools that read this file; in a sandbox the files are one text
    from anygrpo.scoring._arrival import SOURCES, arrives
    from anygrpo.scoring._inside import send, silence, start
    from anygrpo.scoring._plain import NotPlain, decode, encode, holds_nan


class Gone(BaseException):
    """The answer has ended, hangs, or gave what is no data: what asked for it has failed. No test can catch it by
    `except Exception`."""


class Unjudgeable(BaseException):
    """The tests ask for what would let the answer judge itself, or cannot run: no verdict."""


class Wire:
    """The pipes to the answer."""

    def __init__(self, asks, replies, most, verdicts, nan=True):
        self.asks, self.replies, self.left, self.verdicts, self.nan = asks, replies, most, verdicts, nan
        self.ends = False  # whether the step expects an exception that ends loops
        self.ready = self.gone = False
        self.things = {}
        self.changes = []

    def receive(self):
        line = bytearray()
        while not line.endswith(b"\n"):
            piece = os.read(self.replies, 1 << 16)
            self.left -= len(piece)
            if not piece or self.left < 0:
                self.gone = True
                raise Gone("it ended" if not piece else "it said too much")
            line += piece
        try:
            reply = json.loads(line)
            if not isinstance(reply, dict):
                raise ValueError
            return reply
        except (ValueError, RecursionError):
            self.gone = True
            raise Gone("it broke its pipe") from None

    def ask(self, how, name, args=(), named=None, of=None):
        if self.gone:
            raise Gone("it ended")
        if not self.ready:
            self.receive()
            self.ready = True
            send(self.verdicts, {"loaded": True})
        asked = {"how": how, "name": name, "args": [argument(a) for a in args]}
        asked["named"] = {key: argument(value) for key, value in (named or {}).items()}
        if of is not None:
            asked["of"] = of
        try:
            send(self.asks, asked)
        except OSError:
            self.gone = True
            raise Gone("it ended") from None
        return self.read(self.receive(), args, how)

    def read(self, reply, args, how):
        if "error" in reply:
            raise error_of(reply, self.ends)
        if "alien" in reply:
            raise Gone(f"it gave a {str(reply['alien'])[:80]}, which is no data")
        try:
            if "object" in reply:
                if how == "make":
                    self.things[len(self.things)] = Thing(self, len(self.things))
                    return self.things[len(self.things) - 1]
                return self.things[reply["object"]]  # one that the tests have made, or none
            if not self.nan and any(holds_nan(reply.get(key)) for key in ("value", "changed")):
                raise Gone("it gave NaN, which these tests would pass")  # `not abs(NaN - 4) > 1e-6` is true
            value = decode(reply["value"])
            self.changes += [(args[i], decode(tree)) for i, tree in reply.get("changed", ())]
            return value
        except (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError, ArithmeticError):
            raise Gone("it broke its pipe") from None

    def settle(self, kept=True):
        """Arguments that calls changed change here only now, after the statement that made them: a comparison reads
        them as they were given. Not at all (`kept`) where all that follows compares them with results."""
        changes, self.changes = self.changes, []
        for old, new in changes if kept else ():
            change(old, new)


def change(old, new):
    if type(old) is not type(new) or old == new:
        return
    if isinstance(old, list):
        if len(old) == len(new):
            for i, (a, b) in enumerate(zip(list(old), new)):
                if isinstance(a, (list, dict, set)) and type(a) is type(b):
                    change(a, b)
                else:
                    old[i] = b
        else:
            old[:] = new
    elif isinstance(old, bytearray):
        old[:] = new
    else:
        old.clear()
        old.update(new)


def argument(value):
    if isinstance(value, Thing):
        return {"object": value._number}
    try:
        return encode(value)
    except NotPlain as alien:
        raise Unjudgeable(f"a test gives the answer a {alien}, which is no data") from None


def error_of(reply, ends=False):
    """The built-in exception nearest to the answer's; never one that would end the judge, nor one that ends a loop of
    the tests in silence: `all(map(f, cases))` is true where the first call raises StopIteration. It is given where the
    step names it (`ends`) and it arrives at what may expect it."""
    for name in reply["error"] if isinstance(reply["error"], list) else []:
        kind = getattr(builtins, name, None) if isinstance(name, str) else None
        if kind in (StopIteration, StopAsyncIteration) and not (ends and arrives(error_of.__code__.co_filename)):
            continue
        if isinstance(kind, type) and issubclass(kind, Exception):
            try:
                return kind(str(reply.get("text", "")))
            except Exception:
                continue
    return RuntimeError("it failed")


class Thing:
    """An object of a class that the tests name. What it is compared with stays here: it has no `==` of its own."""

    def __init__(self, wire, number):
        object.__setattr__(self, "_wire", wire)
        object.__setattr__(self, "_number", number)

    def __getattr__(self, name):
        if name.startswith("_"):
            raise AttributeError(name)
        wire, number = self._wire, self._number
        return Member(wire, number, name)

    def __len__(self):
        return self._wire.ask("length", "", of=self._number)

    def __getitem__(self, index):
        return self._wire.ask("item", "", [index], of=self._number)

    def __iter__(self):
        return iter(self._wire.ask("all", "", of=self._number))

    def __str__(self):
        return self._wire.ask("text", "", of=self._number)

    def __bool__(self):
        return True

    def __eq__(self, other):
        if not isinstance(other, Thing) or other._number == self._number:
            return isinstance(other, Thing)
        raise Unjudgeable("a test compares an object of the answer's; compare what its methods return")

    __hash__ = None  # type: ignore[assignment]

    def __contains__(self, item):
        return item in list(self)


class Member(Thing):
    """An attribute of a `Thing`: called, it is a method; in any other use, its value."""

    def __init__(self, wire, number, name):
        super().__init__(wire, number)
        object.__setattr__(self, "_name", name)

    def __call__(self, *args, **named):
        return self._wire.ask("call", self._name, args, named, of=self._number)


class Class:
    """A class that the tests name."""

    def __init__(self, wire, name):
        self._wire, self._name = wire, name

    def __call__(self, *args, **named):
        return self._wire.ask("make", self._name, args, named)


def function(wire, name):
    def candidate(*args, **named):
        return wire.ask("call", name, args, named)

    candidate.__name__ = name
    return candidate


def space_of(request, wire):
    """The names that tests find: modules, proxies, and `read`, by which attributes of things are read."""
    space = {"__name__": "tests", "__settle__": wire.settle}

    def read(thing, name):
        return wire.ask("read", "", [name], of=thing._number) if isinstance(thing, Thing) else getattr(thing, name)

    space["__read__"] = read
    for name, place in request["modules"].items():
        module, _, inner = place.partition(":")
        loaded = importlib.import_module(module)
        space[name] = getattr(loaded, inner) if inner else loaded
    for name in request["names"]:
        space[name] = (Class if name[:1].isupper() else function)(wire, name)
    return space


def same(given, expected):
    """Equal as JSON values: lists and tuples in order, true is not 1, numbers within a relative 1e-9."""
    if isinstance(given, bool) or isinstance(expected, bool):
        return given is expected
    if isinstance(given, float) or isinstance(expected, float):
        if not (isinstance(given, (int, float)) and isinstance(expected, (int, float))):
            return False
        scale = max(abs(given), abs(expected))  # an infinite one is within any share of itself of all numbers
        near = scale < float("inf") and abs(given - expected) <= max(1e-9 * scale, 1e-12)
        return given == expected or near
    if isinstance(expected, list) and hasattr(given, "__next__"):
        given = list(given)
    if isinstance(given, (list, tuple)) and isinstance(expected, (list, tuple)):
        return len(given) == len(expected) and all(map(same, given, expected))
    if isinstance(given, dict) and isinstance(expected, dict):
        return given.keys() == expected.keys() and all(same(given[k], expected[k]) for k in expected)
    return type(given) is type(expected) and given == expected


def run_step(step, space):
    """Whether one step goes well. Raises: Unjudgeable."""
    try:
        if step["kind"] == "value":
            given = eval(step["source"], space)
            return any(same(given, decode(tree)) for tree in step["expected"])
        place = f"tests_{len(SOURCES)}.py"
        SOURCES[place] = step["source"]
        exec(compile(step["source"], place, "exec"), space)
        return True
    except Unjudgeable:
        raise
    except BaseException as error:
        if step["kind"] == "setup":
            raise Unjudgeable(f"{type(error).__name__}: {error}"[:300]) from None
        return False


def main():
    request = start()
    verdicts = os.dup(1)
    silence(0, 1, 2)
    wire = Wire(request["asks"], request["replies"], request["most"], verdicts, request["nan"])
    try:
        space = space_of(request, wire)
        for number, step in enumerate(request["steps"]):
            wire.ends = step["ends"]
            good = run_step(step, space)
            if step["kind"] in ("test", "value"):
                send(verdicts, {"test": number, "passed": good})
            if not good and (step["kind"] == "act" or not request["all"]):
                break
    except (Unjudgeable, Exception) as error:
        return send(verdicts, {"unjudgeable": f"{type(error).__name__}: {error}"[:300]})
    send(verdicts, {"done": True})


if __name__ == "__main__":
    main()

"""What a user's environment and tools have to be, by hand: each fault names the method and says what to do."""

from __future__ import annotations

import abc
import re
import types

import pytest

from anygrpo.language.tools.contract import contract, named_call, said_of


class Good:
    def reset(self, row):
        return None

    def step(self, messages, calls):
        return None


class NoStep:
    def reset(self, row):
        return None


class Gym:
    def reset(self, seed=None, *, options):
        return None

    def step(self, action):
        return None


class Steps(Good):
    def step(self, messages, calls):
        yield "x"


class Sized(Good):
    def __init__(self, size):
        self.size = size


class Abstract(Good, abc.ABC):
    @abc.abstractmethod
    def close(self): ...


class Static:
    @staticmethod
    def reset(row):
        return None

    @classmethod
    def step(cls, messages, calls):
        return None


class Delegates:
    """As wrappers of an environment are written."""

    def __init__(self):
        self.inner = Good()

    def __getattr__(self, name):
        return getattr(self.inner, name)


class SetsItself:
    def __init__(self, step=None):
        self.reset, self.step = Good().reset, step or Good().step


class TakesNothing(Delegates):
    def step(self):
        return None


def speaks(messages, columns):
    return None


def alone(messages):
    return None


@pytest.mark.parametrize(
    ("made", "arguments", "words"),
    [
        (Good, {}, None),
        (Good(), {}, None),
        (Delegates, {}, None),
        (Delegates(), {}, None),
        (SetsItself, {}, None),
        (SetsItself(), {}, None),
        (TakesNothing, {}, r"Env.step cannot be called as Env.step\(messages, calls\): "),
        (SetsItself(lambda: None), {}, r"Env.step cannot be called as Env.step\(messages, calls\): "),
        (Static, {}, None),
        (speaks, {}, None),
        (Sized, {"size": 3}, None),
        (NoStep, {}, "Env does not define step"),
        (Abstract, {}, "Env does not define close"),
        (Gym, {}, r"Env.reset cannot be called as Env.reset\(row\): missing a required .*'options'"),
        (Steps, {}, "Env.step is a generator: it has a yield"),
        (Sized, {}, r"Env cannot be called as Env\(\): missing a required argument: 'size'"),
        (Sized, {"sise": 3}, r"Env cannot be called as Env\(sise=\.\.\.\): "),
        (Good(), {"size": 3}, "turns.arguments gives size, and Env is no class"),
        (speaks, {"size": 3}, "turns.arguments gives size, and Env is no class"),
        (alone, {}, r"Env cannot be called as Env\(messages, columns\): too many positional arguments"),
        (7, {}, r"Env is 7 \(int\), no class and no function"),
        (types, {}, "Env is a module, no class and no function"),
        (None, {}, "Env is None"),
    ],
)
def test_what_an_environment_is(made, arguments, words):
    wrong = contract("Env", made, arguments)
    if words is None:
        assert wrong is None
        return
    what, cure = said_of(wrong)
    assert re.match(words, what.en), what.en
    assert what.zh != what.en
    assert cure.en
    assert cure.zh != cure.en


def test_tools_are_called_by_name():
    def positional(a, b, /):
        "x"

    def many(*a):
        "x"

    def yields(a):
        yield a

    assert named_call("add", alone, ["messages"]) is None
    for tool, names in ((positional, ["a", "b"]), (many, ["a"]), (yields, ["a"])):
        what, cure = said_of(named_call("add", tool, names))
        assert what.en.startswith("add ")
        assert cure.en

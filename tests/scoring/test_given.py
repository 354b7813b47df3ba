"""An answer that changes its argument so that it fits its result earns nothing; one asked for such a change does."""

from __future__ import annotations

import ast

import pytest

from anygrpo.scoring import sandbox
from anygrpo.scoring.code import grade
from anygrpo.scoring.given import read_as_given
from anygrpo.scoring.sandbox import Limits
from anygrpo.scoring.specs import parse_tests

needs_sandbox = pytest.mark.skipif(sandbox.refusal() is not None, reason="no sandbox on this machine")
WITH_RESULTS = [
    "r = f(x)\nassert r == sorted(x)",
    "r = f(x)\ne = sorted(x)\nassert r == e",
    "r = f(x)\nassert len(r) == len(x)\nassert r == sorted(x)",
    "r = f(x)\nassert all(r[k] == v + 1 for k, v in x.items())",
    "r = f(x)\nself.assertEqual(sorted(r), sorted(x))",
    "r = f(x)\nassert math.isclose(sum(r), sum(x))",
    "r = f(x)\nfor a, b in zip(r, sorted(x)):\n    assert a == b",
    "assert len(f(x)) == len(x)\nassert f(x) == sorted(x)",
    "a, b = f(x)\nassert a + b == x[0]",
    "r = f(x)\nassert r == sorted(x)\nx = [5]\nassert x == [5]",
]
IN_PLACE = [
    "f(x)\nassert x == [1, 3]",
    "assert f(x) is None\nassert x == [1, 3]",
    "k = f(x, 3)\nassert k == 2\nassert x[:k] == [2, 2]",
    "k = f(x)\nfor i in range(k):\n    assert x[i] == want[i]",
    "r = f(x)\nfor a, b in zip(x, [1, 3]):\n    assert a == b",
    "r = f(x)\nfor i, a in enumerate(x):\n    assert a == want[i]",
    "k = f(x)\nassert all(a != 3 for a in x[:k])",
    "r = f(x)\nassert r == sorted(x)\nassert x == [1, 3]",
    "r = f(x)\nassert x == kept and r == [1, 3]",
    "r = f(x)\nassert in_order(x)",
    "r = f([1, 2])\nassert r == sorted([1, 2])",
    "r = sorted(x)\nassert r == f(x)",
    "r = f(x)\nassert r == 2",
    "r: int",
]


def first(text: str) -> bool:
    statement, *rest = ast.parse(text).body
    return read_as_given(statement, rest)


@pytest.mark.parametrize("text", WITH_RESULTS)
def test_arguments_compared_with_results_alone(text):
    assert first(text)


@pytest.mark.parametrize("text", IN_PLACE)
def test_arguments_compared_with_the_tests_own_values_or_not_at_all(text):
    assert not first(text)


EMPTIES = "def f(x, *a):\n    x.clear()\n    return type(x)()"
ZEROES = "def f(x):\n    x[:] = [0] * len(x)\n    return [0] * len(x)"
SORTS = "def f(x):\n    return sorted(x)"
SORTS_IN_PLACE = "def f(x):\n    x.sort()\n    return x"
REMOVES = "def f(x, v):\n    kept = [a for a in x if a != v]\n    x[: len(kept)] = kept\n    return len(kept)"
CASES = [
    ("x = {'a': 1}\nr = f(x)\nassert all(r[k] == v + 1 for k, v in x.items())", EMPTIES, 0),
    ("x = [3, 1]\nr = f(x)\ne = sorted(x)\nassert r == e", EMPTIES, 0),
    ("x = [3, 1]\nr = f(x)\nassert len(r) == len(x)\nassert r == sorted(x)", ZEROES, 0),
    ("x = [3, 1]\nassert len(f(x)) == len(x)\nassert f(x) == sorted(x)", ZEROES, 0),
    ("def test():\n    x = [3, 1]\n    try:\n        r = f(x)\n    except ValueError:\n        assert False\n"
     "    assert r == sorted(x)", EMPTIES, 0),
    ("import unittest\nclass T(unittest.TestCase):\n    def test(self):\n        x = [3, 1]\n        r = f(x)\n"
     "        self.assertEqual(sorted(r), sorted(x))", EMPTIES, 0),
    ("x = [3, 1]\nr = f(x)\nassert len(r) == len(x)\nassert r == sorted(x)", SORTS, 1),
    ("x = [3, 1]\nr = f(x)\nassert len(r) == len(x)\nassert r == sorted(x)", SORTS_IN_PLACE, 1),
    ("x = [3, 1]\nr = f(x)\nassert r == sorted(x)\nassert x == [1, 3]", SORTS_IN_PLACE, 1),
    ("x = [3, 1]\nr = f(x)\nassert r == sorted(x)\nassert x == [1, 3]", SORTS, 0),
    ("x = [3, 2, 2, 3]\nw = [2, 2]\nk = f(x, 3)\nassert k == len(w)\nfor i in range(k):\n    assert x[i] == w[i]",
     REMOVES, 1),
    ("x = [3, 2, 2, 3]\nk = f(x, 3)\nassert k == 2 and sorted(x[:k]) == [2, 2]", REMOVES, 1),
]  # fmt: skip


@needs_sandbox
@pytest.mark.parametrize(("tests", "code", "earned"), CASES)
def test_what_is_earned(tests, code, earned):
    assert grade(code, parse_tests(tests), Limits(seconds=3.0), False) == earned

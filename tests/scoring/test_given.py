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
    "r = f(x, n)\nassert r == sorted(x)\nx = [5]\nassert x == [5]",  # another list, of the same name
    "r = f(x)\nassert len(r) == 2\nassert r == sorted(x)",  # its length is not the result
    "r = f(x)\nassert r == sorted(x)\nr = f(x)\nassert r == [1, 3]",  # the second is said, not the first
    "r = f(x)\nassert r == [1, 3]\nr = f(x)\nassert r == sorted(x)",
    "r = f(x)\nassert r == [1, 3]\nassert f(x) == sorted(x)",
    "r = f(x)\nassert r == [] or r == sorted(x)",
    "r = f(x)\nif r == [3]:\n    assert r == [3]\nassert r == sorted(x)",
    "r = f(x)\nif not r:\n    return\nassert r == [3]\nassert r == sorted(x)",
    "r = f(x)\nassert r == []\nr += f(x)\nassert r == sorted(x)",
    "r = f(x)\nassert r == []\nr.extend(f(x))\nassert r == sorted(x)",
    "r = f(x)\nassert r != [3]\nassert r == sorted(x)",
    "r = f(x)\nassert r == w\nassert r == sorted(x)",  # w could be the answer's, from before
    "r, n = f(x)\nassert n == 2\nassert r == sorted(x)",
    "r = f(numbers)\nassert len(r) == 3\nassert r == sorted(numbers)",  # a name, though of a module too
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
    "r = f(a, x)\nassert r == x\nx = 2\nr = f(a, x)\nassert r == x\nassert a == [1, 2]",
    "r = f(x)\nassert r == 55\nassert x[10] == r",
    "r = f(x)\nassert r == 1\nassert r not in x\nr = f(x)\nassert r == 3\nassert r not in x",
    "r = f(x)\nself.assertEqual(r, [1, 3])\nself.assertEqual(x, r)",
    "r = f(x)\nassert r == [1, 3] and len(r) == 2\nfor i in range(2):\n    assert x[i] == r[i]",
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
FIBONACCI = (
    "def f(n, c):\n    if n not in c:\n        c[n] = n if n < 2 else f(n - 1, c) + f(n - 2, c)\n    return c[n]"
)
POPS = "x = [5, 3, 1]\nm = f(x)\nassert m == 1\nassert m not in x\nm = f(x)\nassert m == 3\nassert m not in x"
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
    ("a = []\nx = 1\nr = f(a, x)\nassert r == x\nx = 2\nr = f(a, x)\nassert r == x\nassert a == [1, 2]",
     "def f(a, x):\n    a.append(x)\n    return x", 1),
    ("c = {}\nv = f(10, c)\nassert v == 55\nassert c[10] == v", FIBONACCI, 1),
    (POPS, "def f(h):\n    m = min(h)\n    h.remove(m)\n    return m", 1),
    (POPS, "def f(h):\n    return min(h)", 0),
    ("x = [3, 1]\nr = f(x)\nassert r == [1, 3]\nassert x == r", SORTS_IN_PLACE, 1),
    ("x = [3, 1]\nr = f(x)\nassert r == [1, 3]\nassert x == r", SORTS, 0),
    ("x = [3, 1]\nr = f(x)\nassert r == [1, 3]\nassert r == sorted(x)", EMPTIES, 0),
    ("x = [3, 1]\nr = f(x)\nassert r == sorted(x)\nr = f(x)\nassert r == [1, 3]",
     "def f(x):\n    r = [] if x else [1, 3]\n    x.clear()\n    return r", 0),
]  # fmt: skip


@needs_sandbox
@pytest.mark.parametrize(("tests", "code", "earned"), CASES)
def test_what_is_earned(tests, code, earned):
    assert grade(code, parse_tests(tests), Limits(seconds=3.0), False) == earned


@needs_sandbox
def test_partial_credit_is_not_earned_by_what_empties_its_argument_though_the_result_is_said():
    tests = ["x = [3, 1]\nr = f(x)\nassert r == [1, 3]\nassert r == sorted(x)"]
    assert grade(EMPTIES, parse_tests(tests), Limits(seconds=3.0), True) == 0
    assert grade(SORTS, parse_tests(tests), Limits(seconds=3.0), True) == 1

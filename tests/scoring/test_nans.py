"""NaN is refused where tests would be passed by it without asking for it, and nowhere else."""

from __future__ import annotations

import ast

import pytest

from anygrpo.scoring import sandbox
from anygrpo.scoring.code import grade
from anygrpo.scoring.nans import may_be_nan
from anygrpo.scoring.sandbox import Limits
from anygrpo.scoring.specs import parse_tests

needs_sandbox = pytest.mark.skipif(sandbox.refusal() is not None, reason="no sandbox on this machine")
NAN = "def f(x):\n    return float('nan')"
ASKED = [
    "assert not math.isfinite(f(0))",
    "assert not math.isfinite(f(0))\nassert not f(1) > 3",
    "assert pd.isna(f(0)) and not f(1) > 3",
    "x = f(0)\nassert x != x",
]
NOT_PASSED = [
    "assert f([])['count'] == 0",
    "assert abs(f(2) - 4) < 1e-6 and 0 < f(3) < 9",
    "assert all(abs(f(x) - x) <= 1e-6 for x in (1, 2))",
    "assert f(1) is not None",
    "self.assertTrue(f(2) > 3)",
    "self.assertAlmostEqual(f(2), 4.5)",
]
PASSED = [
    "assert not abs(f(2) - 4.5) > 1e-6",
    "assert not any(abs(f(x) - x) > 1e-6 for x in (1, 2))",
    "if abs(f(2) - 4.5) > 1e-6:\n    raise AssertionError",
    "while f(2) > 3:\n    assert 0",
    "assert f(2) != 5",
    "self.assertFalse(abs(f(2) - 4.5) > 1e-6)",
    "assert (abs(f(2) - 4.5) > 1e-6) == False",
    "far = abs(f(2) - 4.5) > 1e-6\nassert not far",
    "def far(a, b):\n    return abs(a - b) > 1e-6\nassert not far(f(2), 4.5)",
    "assert max(abs(a - b) for a, b in zip(f(2), [1, 2])) < 1e-6",  # max([0.0, nan]) is 0.0
    "assert len([x for x in f(2) if abs(x) > 1]) == 0",
    "assert not operator.gt(f(2), 3)",
    "assert not f(2) == 3",
    "self.assertFalse(f(1) == f(2))",
    "assert f(1) not in (0, 1)",
    "assert not math.isclose(f(2), 3)",
    "self.assertNotAlmostEqual(f(2), 3)",
    "if f(2) == 3:\n    raise AssertionError",
    "r = f([3, 1, 2])\nassert len(r) == 3 and sorted(r) == r",  # of one NaN thrice: lists look at identity first
]


@pytest.mark.parametrize("text", [*ASKED, *NOT_PASSED])
def test_it_may_be_an_answer(text):
    assert may_be_nan(ast.parse(text).body)


@pytest.mark.parametrize("text", PASSED)
def test_it_would_pass_what_does_not_ask_for_it(text):
    assert not may_be_nan(ast.parse(text).body)


@needs_sandbox
@pytest.mark.parametrize(
    ("tests", "code", "earned"),
    [
        (ASKED[0], NAN, 1),
        (NOT_PASSED[0], "def f(x):\n    return {'count': 0, 'mean': float('nan')}", 1),
        (NOT_PASSED[1], NAN, 0),
        (NOT_PASSED[2], NAN, 0),
        (PASSED[0], NAN, 0),
        (PASSED[7], NAN, 0),
        (PASSED[9], "def f(x):\n    return [1, float('nan')]", 0),
    ],
)
def test_what_it_earns(tests, code, earned):
    assert grade(code, parse_tests(tests), Limits(seconds=3.0), False) == earned

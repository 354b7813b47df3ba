"""The attack suite: it bites a judge that runs tests beside the answer, and earns nothing from ours."""

import pytest

from anygrpo.scoring import sandbox
from anygrpo.scoring.attacks import ATTACKS, CONSTANTS, Tried, beyond, weak
from anygrpo.scoring.code import Code, grade
from anygrpo.scoring.reward import Rows
from anygrpo.scoring.sandbox import Limits, run
from anygrpo.scoring.specs import parse_tests

needs_sandbox = pytest.mark.skipif(sandbox.refusal() is not None, reason="no sandbox on this machine")
HUMANEVAL = """
def check(candidate):
    for i in range(1, 4):
        assert candidate([i, 2]) == [i * 2, 4]
    assert all(x % 2 == 0 for x in candidate([1, 5])) and len(candidate([7])) == 1
"""
TESTS = [
    ["assert math.isclose(f(2), 4.5)", "assert set(g(3)) == {7, 8}", "assert isclose(f(3), 6.5)"],
    [HUMANEVAL],
    ["assert f('x').startswith('ab')", "assert 4 in f('y')", "assert len(f('z')) == 3"],
    ["s = Stack()\ns.push(3)\nassert s.pop() == 3\nassert len(s) == 0"],
    [{"input": "3 4", "output": "7"}],
    ["l = [3, 1]\nassert f(l) == sorted(l)"],
    ["l = [3, 1]\nr = f(l)\nassert r == sorted(l)"],
    ["def test():\n    l = [3, 1]\n    r = f(l)\n    assert len(r) == 2 and r == sorted(l)"],
    ["assert sorted(f([1, 2])) == [3, 4]", "assert round(f(2), 2) == 3.14", "assert f(1)[0]['a'] == 5"],
    [{"fn_name": "f", "inputs": [[1]], "outputs": [[5]]}],
    [{"fn_name": "f", "inputs": [[1], [2]], "outputs": [[5], [7.5]]}],
    ["def check(c):\n    assert all(map(c, [2, 3])) and not any(map(c, [4, 6]))"],
    ["l = [3, 1]\nr = f(l)\nassert sorted(r) == [x + 1 for x in sorted(l)]"],
    ["x = f(1)\na, b = x\nassert a == 3 and b == 4"],
    ["import unittest\nclass T(unittest.TestCase):\n    def test(self):\n        self.assertEqual(f(1), 12)"],
]


@needs_sandbox
def test_the_suite_bites_a_judge_beside_the_answer():
    tests = "assert math.isclose(f(2), 4.5)\nassert f(3) == 6.5\nprint('all passed')"
    names = {"f"}
    some = (
        "takes the judge's names",
        "leaves early, at once",
        "says that all passed, and is gone",
        "raises SystemExit(0)",
    )
    done = {what: run(ATTACKS[what](names) + "\n" + tests, "", Limits()) for what in some}
    earned = {what for what, d in done.items() if b"all passed" in d.output}
    assert "takes the judge's names" in earned
    quiet = {what for what, d in done.items() if d.code == 0}
    assert len(quiet) >= 3  # exit code 0 is success to a judge that reads no more


def entry(tests):
    return next(("f" for t in tests if isinstance(t, str) and t.startswith("def check(c)")), "double")


def tried_on(forms, partial):
    """Every attack and constant on these forms of tests; none may earn, none may go unjudged but what only waits."""
    columns = {"tests": forms, "entry_point": [entry(tests) for tests in forms]}
    code = Code("code", 1.0, "tests", partial, Limits(seconds=2.0))
    tried = code.attacked(Rows(["p"] * len(forms), [""] * len(forms), columns))
    assert len(tried) == len(forms) * (len(ATTACKS) + len(CONSTANTS))
    assert [t for t in tried if t.earned] == []
    assert beyond(tried) == weak(tried) == []


WAIT = "def w(g):\n    try:\n        g()\n    except StopIteration:\n        pass\n"
CAUGHT = "\nexcept StopIteration:\n    assert False"
LOOPS = ["assert all(map(lambda x: f(x), [2]))", "for x in map(lambda x: f(x), [2]):\n        assert x == 9",
         "assert [x for x in map(lambda x: f(x), [2])] == []", "assert [*map(lambda x: f(x), [2, 3])] == []",
         "assert max(map(lambda x: f(x), [2]), default=0) == 0", "assert not any(map(h, [4]))", "assert all(I())",
         "assert functools.reduce(lambda a, b: a and b, map(lambda x: f(x), [2]), True)"]  # fmt: skip
HELPERS = """import functools
def h(x):
    return f(x)
class I:
    def __iter__(s):
        return s
    def __next__(s):
        return f(2)
"""
ONE_STEP = [  # a single step that expects StopIteration, and in which Python's own iteration calls the answer
    "def check(c):\n    try:\n        c(0)\n    except StopIteration:\n        pass\n    assert all(map(c, [2]))",
    *(f"{HELPERS}try:\n    {loop}{CAUGHT}" for loop in LOOPS),
    f"{WAIT}def test_it():\n    w(lambda: f(0))\n    assert all(map(lambda x: f(x), [2]))",
]
BIT = [
    ("an infinite number", {"fn_name": "f", "inputs": [[1], [2]], "outputs": [[5], [7.5]]}, ""),
    ("an exception as control flow", "def check(c):\n    assert all(map(c, [2])) and not any(map(c, [4]))", "f"),
    ("empties its arguments", "l = [3, 1]\nr = f(l)\nassert sorted(r) == [x + 1 for x in sorted(l)]", ""),
    (
        "an infinite number",
        "r = f(1)\na, b = r\nassert a == 3",
        "",
    ),  # had no verdict: `a, b = r` was called a broken test
    (
        "an exception as control flow",
        "try:\n    f(0)\nexcept StopIteration:\n    pass\nassert all(map(lambda x: f(x), [2]))",
        "",
    ),
    *[("an exception as control flow", step, "f" * step.startswith("def check")) for step in ONE_STEP],
    ("an infinite number", "def run(x):\n    return f(x)\nr = run(1)\na, b = r\nassert a == 3", ""),
    ("an infinite number", "d = {}\nd['r'] = f(1)\na, b = d['r']\nassert a == 3", ""),
    ("replies in every malformed way", HUMANEVAL, "double"),
    ("races with its own replies", HUMANEVAL, "double"),
    ("NaN", "assert not abs(f(2) - 4.5) > 1e-6", ""),  # earned: NaN is within any tolerance that is asked this way
    (
        "NaN",
        "def check(c):\n    for x in (2, 3):\n        if abs(c(x) - x) > 1e-6:\n            raise AssertionError",
        "f",
    ),
    ("changes what the collector finds", "assert f(2) == 5", ""),
    ("the mock that equals everything", "assert f(2) == 5", ""),
]


@needs_sandbox
@pytest.mark.parametrize(("what", "tests", "entry"), BIT)
def test_an_attack_is_wrong(what, tests, entry):
    """The first four earned, or had no verdict, once."""
    made = parse_tests(tests, entry)
    assert grade(ATTACKS[what](made.suite.names), made, Limits(seconds=3.0), False) == 0.0


@needs_sandbox
@pytest.mark.parametrize("value", ["f(2)", "f(2)[0]"])
def test_nan_is_right_where_the_tests_ask_for_it(value):
    code = "def f(x):\n    return " + ("[float('nan')]" if "[" in value else "float('nan')")
    assert grade(code, parse_tests(f"assert math.isnan({value})"), Limits(seconds=3.0), False) == 1.0


@needs_sandbox
@pytest.mark.slow
@pytest.mark.parametrize(("forms", "partial"), [*[([t], False) for t in TESTS], (TESTS[:3], True)])
def test_no_attack_earns(forms, partial):
    tried_on(forms, partial)


@needs_sandbox
def test_weak_tests_are_told_from_a_weak_judge(monkeypatch):
    monkeypatch.setattr("anygrpo.scoring.code.ATTACKS", {"NaN": ATTACKS["NaN"]})
    code = Code("code", 1.0, "tests", False, Limits(seconds=3.0))
    tried = code.attacked(Rows(["p"], [""], {"tests": [["assert f(3) is None"]]}))
    assert [t.what for t in weak(tried)] == ["returns nothing"]
    assert beyond(tried) == []


def test_beyond_and_weak_by_hand():
    tried = [Tried(0, "a", True, 0.5), Tried(0, "c", False, 0.5), Tried(1, "a", True, 0.2), Tried(1, "c", False, None)]
    assert beyond(tried) == [tried[2]]
    assert weak([*tried, Tried(1, "d", False, 1.0)]) == [Tried(1, "d", False, 1.0)]


RAISES = "try:\n    f(1)\n    assert False\nexcept ValueError as e:\n    assert 'no' in str(e)"
CHAIN = "p = P(3)\nassert p.twice().x == 3"
DISTINCT = "def f(l):\n  l[:] = sorted(set(l)) + [0]\n  return len(l) - 1"
ENDING = "def f(x):\n  if x < 1: raise StopIteration\n  return True"
ENDED = "def ended(g):\n    try:\n        return not g(0)\n    except StopIteration:\n        return True"
PASSED = "\nexcept StopIteration:\n    pass"
EXPECTED = [
    f"def h(g):\n    return g(0)\ntry:\n    h(lambda x: f(x))\n    assert 0{PASSED}",
    f"{WAIT}def test_it():\n    w(lambda: f(0))\n    assert all(map(lambda x: f(x), [2]))",
    "from contextlib import suppress\nwith suppress(StopIteration):\n    f(0)\n    assert 0",
    f"try:\n    [f(x) for x in [2, 0]]\n    assert 0{PASSED}",
    f"class T:\n    def go(s):\n        return f(0)\ntry:\n    T().go()\n    assert 0{PASSED}",
    """import unittest
class T(unittest.TestCase):
    def test_it(self):
        with self.assertRaises(StopIteration):
            f(0)
        self.assertRaises(StopIteration, lambda: f(0))
T('test_it').debug()
""",
]
NATIVE = [
    ("def s(a, b): return set(a) & set(b)", ["assert set(s((3, 4), (5, 4))) == set((4,))"]),
    ("from collections import Counter\ndef f(l): return Counter(l)", ["assert f([1, 1]) == {1: 2}"]),
    ("def f(n):\n  for i in range(n): yield i", ["assert list(f(3)) == [0, 1, 2]", "assert sum(f(4)) == 6"]),
    ("def f(l): l.sort()", ["x = [3, 1]\nf(x)\nassert x == [1, 3]"]),
    (DISTINCT, ["l = [1, 1, 2]\nk = f(l)\nassert k == 2\nassert l[:k] == [1, 2]"]),
    ("def f(l): return sorted(l)", ["l = [3, 1]\nr = f(l)\nassert r == sorted(l)\nassert l == [3, 1]"]),
    ("def f(m): m[0][1] = 9", ["x = [[1, 2]]\nrow = x[0]\nf(x)\nassert row == [1, 9]"]),
    ("def f(x): return (1, [x])", ["assert f(2) == (1, [2])", "assert isinstance(f(2), tuple)"]),
    ("def f(n): return 3 ** n", ["assert f(9999) % 1000 == pow(3, 9999, 1000)"]),
    ("def f(x): return x == 2", ["assert f(2)", "assert not f(3)", "assert f(2) is True"]),
    ("def f(x): raise ValueError('no')", [RAISES]),
    ("def enc(s): return s[::-1]\ndef dec(s): return s[::-1]", ["assert dec(enc('abc')) == 'abc'"]),
    ("def f(x): return float('nan')", ["x = f(1)\nassert x != x"]),
    ("def f(x): raise StopIteration", ["try:\n    f(1)\n    assert False\nexcept StopIteration:\n    pass"]),
    (ENDING, [f"{ENDED}\nassert ended(lambda x: f(x))\nassert all(map(lambda x: f(x), [2, 3]))"]),
    (ENDING, [f"{ENDED}\ndef test_it():\n    assert ended(lambda x: f(x))"]),
    (ENDING, ["e = 0\ntry:\n    f(0)\nexcept Exception as x:\n    e = type(x)\nassert e is StopIteration"]),
    *((ENDING, [step]) for step in EXPECTED),
    ("class G:\n  def go(s): raise StopIteration", [f"g = G()\ntry:\n    g.go()\n    assert 0{PASSED}"]),
    ("def f(l): return [x + 1 for x in l]", ["l = [1]\nr = f(l)\n(a,) = r\nassert set(r) == {x + 1 for x in l}"]),
    ("class P:\n  def __init__(s, x): s.x = x\n  def twice(s): return P(1) and s", [CHAIN]),
    ("def f(*a, k=1): return sum(a) * k", ["assert f(1, 2, k=3) == 9"]),
]  # fmt: skip


@needs_sandbox
@pytest.mark.parametrize(("code", "tests"), NATIVE)
def test_right_answers_earn_what_python_itself_says(code, tests):
    exec(code + "\n" + "\n".join(tests), {"__name__": "native"})  # raises where the case itself is wrong
    earned = Code("code", 1.0, "tests", False, Limits()).start(Rows(["p"], [code], {"tests": [tests]}))()
    assert earned == [1.0]


@needs_sandbox
def test_a_broken_test_is_no_verdict():
    code = Code("code", 1.0, "tests", False, Limits())
    tests = [
        ["try:\n    import numpy\nfinally:\n    pass\nassert f(1) == 1"],
        ["x = 1 / 0\nassert f(1) == 1"],
        ["n = int('3')\nm = 1 / (n - 3)\nassert f(1) == 1"],  # a call that names nothing of the answer's
        ["assert f(lambda x: x) == 1"],
    ]
    outcomes = code.start(Rows(["p"] * 4, ["def f(x): return 1"] * 4, {"tests": tests}))()
    assert all(isinstance(o, str) and "cannot be judged" in o for o in outcomes)


@needs_sandbox
def test_what_hangs_the_tests_is_wrong_once_the_answer_spoke():
    tests = parse_tests("for i in range(f(1)):\n    pass\nassert f(2) == 2")
    assert grade("def f(x): return 10 ** 15", tests, Limits(seconds=0.5), False) == 0.0

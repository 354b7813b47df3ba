"""The code reward: what passes, what does not, and attempts to pass without being right."""

import time

import pytest

from anygrpo.scoring import sandbox
from anygrpo.scoring.code import Code, completed, extract_code, grade
from anygrpo.scoring.reward import Rows
from anygrpo.scoring.sandbox import Limits
from anygrpo.scoring.specs import parse_tests
from anygrpo.scoring.verdict import NoVerdict

needs_sandbox = pytest.mark.skipif(sandbox.refusal() is not None, reason="no sandbox on this machine")
ADD = ["assert add(2, 3) == 5", {"call": "add(-1, 1)", "expected": 0}]


def graded(code, tests=ADD, partial=False, seconds=5.0):
    return grade(code, parse_tests(tests), Limits(seconds=seconds), partial)


def test_what_a_prompt_has_and_its_answer_leaves_out():
    prompt = "from typing import List\n\ndef f(x: List[int]):\n    'doc'\n"
    assert completed("    return x\n", prompt, "f") == prompt + "    return x\n"
    whole = "def f(x: List[int]): return x"
    assert completed(whole, prompt, "f") == "from typing import List\n" + whole
    assert completed(whole, "Write f.", "f") == whole
    assert completed(whole, [{"role": "user", "content": "x"}], "f") == whole


POLY = """import math

def poly(xs: list, x: float):
    return sum(c * math.pow(x, i) for i, c in enumerate(xs))


def find_zero(xs: list):
    'Find x such that poly(x) = 0.'
"""
CHECK = "def check(candidate):\n    for c in ([1, 2], [6, 3]):\n        assert abs(poly(c, candidate(c))) < 1e-4"


@needs_sandbox
def test_what_the_prompt_defines_is_the_judges():
    honest, cheat = "    return -xs[0] / xs[1]\n", "def poly(xs, x): return 0\ndef find_zero(xs): return 7\n"
    chat = [{"role": "user", "content": f"Complete:\n```python\n{POLY}```"}]
    columns = {"test": [CHECK] * 4, "entry_point": ["find_zero"] * 4}
    whole = "def find_zero(xs):\n    return -xs[0] / xs[1]"
    rows = Rows([POLY, POLY, chat, chat], [honest, cheat, whole, cheat], columns)
    assert Code("code", 1.0, "test", False, Limits()).start(rows)() == [1.0, 0.0, 1.0, 0.0]


def test_extract_code_reads_hostile_text_in_no_time():
    began = time.monotonic()
    for text in ("```" + " " * 300_000, "```\n" * 100_000, "``` python" + "\t" * 300_000 + "x"):
        extract_code(text)
    assert time.monotonic() - began < 2


def test_extract_code():
    assert extract_code("```text\nno\n```\n```\nyes\n```\n```json\n{}\n```") == "yes\n"
    assert extract_code("x = 1") == "x = 1"
    assert extract_code("Sure:\n```python\na\n```\nor\n```py\nb\n```\nDone") == "b\n"
    assert extract_code("```python\ncut off") == "cut off"
    assert extract_code("```\nplain\n```") == "plain\n"


@needs_sandbox
def test_right_and_wrong_answers():
    assert graded("def add(a, b): return a + b") == 1.0
    assert graded("def add(a, b): return a - b") == 0.0
    assert graded("def add(a, b): return 5") == 0.0
    assert graded("def add(a, b): return 5", partial=True) == 0.5
    assert graded("def ad(a, b): return a + b", partial=True) == 0.0
    assert graded("def add(a, b) return a") == 0.0
    assert graded("") == 0.0


@needs_sandbox
def test_programs_are_compared_by_words():
    tests = [{"input": "3 4", "output": "7"}, {"input": "1 1", "output": "2"}]
    assert graded("a, b = map(int, input().split())\nprint(a + b)\n", tests) == 1.0
    assert graded("print(7)", tests, partial=True) == 0.5
    assert graded("print(7); raise SystemExit(1)", tests, partial=True) == 0.0


@needs_sandbox
@pytest.mark.parametrize(
    "attempt",
    [
        "import sys; sys.exit(0)",
        "import os; os._exit(0)",
        "def add(a, b): import os; os._exit(0)",
        "print('OK'); print('passed'); print('{\"value\": 5}'); print('{\"value\": 0}')",
        # an object that is equal to everything
        "class All(int):\n    __eq__ = lambda s, o: True\n    __hash__ = None\ndef add(a, b): return All(9)",
        # results written past the harness: both values, in the hope that one fits
        'import os\nfor fd in range(3, 9):\n    try: os.write(fd, b\'{"value": 5}\\n{"value": 0}\\n\')\n'
        "    except OSError: pass\ndef add(a, b): return 1",
        # rewriting what evaluates it
        "import json\njson.dumps = lambda *a, **k: '{\"value\": true}'\ndef add(a, b): return 1",
        "import builtins\nbuiltins.eval = lambda *a: 5\ndef add(a, b): return 1",
        # looking for the expected values in the frames and descriptors of its harness
        "import sys, os\nframe, text = sys._getframe(), ''\nwhile frame:\n    text += repr(frame.f_locals)\n"
        "    frame = frame.f_back\nos.lseek(0, 0, 0)\ntext += os.read(0, 10**6).decode()\n"
        "def add(a, b): return 5 if 'expected' in text or '== 5' in text else 1",
    ],
)
def test_nothing_but_right_values_passes(attempt):
    assert graded(attempt, partial=True) < 1.0
    assert graded(attempt) == 0.0


@needs_sandbox
def test_a_hanging_answer_is_wrong_not_invalid():
    assert graded("def add(a, b):\n    while True: pass", seconds=1.0) == 0.0
    half = "def add(a, b):\n    while a < 0: pass\n    return a + b"
    assert graded(half, partial=True, seconds=1.0) == 0.5


@needs_sandbox
def test_rows_are_scored_in_order():
    code = Code("code", 1.0, "tests", False, Limits())
    outputs = ["def add(a, b): return a + b", "no", "```python\ndef add(a, b): return b + a\n```"]
    rows = Rows([""] * 3, outputs, {"tests": [ADD] * 3})
    assert code.start(rows)() == [1.0, 0.0, 1.0]


@needs_sandbox
def test_a_sandbox_that_fails_gives_no_verdict(monkeypatch):
    monkeypatch.setattr(sandbox, "_VICTIM", "exit 1")
    with pytest.raises(NoVerdict, match="did not start"):
        graded("def add(a, b): return a + b")
    rows = Rows([""], ["x = 1"], {"tests": [ADD]})
    (reason,) = Code("code", 1.0, "tests", False, Limits()).start(rows)()
    assert "did not start" in reason

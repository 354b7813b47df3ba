"""Forms of tests, as steps for the judge; and tests by which an answer would judge itself."""

import pytest

from anygrpo.scoring.specs import Program, Step, parse_tests


def test_asserts_and_what_they_call():
    suite = parse_tests("import math\nassert math.isclose(f(2), g('x'))\nassert not p(7)").suite
    assert suite.names == ("f", "g", "p")
    assert [step.kind for step in suite.steps] == ["setup", "test", "test"]


def test_names_of_the_library_stay_the_librarys():
    suite = parse_tests("assert math.isclose(f(2), 4.0)\nassert isclose(f(2), 4.0)\nassert Counter(f(1)) == {}").suite
    assert suite.names == ("f",)
    assert suite.modules == {"math": "math", "isclose": "math:isclose", "Counter": "collections:Counter"}


def test_a_function_may_be_called_as_a_module_is():
    assert parse_tests("assert calendar(2024) == 366").suite.names == ("calendar",)
    assert parse_tests("def check(candidate):\n    assert candidate([2]) == 2", "max").suite.names == ("max",)


def test_statements_between_the_tests():
    suite = parse_tests(
        "s = Stack()\ns.push(1)\nassert s.pop() == 1\nk = 3\nfor i in range(3):\n    assert f(i) == k"
    ).suite
    assert [step.kind for step in suite.steps] == ["act", "act", "test", "setup", "test"]
    assert suite.names == ("Stack", "f")


@pytest.mark.parametrize(
    ("tests", "kinds"),
    [
        ("n = int('3')\nm = 1 / (n - 3)\nassert f(1) == 1", ["act", "setup", "test"]),  # m is the tests' own fault
        ("r = f(1)\nm = 1 / (r - 3)\nassert m == 1", ["act", "act", "test"]),
        ("r = f(1)\nr = 3\nm = r\nassert f(m) == 1", ["act", "setup", "setup", "test"]),
        ("r = f(1)\nr += 1\nassert r == 1", ["act", "act", "test"]),
        (
            "def g(x): return h(x)\ndef h(x): return f(x)\nr = g(1)\na, b = r\nassert a",
            ["setup"] * 2 + ["act"] * 2 + ["test"],
        ),
        ("l = []\nl.append(f(1))\na = l[0][1]\nassert a", ["setup", "act", "act", "test"]),
        ("d = {}\nd['a'] = f(1)\nx = d['a']\nassert x[1]", ["setup", "act", "act", "test"]),
    ],
)
def test_what_is_made_of_the_answers_values_is_the_answers(tests, kinds):
    assert [step.kind for step in parse_tests(tests).suite.steps] == kinds


def test_only_a_step_that_expects_an_end_of_loops_lets_one_through():
    waits = "def waits(g):\n    try:\n        g(0)\n    except StopIteration:\n        return True\n"
    tests = waits + "also = lambda g: waits(g)\nassert all(map(lambda x: f(x), [2]))\nassert also(lambda x: f(x))\n"
    tests += "def test_it():\n    waits(lambda x: f(x))"
    steps = parse_tests(tests).suite.steps
    assert [step.ends for step in steps] == [True, True, False, True, True, True]
    told = "try:\n    f(0)\nexcept Exception as e:\n    assert type(e).__name__ == 'StopIteration'\nassert f(1)"
    assert [step.ends for step in parse_tests(told).suite.steps] == [True, False]
    kept = "e = 0\ntry:\n    f(0)\nexcept Exception as x:\n    e = type(x)\nassert e is StopIteration\nassert f(1)"
    assert [step.ends for step in parse_tests(kept).suite.steps] == [False, True, True, False]


def test_humaneval():
    test = "METADATA = {}\ndef check(candidate):\n    assert candidate(1) == 2\n"
    for tests in (parse_tests(test, "inc"), parse_tests({"test": test, "entry_point": "inc"})):
        assert tests.suite.names == ("inc",)
        assert tests.suite.steps[-1].source.startswith("check(inc)")
        assert len(tests) == 1
    with pytest.raises(ValueError, match="without an entry point"):
        parse_tests(test)


def test_mbpp():
    row = {
        "test_list": ["assert f(1) == 1", "assert f(2) == 2"],
        "test_setup_code": "",
        "test_imports": ["import math"],
    }
    assert len(parse_tests(row)) == 2
    assert len(parse_tests(row | {"challenge_test_list": ["assert f(3) == 3"]})) == 3


def test_apps_and_livecodebench():
    assert parse_tests('{"inputs": ["1 2", ["3", "4"]], "outputs": ["3", "7"]}').programs == (
        Program("1 2", "3"),
        Program("3\n4", "7"),
    )
    suite = parse_tests({"fn_name": "add", "inputs": [[1, 2]], "outputs": [[3]]}).suite
    assert suite.steps == (Step("value", "add(*[1, 2])", ([3], 3)),)
    listed = '[{"input": "[1, 2]\\n3", "output": "[4]", "testtype": "functional"}]'
    assert parse_tests(listed, "add").suite.steps == (Step("value", "add(*[[1, 2], 3])", ([4],)),)
    stdin = [{"input": 3, "output": "4", "testtype": "stdin"}]
    assert parse_tests(stdin).programs == (Program("3", "4"),)


def test_test_functions():
    assert len(parse_tests("def test_a(): assert f(1)\ndef test_b(): assert f(2)\ndef helper(x): return x")) == 2
    cases = "import unittest\nclass T(unittest.TestCase):\n    def test_a(self): self.assertEqual(f(1), 1)"
    assert len(parse_tests(cases)) == 1


def test_the_answer_as_a_module():
    assert parse_tests("from solution import f\nassert f(1) == 1").suite.names == ("f",)


@pytest.mark.parametrize(
    ("tests", "message"),
    [
        ("assert f(1) == g(1)", "judge itself"),
        ("assert near(f(2), 4.0)", "judge itself"),
        ("assert not far(f(2), 4.0)", "judge itself"),
        ("x = 1", "there are no tests"),
        ("assert True", "call nothing of the answer's"),
        ("assert np.allclose(f(1), 2)", "'np', which they do not import"),
        ("assert f(", "is not Python"),
        ("assert LIMIT == 3 and f(1) == 1", "read 'LIMIT', a value of the answer's"),
        ({"test": "def check(c):\n    assert abs(poly(c(1))) < 1", "entry_point": "f"}, "neither they nor the prompt"),
        ("import numpy as np\nassert np.allclose(f(1), 2)", "import 'numpy', and only Python's own"),
        ("from pytest import approx\nassert f(1) == approx(2)", "import 'pytest'"),
        ("assert f(1) == 1\x00", "is not Python"),
        ([], "there are no tests"),
        ("", "there are no tests"),
        ([3], "a test is"),
        ([{"input": "1"}], "a test is"),
        ([{"call": "f(", "expected": 1}], "is not Python"),
        ([{"call": "x = f(1)", "expected": 1}], "not one expression"),
        ({"inputs": ["1"], "outputs": []}, "1 inputs and 0 outputs"),
        ({"input": "1", "output": "1", "testtype": "functional"}, "without its name"),
    ],
)
def test_tests_that_cannot_be_used_are_refused(tests, message):
    with pytest.raises(ValueError, match=message):
        parse_tests(tests)


def test_a_pair_of_functions_is_compared_with_a_value():
    assert parse_tests("assert decode(encode('ab')) == 'ab'").suite.names == ("decode", "encode")

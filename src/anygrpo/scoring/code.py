"""The code reward: an answer's Python is run in the sandbox, and what it gives is compared out here.

Expected results never enter the sandbox. So an answer cannot read them, and exiting early, printing a word of success
or patching what runs it earns nothing: only right values do.
"""

from __future__ import annotations

import ast
import json
import math
import os
import re
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from anygrpo.scoring import sandbox
from anygrpo.scoring._inside import plain
from anygrpo.scoring.reward import Outcome, Rows
from anygrpo.scoring.settings import CodeReward

FENCE = re.compile(r"```[ \t]*(?:python|py|python3)?[ \t]*\r?\n(.*?)(?:```|\Z)", re.DOTALL | re.IGNORECASE)


def extract_code(output: str) -> str:
    """The last fenced block of an answer (closed or cut off), or the whole answer where there is no fence."""
    blocks = FENCE.findall(output)
    return blocks[-1] if blocks else output


@dataclass(frozen=True)
class Call:
    """An expression evaluated after the code has run, and the value it must have."""

    expression: str
    expected: Any


@dataclass(frozen=True)
class Program:
    """Standard input of one run of the whole program, and the output it must print (outer white space aside)."""

    given: str
    expected: str


Test = Call | Program


def parse_tests(value: Any) -> list[Test]:
    """The tests of one prompt.

    Args:
        value: a list (or one) of {"input": text, "output": text}, {"call": "f(2)", "expected": 4}, or text with lines
            such as `assert f(2) == 4`, whose right side must be a literal.

    Raises:
        ValueError: what cannot be read, and why.
    """
    items = value if isinstance(value, list | tuple) else [value]
    tests = [test for item in items for test in _parse(item)]
    if not tests:
        raise ValueError("there are no tests")
    return tests


def _parse(item: Any) -> list[Test]:
    if isinstance(item, str):
        return [_parse_assert(node) for node in _statements(item)]
    if isinstance(item, dict) and {"input", "output"} <= item.keys():
        return [Program(str(item["input"]), str(item["output"]))]
    if isinstance(item, dict) and {"call", "expected"} <= item.keys():
        _statements(str(item["call"]))
        return [Call(str(item["call"]), plain(item["expected"]))]
    raise ValueError(f'a test is {{"input", "output"}}, {{"call", "expected"}} or an assert, not {str(item)[:60]!r}')


def _statements(text: str) -> list[ast.stmt]:
    try:
        return ast.parse(text).body
    except SyntaxError as error:
        raise ValueError(f"{text[:60]!r} is not Python: {error.msg}") from None


def _parse_assert(node: ast.stmt) -> Call:
    """`assert CALL == LITERAL` (either way round), `assert CALL`, `assert not CALL`: split so that only CALL is run."""
    refused = ValueError(
        f"{ast.unparse(node)[:80]!r} is not `assert CALL == LITERAL`; the expected value must be a literal, "
        "because it is kept out of the sandbox"
    )
    if not isinstance(node, ast.Assert):
        raise refused
    test = node.test
    if isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], ast.Eq | ast.Is):
        for call, literal in ((test.left, test.comparators[0]), (test.comparators[0], test.left)):
            try:
                return Call(ast.unparse(call), plain(ast.literal_eval(literal)))
            except (ValueError, TypeError, SyntaxError):
                continue
    expected = not (isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not))
    call = test if expected else test.operand
    if isinstance(call, ast.Call):
        return Call(f"True if {ast.unparse(call)} else False", expected)
    raise refused


def same(given: Any, expected: Any) -> bool:
    """Equal as JSON values: lists in order, true is not 1, numbers within a relative 1e-9."""
    if isinstance(given, bool) or isinstance(expected, bool):
        return given is expected
    if isinstance(given, float) or isinstance(expected, float):
        numbers = isinstance(given, int | float) and isinstance(expected, int | float)
        return numbers and (given == expected or math.isclose(given, expected, rel_tol=1e-9, abs_tol=1e-12))
    if isinstance(given, list) and isinstance(expected, list):
        return len(given) == len(expected) and all(map(same, given, expected))
    if isinstance(given, dict) and isinstance(expected, dict):
        return given.keys() == expected.keys() and all(same(given[k], expected[k]) for k in expected)
    return type(given) is type(expected) and given == expected


class SandboxFault(Exception):
    """The sandbox did not start: no verdict about the answer."""


def grade(code: str, tests: list[Test], limits: sandbox.Limits, partial: bool) -> float:
    """Share of tests passed; without `partial` 1.0 for all and 0.0 else. Time and memory run out are the code's fault.

    Raises:
        SandboxFault: the sandbox did not start.
    """
    if not code.strip():
        return 0.0
    calls = [test for test in tests if isinstance(test, Call)]
    programs = [test for test in tests if isinstance(test, Program)]
    passed = _passed_calls(code, calls, limits) if calls else 0
    if not partial and passed < len(calls):
        return 0.0
    for test in programs:
        done = _run(code, None, test.given, limits)
        good = done.code == 0 and done.output.decode(errors="replace").split() == test.expected.split()
        if not good and not partial:
            return 0.0
        passed += good
    return passed / len(tests)


def _passed_calls(code: str, calls: list[Call], limits: sandbox.Limits) -> int:
    """How many calls gave the expected value. More results than calls were forged: none counts then."""
    lines = _run(code, [call.expression for call in calls], "", limits).output.splitlines()
    if len(lines) > len(calls):
        return 0
    return sum(same(_value(line), call.expected) for line, call in zip(lines, calls))


def _value(line: bytes) -> Any:
    """The value of a result line; a fresh object, equal to nothing, where the line holds none."""
    try:
        return json.loads(line)["value"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return object()


def _run(code: str, calls: list[str] | None, given: str, limits: sandbox.Limits) -> sandbox.Run:
    done = sandbox.run(code, calls, given, limits)
    if done.fault:
        raise SandboxFault(done.fault)
    return done


@dataclass(frozen=True)
class Code:
    """The code reward. Sandboxes run in parallel, one thread for each CPU; each is its own process already."""

    name: str
    weight: float
    column: str
    partial: bool
    limits: sandbox.Limits
    judges: bool = True

    @staticmethod
    def build(config: CodeReward, name: str) -> Code:
        """Raises: ConfigError where there is no sandbox."""
        sandbox.require()
        limits = sandbox.Limits(config.timeout, config.memory_mb, config.processes)
        return Code(name, config.weight, config.column, config.partial, limits)

    def start(self, rows: Rows) -> Callable[[], list[Outcome]]:
        threads = ThreadPoolExecutor(os.cpu_count() or 1, thread_name_prefix="sandbox")
        futures: list[Future[Outcome]] = [
            threads.submit(self._outcome, output, tests)
            for output, tests in zip(rows.outputs, rows.column(self.column))
        ]
        threads.shutdown(wait=False)
        return lambda: [future.result() for future in futures]

    def _outcome(self, output: str, tests: Any) -> Outcome:
        try:
            return grade(extract_code(output), parse_tests(tests), self.limits, self.partial)
        except Exception as error:
            return f"{type(error).__name__}: {error}"

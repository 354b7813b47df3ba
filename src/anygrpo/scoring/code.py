"""The code reward: an answer's Python is run in one sandbox, its tests in another.

Expected results never enter the answer's sandbox, and nothing of the answer's but plain data enters the judge's. So an
answer cannot read what would pass, and exiting early, printing a word of success, taking a name of the tests' or
returning an object that equals everything earns nothing: only right values do.
"""

from __future__ import annotations

import ast
import contextlib
import functools
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from anygrpo.scoring import sandbox
from anygrpo.scoring.attacks import ATTACKS, CONSTANTS, Tried
from anygrpo.scoring.machine import usable_cpus
from anygrpo.scoring.outcome import Elsewhere, Outcome
from anygrpo.scoring.programs import Attack
from anygrpo.scoring.reward import Rows
from anygrpo.scoring.settings import CodeRewardConfig
from anygrpo.scoring.specs import Tests, parse_tests
from anygrpo.scoring.verdict import NoVerdict, judge, prints

PYTHON = ("", "python", "py", "python3")
"""What a fence may say of its block, for it to be taken as the answer."""


def extract_code(output: str) -> str:
    """The last fenced block of an answer that is Python's or of no language (closed or cut off), or the whole answer
    where there is no fence. Reads each line once."""
    language: str | None = None  # of the block that is open
    block: list[str] = []
    last: str | None = None
    for line in output.splitlines(keepends=True):
        if language is None:
            if line.lstrip().startswith("```"):
                language, block = line.strip()[3:].strip().lower(), []
            continue
        before, fence, _ = line.partition("```")
        block.append(before)
        if fence:
            last = "".join(block) if language in PYTHON else last
            language = None
    if language in PYTHON:
        last = "".join(block)
    return output if last is None else last


def completed(code: str, prompt: Any, entry_point: str) -> str:
    """The answer with what it leaves out and the prompt has: HumanEval's prompts are the head of a file, their answers
    its end. What such a prompt imports and defines besides is put before an answer that is whole."""
    if (
        entry_point
        and isinstance(prompt, str)
        and f"def {entry_point}(" in prompt
        and f"def {entry_point}(" not in code
    ):
        return prompt + code
    head = helpers_of(prompt, entry_point)
    return f"{head}\n{code}" if head else code


def helpers_of(prompt: Any, entry_point: str) -> str:
    """What the code of a prompt defines beside the function that is asked for; "" where it has none."""
    if isinstance(prompt, list) and prompt and isinstance(prompt[-1], dict):
        prompt = prompt[-1].get("content")
    if not entry_point or not isinstance(prompt, str) or f"def {entry_point}(" not in prompt:
        return ""
    with contextlib.suppress(SyntaxError, ValueError, RecursionError, MemoryError):
        body = ast.parse(extract_code(prompt)).body
        kept = [n for n in body if isinstance(n, ast.FunctionDef | ast.ClassDef | ast.Import | ast.ImportFrom)]
        return "\n".join(ast.unparse(n) for n in kept if getattr(n, "name", "") != entry_point)
    return ""


def grade(code: str, tests: Tests, limits: sandbox.Limits, partial: bool) -> float:
    """Share of tests passed; without `partial` 1.0 for all and 0.0 else. CPU time and memory run out are the code's
    fault.

    Raises:
        NoVerdict: the sandbox did not start, the machine was at fault, or the tests cannot be judged.
    """
    if not code.strip():
        return 0.0
    wanted, passed = len(tests) - len(tests.programs), 0
    if wanted:
        passed = judge(code, tests.suite, limits, every=partial)
    if not partial and passed < wanted:
        return 0.0
    for program in tests.programs:
        good = prints(code, program, limits)
        if not good and not partial:
            return 0.0
        passed += good
    return passed / len(tests)


@functools.cache
def _threads(size: int) -> ThreadPoolExecutor:
    """One pool for all code rewards: more sandboxes than CPUs would only wait for each other."""
    return ThreadPoolExecutor(size, thread_name_prefix="sandbox")


@dataclass(frozen=True)
class Code:
    """The code reward. Sandboxes run in parallel, one for each CPU that this process may use.

    Attributes:
        column: the data's column of tests; beside it "entry_point", "test_setup_code" and "test_imports" are read.
    """

    name: str
    weight: float
    column: str
    partial: bool
    limits: sandbox.Limits
    judges: bool = True
    entry_point: str = "entry_point"
    bounds: tuple[float, float] = (0.0, 1.0)
    _pending: list[Future[Outcome]] = field(default_factory=list, compare=False, repr=False)

    @staticmethod
    def build(config: CodeRewardConfig, name: str) -> Code:
        """Raises: ConfigError where there is no sandbox."""
        sandbox.require()
        limits = sandbox.Limits(config.timeout, config.memory_mb, config.processes)
        return Code(name, config.weight, config.column, config.partial, limits, entry_point=config.entry_point)

    def start(self, rows: Rows) -> Callable[[], list[Outcome]]:
        threads = _threads(usable_cpus())
        futures: list[Future[Outcome]] = [threads.submit(self._outcome, rows, i) for i in range(len(rows))]
        self._pending[:] = futures
        return lambda: [future.result() for future in futures]

    def close(self) -> None:
        """Begin no answer that still waits."""
        for future in self._pending:
            future.cancel()

    def attacked(self, rows: Rows) -> list[Tried]:
        """Every attack and constant answer on the tests of these rows (outputs are not read)."""
        jobs = [(i, what, build) for i in range(len(rows)) for what, build in (ATTACKS | CONSTANTS).items()]

        def one(i: int, what: str, build: Attack) -> Tried:
            try:
                columns = {name: values[i] for name, values in rows.columns.items()}
                tests = tests_of(columns, self.column, self.entry_point, rows.prompts[i])
                earned = grade(build(tests.suite.names), tests, self.limits, self.partial)
            except (NoVerdict, ValueError):
                earned = None
            return Tried(i, what, what in ATTACKS, earned)

        return list(_threads(usable_cpus()).map(lambda job: one(*job), jobs))

    def _outcome(self, rows: Rows, i: int) -> Outcome:
        try:
            columns = {name: values[i] for name, values in rows.columns.items()}
            tests = tests_of(columns, self.column, self.entry_point, rows.prompts[i])
            entry = str(columns.get(self.entry_point) or "")
            code = completed(extract_code(rows.outputs[i]), rows.prompts[i], entry)
            return self._graded(code, tests)
        except NoVerdict as why:
            return str(why) if why.tests else Elsewhere(why)
        except Exception as error:
            return f"{type(error).__name__}: {error}"

    def _graded(self, code: str, tests: Tests) -> float:
        """A sandbox that does not start, or a machine at fault, gets a second chance."""
        try:
            return grade(code, tests, self.limits, self.partial)
        except NoVerdict as why:
            if why.tests or why.idle:
                raise
        return grade(code, tests, self.limits, self.partial)


def tests_of(columns: dict[str, Any], column: str, entry_point: str, prompt: Any) -> Tests:
    """The tests of one row of data. What a HumanEval prompt defines beside the function is the judge's own, so that no
    answer can define it anew. Raises: ValueError."""
    imports = columns.get("test_imports") or []
    setup = [*([imports] if isinstance(imports, str) else imports), columns.get("test_setup_code") or ""]
    setup.append(helpers_of(prompt, str(columns.get(entry_point) or "")))
    return parse_tests(columns.get(column), columns.get(entry_point), setup)

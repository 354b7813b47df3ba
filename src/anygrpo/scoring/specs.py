"""Tests of generated code, in the forms in which data sets have them, as steps for the judge.

Read: `assert` lines and test functions (pytest's, unittest's), HumanEval's `check(candidate)` with an entry point,
MBPP's `test_list`, APPS' and LiveCodeBench's inputs and outputs (of programs and of functions), {"call", "expected"}.
Which names are the answer's is decided here, from the tests alone: no answer can take a name of the judge's.
"""

from __future__ import annotations

import ast
import builtins
import json
import symtable
import sys
import typing
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from anygrpo.scoring._plain import NotPlain, encode
from anygrpo.scoring.kinds import expecting, kinds
from anygrpo.scoring.nans import may_be_nan
from anygrpo.scoring.rewriting import (
    check_imports,
    check_names,
    judges_itself,
    other_uses,
    read_attributes,
    settled,
)

KNOWN = {
    "isclose": "math:isclose",
    "Counter": "collections:Counter",
    "OrderedDict": "collections:OrderedDict",
    "defaultdict": "collections:defaultdict",
    "deque": "collections:deque",
    "Fraction": "fractions:Fraction",
    "Decimal": "decimal:Decimal",
}
"""Names that tests use without importing them and that mean the library's, wherever no entry point says otherwise."""

ANSWER_MODULES = ("solution", "answer", "candidate", "main", "__main__", "submission", "your_module")
"""What tests import the answer from."""


@dataclass(frozen=True)
class Program:
    """Standard input of one run of the whole program, and the output it must print (white space aside)."""

    given: str
    expected: str


@dataclass(frozen=True)
class Step:
    """One statement for the judge.

    Attributes:
        kind: "test" (passes unless it raises), "value" (an expression that must have one of `expected`), "act" (calls
            the answer, tests nothing), "setup" (does not; where it fails the tests are at fault).
        expected: encoded values.
        ends: it expects an exception that ends loops (StopIteration), so one of the answer's reaches it as it is.
    """

    kind: str
    source: str
    expected: tuple[Any, ...] = ()
    ends: bool = False


@dataclass(frozen=True)
class Suite:
    """Steps of one name space. `names` are the answer's functions and classes, `modules` name -> place of the
    library, `nan` whether an answer may give NaN: tests speak of it, or would not be passed by it."""

    steps: tuple[Step, ...] = ()
    names: tuple[str, ...] = ()
    modules: dict[str, str] = field(default_factory=dict[str, str])
    nan: bool = True


@dataclass(frozen=True)
class Tests:
    """All tests of one prompt."""

    __test__ = False  # no test class of pytest's

    suite: Suite
    programs: tuple[Program, ...] = ()

    def __len__(self) -> int:
        return sum(step.kind in ("test", "value") for step in self.suite.steps) + len(self.programs)


def parse_tests(value: Any, entry_point: str | None = None, setup: Any = ()) -> Tests:
    """The tests of one prompt.

    Args:
        value: a text, a dict of one of the forms above, JSON of one, or a list of them.
        entry_point: the function that `check(candidate)` is given, or that inputs and outputs are of.
        setup: Python put before (MBPP's test_setup_code and test_imports).

    Raises:
        ValueError: what cannot be read, or would let the answer judge itself, and why.
    """
    parts = _Parts(entry_point or "")
    for text in [setup] if isinstance(setup, str) else setup or ():
        parts.texts.append(str(text))
    parts.add(value)
    suite = _suite(parts)
    tests = Tests(suite, tuple(parts.programs))
    if not len(tests):
        raise ValueError("there are no tests")
    if not suite.names and len(tests) > len(parts.programs):
        raise ValueError("the tests call nothing of the answer's")
    return tests


class _Parts:
    """What was read so far."""

    def __init__(self, entry_point: str) -> None:
        self.entry_point = entry_point
        self.texts: list[str] = []
        self.values: list[tuple[str, list[Any]]] = []
        self.programs: list[Program] = []

    def add(self, item: Any) -> None:
        if isinstance(item, str):
            self._add_text(item)
        elif isinstance(item, list | tuple):
            for one in item:
                self.add(one)
        elif isinstance(item, dict):
            self._add_dict(item)
        else:
            raise ValueError(f"a test is an assert, or a table in a form of docs/rewards.md, not {str(item)[:60]!r}")

    def _add_text(self, text: str) -> None:
        if text.lstrip()[:1] in ("{", "["):
            try:
                value = json.loads(text)
            except (ValueError, RecursionError):
                value = text
            if not isinstance(value, str):
                return self.add(value)
        self.texts.append(text)

    def _add_dict(self, item: dict[str, Any]) -> None:
        self.entry_point = str(item.get("entry_point") or item.get("fn_name") or self.entry_point)
        if "test" in item:
            self.add(str(item["test"]))
        elif "test_list" in item:
            imports = item.get("test_imports") or []
            self.texts += [str(t) for t in [item.get("test_setup_code") or "", *imports]]
            self.add(list(item["test_list"]) + list(item.get("challenge_test_list") or []))
        elif "assert_case" in item:
            self.add(item["assert_case"])
        elif "inputs" in item and "outputs" in item:
            if len(item["inputs"]) != len(item["outputs"]):
                raise ValueError(f"{len(item['inputs'])} inputs and {len(item['outputs'])} outputs")
            for given, expected in zip(item["inputs"], item["outputs"]):
                self._add_pair(given, expected, functional="fn_name" in item and bool(item["fn_name"]))
        elif "input" in item and "output" in item:
            self._add_pair(item["input"], item["output"], functional=item.get("testtype") == "functional")
        elif "call" in item and "expected" in item:
            self.values.append((str(item["call"]), [item["expected"]]))
        else:
            raise ValueError(f"a test is an assert, or a table in a form of docs/rewards.md, not {str(item)[:60]!r}")

    def _add_pair(self, given: Any, expected: Any, functional: bool) -> None:
        if not functional:
            lines = lambda x: "\n".join(map(str, x)) if isinstance(x, list | tuple) else str(x)  # noqa: E731
            self.programs.append(Program(lines(given), lines(expected)))
            return
        if not self.entry_point.isidentifier():
            raise ValueError("inputs and outputs of a function without its name (fn_name, or an entry_point column)")
        if isinstance(given, str):  # LiveCodeBench: an argument a line, as JSON
            given = [json.loads(line) for line in given.split("\n") if line.strip()]
            wanted = [json.loads(expected) if isinstance(expected, str) else expected]
        else:  # APPS: a list of arguments; the value, or a list that holds it alone
            wanted = [expected, *(expected if isinstance(expected, list) and len(expected) == 1 else [])]
        self.values.append((f"{self.entry_point}(*{given!r})", wanted))


def _suite(parts: _Parts) -> Suite:
    body = [node for text in parts.texts for node in _statements(text)]
    for call, _ in parts.values:
        nodes = _statements(call)
        if len(nodes) != 1 or not isinstance(nodes[0], ast.Expr):
            raise ValueError(f"{call[:60]!r} is not one expression")
    imported = {alias.asname or alias.name for node in body for alias in _of_answer(node)}
    body = [node for node in body if not _of_answer(node)]
    check_imports(body)
    ends, entry = _ends(body), parts.entry_point
    if any(end.startswith("check(") for end in ends) and not entry:
        raise ValueError("check(candidate) without an entry point (an entry_point column, or beside the test)")
    ends = [end.replace("ENTRY", entry) for end in ends]
    whole = "\n".join([ast.unparse(ast.Module(body, [])), *ends, *(call for call, _ in parts.values)])
    names, modules = _resolve(whole, entry, imported)
    check_names(whole, names, entry if any(end.startswith("check(") for end in ends) else "")
    body = [read_attributes(node) for node in body] if any(name[:1].isupper() for name in names) else body
    if (fault := judges_itself(body, {*names, "candidate"})) is not None:
        raise ValueError(f"{fault[:80]!r} would let the answer judge itself: compare with a value")
    nan = may_be_nan(body) or "nan" in str(parts.values).lower()
    return Suite(tuple(_steps(body, ends, parts.values, names)), tuple(sorted(names)), modules, nan)


def _steps(body: list[ast.stmt], ends: list[str], values: list[tuple[str, list[Any]]], names: set[str]) -> list[Step]:
    asked = [*ends, *(call for call, _ in values)]
    expects = iter(expecting(body, [*body, *map(ast.parse, asked)]))  # before `settled` rewrites the statements
    told = [(kind, next(expects)) for kind in kinds(body, names)]
    steps = [Step(kind, settled(body[i], body[i + 1 :]), (), let) for i, (kind, let) in enumerate(told)]
    steps += [Step("test", f"{end}\n__settle__()", (), next(expects)) for end in ends]
    return steps + [Step("value", call, tuple(map(_encoded, expected)), next(expects)) for call, expected in values]


def _encoded(value: Any) -> Any:
    try:
        return encode(value)
    except NotPlain as alien:
        raise ValueError(f"an expected value is a {alien}") from None


def _statements(text: str) -> list[ast.stmt]:
    try:
        return ast.parse(text.strip()).body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ValueError(f"{text[:60]!r} is not Python: {getattr(error, 'msg', error)}") from None


def _of_answer(node: ast.stmt) -> list[ast.alias]:
    """What the statement imports from the answer."""
    return node.names if isinstance(node, ast.ImportFrom) and node.module in ANSWER_MODULES else []


def _ends(body: list[ast.stmt]) -> list[str]:
    """Calls of the test functions that the tests define and do not call themselves."""
    called = {getattr(n.func, "id", "") for s in body if not isinstance(s, ast.FunctionDef) for n in _calls(s)}
    ends: list[str] = []
    for node in body:
        if isinstance(node, ast.FunctionDef) and node.name not in called:
            needed = len(node.args.args) - len(node.args.defaults)
            if node.name == "check" and needed == 1:
                ends.append("check(ENTRY)")
            elif node.name.startswith("test") and needed == 0:
                ends.append(f"{node.name}()")
        if isinstance(node, ast.ClassDef) and any("TestCase" in ast.unparse(base) for base in node.bases):
            ends.append(
                f"__result__ = __import__('unittest').TestResult()\n"
                f"__import__('unittest').defaultTestLoader.loadTestsFromTestCase({node.name}).run(__result__)\n"
                f"assert __result__.testsRun and __result__.wasSuccessful()"
            )
    return ends


def _calls(node: ast.AST) -> Iterator[ast.Call]:
    for inner in ast.walk(node):
        if isinstance(inner, ast.Call) and isinstance(inner.func, ast.Name):
            yield inner


def _resolve(text: str, entry_point: str, imported: set[str]) -> tuple[set[str], dict[str, str]]:
    """(names of the answer's, name -> place of the library's) among the names that the tests use and do not define."""
    top = symtable.symtable(text, "tests", "exec")
    defined = {s.get_name() for s in top.get_symbols() if s.is_assigned() or s.is_imported() or s.is_namespace()}
    used, waiting = set[str](), [top]
    for table in waiting:
        waiting += table.get_children()
        used |= {s.get_name() for s in table.get_symbols() if s.is_referenced() and (table is top or s.is_global())}
    free = {n for n in used - defined if n == entry_point or not hasattr(builtins, n)} | (imported & used)
    others = other_uses(text)
    names, modules = set[str](), dict[str, str]()
    for name in sorted(free):
        alone = name in others
        if name == entry_point or name in imported:
            names.add(name)
        elif not alone and name in sys.stdlib_module_names:
            modules[name] = name
        elif name in KNOWN:
            modules[name] = KNOWN[name]
        elif name in typing.__all__ and name[:1].isupper():
            modules[name] = f"typing:{name}"
        elif not alone and not name[:1].isupper():
            raise ValueError(f"the tests use {name!r}, which they do not import and which is not Python's own")
        elif not name.startswith("__"):
            names.add(name)
    return names, modules

"""What scripts/mutation.py changes: every mutant of a module's source, as bytes to put in another's place."""

from __future__ import annotations

import ast
import copy
import difflib
import itertools
import tomllib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

SWAPS = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Add: ast.Sub, ast.Sub: ast.Add,
    ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Div, ast.Mod: ast.Mult, ast.Pow: ast.Mult,
    ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd, ast.And: ast.Or, ast.Or: ast.And,
}  # fmt: skip


@dataclass(frozen=True)
class Mutant:
    file: str  # below src/anygrpo
    where: str  # the function, "Class.method"
    kind: str
    lines: tuple[int, int]  # of the statement's head up to the change
    span: tuple[int, int]  # bytes of the source
    text: str  # what stands there instead

    def apply(self, source: bytes) -> bytes:
        return source[: self.span[0]] + self.text.encode() + source[self.span[1] :]


def changed(node: ast.expr, change: Callable[[ast.expr], None]) -> str:
    twin = copy.deepcopy(node)
    change(twin)
    return f"({ast.unparse(twin)})"


def swapped(node: ast.AST, field: str, index: int | None = None) -> Iterator[Callable]:
    """The change of one operator, where there is another for it."""
    operator = getattr(node, field) if index is None else getattr(node, field)[index]
    if (other := SWAPS.get(type(operator))) is not None:

        def change(twin) -> None:
            if index is None:
                setattr(twin, field, other())
            else:
                getattr(twin, field)[index] = other()

        yield change


def of_expression(node: ast.expr) -> Iterator[tuple[str, str]]:
    """What may stand in an expression's place: (kind, text)."""
    if isinstance(node, ast.Compare):
        for i in range(len(node.ops)):
            yield from (("comparison", changed(node, c)) for c in swapped(node, "ops", i))
    elif isinstance(node, ast.BinOp):
        yield from (("arithmetic", changed(node, c)) for c in swapped(node, "op"))
    elif isinstance(node, ast.BoolOp):
        yield from (("boolean", changed(node, c)) for c in swapped(node, "op"))
    elif isinstance(node, ast.UnaryOp) and not isinstance(node.operand, ast.Constant):  # of a number: an axis mostly
        yield "boolean" if isinstance(node.op, ast.Not) else "arithmetic", f"({ast.unparse(node.operand)})"
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield "constant", str(not node.value)
    elif isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        yield "constant", f"({node.value + 1!r})"
    elif isinstance(node, ast.Call):
        for i, keyword in enumerate(node.keywords):
            if keyword.arg is not None and keyword.arg not in _UNSEEN:
                yield "argument", changed(node, lambda twin, i=i: twin.keywords.pop(i))


def of_statement(node: ast.stmt) -> Iterator[tuple[str, str]]:
    if isinstance(node, ast.Return) and node.value is not None and not is_none(node.value):
        yield "return", "return None"
    elif isinstance(node, ast.AugAssign):
        operator = SWAPS.get(type(node.op))
        if operator is not None:
            yield "arithmetic", ast.unparse(ast.AugAssign(node.target, operator(), node.value))
        yield "removed", "pass"
    elif isinstance(node, ast.Expr) and not isinstance(node.value, ast.Constant | ast.Yield | ast.YieldFrom):
        yield "removed", "pass"
    elif isinstance(node, ast.Assign) and not isinstance(node.targets[0], ast.Name | ast.Tuple):
        yield "removed", "pass"  # of an attribute or an entry; a name that is missing is no question
    elif isinstance(node, ast.Break | ast.Continue):
        yield "removed", "pass"


def is_none(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


_UNSEEN = ("encoding", "flush", "check", "device", "indent")
"""Keyword arguments that make no difference to a test: UTF-8 is what its files have anyway, screens are buffered as
they like, `check` is False where it is not given, tests run on the CPU, and JSON is read whatever its spaces."""


def children(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """Where changes are looked for: not in errors, annotations, decorators, patterns, what only type checkers read."""
    for field, value in ast.iter_fields(node):
        if field in ("annotation", "returns", "decorator_list", "type_params", "pattern"):
            continue
        for child in value if isinstance(value, list) else [value]:
            typing = isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING"
            unseen = isinstance(child, ast.keyword) and child.arg in _UNSEEN
            if isinstance(child, ast.AST) and not isinstance(child, ast.Raise | ast.JoinedStr) and not typing | unseen:
                yield field, child


def mutants(file: str, source: bytes) -> list[Mutant]:
    """All mutants of a module, in the order of its lines."""
    starts = [0, *itertools.accumulate(len(line) for line in source.splitlines(keepends=True))]
    found: list[Mutant] = []

    def span(node) -> tuple[int, int]:
        return starts[node.lineno - 1] + node.col_offset, starts[node.end_lineno - 1] + node.end_col_offset

    def walk(node: ast.AST, where: str, head: int) -> None:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            where = f"{where}.{node.name}".lstrip(".")
        for field, child in children(node):
            first = child.lineno if isinstance(child, ast.stmt) else head
            options: list[tuple[str, str]] = []
            if isinstance(child, ast.stmt):
                options += of_statement(child)
            elif isinstance(child, ast.expr):
                options += of_expression(child)
                if field in ("test", "ifs") and isinstance(child, ast.Name | ast.Attribute | ast.Call):
                    options.append(("condition", f"(not {ast.unparse(child)})"))
            for kind, text in options:
                found.append(Mutant(file, where, kind, (first, child.end_lineno or first), span(child), text))
            walk(child, where, first)

    walk(ast.parse(source), "", 1)
    return [m for m in found if compiles(m.apply(source))]


@dataclass(frozen=True)
class Explained:
    """A mutant that no test can notice, or none should, and why (scripts/explained_mutants.toml).

    Attributes:
        line: the source line where the change begins, without its indentation.
        text: what stands there instead; None: whatever stands there instead.
    """

    file: str
    line: str
    why: str
    text: str | None = None

    def fits(self, mutant: Mutant, source: bytes) -> bool:
        begin = source.rfind(b"\n", 0, mutant.span[0]) + 1
        line = source[begin:].partition(b"\n")[0].decode().strip()
        return (self.file, self.line) == (mutant.file, line) and self.text in (None, mutant.text)


def explained(path: Path) -> list[Explained]:
    """The entries of a file of explanations: tables [[<module>]] with line, why, and text where it is one change."""
    table = tomllib.loads(path.read_text(encoding="utf-8"))
    return [Explained(file, **entry) for file, entries in table.items() for entry in entries]


def stale(entries: Sequence[Explained], root: Path) -> list[Explained]:
    """Those that explain no mutant of the sources as they are: code has changed since."""
    found = []
    for file in dict.fromkeys(entry.file for entry in entries):
        source = (root / file).read_bytes() if (root / file).is_file() else b""
        every = mutants(file, source)
        found += [e for e in entries if e.file == file and not any(e.fits(m, source) for m in every)]
    return found


def compiles(source: bytes) -> bool:
    try:
        compile(source, "mutant", "exec")
    except SyntaxError:
        return False
    return True


def difference(mutant: Mutant, source: bytes) -> str:
    before, after = (s.decode().splitlines() for s in (source, mutant.apply(source)))
    return "\n".join(list(difflib.unified_diff(before, after, mutant.file, mutant.file, n=1, lineterm=""))[2:])

"""Whether NaN could pass tests that do not ask for it: `not abs(f(2) - 4) > 1e-6` is true of it."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterable, Iterator

_NEGATED = (ast.NotEq, ast.NotIn)
_CLOSE = ("isclose", "allclose", "array_equal", "is_close")
_BLIND = (
    "max", "min", "sorted", "sort", "lt", "le", "gt", "ge", "ne", "eq", "not_",
    "assertNotEqual", "assertFalse", "assertNotAlmostEqual", "assertNotIn",
)  # fmt: skip
"""`max(abs(a - b) for ...) < 1e-6` leaves out every NaN but a first one; `sorted(r) == r` holds of one NaN thrice."""
_WORDS = ("nan", "isfinite", "isna", "isnull")


def may_be_nan(body: Iterable[ast.stmt]) -> bool:
    """Whether an answer of these tests may hold NaN: they speak of it, or no comparison of theirs is passed by it."""
    statements = list(body)
    return _speak_of_it(statements) or not _could_be_fooled(statements)


def _speak_of_it(body: list[ast.stmt]) -> bool:
    """Whether tests name NaN, or compare a value with itself (`x != x`)."""
    nodes = [node for statement in body for node in ast.walk(statement)]
    sides = ([node.left, *node.comparators] for node in nodes if isinstance(node, ast.Compare))
    itself = any(ast.dump(a) == ast.dump(b) for side in sides for a, b in itertools.pairwise(side))
    return itself or any(word in ast.unparse(statement).lower() for statement in body for word in _WORDS)


def _could_be_fooled(body: list[ast.stmt]) -> bool:
    """A `!=`, or a comparison that is not simply asserted: negated, asked by an `if`, kept in a variable, returned."""
    nodes = [node for statement in body for node in ast.walk(statement)]
    sure = {id(inner) for node in nodes for inner in _asserted(node)}
    for node in nodes:
        negated = isinstance(node, ast.Compare) and any(isinstance(op, _NEGATED) for op in node.ops)
        if negated or (isinstance(node, ast.Compare) and id(node) not in sure):
            return True
        called = node.func if isinstance(node, ast.Call) and id(node) not in sure else None
        if getattr(called, "attr", getattr(called, "id", "")) in _CLOSE:
            return True
        if (isinstance(node, ast.Name) and node.id in _BLIND) or (
            isinstance(node, ast.Attribute) and node.attr in _BLIND
        ):
            return True
    return False


def _asserted(node: ast.AST) -> Iterator[ast.expr]:
    """What an assert asks for, piece by piece: NaN makes each of them false."""
    if isinstance(node, ast.Assert):
        yield from _pieces(node.test)
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "assertTrue":
        yield from _pieces(node.args[0]) if node.args else ()


def _pieces(test: ast.expr) -> Iterator[ast.expr]:
    if isinstance(test, ast.BoolOp):
        for value in test.values:
            yield from _pieces(value)
    elif isinstance(test, ast.Call) and isinstance(test.func, ast.Name) and test.func.id in ("all", "any"):
        for each in test.args:
            yield from _pieces(each.elt) if isinstance(each, ast.GeneratorExp | ast.ListComp) else ()
    else:
        yield test

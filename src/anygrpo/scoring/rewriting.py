"""Rewriting the tests of generated code, as syntax trees, before the judge runs them."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable
from typing import Any


class _Settle(ast.NodeTransformer):
    """After every statement that calls something, arguments that the answer changed are changed for the tests too."""

    def generic_visit(self, node: ast.AST) -> ast.AST:
        super().generic_visit(node)
        for name in ("body", "orelse", "finalbody"):
            statements = getattr(node, name, None)
            if isinstance(statements, list):
                setattr(node, name, [piece for statement in statements for piece in with_settling(statement)])
        return node


def with_settling(statement: Any) -> list[Any]:
    """The statement, and the settling after it where it needs that."""
    simple = isinstance(statement, ast.Expr | ast.Assign | ast.AugAssign | ast.AnnAssign | ast.Assert)
    if not simple or not any(isinstance(n, ast.Call) for n in ast.walk(statement)):
        return [statement]
    return [statement, ast.Expr(ast.Call(ast.Name("__settle__", ast.Load()), [], []))]


def settled(statement: ast.stmt) -> str:
    """The statement's source with the settling in it and after it."""
    done = with_settling(_Settle().visit(statement))
    return ast.unparse(ast.fix_missing_locations(ast.Module(done, [])))


class _Read(ast.NodeTransformer):
    """`thing.name` becomes `__read__(thing, "name")`, but not where it is called: objects of the answer's are
    proxies."""

    def visit_Call(self, node: ast.Call) -> ast.AST:
        if isinstance(node.func, ast.Attribute):
            node.func.value = self.visit(node.func.value)
        else:
            node.func = self.visit(node.func)
        node.args = [self.visit(a) for a in node.args]
        node.keywords = [self.visit(k) for k in node.keywords]
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        self.generic_visit(node)
        if not isinstance(node.ctx, ast.Load):
            return node
        return ast.Call(ast.Name("__read__", ast.Load()), [node.value, ast.Constant(node.attr)], [])


def read_attributes(statement: ast.stmt) -> ast.stmt:
    """The statement with attributes of objects read through `__read__`."""
    return ast.fix_missing_locations(_Read().visit(statement))


def judges_itself(body: Iterable[ast.stmt], names: set[str]) -> str | None:
    """The first assert whose verdict would be the answer's own word on its own result: `assert near(f(2), 4)` where
    both are the answer's, `assert f(2) == g(2)`. None where there is none."""

    def own(node: ast.AST) -> bool:
        return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in names

    for node in (inner for statement in body for inner in ast.walk(statement)):
        if not isinstance(node, ast.Assert):
            continue
        test = node.test.operand if isinstance(node.test, ast.UnaryOp) else node.test
        nested = own(test) and any(own(inner) for inner in ast.walk(test) if inner is not test)
        both = isinstance(test, ast.Compare) and all(map(own, [test.left, *test.comparators]))
        if nested or both:
            return ast.unparse(node)
    return None


def check_imports(body: list[ast.stmt]) -> None:
    """Raises: ValueError where the tests need what the judge's sandbox does not have."""
    for node in body:
        modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        modules += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        for module in modules:
            if module.partition(".")[0] not in sys.stdlib_module_names:
                raise ValueError(
                    f"the tests import {module or 'a part of a package'!r}, and only Python's own is there"
                )

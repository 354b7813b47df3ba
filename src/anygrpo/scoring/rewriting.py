"""Rewriting the tests of generated code, as syntax trees, before the judge runs them."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Sequence
from typing import Any

from anygrpo.scoring.given import read_as_given, says_the_result


def _settle_in(node: ast.AST, rest: Sequence[ast.stmt]) -> None:
    """After every statement in `node` that calls something, arguments that the answer changed are changed for the
    tests too. `rest`: the statements that follow."""
    own = () if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) else rest
    for name in ("body", "orelse", "finalbody", "handlers", "cases"):
        statements = getattr(node, name, None)
        if not isinstance(statements, list):
            continue
        later = [[*statements[i + 1 :], *own] if name in ("body", "orelse", "finalbody") else own
                 for i in range(len(statements))]  # fmt: skip
        for one, after in zip(statements, later):
            _settle_in(one, after)
        pieces = [piece for one, after in zip(statements, later) for piece in with_settling(one, after)]
        setattr(node, name, pieces)


def with_settling(statement: Any, rest: Sequence[ast.stmt]) -> list[Any]:
    """The statement, and the settling after it where it needs that."""
    simple = isinstance(statement, ast.Expr | ast.Assign | ast.AugAssign | ast.AnnAssign | ast.Assert)
    calls = isinstance(statement, ast.Assert) or any(isinstance(n, ast.Call) for n in ast.walk(statement))
    if not simple or not calls:
        return [statement]
    kept: list[ast.expr] = [ast.Constant(False)] if read_as_given(statement, rest) else []
    if not kept and compares_with_what_it_gave(statement, rest[0] if rest else None):
        return [statement]
    return [statement, ast.Expr(ast.Call(ast.Name("__settle__", ast.Load()), kept, []))]


def compares_with_what_it_gave(statement: Any, after: Any) -> bool:
    """Whether `after` compares the result of the call in `statement` with something made of that call's arguments, as
    in `r = f(x); assert r == sorted(x)` or `assert sorted(r) == sorted(x)`: the arguments are then read as they were
    given. Also whether it says the result."""
    if not isinstance(after, ast.Assert) or not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
        return False
    target, value = statement.targets[0], list(ast.walk(statement.value))
    called = {n.func.id for n in value if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)}
    given = {n.id for n in value if isinstance(n, ast.Name)} - called
    if not isinstance(target, ast.Name):
        return False
    names = {n.id for n in ast.walk(after.test) if isinstance(n, ast.Name)}
    if names == {target.id} and says_the_result(after, names):
        return True  # changes come after that assert, and not where it fails: with partial credit the others go on
    for node in ast.walk(after.test):
        sides = [node.left, *node.comparators] if isinstance(node, ast.Compare) else []
        named = [{n.id for n in ast.walk(side) if isinstance(n, ast.Name)} for side in sides]
        result = [each for each in named if target.id in each and not each & given]
        if result and any(each & given for each in named if each not in result):
            return True
    return False


def settled(statement: ast.stmt, rest: Sequence[ast.stmt] = ()) -> str:
    """The statement's source with the settling in it and after it. `rest`: the statements that follow."""
    _settle_in(statement, rest)
    done = with_settling(statement, rest)
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


def check_names(text: str, names: set[str], checked: str) -> None:
    """Raises: ValueError where the tests read a value of the answer's, or a helper that `check(checked)` trusts could
    be the answer's."""
    tree = ast.parse(text)
    inner = {id(n.value) for n in ast.walk(tree) if isinstance(n, ast.Attribute)}
    called = {id(n.func) for n in ast.walk(tree) if isinstance(n, ast.Call)} | inner
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id in names - {checked}:
            if id(node) not in called:
                raise ValueError(f"the tests read {node.id!r}, a value of the answer's: only calls can be judged")
            if checked:
                raise ValueError(f"the tests of {checked!r} call {node.id!r}, which neither they nor the prompt define")


def other_uses(text: str) -> set[str]:
    """Names used in another way than as the root of an attribute."""
    tree = ast.parse(text)
    inner = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and id(node) not in inner}

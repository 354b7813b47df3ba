"""What each statement of the tests has to do with the answer, as far as it can be read from the tests alone."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence

DEFINITIONS = (ast.FunctionDef, ast.ClassDef)
ENDS = frozenset({"StopIteration", "StopAsyncIteration"})
"""Exceptions that end a loop of the tests in silence: `all(map(f, cases))` is true where the first call raises one."""


def kinds(body: list[ast.stmt], names: set[str]) -> Iterator[str]:
    """The kind of each statement. What is made of the answer's values is the answer's too: where `a, b = r` fails after
    `r = f(1)`, the answer is wrong, and not the tests; after `r = int("3")`, the tests are."""
    names = set(names) | _reaching([n for n in body if isinstance(n, DEFINITIONS)], names)
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Import | ast.ImportFrom):
            yield "setup"
            continue
        inner = list(ast.walk(node))
        named = _used(inner, names)
        if named:
            names |= _changed(inner)
        elif isinstance(node, ast.Assign):
            names -= {n.id for n in inner if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        reaches = named or any(isinstance(n, ast.Call) for n in inner)
        yield "test" if any(isinstance(n, ast.Assert) for n in inner) else "act" if reaches else "setup"


def expecting(body: list[ast.stmt], statements: Sequence[ast.AST]) -> list[bool]:
    """Of each of `statements`, whether it expects an exception that ends loops: it names one, or a function, a class or
    a value of `body` that does, or it keeps what it caught for a statement that names one."""
    holders = [n for n in body if isinstance(n, ast.FunctionDef | ast.ClassDef | ast.Assign)]
    names = ENDS | _reaching(holders, set(ENDS))
    spoken = [_used(list(ast.walk(s)), names) for s in statements]
    asked = {n.id for s, said in zip(statements, spoken) if said for n in ast.walk(s) if isinstance(n, ast.Name)}
    kept = [isinstance(s, ast.Try) and not asked.isdisjoint(_changed(list(ast.walk(s)))) for s in statements]
    return [said or keeps for said, keeps in zip(spoken, kept)]


def _reaching(holders: Sequence[ast.stmt], names: set[str]) -> set[str]:
    """What those `holders` define that use one of `names`, or one of each other that does."""
    found, grown = set[str](), True
    while grown:
        before = len(found)
        for node in holders:
            if _used(list(ast.walk(node)), names | found):
                found |= {node.name} if isinstance(node, DEFINITIONS) else _changed(list(ast.walk(node)))
        grown = len(found) > before
    return found


def _used(inner: list[ast.AST], names: Iterable[str]) -> bool:
    """Whether one of `names` is among them: as a name, an attribute (builtins.StopIteration) or a text of its own
    (`type(e).__name__ == "StopIteration"`)."""
    spoken = {n.value for n in inner if isinstance(n, ast.Constant) and isinstance(n.value, str)} & ENDS
    spoken |= {n.id for n in inner if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Store)}
    spoken |= {_root(n.target) for n in inner if isinstance(n, ast.AugAssign)}
    return not (spoken | ({n.attr for n in inner if isinstance(n, ast.Attribute)} & ENDS)).isdisjoint(names)


def _changed(inner: list[ast.AST]) -> set[str]:
    """Names that a statement stores to, into (`d[k] = ...`), or calls a method of (`l.append(...)`)."""
    roots = [n for n in inner if isinstance(getattr(n, "ctx", None), ast.Store)]
    roots += [n.func for n in inner if isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute)]
    return {name for root in roots if (name := _root(root))}


def _root(node: ast.AST) -> str:
    while isinstance(node, ast.Subscript | ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""

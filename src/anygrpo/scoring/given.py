"""Whether tests compare what the answer returned with what it was given: then a change of its argument earns nothing.

`r = f(x); assert r == sorted(x)` is passed by an answer that empties `x` and returns it. An argument is read as it was
given where the tests compare it with results alone. Where they compare it with values of their own (`k = f(nums);
assert nums[:k] == [1, 2]`), what the answer made of it is what they ask for. So too where they say what the result is
(`v = f(10, cache); assert v == 55; assert cache[10] == v`): no change of an argument makes a wrong one fit.
"""

from __future__ import annotations

import ast
import builtins
import copy
from collections.abc import Iterator, Sequence
from typing import TypeVar

Node = TypeVar("Node", bound=ast.AST)
RESULT = "()"
"""Stands for a call of the answer's among the names that flow into a value."""
_FAR = 50
"""Statements looked at after a call: long lists of tests stay linear."""
_LIBRARIES = ("math", "cmath", "decimal", "fractions", "collections", "datetime")
_MAKERS = ("Counter", "Fraction", "Decimal", "deque", "OrderedDict", "defaultdict")
_PAIRS = ("isclose", "allclose", "array_equal", "is_close")
_SAY = (
    "assertEqual",
    "assertListEqual",
    "assertDictEqual",
    "assertSetEqual",
    "assertTupleEqual",
    "assertSequenceEqual",
)


def read_as_given(statement: ast.stmt, rest: Sequence[ast.stmt]) -> bool:
    """Whether arguments of the calls in `statement` are to be read in `rest` as they were given."""
    value = statement.test if isinstance(statement, ast.Assert) else getattr(statement, "value", None)
    if isinstance(statement, ast.Expr) or not isinstance(value, ast.expr):
        return False  # a result that nobody keeps: the call was for its changes
    calls = [n for n in ast.walk(value) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)]
    called = {n.func.id for n in calls if isinstance(n.func, ast.Name) and not hasattr(builtins, n.func.id)}
    own = [n for n in calls if isinstance(n.func, ast.Name) and n.func.id in called]
    given = {m.id for n in own for a in (*n.args, *n.keywords) for m in ast.walk(a) if isinstance(m, ast.Name)} - called
    if not given:
        return False
    targets = getattr(statement, "targets", [getattr(statement, "target", None)])
    results = {n.id for t in targets if t is not None for n in ast.walk(t) if isinstance(n, ast.Name)} | {RESULT}
    seen = [*([statement] if isinstance(statement, ast.Assert) else []), *_until_bound_anew(rest, given)]
    return _Flows(called, given, results).compare_results_alone(seen)


def says_the_result(statement: ast.stmt, results: set[str]) -> set[str]:
    """Which of `results` an assert says in full: `assert r == [1, 2]`, `self.assertEqual(r, 55)`."""
    tests = [statement.test] if isinstance(statement, ast.Assert) else []
    if len(tests) == 1 and isinstance(tests[0], ast.BoolOp) and isinstance(tests[0].op, ast.And):
        tests = tests[0].values
    equal = [[t.left, *t.comparators] for t in tests
             if isinstance(t, ast.Compare) and all(isinstance(op, ast.Eq) for op in t.ops)]  # fmt: skip
    call = statement.value if isinstance(statement, ast.Expr) else None
    if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr in _SAY:
        equal.append(call.args[:2])
    said = [side for sides in equal if any(map(_tests_own, sides)) for side in sides]
    return {side.id for side in said if isinstance(side, ast.Name)} & results


def _tests_own(value: ast.expr) -> bool:
    """A value written in the tests. Any name could hold what the answer said, in an earlier call, but that of a builtin
    that is called, or of a library before a dot."""
    nodes = list(ast.walk(value))
    called = {id(n.func) for n in nodes if isinstance(n, ast.Call)}
    heads = {id(n.value) for n in nodes if isinstance(n, ast.Attribute)}
    return all(
        (id(n) in called and (hasattr(builtins, n.id) or n.id in _MAKERS)) or (id(n) in heads and n.id in _LIBRARIES)
        for n in nodes
        if isinstance(n, ast.Name)
    )


def _said(seen: list[ast.stmt], results: set[str]) -> set[str]:
    """Results that `seen` says in full, whatever happens, and does not change itself."""
    said, other = set[str](), set[str]()
    always = True
    for one in seen:
        nodes = list(ast.walk(one))
        always = always and not any(isinstance(n, ast.Return | ast.Break | ast.Continue) for n in nodes)
        said |= says_the_result(one, results) if always else set[str]()
        for n in nodes:
            if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store) and not isinstance(one, ast.Assign):
                other.add(n.id)  # `r += [1]`, a loop's
            changed = isinstance(n, ast.Subscript) and not isinstance(n.ctx, ast.Load)
            if changed or (isinstance(one, ast.Expr) and isinstance(n, ast.Attribute)):  # `r.append(1)`
                other |= {m.id for m in ast.walk(n) if isinstance(m, ast.Name)}
    return said - other


def _until_bound_anew(rest: Sequence[ast.stmt], given: set[str]) -> Iterator[ast.stmt]:
    """The statements in which some of `given` is still what was given. A name that is bound anew is another name from
    there on: `x = 2` takes nothing from what is said of the list beside it."""
    left, now = set(given), dict[str, str]()
    for number, one in enumerate(rest[:_FAR]):
        statement = _renamed(one, now)
        if isinstance(one, ast.Assign):
            bound = {n.id for t in one.targets for n in ast.walk(t) if isinstance(n, ast.Name) and _stored(n)}
            left -= bound
            if not left:
                return
            now |= {name: f"{name} {number}" for name in bound}
            statement = copy.copy(statement)
            statement.targets = [_renamed(t, now) for t in one.targets]  # type: ignore[attr-defined]
        yield statement


def _stored(name: ast.Name) -> bool:
    return isinstance(name.ctx, ast.Store)


def _renamed(node: Node, now: dict[str, str]) -> Node:
    if not now:
        return node
    node = copy.deepcopy(node)
    for name in ast.walk(node):
        if isinstance(name, ast.Name):
            name.id = now.get(name.id, name.id)
    return node


class _Flows:
    """Which names hold something of the arguments, or of the results, by assignments and loops."""

    def __init__(self, called: set[str], given: set[str], results: set[str]) -> None:
        self.called, self.given, self.results = called, given, results

    def compare_results_alone(self, seen: list[ast.stmt]) -> bool:
        nodes = [node for one in seen for node in ast.walk(one)]
        for _ in range(3):  # names of names of names
            for target, value in (pair for node in nodes for pair in _bindings(node)):
                self._bind(target, value)
        unsaid = self.results - _said(seen, self.results)
        with_results = False
        for sides in filter(None, map(_sides, nodes)):
            flows = [self.of(side) for side in sides]
            gave = [flow for flow in flows if flow & self.given]
            if gave and any(not flow & (self.given | self.results) for flow in flows):
                return False
            with_results |= bool(gave) and any(flow & unsaid and not flow & self.given for flow in flows)
        alone = (self.of(one.test) for one in nodes if isinstance(one, ast.Assert))
        return with_results and not any(flow & self.given and not flow & self.results for flow in alone)

    def _bind(self, target: ast.expr, value: ast.expr) -> None:
        if isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and isinstance(target, ast.Tuple):
            inside, found = value.func.id, target.elts
            if inside == "zip" and len(found) == len(value.args):
                for one, other in zip(found, value.args):
                    self._bind(one, other)
                return
            if inside == "enumerate" and len(found) == 2 and value.args:
                return self._bind(found[1], value.args[0])
        if isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id == "range":
            return
        flow = self.of(value)
        names = {n.id for n in ast.walk(target) if isinstance(n, ast.Name)}
        self.given |= names if flow & self.given else set[str]()
        self.results |= names if flow & self.results else set[str]()

    def of(self, value: ast.expr) -> set[str]:
        """Names whose contents a value is made of: not those that an index is, nor the arguments of the answer's."""
        if isinstance(value, ast.Name):
            return {value.id}
        if isinstance(value, ast.Subscript):
            return self.of(value.value)
        if isinstance(value, ast.Call) and isinstance(value.func, ast.Name):
            if value.func.id in self.called:
                return {RESULT}
            parts: list[ast.AST] = [*value.args, *value.keywords]
        else:
            parts = list(ast.iter_child_nodes(value))
        return {name for part in parts for name in self._inside(part)}

    def _inside(self, part: ast.AST) -> set[str]:
        if isinstance(part, ast.expr):
            return self.of(part)
        return {name for inner in ast.iter_child_nodes(part) for name in self._inside(inner)}


def _bindings(node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
    if isinstance(node, ast.Assign):
        yield from ((target, node.value) for target in node.targets)
    elif isinstance(node, ast.AnnAssign | ast.AugAssign | ast.NamedExpr) and node.value is not None:
        yield node.target, node.value
    elif isinstance(node, ast.For | ast.comprehension):
        yield node.target, node.iter


def _sides(node: ast.AST) -> list[ast.expr]:
    """What a comparison, an assertEqual or an isclose compares."""
    if isinstance(node, ast.Compare):
        return [node.left, *node.comparators]
    if isinstance(node, ast.Call) and len(node.args) >= 2:
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if name in _PAIRS or (name.startswith("assert") and isinstance(node.func, ast.Attribute)):
            return node.args[:2]
    return []

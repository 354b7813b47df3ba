"""What looks like a key, a token or a password in Python source. Only strings that hold one change, and comments."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from typing import NamedTuple

from anygrpo.integrations.adopt.secrets import SET, masked, masked_strings, maybe_secret, random, secret, withheld

_OPENING = re.compile(r"(?P<prefix>[A-Za-z]*)(?P<quote>\"\"\"|'''|\"|')")


_PARTED = (
    ast.Module, ast.Expr, ast.BoolOp, ast.IfExp, ast.BinOp, ast.List, ast.Tuple, ast.Set, ast.Starred, ast.Await,
)  # fmt: skip
"""What is made of values: a string in it may be the value itself."""


_HOLDERS = ("str", "SecretStr", "Field", "Option", "Argument")
"""Calls whose first argument is the value of what they make."""
_DEFAULTS = ("default", "default_factory", "factory")


class Masked(NamedTuple):
    """Source without its secrets, and the names (variables, keys, arguments, else functions) that held them."""

    text: str
    names: list[str]


class _Bound(NamedTuple):
    """A string and what it is the value of.

    Attributes:
        start, end: offsets in the source.
        value: what the string is; None: it has values put in.
        names: variables, arguments, keys that it is given to, nearest first.
        direct: it is the value itself, not a part of a call that makes it.
        inside: the function that it stands in.
    """

    start: int
    end: int
    value: str | None
    names: tuple[str, ...]
    direct: bool
    inside: str

    def whole(self, text: str) -> str | None:
        """The name for which all of it is left out, if any: it looks secret, and is bound to a name that may be."""
        for name in self.names:
            if withheld(name, text) if self.direct else secret(name) and random(text):
                return name
        return None

    def told(self) -> str:
        likely = [name for name in self.names if maybe_secret(name)]
        return next(iter([*likely, *self.names]), f"{self.inside}()" if self.inside else "a string")


def hidden_source(text: str, name: str = "") -> str:
    """Python source, or a text with some in it, without what looks secret; `name`: what an expression is given to."""
    return mask_source(text, name).text


def mask_source(text: str, name: str = "") -> Masked:
    """Source whose secret strings are "(set)"; all else is the same to the byte. What does not parse is a text."""
    try:
        bound = sorted(_Strings(text, name).found, key=lambda one: one.end - one.start)
        pieces = list(_pieces(text))
    except (SyntaxError, ValueError, RecursionError, MemoryError, tokenize.TokenError):
        plain = masked(masked_strings(text))
        return Masked(SET if withheld(name, text) else plain, [])
    by_string: dict[_Bound | None, list[tuple[int, int]]] = {}
    edits, names = list[tuple[int, int, str]](), list[str]()
    for start, end, literal in pieces:
        one = next((b for b in bound if b.start <= start and end <= b.end), None) if literal else None
        by_string.setdefault(one, []).append((start, end))
    for one, spans in by_string.items():
        made = _edits(text, one, spans)
        edits += made
        if made and one is not None:
            names.append(one.told())
    for start, end, new in sorted(edits, reverse=True):
        text = text[:start] + new + text[end:]
    return Masked(text, list(dict.fromkeys(names)))


def _edits(text: str, one: _Bound | None, spans: list[tuple[int, int]]) -> list[tuple[int, int, str]]:
    """Changes of a string's pieces: what has a known form alone, else all of it."""
    bodies = [text[start:end] for start, end in spans]
    made = [(*span, masked(body)) for span, body in zip(spans, bodies) if masked(body) != body]
    if one is None or made:
        return made
    if one.value is None:
        return [(*span, SET) for span, body in zip(spans, bodies) if one.whole(body)]
    without = masked(one.value)  # also a key in two strings side by side, or with escapes
    if without == one.value and one.whole(one.value) is None:
        return []
    new = SET if one.whole(one.value) or not re.fullmatch(r"[\w\-:/@.() ]*", without) else without
    return [(*span, new if i == 0 else "") for i, span in enumerate(spans)]


def _pieces(text: str) -> Iterator[tuple[int, int, bool]]:
    """(start, end, whether it is of a string and no comment or inserted expression) of each text between quotes."""
    starts = _line_starts(text)
    for token in tokenize.generate_tokens(io.StringIO(text, newline="").readline):
        start, end = (starts[row - 1] + column for row, column in (token.start, token.end))
        kind = tokenize.tok_name[token.type]
        if kind == "COMMENT":
            yield start, end, False
        elif kind in ("FSTRING_MIDDLE", "TSTRING_MIDDLE"):
            yield start, end, True
        elif kind == "STRING" and (opening := _OPENING.match(text, start)):
            first, last = opening.end(), end - len(opening["quote"])
            if "f" in opening["prefix"].lower():  # one token before Python 3.12
                yield from _between_braces(text, first, last)
            else:
                yield first, last, True


def _between_braces(text: str, start: int, end: int) -> Iterator[tuple[int, int, bool]]:
    """An f-string's own text and its inserted expressions, in order."""
    depth, since = 0, start
    for found in re.finditer(r"\{\{|\}\}|[{}]", text[start:end]):
        at, mark = start + found.start(), found[0]
        if mark in ("{{", "}}") and depth == 0:
            continue
        before, depth = depth, max(0, depth + (len(mark) if mark[0] == "{" else -len(mark)))
        if not before or not depth:
            yield since, at, not before
            since = at + len(mark)
    yield since, end, True


def _line_starts(text: str) -> list[int]:
    starts = [0]
    for line in io.StringIO(text, newline=""):
        starts.append(starts[-1] + len(line))
    return starts


class _Strings(ast.NodeVisitor):
    """Each string of a source with the names that it is given to."""

    def __init__(self, text: str, name: str) -> None:
        self.lines = [line.encode() for line in io.StringIO(text, newline="")]
        self.starts = _line_starts(text)
        self.found: list[_Bound] = []
        self.names: tuple[str, ...] = (name,) if name else ()
        self.direct, self.inside = True, ""
        self.visit(ast.parse(text))

    def _at(self, row: int, column: int) -> int:
        return self.starts[row - 1] + len(self.lines[row - 1][:column].decode())

    def _string(self, node: ast.expr, value: str | None) -> None:
        start = self._at(node.lineno, node.col_offset)
        end = self._at(node.end_lineno or node.lineno, node.end_col_offset or node.col_offset)
        self.found.append(_Bound(start, end, value, self.names, self.direct, self.inside))

    def _under(self, names: tuple[str, ...], node: ast.AST | None, direct: bool = True) -> None:
        if node is not None:
            before = self.names, self.direct
            self.names, self.direct = names, direct
            self.visit(node)
            self.names, self.direct = before

    def generic_visit(self, node: ast.AST) -> None:
        """Parts of what is neither a value nor a part of one are given to nothing by themselves."""
        part = isinstance(node, _PARTED)
        for child in ast.iter_child_nodes(node):
            free = isinstance(child, ast.stmt | ast.arguments)
            self._under(() if free and not isinstance(node, ast.Module) else self.names, child, self.direct and part)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, str | bytes):
            self._string(node, node.value if isinstance(node.value, str) else node.value.decode("latin-1"))

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        self._string(node, None)
        for part in node.values:
            if isinstance(part, ast.FormattedValue):
                self._under((), part.value, False)

    def visit_Assign(self, node: ast.Assign) -> None:
        target, value = node.targets[0], node.value
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
            for one, each in zip(target.elts, value.elts):
                self._under(_name(one), each)
            return
        self._under(tuple(name for target in node.targets for name in _name(target)), value)

    def _one(self, node: ast.AnnAssign | ast.AugAssign | ast.NamedExpr) -> None:
        self._under(_name(node.target), node.value)

    visit_AnnAssign = visit_AugAssign = visit_NamedExpr = _one

    def visit_keyword(self, node: ast.keyword) -> None:
        self._under((node.arg, *self.names) if node.arg else self.names, node.value)

    def visit_Dict(self, node: ast.Dict) -> None:
        for key, value in zip(node.keys, node.values):
            self._under((), key)
            self._under(_word(key), value)

    def visit_arguments(self, node: ast.arguments) -> None:
        every = [*node.posonlyargs, *node.args]
        for arg, value in zip(every[len(every) - len(node.defaults) :], node.defaults):
            self._under((arg.arg,), value)
        for arg, value in zip(node.kwonlyargs, node.kw_defaults):
            self._under((arg.arg,), value)

    def visit_Call(self, node: ast.Call) -> None:
        """`environ.setdefault("NAME", "value")`, `add_argument("--name", default="value")`, `SecretStr("value")`,
        `name: str = field(default="value")`."""
        self._under(self.names, node.func, self.direct)
        called = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
        before: tuple[str, ...] = ()
        for i, value in enumerate(node.args):
            direct = self.direct and (i > 0 or called in _HOLDERS)
            own = before if isinstance(value, ast.Constant) else ()
            self._under((*own, *self.names), value, direct or bool(own))
            before = _word(value)
        first = _word(node.args[0]) if node.args else ()
        for keyword in node.keywords:
            self._under((*first, *self.names) if keyword.arg in _DEFAULTS else (), keyword)

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self._under((), node.args)
        self.visit(node.body)  # `default_factory=lambda: "value"`

    def visit_Compare(self, node: ast.Compare) -> None:
        """Compared with a name: a key only if it looks like one."""
        sides = [node.left, *node.comparators]
        names = tuple(name for side in sides for name in _name(side))
        for side in sides:
            self._under(names, side, False)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        self._under(self.names, node.value, self.direct)  # "...".strip()

    def _scope(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> None:
        before, self.inside = self.inside, node.name
        self.names, outer = (), self.names
        self.generic_visit(node)
        self.inside, self.names = before, outer

    visit_FunctionDef = visit_AsyncFunctionDef = visit_ClassDef = _scope


def _name(target: ast.AST) -> tuple[str, ...]:
    """What a place is called: a variable, an attribute, a key between brackets."""
    if isinstance(target, ast.Subscript):
        return _word(target.slice)
    name = target.id if isinstance(target, ast.Name) else getattr(target, "attr", "")
    return (name,) if name else ()


def _word(node: ast.AST | None) -> tuple[str, ...]:
    return (node.value,) if isinstance(node, ast.Constant) and isinstance(node.value, str) else ()

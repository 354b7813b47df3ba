"""A Python file as a tree, never run: what names stand for, what expressions are, the text of definitions."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

from anygrpo.integrations.adopt.moving import Unknown
from anygrpo.integrations.adopt.words import number


class Source:
    """Names of a file by how they come to be: assigned, assigned to as attributes, defined, imported; and its calls."""

    def __init__(self, path: Path, text: str, tree: ast.Module) -> None:
        self.path, self.text, self.tree = path, text, tree
        self.assigned: dict[str, ast.expr] = {}
        self.attributes: dict[str, dict[str, ast.expr]] = {}
        self.defined: dict[str, ast.stmt] = {}
        self.imported: dict[str, tuple[str, ast.stmt]] = {}
        self.calls: dict[str, list[ast.Call]] = {}
        for node in ast.walk(tree):
            self._note(node)

    def _note(self, node: ast.AST) -> None:
        if isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Name):
                    self.assigned[target.id] = _chained(node.value, target.id, self.assigned)
                elif isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name):
                    self.attributes.setdefault(target.value.id, {})[target.attr] = node.value
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            self.defined[node.name] = node
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                self.imported[alias.asname or alias.name] = (f"{node.module or ''}.{alias.name}", node)
        elif isinstance(node, ast.Import):
            for alias in node.names:
                self.imported[alias.asname or alias.name.split(".")[0]] = (alias.name, node)
        elif isinstance(node, ast.Call):
            self.calls.setdefault(last_name(node.func), []).append(node)

    def value(self, node: ast.expr | None, depth: int = 0) -> Any:
        """What an expression is, as far as constants tell."""
        try:
            return self._value(node, depth)
        except (ValueError, RecursionError, TypeError, KeyError):
            return Unknown(ast.unparse(node) if node is not None else "")

    def _value(self, node: Any, depth: int) -> Any:
        if depth > 20:
            raise ValueError("deep")
        inner = lambda n: self._sure(n, depth + 1)  # noqa: E731
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.Name):
            return inner(self.assigned[node.id])
        if isinstance(node, ast.List | ast.Tuple | ast.Set):
            return [inner(e) for e in node.elts]
        if isinstance(node, ast.Dict):
            return {inner(k): inner(v) for k, v in zip(node.keys, node.values)}
        if isinstance(node, ast.Call) and last_name(node.func) == "dict" and not node.args:
            return {k.arg: inner(k.value) for k in node.keywords}
        if isinstance(node, ast.JoinedStr):
            return "".join(str(inner(v.value if isinstance(v, ast.FormattedValue) else v)) for v in node.values)
        if isinstance(node, ast.Attribute) and ast.unparse(node).startswith("torch."):
            return node.attr
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            a, b = inner(node.left), inner(node.right)
            if isinstance(a, str) and isinstance(b, str) and len(a) + len(b) < 100_000:
                return a + b
        if isinstance(node, ast.BinOp | ast.UnaryOp):
            return number(_with_numbers(node, self))
        raise ValueError("not a constant")

    def _sure(self, node: Any, depth: int) -> Any:
        value = self._value(node, depth)
        if isinstance(value, Unknown):
            raise ValueError("not a constant")
        return value

    def extracted(self, names: list[str]) -> str:
        """Source of these definitions, with the script's own definitions, constants and imports that they use."""
        top = {n for n, s in self.defined.items() if s in self.tree.body}
        constants = {
            t.id: s for s in self.tree.body if isinstance(s, ast.Assign) for t in s.targets if isinstance(t, ast.Name)
        }
        wanted, seen, imports, parts = list(names), set[str](), dict[int, ast.stmt](), dict[int, ast.stmt]()
        while wanted:
            name = wanted.pop()
            if name in seen:
                continue
            seen.add(name)
            if name in self.imported:
                imports[self.imported[name][1].lineno] = self.imported[name][1]
                continue
            node = self.defined.get(name) or constants.get(name)
            if node is None or (name in self.defined and name not in top and name not in names):
                continue
            parts[node.lineno] = node
            wanted += [n.id for n in ast.walk(node) if isinstance(n, ast.Name)]
        nodes = [*(imports[i] for i in sorted(imports)), *(parts[i] for i in sorted(parts))]
        return "\n\n".join(self._source_of(node) for node in nodes) + "\n"

    def _source_of(self, node: ast.stmt) -> str:
        lines = self.text.splitlines()
        first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", []))]) - 1
        part = lines[first : node.end_lineno]
        return "\n".join(line[node.col_offset :] if line[: node.col_offset].isspace() else line for line in part)


def _with_numbers(node: ast.expr, source: Source) -> ast.expr:
    """An expression of numbers with names put in."""

    class Put(ast.NodeTransformer):
        def visit_Name(self, name: ast.Name) -> ast.expr:  # type: ignore[override]
            return ast.Constant(source._value(name, 5))

    return Put().visit(ast.parse(ast.unparse(node), mode="eval").body)


def _chained(value: ast.expr, name: str, before: dict[str, ast.expr]) -> ast.expr:
    """`x = x.map(f)`: the name inside stands for what it was."""
    old = before.get(name)
    if old is None or sum(isinstance(n, ast.Name) and n.id == name for n in ast.walk(value)) != 1:
        return value

    class Put(ast.NodeTransformer):
        def visit_Name(self, node: ast.Name) -> ast.expr:
            return old if node.id == name else node

    return Put().visit(value)


def last_name(node: ast.AST) -> str:
    """The last part of a dotted name; of a partial, its function."""
    if isinstance(node, ast.Call):
        inner = node.args[0] if last_name(node.func) == "partial" and node.args else node.func
        return last_name(inner)
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""

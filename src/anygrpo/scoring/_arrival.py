"""Whether a StopIteration of the answer's would reach what expects it, or end a loop of the tests in silence.

Given to Python as text before `_tester`. Where the frames between the call and a `try` (or the end of the step) are all
plain calls, it arrives; where one of them is Python's own iteration (`all(map(f, cases))`, `for x in map(f, cases)`),
that would take it for its end.
"""

from __future__ import annotations

import sys

SOURCES: dict[str, str] = {}
"""File name -> the text of a step of the tests."""
ENDING = {"StopIteration", "StopAsyncIteration", "Exception", "BaseException"}


def arrives(inside: str) -> bool:
    """Whether what is raised here arrives. `inside`: the file name of the judge's own code."""
    frame, called = sys._getframe(1), None
    while frame is not None and frame.f_code.co_filename == inside:
        called, frame = frame.f_code, frame.f_back
    while frame is not None and frame.f_code.co_filename != inside:
        path = nodes_at(frame)
        if not path or not calls(path[-1], frame, called):
            return False
        if any(map(expects, path)):
            return True
        called, frame = frame.f_code, frame.f_back
    return True


def nodes_at(frame):
    """The syntax tree from the frame's own function down to the call or comprehension that runs in it now."""
    import ast
    import linecache

    code = frame.f_code
    source = SOURCES.get(code.co_filename) or "".join(linecache.getlines(code.co_filename))
    at = list(code.co_positions())[frame.f_lasti // 2]
    whole = ast.Call | ast.ListComp | ast.SetComp | ast.DictComp
    own = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef | ast.GeneratorExp
    if code.co_name in ("<listcomp>", "<setcomp>", "<dictcomp>"):  # a frame of its own until 3.12
        own |= ast.ListComp | ast.SetComp | ast.DictComp

    def span(node):
        return node.lineno, node.end_lineno, node.col_offset, node.end_col_offset

    def down(node, path):
        for name, value in ast.iter_fields(node):
            for child in value if isinstance(value, list) else [value]:
                if not isinstance(child, ast.AST):
                    continue
                way = [] if isinstance(node, own) else path
                if isinstance(node, ast.Try) and name != "body":
                    way = [one for one in way if one is not node]
                way = [*way, child]
                if isinstance(child, whole) and span(child) == at:
                    return way
                if found := down(child, way):
                    return found
        return None

    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError):
        return None
    return down(tree, [])


def calls(node, frame, code):
    """Whether this expression, evaluated in this frame, itself calls the function of this code."""
    import ast

    if not isinstance(node, ast.Call):
        return code.co_name in ("<listcomp>", "<setcomp>", "<dictcomp>")
    target = node.func
    while isinstance(target, ast.Attribute):
        target = target.value
    if not isinstance(target, ast.Name):  # T().go(): making another T to ask would be a call of its own
        return isinstance(node.func, ast.Attribute) and node.func.attr == code.co_name
    try:
        made = eval(compile(ast.Expression(node.func), "<call>", "eval"), frame.f_globals, dict(frame.f_locals))
    except Exception:
        return False
    own = getattr(type(made), "__call__", None)  # noqa: B004
    found = [getattr(made, "__func__", made), own, getattr(made, "__init__", None)]
    return any(getattr(one, "__code__", None) is code for one in found)


def expects(node):
    """Whether this `try` or `with` of the tests may catch an exception that ends loops."""
    import ast

    if isinstance(node, ast.Try):
        kinds = [handler.type for handler in node.handlers]
    elif isinstance(node, ast.With):
        kinds = [item.context_expr for item in node.items]
    else:
        return False
    named = [n for kind in kinds if kind is not None for n in ast.walk(kind)]
    return None in kinds or any(isinstance(n, ast.Name) and n.id in ENDING for n in named)

"""Whatever ends a command is said in both languages: no error of the package is written in English alone."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "anygrpo"
ERRORS = ("ConfigError", "DataError", "TrainingError", "DoctorObjection", "Interrupted")
ENGLISH_ALONE: dict[str, str] = {}
"""file -> why its errors have one language: none is reached from the command line."""


def literals(node: ast.expr, names: dict[str, list[ast.expr]]) -> Iterator[str]:
    """The plain strings that an argument can be; what a `Text` or another call makes is left out."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.JoinedStr):
        yield "".join(str(v.value) if isinstance(v, ast.Constant) else "{}" for v in node.values)
    elif isinstance(node, ast.BinOp):
        yield " ".join([*literals(node.left, names), *literals(node.right, names)])
    elif isinstance(node, ast.IfExp):
        yield from literals(node.body, names)
        yield from literals(node.orelse, names)
    elif isinstance(node, ast.Name):
        for value in names.get(node.id, ()):
            yield from literals(value, {})
    elif isinstance(node, ast.Subscript):
        yield from literals(node.value, names)
    elif isinstance(node, ast.Dict):
        for value in node.values:
            yield from literals(value, names)


def prose(text: str) -> bool:
    """Whether a person has to know English to read it: two words in a row that are no command to type."""
    text = re.sub(r"pip install [^,;]*|`[^`]*`|--?[a-z-]+|\{\}", "", text)
    return bool(re.search(r"\b[A-Za-z]{2,} [a-z]{2,}\b|^[a-z]{3,}( it)?$", text))


def assigned(function: ast.AST) -> dict[str, list[ast.expr]]:
    """name -> what a function, or a module outside of its functions, assigns to it."""
    found: dict[str, list[ast.expr]] = {}
    for node in function.body if isinstance(function, ast.Module) else ast.walk(function):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                pairs = [(target, node.value)]
                if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                    pairs = list(zip(target.elts, node.value.elts))
                for one, value in pairs:
                    if isinstance(one, ast.Name):
                        found.setdefault(one.id, []).append(value)
    return found


def english_alone(source: str, errors: tuple[str, ...] = ERRORS) -> list[str]:
    """ "line: text" of each error whose words are a plain string."""
    tree, found = ast.parse(source), {}
    functions = [node for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.Lambda))]
    for function in [tree, *functions]:
        names = assigned(tree) | assigned(function)
        for node in ast.walk(function):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in errors):
                continue
            for text in (text for one in node.args for text in literals(one, names) if prose(text)):
                found[node.lineno, text] = f"{node.lineno}: {text}"
    return list(found.values())


def shown_in_chinese(function: ast.AST, names: dict[str, list[ast.expr]]) -> Iterator[tuple[int, str]]:
    """line, plain string: of what the Chinese of a `Text` fills in, and of what border's errors are told."""
    for node in ast.walk(function):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and len(node.args) > 1):
            continue
        shown: list[ast.expr] = []
        if node.func.id == "Text":
            shown = [n.value for n in ast.walk(node.args[1]) if isinstance(n, ast.FormattedValue)]
        elif node.func.id == "wrong":  # (whose, method, found, wanted)
            shown = node.args[2:]
        yield from ((node.lineno, text) for one in shown for text in literals(one, names))


def half_chinese(source: str) -> list[str]:
    """ "line: text" of English that stands inside Chinese: a fragment filled into both languages."""
    tree, found = ast.parse(source), {}
    for function in [tree, *(node for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.Lambda)))]:
        for line, text in shown_in_chinese(function, assigned(tree) | assigned(function)):
            words = re.search(r"[a-z]{2,} [a-z]{2,}", text)  # one word may be a setting's or a method's
            if words and prose(text) and not re.search(r"[\u4e00-\u9fff]", text):
                found[line, text] = f"{line}: {text}"
    return list(found.values())


def test_no_error_is_said_in_english_alone():
    found = {}
    for path in sorted(SOURCE.rglob("*.py")):
        name = path.relative_to(SOURCE).as_posix()
        if name not in ENGLISH_ALONE and (lines := english_alone(path.read_text("utf-8"))):
            found[name] = lines
    assert found == {}


def test_no_check_of_a_setting_is_said_in_english_alone():
    """What a section's validator raises is a ValueError, and the recipe's reader shows it."""
    found, seen = {}, 0
    for path in sorted(SOURCE.rglob("*.py")):
        source = path.read_text("utf-8")
        if "import model_validator" in source or ", model_validator" in source or path.parent.name == "recipe":
            seen += source.count("raise ValueError(")
            if lines := english_alone(source, ("ValueError",)):
                found[path.relative_to(SOURCE).as_posix()] = lines
    assert found == {}
    assert seen > 60


def test_no_english_stands_inside_chinese():
    found = {}
    for path in sorted(SOURCE.rglob("*.py")):
        if lines := half_chinese(path.read_text("utf-8")):
            found[path.relative_to(SOURCE).as_posix()] = lines
    assert found == {}


def test_the_check_sees_what_it_is_for():
    both = 'raise ConfigError(Text("it is wrong", "错"), Text("mend it", "请修正"))'
    assert english_alone(both) == []
    assert english_alone('raise ConfigError(f"{x}: it is wrong")') == ["1: {}: it is wrong"]
    assert english_alone('raise DataError(Text("a b", "甲"), "mend it")') == ["1: mend it"]
    assert english_alone('def f():\n    cure = "name another file"\n    raise DataError(said, cure)') == [
        "3: name another file"
    ]
    assert english_alone('CURES = {1: "copy it again"}\nraise DataError(said, CURES[n])') == ["2: copy it again"]
    assert english_alone('raise DataError(said, "pip install pyarrow")') == []
    assert english_alone('raise DataError(said, "beta = 0")') == []
    both = 'def f():\n    why = "has no place"\n    raise DataError(Text(f"x {why}", f"甲 {why}"), cure)'
    assert half_chinese(both) == ["3: has no place"]
    assert half_chinese('wrong(policy, "sample", f"log_probs {x}", "a mask of bool")') == ["1: a mask of bool"]
    assert half_chinese('wrong(policy, "sample", f"log_probs {x}", Text("a mask of bool", "布尔"))') == []
    assert half_chinese('kind = "float"\nraise DataError(Text(f"a {kind}", f"{kind} 张量"), cure)') == []

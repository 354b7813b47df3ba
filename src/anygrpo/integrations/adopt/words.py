"""Command lines, shell scripts and YAML files as settings. Nothing is run: of a shell, assignments and arithmetic are
read, the first branch or the last assignment holds, and what only running would tell stays as it is written."""

from __future__ import annotations

import ast
import re
import shlex
from pathlib import Path
from typing import Any

from anygrpo.errors import ConfigError, DataError
from anygrpo.files import refuse_unending
from anygrpo.spoken import Text

_NAME = re.compile(r"\$\{(\w+)(?::?[-=]([^{}]*))?\}|\$(\w+)")
_ASSIGNED = re.compile(r"^\s*(?:export\s+|readonly\s+|local\s+)?([A-Za-z_]\w*)=(.*)$", re.DOTALL)
_ARRAY = re.compile(r"^\s*([A-Za-z_]\w*)(\+?)=\((.*)\)\s*$", re.DOTALL)
_SUM = re.compile(r"\$\(\(([^()]*(?:\([^()]*\)[^()]*)*)\)\)")


def commands_of(text: str) -> list[list[str]]:
    """A shell script's commands as words, with its own variables filled in."""
    known: dict[str, str] = {"HOME": str(Path.home())}
    arrays: dict[str, list[str]] = {}
    made: list[list[str]] = []
    for line in _lines(text):
        array = _ARRAY.match(line)
        if array:
            more = _split(_filled(array[3], known, arrays))
            arrays[array[1]] = (arrays.get(array[1], []) if array[2] else []) + more
            continue
        assigned = _ASSIGNED.match(line)
        words = _split(_filled(line, known, arrays))
        if assigned and len(_split(_filled(assigned[2], known, arrays))) <= 1:
            known[assigned[1]] = " ".join(_split(_filled(assigned[2], known, arrays)))
        elif words:
            made.append(words)
    return made


def _lines(text: str) -> list[str]:
    """Logical lines: comments out, continued lines and open brackets of arrays joined."""
    lines, held = [], ""
    for raw in text.splitlines():
        if raw.strip().startswith("#"):
            continue
        held += raw.rstrip()
        if held.endswith("\\"):
            held = held[:-1] + " "
            continue
        if re.match(r"^\s*\w+\+?=\($", held.rstrip()) or (re.match(r"^\s*\w+\+?=\(", held) and not _closed(held)):
            held += " "
            continue
        lines.append(held)
        held = ""
    return [*lines, held] if held.strip() else lines


def _closed(text: str) -> bool:
    return text.count("(") <= text.count(")")


def _filled(text: str, known: dict[str, str], arrays: dict[str, list[str]]) -> str:
    text = re.sub(r"\"?\$\{(\w+)\[[@*]\]\}\"?", lambda m: shlex.join(arrays.get(m[1], [])), text)
    text = re.sub(r"\"?\$[@*]\"?", "", text)
    for _ in range(8):  # a default may hold a name
        new = _NAME.sub(lambda m: _value(m, known), text)
        if new == text:
            break
        text = new
    return _SUM.sub(lambda m: _sum(m, known), text)


def _value(match: re.Match[str], known: dict[str, str]) -> str:
    name = match[1] or match[3]
    return known.get(name, match[2] if match[2] is not None else "$" + name)


def _sum(match: re.Match[str], known: dict[str, str]) -> str:
    text = re.sub(r"\b[A-Za-z_]\w*\b", lambda m: known.get(m[0], m[0]), match[1])
    try:
        value = number(ast.parse(text.strip(), mode="eval").body)
    except (SyntaxError, ValueError, RecursionError):
        return match[0]
    return str(int(value))


def number(node: ast.expr) -> int | float:
    """A sum of plain numbers. Raises: ValueError for anything else, or for a number beyond 1e18."""
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        return node.value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -number(node.operand)
    if isinstance(node, ast.BinOp):
        a, b = number(node.left), number(node.right)
        if max(abs(a), abs(b)) > 1e18 or (isinstance(node.op, ast.Pow) and abs(b) > 64):
            raise ValueError("too large")
        if isinstance(node.op, ast.Add):
            return a + b
        if isinstance(node.op, ast.Sub):
            return a - b
        if isinstance(node.op, ast.Mult):
            return a * b
        if isinstance(node.op, ast.Div | ast.FloorDiv) and b:
            return a // b if isinstance(node.op, ast.FloorDiv) or (isinstance(a, int) and a % b == 0) else a / b
        if isinstance(node.op, ast.Pow) and abs(a) < 1e6:
            return a**b
    raise ValueError("not a sum of numbers")


def _split(text: str) -> list[str]:
    """Words; a # begins a comment only where a word could begin (`set#100` is a word)."""
    text = re.sub(r"""("[^"]*"|'[^']*'|\\.)|(?:(?<=\s)|^)#.*""", lambda m: m[1] or "", text)
    try:
        return shlex.split(text)
    except ValueError:  # an open quote: of a text that is no command
        return text.split()


def overrides(words: list[str]) -> dict[str, Any]:
    """Hydra's `key=value` words, with or without a plus before them."""
    out: dict[str, Any] = {}
    for word in words:
        key, equals, value = word.partition("=")
        key = key.lstrip("+~")
        if equals and "." in key and re.fullmatch(r"\w[\w@./-]*", key):
            out[key] = plain(value)
    return out


def options(words: list[str]) -> dict[str, Any]:
    """`--key value`, `--key=value`, `--key` alone (true) and `--key a b c` (a list); the last of a key holds."""
    out: dict[str, Any] = {}
    queue = list(words)
    while queue:
        word = queue.pop(0)
        if not word.startswith("--") or word == "--":
            continue
        key, equals, value = word[2:].partition("=")
        values = [value] if equals else []
        while not equals and queue and not queue[0].startswith("--"):
            values += [part for part in queue.pop(0).split(",") if part]
        found = [plain(v) for v in values]
        out[key.replace("-", "_")] = True if not found else found[0] if len(found) == 1 else found
    return out


def plain(text: str) -> Any:
    """A word as the value it stands for: number, truth, nothing, list, else the text."""
    text = text.strip()
    lowered = text.lower()
    if lowered in ("true", "false"):
        return lowered == "true"
    if lowered in ("null", "none", "~", ""):
        return None
    try:
        return int(text)
    except ValueError:
        pass
    try:
        return float(text)
    except ValueError:
        pass
    if text[0] in "[{'\"(":
        return _structure(text)
    return text


def _structure(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        if text.startswith("{"):  # Hydra's: names without quotation marks
            pairs = re.fullmatch(r"\{((?:\s*[\w.]+\s*:\s*(?:\[[^\[\]{}]*\]|[^,\[\]{}'\"]+)(?:,|(?=\})))+)\}", text)
            found = re.findall(r"([\w.]+)\s*:\s*(\[[^\]]*\]|[^,]+)", pairs[1]) if pairs else []
            return {key: plain(value) for key, value in found} if found else text
        inner = text.strip("[]'\" ")
        return [plain(part) for part in inner.split(",")] if text.startswith("[") else text


def of_yaml(path: Path) -> dict[str, Any]:
    """A YAML file of settings.

    Raises:
        DataError: it cannot be read, or is not a table. ConfigError: PyYAML is not installed.
    """
    try:
        import yaml
    except ImportError:
        raise ConfigError(
            Text("reading YAML needs the package pyyaml", "读取 YAML 需要 pyyaml 包"), "pip install pyyaml"
        ) from None
    try:
        table = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        what = Text(f"{path} cannot be read: {error.strerror}", f"{path} 无法读取：{error.strerror}")
        raise DataError(what) from None
    except (UnicodeDecodeError, yaml.YAMLError, RecursionError) as error:
        raise DataError(
            Text(
                f"{path} is not YAML that can be read: {str(error).splitlines()[0]}",
                f"{path} 不是可读的 YAML：{str(error).splitlines()[0]}",
            )
        ) from None
    refuse_unending(table)
    if not isinstance(table, dict):
        raise DataError(
            Text(f"{path} holds no table of settings", f"{path} 中没有设置表"),
            Text("give a file of `key: value` lines", "请给出由 `key: value` 行组成的文件"),
        )
    return table


def flat(table: dict[Any, Any], before: str = "") -> dict[str, Any]:
    """Nested tables by dotted names."""
    out: dict[str, Any] = {}
    for key, value in table.items():
        name = f"{before}{key}"
        if isinstance(value, dict) and value and before.count(".") < 12:
            out |= flat(value, f"{name}.")
        else:
            out[name] = plain(value) if isinstance(value, str) else value
    return out

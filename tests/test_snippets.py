"""Examples in docstrings give what they say, and Python blocks of the guides are Python with imports that exist."""

from __future__ import annotations

import ast
import doctest
import importlib
import re
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src"
RUN = re.compile(r"^ *>>> (?!.*SKIP).+$", re.MULTILINE)
WITH_EXAMPLES = [p for p in sorted(SOURCE.rglob("*.py")) if RUN.search(p.read_text(encoding="utf-8"))]
PAGES = [ROOT / "README.md", ROOT / "README.zh.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


@pytest.mark.parametrize("path", WITH_EXAMPLES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_examples_in_docstrings(path):
    name = ".".join(path.relative_to(SOURCE).with_suffix("").parts)
    result = doctest.testmod(importlib.import_module(name), optionflags=doctest.NORMALIZE_WHITESPACE)
    assert result.attempted
    assert not result.failed


def blocks() -> list[tuple[str, str]]:
    """(page, code) of every Python block."""
    found = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        found += [(page.name, textwrap.dedent(code)) for code in re.findall(r"```python\n(.*?)```", text, re.DOTALL)]
    return found


@pytest.mark.parametrize(("page", "code"), blocks())
def test_python_blocks_parse_and_their_imports_exist(page, code):
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "anygrpo":
            module = importlib.import_module(node.module)
            for name in node.names:
                assert hasattr(module, name.name), f"{page}: from {node.module} import {name.name}"
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "anygrpo":
            assert hasattr(importlib.import_module("anygrpo"), node.attr), f"{page}: anygrpo.{node.attr}"


def test_readmes_python_does_what_it_says(tmp_path, monkeypatch):
    """With a tiny model and a reward for the reader's own, and a toy's run where the demo's would lie."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent / "language"))
    import talking
    from runs import toml_of

    from anygrpo.cli.main import main

    monkeypatch.chdir(tmp_path)
    recipe = toml_of(Path("runs/demo-1"), tmp_path / "r.toml", training={"steps": 2})
    assert main(["train", str(recipe), "--quiet"]) == 0
    code = next(code for page, code in blocks() if page == "README.md" and "anygrpo.train" in code)
    rows = [{"prompt": f"say {i}"} for i in range(12)]
    names = {"model": talking.model(), "tokenizer": talking.tokenizer(), "rows": rows[:8]}
    names |= {"my_reward": lambda prompts, outputs: [float(len(o)) for o in outputs], "other_rows": rows[8:]}
    exec(code.replace('"steps": 100', '"steps": 1').replace("max_new_tokens=64", "max_new_tokens=8"), names)
    assert names["run"].step == 1
    assert names["run"].policy is names["policy"]
    assert type(names["best"]).__name__ == "Bandit"

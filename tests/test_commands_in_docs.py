"""Every command line of README, guides and results is one that this version understands: words, flags, recipe keys.

Nothing is run. A recipe that is named and lies here is read with the line's flags; one that a reader has to write
(my.toml, recipe.toml) is only parsed.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from anygrpo.cli.main import build_parser, known_commands, split_flags
from anygrpo.errors import AnygrpoError, ConfigError, DataError
from anygrpo.recipe.load import load_recipe

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / name for name in ("README.md", "README.zh.md", "CONTRIBUTING.md")]
PAGES += sorted(p for p in (ROOT / "docs").glob("*.md") if p.name != "lab-notes.md")
PAGES += sorted((ROOT / "docs" / "results").glob("*.md"))
PLACEHOLDER = re.compile(r"\.\.\.|…|[A-Z]{2,}|[<\[*|]")


def lines_of(page: Path) -> list[str]:
    """Lines that begin with `anygrpo`, `python scripts/` or `bash bench/`: of code blocks and of inline code, comments,
    loops and variables before them taken off; in place of a variable stands 1."""
    text = page.read_text(encoding="utf-8").replace("\\\n", " ")
    blocks = re.findall(r"```(?:bash|sh|console|shell)?\n(.*?)```", text, re.DOTALL)
    blocks += re.findall(r"(?:^|\n)((?:    [^\n]*\n)+)", text)
    found = [line.strip().removeprefix("$ ") for block in blocks for line in block.splitlines()]
    found += re.findall(r"`(anygrpo [^`\n]+)`", text)
    found = [re.sub(r"^(?:for [^;]+; do |[A-Z_]+=(?:\"[^\"]*\"|\S*) )+", "", line) for line in found]
    found = [re.sub(r"\$\w+", "1", line) for line in found]
    named = re.compile(r"anygrpo( \w+| select \w+)")  # a command that is only spoken of
    wanted = [
        x
        for x in found
        if re.match(r"(anygrpo|python3? scripts/|python3? bench/|bash bench/)", x) and not named.fullmatch(x)
    ]
    return list(dict.fromkeys(re.split(r"\s+#|；|;", line)[0].strip() for line in wanted))


def is_form(words: list[str]) -> bool:
    """A form with places to fill, not a line to type."""
    return any(PLACEHOLDER.search(word) for word in words)


LINES = [(page.name, line) for page in PAGES for line in lines_of(page)]


def test_there_are_lines_to_try():
    assert sum(not is_form(line.split()) for _, line in LINES) > 80
    assert {name for name, _ in LINES} >= {"README.md", "README.zh.md", "language.md", "selection.md", "doctor.md"}


@pytest.mark.parametrize(("page", "line"), LINES)
def test_a_command_line_is_understood(page: str, line: str, capsys):
    words = shlex.split(line)
    if words[0] in ("python", "python3", "bash"):
        assert (ROOT / words[1]).is_file(), line
        return
    words = words[1:]
    for cut in ("|", ">", "2>&1", "&&"):
        words = words[: words.index(cut)] if cut in words else words
    command = next((word for word in words if not word.startswith("-")), None)
    if command is None or PLACEHOLDER.match(command):
        return
    assert command in known_commands(), f"{page}: {line}"
    parser = build_parser(command)
    own, flags = split_flags(parser, command, words)
    if is_form(words):
        return
    try:
        args = parser.parse_args(own)
    except SystemExit:
        pytest.fail(f"{page}: {line}\n{capsys.readouterr().err}")
    if flags:
        assert getattr(args, "takes_flags", False), f"{page}: {line}: {command} takes no settings"
    recipe = getattr(args, "recipe", None)
    if isinstance(recipe, str) and recipe.endswith(".toml") and (ROOT / recipe).is_file():
        try:
            load_recipe(ROOT / recipe, flags)
        except (ConfigError, DataError) as error:
            pytest.fail(f"{page}: {line}\n{error}")
        except AnygrpoError:
            pass


NAMED = re.compile(r"(?<![\w/])(?:recipes|examples|scripts|bench|tests|docs)/[\w/.-]+\.(?:toml|py|sh|md|png|txt)")


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_the_files_that_a_page_names_are_there(page):
    assert [name for name in NAMED.findall(page.read_text(encoding="utf-8")) if not (ROOT / name).exists()] == []

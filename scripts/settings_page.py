"""docs/settings.md, printed from the sections of recipes.

python scripts/settings_page.py            write it anew
python scripts/settings_page.py --check    exit 1 where the page differs
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

from anygrpo.recipe.heads import written
from anygrpo.recipe.reference import settings, tables
from anygrpo.spoken import use

PAGE = Path(__file__).resolve().parents[1] / "docs" / "settings.md"
HEAD = """# Settings

Every key of a recipe, printed from the code by `python scripts/settings_page.py`. In a terminal:

    anygrpo settings algorithm                       # a table; `anygrpo settings` lists them
    anygrpo settings learning_rate                   # a key, wherever it stands
    anygrpo settings --json-schema > recipe.json     # for editors
    anygrpo train recipe.toml --dry-run --all        # every value in force, and where it came from

A table's heading is its name here; the line below it says what a recipe writes. Each key is a flag too:
`--optimizer.learning-rate 1e-4`. An empty default: the key must be given. `none` is written `"none"` in a recipe,
or the key is left out where `none` is its default. A number of type `schedule` may be
`{ kind = "cosine", start = 1e-4, end = 0.0, warmup = 10 }`.
"""


def page() -> str:
    """The whole page."""
    parts = [HEAD]
    for table in tables():
        rows = ["| key | type | default | meaning |", "| --- | --- | --- | --- |"]
        for one in settings(table):
            cells = (f"`{one.name}`", one.type.replace(" | ", ", "), one.default and f"`{one.default}`", one.sentence)
            rows.append("| " + " | ".join(map(_shown, cells)) + " |")
        parts.append(f"## {table or 'The recipe itself'}\n\n{written(table).en}\n\n" + "\n".join(rows) + "\n")
    return "\n".join(parts)


def _shown(cell: str) -> str:
    """A cell as Markdown: what looks like an HTML tag outside of code would vanish."""
    parts = cell.replace("|", "\\|").split("`")
    return "`".join(part if i % 2 else re.sub(r"<(?=[a-z/])", "&lt;", part) for i, part in enumerate(parts))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    use("en")  # the page's language, whoever prints it
    if check:
        return int(PAGE.read_text(encoding="utf-8") != page())
    PAGE.write_text(page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())

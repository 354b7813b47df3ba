"""docs/settings.md, printed from the sections of recipes.

python scripts/settings_page.py            write it anew
python scripts/settings_page.py --check    exit 1 where the page differs
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from anygrpo.recipe.reference import settings, tables

PAGE = Path(__file__).resolve().parents[1] / "docs" / "settings.md"
HEAD = """# Settings

Every key of a recipe, printed from the code by `python scripts/settings_page.py`. `anygrpo settings TABLE` shows it in
a terminal (`anygrpo settings learning_rate` finds a key), `anygrpo settings --json-schema` is for editors, `anygrpo
train recipe.toml --dry-run --all` shows every value in force and where it came from. A number of type `schedule` may be
`{ kind = "cosine", start = 1e-4, end = 0.0, warmup = 10 }`. No default: it must be given.
"""


def page() -> str:
    """The whole page."""
    parts = [HEAD]
    for table in tables():
        rows = ["| key | type | default | meaning |", "| --- | --- | --- | --- |"]
        for one in settings(table):
            cells = (f"`{one.name}`", one.type.replace(" | ", ", "), one.default and f"`{one.default}`", one.sentence)
            rows.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
        parts.append(f"## {table or 'The recipe itself'}\n\n" + "\n".join(rows) + "\n")
    return "\n".join(parts)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true")
    if parser.parse_args().check:
        return int(PAGE.read_text(encoding="utf-8") != page())
    PAGE.write_text(page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""The tables of docs/algorithm.md, and of rewards in the families' pages, printed from the cards of `anygrpo.choices`.

    python scripts/algorithm_page.py            write them anew
    python scripts/algorithm_page.py --check    exit 1 where the page differs

A table stands between `<!-- cards: NAME -->` and `<!-- end -->`; NAME is a kind of choices, "presets", "settings", or
a key of REWARDS.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterable
from pathlib import Path

from anygrpo.choices.card import Card
from anygrpo.choices.catalogue import CARDS, PRESETS
from anygrpo.choices.settings import SETTINGS
from anygrpo.families import resolve
from anygrpo.recipe.algorithm import AlgorithmConfig
from anygrpo.recipe.schema import words_of

DOCS = Path(__file__).resolve().parents[1] / "docs"
PAGES = [DOCS / f"{name}.md" for name in ("algorithm", "selection", "motion", "restoration")]
REWARDS = {
    "selection": "anygrpo.selection.cards:CARDS",
    "restoration": "anygrpo.gates.cards:CARDS",
    "images": "anygrpo.denoising.cards:IMAGES",
    "motions": "anygrpo.denoising.cards:MOTIONS",
}
_BLOCK = re.compile(r"(<!-- cards: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
_HEADS = {"objective": "loss of a decision, r = new / old", "reduction": "weight of a decision", "filter": "keeps"}


def table(name: str) -> str:
    """The rows of a kind of choices, of the presets, or of the settings."""
    if name == "presets":
        rows = ((f"`{p.name}`", _pairs(p.values), p.source.en, p.beside.en) for p in PRESETS.values())
        return _table(("preset", "sets", "read where", "beside it"), rows)
    if name == "settings":
        return _table(("key", "type", "default", "meaning"), (_setting(k) for k in AlgorithmConfig.model_fields))
    if name in REWARDS:
        rows = ((f"`{card.name}`", card.formula, card.sentence.en) for card in resolve(REWARDS[name]))
        return _table(("name", "value", "does"), rows)
    head = ("name", _HEADS.get(name, "formula"), "source", "settings", "does")
    return _table(head, map(_row, CARDS[name].values()))


def _row(card: Card) -> tuple[str, ...]:
    sets = f" Alone it sets {_pairs(card.defaults)}." if card.defaults else ""
    return f"`{card.name}`", card.formula, card.source, ", ".join(card.settings), card.sentence.en + sets


def _setting(key: str) -> tuple[str, ...]:
    default = AlgorithmConfig.model_fields[key].get_default(call_default_factory=True)
    shown = "drop_constant" if key == "filters" else "none" if default is None else default if default != {} else "-"
    return f"`{key}`", words_of(AlgorithmConfig)[key].replace("|", "or"), str(shown), SETTINGS[key].en


def _pairs(values: object) -> str:
    return ", ".join(f"{k} = {json.dumps(v)}" for k, v in dict(values).items())  # type: ignore[call-overload]


def _table(head: Iterable[str], rows: Iterable[tuple[str, ...]]) -> str:
    head = list(head)
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(str(cell).replace('|', '/') for cell in line)} |\n" for line in lines)


def written(text: str) -> str:
    """The page with every table as the cards have it."""
    return _BLOCK.sub(lambda m: m[1] + table(m[2]) + m[3], text)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    texts = {page: page.read_text(encoding="utf-8") for page in PAGES}
    for page, text in texts.items() if not arguments.check else ():
        page.write_text(written(text), encoding="utf-8")
    return int(arguments.check and any(written(text) != text for text in texts.values()))


if __name__ == "__main__":
    sys.exit(main())

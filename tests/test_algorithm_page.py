"""docs/algorithm.md names file:function for every detail: they exist."""

from __future__ import annotations

import importlib.util
import re
import textwrap
from pathlib import Path

import pytest
import torch

from anygrpo.choices.catalogue import CARDS

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "algorithm.md").read_text(encoding="utf-8")
DETAILS = re.findall(r"^(\d+)\. (.+?)(?=^\d+\. |^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
REFERENCE = re.compile(r"`([\w/]+\.py):(\w+)[`(]")
PLACES = ("src/anygrpo/algorithm", "src/anygrpo", ".")


def names(file: str) -> set[str]:
    """What a file defines at its top level."""
    path = next(ROOT / place / file for place in PLACES if (ROOT / place / file).is_file())
    text = path.read_text(encoding="utf-8")
    return set(re.findall(r"^(?:def|class) (\w+)", text, re.MULTILINE)) | set(
        re.findall(r"^(\w+)(?:: [^=\n]+)? = ", text, re.MULTILINE)
    )


def test_details_are_numbered_without_a_gap():
    assert [int(number) for number, _ in DETAILS] == list(range(1, len(DETAILS) + 1))
    assert len(DETAILS) >= 44


@pytest.mark.parametrize(("number", "text"), DETAILS)
def test_every_detail_names_a_function_that_exists(number: str, text: str):
    found = REFERENCE.findall(text)
    assert found, f"{number}. {text[:80]}"
    for file, name in found:
        assert name == "NAME" or name in names(file), f"{number}: {file}:{name}"


def test_the_tables_are_those_of_the_cards():
    """`python scripts/algorithm_page.py` writes them."""
    spec = importlib.util.spec_from_file_location("algorithm_page", ROOT / "scripts" / "algorithm_page.py")
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    assert [p.name for p in script.PAGES if script.written(text := p.read_text(encoding="utf-8")) != text] == []
    kinds = CARDS.keys() - {"reward"}  # docs/rewards.md
    assert set(re.findall(r"<!-- cards: (\w+) -->", PAGE)) == {*kinds, "presets", "settings"}
    for cards in (CARDS[kind] for kind in kinds):
        assert all(f"| `{name}` |" in PAGE for name in cards)


def test_the_snippet_that_opens_the_page_runs():
    """And its gradient is that of the loss over all rows at once, written out here."""
    block = re.search(r"\(a test runs these lines\):\n\n((?:    .*\n|\n)+)", PAGE)[1]
    torch.manual_seed(0)
    new = (torch.randn(8, 3, dtype=torch.float64) * 0.05 - 1).requires_grad_()
    old, ref = torch.full((8, 3), -1.0, dtype=torch.float64), torch.full((8, 3), -1.1, dtype=torch.float64)
    rewards, valid = torch.tensor([[0.0, 1, 1, 0], [1, 0, 2, 3]]), torch.ones(2, 4, dtype=torch.bool)
    mask = torch.arange(3) < torch.tensor([3, 1, 2, 3, 3, 3, 1, 2])[:, None]
    names = {"rewards": rewards, "valid": valid, "mask": mask, "new": new, "old": old, "ref": ref, "beta": 0.1}
    exec(textwrap.dedent(block), names)
    a = ((rewards - rewards.mean(1, keepdim=True)) / rewards.std(1, keepdim=True)).double().flatten()[:, None]
    ratio = (new.detach() - old).exp()
    acts = (ratio - 1) * a <= torch.where(a > 0, 0.28 * a, -0.2 * a)  # unclipped
    expected = (
        torch.where(mask, -torch.where(acts, ratio * a, 0.0) + 0.1 * ratio * (new.detach() - ref), 0.0) / mask.sum()
    )
    torch.testing.assert_close(new.grad, expected, rtol=1e-5, atol=1e-9)

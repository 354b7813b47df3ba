"""Two pictures over each other: which folders become one, and at what size."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from anygrpo.report.sliders import LEAST, MOST, sliders
from anygrpo.report.words import WORDS
from anygrpo.spoken import table

SPOKEN = table(WORDS, "en")


def laid(folder: Path, **sizes: tuple[int, int]) -> None:
    folder.mkdir(parents=True)
    for name, (width, height) in sizes.items():
        Image.fromarray(np.zeros((height, width, 3), np.uint8)).save(folder / f"{name[1:]}.png")


@pytest.mark.parametrize(("given", "shown"), [((100, 50), LEAST), ((500, 200), 500), ((2000, 100), MOST)])
def test_two_pictures_of_one_size_lie_over_each_other(given: tuple[int, int], shown: int, tmp_path: Path) -> None:
    laid(tmp_path / "low_light", _1_input=given, _2_after=given)
    (figure,) = sliders(tmp_path, SPOKEN)
    assert "low light: degraded | after (drag" in figure
    height = round(given[1] * shown / given[0])
    assert figure.count(f"width:{shown}px;height:{height}px") == 3
    assert figure.index('alt="after"') < figure.index('class="over"') < figure.index('alt="degraded"')
    assert "<script" not in figure
    assert "onclick" not in figure


def test_other_folders_are_none(tmp_path: Path) -> None:
    laid(tmp_path / "one", _1_input=(9, 9))
    laid(tmp_path / "three", _a=(9, 9), _b=(9, 9), _c=(9, 9))
    laid(tmp_path / "unlike", _a=(9, 9), _b=(9, 8))
    laid(tmp_path / "text")
    for name in "ab":
        (tmp_path / "text" / f"{name}.png").write_text("no picture")
    assert sliders(tmp_path, SPOKEN) == []
    assert sliders(tmp_path / "absent", SPOKEN) == []

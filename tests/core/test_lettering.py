"""Words on pictures: Chinese in a font that has it, and where there is none English, never boxes."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from anygrpo.core import lettering


class Canvas:
    """Keeps what is written."""

    def __init__(self) -> None:
        self.text_written, self.font = "", None

    def text(self, at, text, fill, font):
        self.text_written, self.font = text, font


@pytest.fixture
def fonts(tmp_path, monkeypatch):
    """A system whose only fonts lie in a folder."""
    monkeypatch.setattr(lettering, "PLACES", (str(tmp_path),))
    lettering.cjk_font.cache_clear()
    yield tmp_path
    lettering.cjk_font.cache_clear()


def a_font(folder: Path) -> None:
    """matplotlib's font of last resort has a picture for every character."""
    import matplotlib

    source = Path(matplotlib.get_data_path()) / "fonts" / "ttf" / "LastResortHE-Regular.ttf"
    shutil.copy(source, folder / "NotoSansCJK-Regular.ttf")


def written(text: str, **how) -> Canvas:
    canvas = Canvas()
    lettering.write(canvas, (0, 0), text, **how)
    return canvas


def test_latin_letters_need_no_font(fonts, capsys):
    assert written("a person walks").text_written == "a person walks"
    assert written("café, ü").text_written in ("café, ü", "cafe, u")
    assert capsys.readouterr().err == ""


def test_without_a_font_no_boxes_and_one_sentence(fonts, capsys, monkeypatch):
    monkeypatch.setenv("ANYGRPO_LANG", "zh")
    assert written("一个人走路").text_written == "(no font here for this text)"
    assert lettering.label("before", "训练前") == "before"
    assert written("跑").text_written.isascii()
    assert capsys.readouterr().err.count("fonts-noto-cjk") == 1


def test_a_font_of_the_system_is_taken(fonts, monkeypatch):
    a_font(fonts)
    (fonts / "wqy-broken.ttf").write_bytes(b"no font")
    canvas = written("一个人走路")
    assert canvas.text_written == "一个人走路"
    assert canvas.font is lettering.cjk_font()
    monkeypatch.setenv("ANYGRPO_LANG", "zh")
    assert lettering.label("before", "训练前") == "训练前"
    monkeypatch.setenv("ANYGRPO_LANG", "en")
    assert lettering.label("before", "训练前") == "before"


def test_a_font_by_name_without_the_characters_is_passed_over(fonts):
    import matplotlib

    shutil.copy(Path(matplotlib.get_data_path()) / "fonts" / "ttf" / "DejaVuSans.ttf", fonts / "NotoSansSC.ttf")
    assert lettering.cjk_font() is None


def test_a_label_is_cut_to_its_column(fonts):
    assert written("walks " * 20, width=60).text_written.startswith("walks")
    assert len(written("walks " * 20, width=60).text_written) < 15

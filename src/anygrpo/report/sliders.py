"""Two pictures of one size over each other, whose border a reader drags: CSS alone, no script."""

from __future__ import annotations

import base64
from html import escape
from pathlib import Path

CSS = """<style>
.slider{position:relative;line-height:0;max-width:100%;overflow:hidden}
.slider img{display:block;max-width:none;image-rendering:auto}
.slider .over{position:absolute;top:0;left:0;height:100%;width:50%;min-width:18px;max-width:100%;overflow:hidden;
resize:horizontal;border-right:3px solid var(--accent,#c33);box-sizing:border-box}
</style>"""
LEAST, MOST = 320, 720
"""Width in pixels that pictures are shown with at least and at most."""


def sliders(folder: Path, spoken: dict[str, str]) -> list[str]:
    """A figure of each folder below `folder` that holds two PNGs of one size: the first by name lies over the second.

    Args:
        spoken: words of the page: "drag" is how to use it; a file's name after its first _ is looked up.
    """
    figures = []
    for place in sorted(p for p in folder.glob("*") if p.is_dir()) if folder.is_dir() else ():
        files = sorted(place.glob("*.png"))
        raws = [f.read_bytes() for f in files]
        if len(files) == 2 and len(sizes := {_size(raw) for raw in raws}) == 1 and (size := sizes.pop()) is not None:
            names = [f.stem.partition("_")[2] or f.stem for f in files]
            words = [escape(spoken.get(name, name)) for name in names]
            figures.append(_figure(escape(place.name.replace("_", " ")), words, raws, size, escape(spoken["drag"])))
    return figures


def _figure(name: str, words: list[str], raws: list[bytes], size: tuple[int, int], hint: str) -> str:
    width = min(max(size[0], LEAST), MOST)
    height = round(size[1] * width / size[0])
    over, under = (
        f'<img alt="{word}" style="width:{width}px;height:{height}px" '
        f'src="data:image/png;base64,{base64.b64encode(raw).decode()}">'
        for word, raw in zip(words, raws)
    )
    box = f'<div class="slider" style="width:{width}px;height:{height}px">{under}<div class="over">{over}</div></div>'
    return f"<figure><figcaption>{name}: {words[0]} | {words[1]} ({hint})</figcaption>{box}</figure>"


def _size(raw: bytes) -> tuple[int, int] | None:
    """(width, height) off a PNG's header."""
    if not raw.startswith(b"\x89PNG") or len(raw) < 24:
        return None
    width, height = (int.from_bytes(raw[a : a + 4], "big") for a in (16, 20))
    return (width, height) if width and height else None

"""Words on pictures: in a font that has them, or none of them at all (never boxes).

Pillow's own font has Latin letters only. For others (a Chinese caption, `--lang zh`) a font of the system is taken;
where there is none, that is said once, labels are English, and a text that cannot be written says where it stands.
"""

from __future__ import annotations

import re
import sys
import unicodedata
from functools import cache
from pathlib import Path
from typing import Any

from anygrpo.spoken import current, say

PLACES = (
    "/usr/share/fonts",
    "/usr/local/share/fonts",
    "~/.local/share/fonts",
    "~/.fonts",
    "/System/Library/Fonts",
    "/Library/Fonts",
    "C:/Windows/Fonts",
)
NAMES = re.compile(
    r"(noto|source ?han).*(cjk|sc|cn)|wqy|droid ?sans ?fallback|sim(hei|sun)|msyh|pingfang|"
    r"hiragino ?sans ?gb|stheiti|uming|ukai",
    re.IGNORECASE,
)
SIZE = 12
_PROBE = "训练前动作"
"""Characters that a font must have, not its name alone."""


@cache
def cjk_font() -> Any:
    """A font of this system that has Chinese characters; None where there is none."""
    from PIL import ImageFont

    for place in PLACES:
        for file in sorted(Path(place).expanduser().rglob("*.[ot]t[fc]")):
            if NAMES.search(file.name):
                try:
                    font = ImageFont.truetype(str(file), SIZE)
                except OSError:
                    continue
                if _has(font, _PROBE):
                    return font
    print(
        say(
            "no font with Chinese characters was found: labels of pictures are English "
            "(Debian: apt-get install fonts-noto-cjk; or put one into ~/.local/share/fonts)",
            "未找到中文字体：图片标签用英文"
            "（Debian：apt-get install fonts-noto-cjk；或把字体放进 ~/.local/share/fonts）",
        ),
        file=sys.stderr,
        flush=True,
    )
    return None


def label(english: str, chinese: str) -> str:
    """The one of the two that is read, as far as it can be written."""
    return chinese if current() == "zh" and cjk_font() is not None else english


def write(canvas: Any, at: tuple[float, float], text: str, width: float | None = None) -> None:
    """Write `text` on a Pillow canvas from `at`, cut to `width` pixels."""
    font = _latin()
    if not _has(font, text):  # accents go before another font is looked for
        plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode()
        if 2 * len(plain) > len(text):
            text = plain
        elif (found := cjk_font()) is not None and _has(found, text):
            font = found
        else:
            text = "(no font here for this text)"
    while width is not None and text and font.getlength(text) > width:
        text = text[:-1]
    canvas.text(at, text, fill="black", font=font)


@cache
def _latin() -> Any:
    from PIL import ImageFont

    return ImageFont.load_default()


def _has(font: Any, text: str) -> bool:
    """Whether none of the characters is drawn as what the font draws for one that it lacks."""
    lacking = bytes(font.getmask("\U0010fffd"))
    return all(c.isspace() or bytes(font.getmask(c)) != lacking for c in set(text))

"""The page around a report: typography, colours for light and dark, and nothing from elsewhere."""

from __future__ import annotations

from functools import cache
from html import escape
from pathlib import Path


@cache
def css() -> str:
    return Path(__file__).with_name("page.css").read_text("utf-8")


def document(title: str, body: str, lang: str) -> str:
    """A whole page. No script, no font, no picture from outside."""
    code = {"zh": "zh-CN"}.get(lang, lang)
    return f"""<!doctype html>
<html lang="{code}"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark"><link rel="icon" href="data:,"><title>{escape(title)}</title>
<style>{css()}</style></head><body><main>{body}</main></body></html>
"""


def element(tag: str, content: str, style: str = "", **attributes: object) -> str:
    """One element; `content` is markup, `style` its class."""
    extra = "".join(f' {name.replace("_", "-")}="{escape(str(value))}"' for name, value in attributes.items())
    classes = f' class="{escape(style)}"' if style else ""
    return f"<{tag}{classes}{extra}>{content}</{tag}>"


def prose(text: str) -> str:
    """Escaped text with `names` as code."""
    parts = escape(text).split("`")
    return "".join(f"<code>{part}</code>" if i % 2 else part for i, part in enumerate(parts))

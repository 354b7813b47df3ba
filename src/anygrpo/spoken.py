"""The one way to say a thing in English and in Chinese: a `Text`, read in the language of `--lang`, else ANYGRPO_LANG,
else the locale. Standard library only.

Rules, cards, metrics, probes, errors, commands and pages hold their words as `Text` where they are used; no other file
knows a translation.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

LANGUAGES = ("en", "zh")
VARIABLE = "ANYGRPO_LANG"
_LOCALE = ("LC_ALL", "LC_MESSAGES", "LANG")


def current() -> str:
    """ "en" or "zh". What is set first decides: ANYGRPO_LANG (`--lang` sets it for the process and those it starts),
    then LC_ALL, LC_MESSAGES, LANG; English where none is Chinese."""
    given = os.environ.get(VARIABLE, "").lower()[:2]
    if given in LANGUAGES:
        return given
    named = next((value for name in _LOCALE if (value := os.environ.get(name))), "")
    return "zh" if named.lower().startswith("zh") else "en"


def use(language: str) -> None:
    """From now on `current()` is this language."""
    os.environ[VARIABLE] = language


@dataclass(frozen=True, slots=True)
class Text:
    """What a person reads, in both languages; whoever uses a template fills in its `{name}` and `{name:.3g}`."""

    en: str
    zh: str

    def __add__(self, more: Text) -> Text:
        return Text(self.en + more.en, self.zh + more.zh)

    def said(self, language: str = "") -> str:
        """In "en" or "zh"; in the language in use where none is named."""
        return self.zh if (language or current()) == "zh" else self.en


NOTHING = Text("", "")


def say(english: str, chinese: str, language: str = "") -> str:
    """The one of the two that is read: `Text(english, chinese).said(language)`."""
    return Text(english, chinese).said(language)


def colon(language: str = "") -> str:
    """What stands between a label and what it names."""
    return say(": ", "：", language)


def said(text: str | Text) -> str:
    """What is read of a text that may have one language only."""
    return text if isinstance(text, str) else text.said()


def table(words: Mapping[str, Text], language: str = "") -> dict[str, str]:
    """Every text of a table of words, in one language."""
    return {key: text.said(language) for key, text in words.items()}

"""The language that a person reads: of `--lang`, else ANYGRPO_LANG, else the locale. Standard library only."""

from __future__ import annotations

import os

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


def say(english: str, chinese: str) -> str:
    """The one of the two that is read."""
    return chinese if current() == "zh" else english

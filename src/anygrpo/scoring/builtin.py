"""Built-in rewards: pure functions `(prompts, outputs, **columns) -> list[float | None]`, one value an output.

They are called exactly as a user's function is, so any of them may be copied into a file and changed. None means that
no verdict is possible (no gold answer, say): that sample is invalid, never worth 0.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

NUMBER = re.compile(
    r"(?:(?<![\w.)])[-−])?(?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9]+)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]{1,3}(?!\w))?"
)
"""A number in running text: thousands commas, decimals, exponents; a minus only where it is a sign (not in 7-5)."""

TOKEN = re.compile(r"[\u3400-\u9fff]|[^\W_\u3400-\u9fff]+(?:['’][^\W_]+)?")
"""A word: a run of letters and digits, or one Chinese character."""

# fmt: off
CONNECTIVES = {
    "en": (
        "because", "therefore", "thus", "hence", "so", "since", "however",
        "although", "though", "but", "while", "whereas", "moreover", "furthermore",
        "first", "second", "then", "next", "finally", "instead", "if",
        "unless", "consequently", "as a result", "for example", "in contrast", "on the other hand", "in addition",
    ),
    "zh": (
        "因为", "所以", "因此", "但是", "然而", "不过", "虽然", "尽管", "如果", "那么",
        "首先", "其次", "然后", "接着", "最后", "而且", "并且", "此外", "另外", "例如",
        "比如", "总之", "由于", "从而", "于是", "相反", "否则", "即使", "同时", "综上所述",
    ),
}
# fmt: on
"""Connective words that `connectives` counts."""


def last_number(text: str) -> str | None:
    """The last number in `text`, without commas: "so 1,234.50." gives "1234.50"."""
    found = NUMBER.findall(text)
    return found[-1].replace(",", "").replace("−", "-") if found else None


def number(
    prompts: Sequence[Any], outputs: Sequence[str], answer: Sequence[Any], tolerance: float = 0.0
) -> list[float | None]:
    """1 where the last number in the output equals the last number in the answer, else 0."""
    return [_same_number(output, gold, tolerance) for output, gold in zip(outputs, answer, strict=True)]


def _same_number(output: str, gold: Any, tolerance: float) -> float | None:
    from decimal import Decimal

    wanted = None if gold is None else last_number(str(gold))
    if wanted is None:
        return None
    given = last_number(output)
    if given is None:
        return 0.0
    if Decimal(given) == Decimal(wanted):
        return 1.0
    return float(abs(float(given) - float(wanted)) <= tolerance) if tolerance else 0.0


def exact(
    prompts: Sequence[Any], outputs: Sequence[str], answer: Sequence[Any], ignore_case: bool = False
) -> list[float | None]:
    """1 where the output without outer white space is the answer, or one of a list of answers."""

    def plain(text: Any) -> str:
        return str(text).strip().casefold() if ignore_case else str(text).strip()

    def one(output: str, gold: Any) -> float | None:
        if gold is None:
            return None
        return float(plain(output) in [plain(g) for g in (gold if isinstance(gold, list | tuple) else [gold])])

    return [one(output, gold) for output, gold in zip(outputs, answer, strict=True)]


def regex(prompts: Sequence[Any], outputs: Sequence[str], pattern: str, full: bool = False) -> list[float | None]:
    """1 where `pattern` is found in the output; `full`: where it describes all of it. A dot matches line ends too."""
    compiled = re.compile(pattern, re.DOTALL)
    return [float((compiled.fullmatch(o) if full else compiled.search(o)) is not None) for o in outputs]


def length(
    prompts: Sequence[Any], outputs: Sequence[str], target: float, width: float | None = None, unit: str = "words"
) -> list[float | None]:
    """max(0, 1 - |length - target| / width), width = target where None; lengths in words or characters."""
    lengths = [len(o) if unit == "characters" else len(TOKEN.findall(o)) for o in outputs]
    return [max(0.0, 1.0 - abs(n - target) / (width or target)) for n in lengths]


def connectives(
    prompts: Sequence[Any], outputs: Sequence[str], language: str = "both", target: int = 3
) -> list[float | None]:
    """min(1, distinct connective words / target), English words at word boundaries, Chinese ones anywhere."""
    english = CONNECTIVES["en"] if language != "zh" else ()
    chinese = CONNECTIVES["zh"] if language != "en" else ()

    def distinct(text: str) -> int:
        words = " " + " ".join(re.findall(r"[a-z]+", text.lower())) + " "
        return sum(f" {w} " in words for w in english) + sum(w in text for w in chinese)

    return [min(1.0, distinct(o) / target) for o in outputs]


def environment(prompts: Sequence[Any], outputs: Sequence[str]) -> list[float | None]:
    """What the environment gave, all turns together; None where it gave nothing."""
    return [getattr(output, "reward", None) for output in outputs]


def repetition(prompts: Sequence[Any], outputs: Sequence[str], ngram: int = 3) -> list[float | None]:
    """-(1 - distinct n-grams / n-grams) over words: 0 without repetition, towards -1 in a loop."""

    def penalty(text: str) -> float:
        words = [w.lower() for w in TOKEN.findall(text)]
        grams = [tuple(words[i : i + ngram]) for i in range(len(words) - ngram + 1)]
        return len(set(grams)) / len(grams) - 1.0 if grams else 0.0

    return [penalty(o) for o in outputs]

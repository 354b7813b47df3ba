"""What a run came to, in one line: held-out measures of the first and the last evaluation, with their errors."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from html import escape
from statistics import stdev
from typing import Any

MEASURES = ("eval/accuracy", "eval/psnr", "eval/ssim", "eval/reward")


def headline(rows: Sequence[dict[str, Any]], rewards: Sequence[tuple[Any, Any]], words: dict[str, str]) -> str:
    """A paragraph; empty where fewer than two evaluations were logged.

    Args:
        rows: of metrics.jsonl.
        rewards: (first, last) reward of each held-out prompt that both evaluations asked.
        words: `anygrpo.report.words.WORDS` in the language of the page.
    """
    told, seen = [], list[list[float]]()
    for name in MEASURES:
        found = [row for row in rows if isinstance(row.get(name), int | float)]
        values = [float(row[name]) for row in found]
        if len(values) > 1 and values not in seen:  # an accuracy that is the reward is told once
            seen.append(values)
            word = words.get(name.removeprefix("eval/"), name.removeprefix("eval/").upper())
            ends = [f"{row[name]:.3f}{_error(row, name)}" for row in (found[0], found[-1])]
            told.append(f"{word} {ends[0]} → {ends[1]}{_best(values, words)}")
    if not told:
        return ""
    text = words["comma"].join(told) + _change(rewards, words)
    return f"<p><b>{escape(words['held_out'])}</b> {escape(text)}</p>"


def _error(row: dict[str, Any], name: str) -> str:
    """The standard error over prompts: of an accuracy p, sqrt(p (1 - p) / n); of others where it was logged."""
    value, prompts = float(row[name]), row.get("eval/prompts")
    error = row.get(f"{name}_se")
    if error is None and name == "eval/accuracy" and isinstance(prompts, int | float) and prompts > 1:
        error = math.sqrt(max(value * (1 - value), 0.0) / prompts)
    return f" ± {error:.3f}" if isinstance(error, int | float) and math.isfinite(error) else ""


def _best(found: list[float], words: dict[str, str]) -> str:
    """The highest of the evaluations between, where it is above the first and the last."""
    best = max(found)
    return words["best"].format(best=f"{best:.3f}") if best > max(found[0], found[-1]) else ""


def _change(rewards: Sequence[tuple[Any, Any]], words: dict[str, str]) -> str:
    """Mean change of a prompt's reward, its standard error, and over how many prompts."""
    gaps = [float(b) - float(a) for a, b in rewards if _number(a) and _number(b)]
    if len(gaps) < 2:
        return ""
    mean, error = math.fsum(gaps) / len(gaps), stdev(gaps) / math.sqrt(len(gaps))
    return words["change"].format(mean=f"{mean:+.3f}", error=f"{error:.3f}", prompts=len(gaps))


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


def pairs_of(first: list[dict[str, Any]], last: list[dict[str, Any]]) -> list[tuple[Any, Any]]:
    """The rewards of rows that stand side by side, where both could be scored."""
    return [(a["reward"], b["reward"]) for a, b in zip(first, last) if a.get("valid", True) and b.get("valid", True)]


def asked(row: dict[str, Any]) -> str:
    """What a row of evaluations/ asked, as a key."""
    return json.dumps(row["text"], sort_keys=True, ensure_ascii=False, default=str)

"""What a run came to, in one line: held-out measures of the first and the last evaluation, with their errors."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from anygrpo.doctor.readers.held_out_pairs import ERROR, GAIN

MEASURES = ("eval/accuracy", "eval/psnr", "eval/ssim", "eval/reward")


def headline(rows: Sequence[dict[str, Any]], last: Mapping[str, Any], words: dict[str, str]) -> str:
    """A paragraph; empty where fewer than two evaluations were logged.

    Args:
        rows: of metrics.jsonl.
        last: the row of the last evaluation as the doctor reads it, with the paired change of the reward where both
            evaluations asked the same prompts (`add_gains`).
        words: `anygrpo.report.words.WORDS` in the language of the page.
    """
    told, seen = [], list[list[float]]()
    for name in MEASURES:
        found = [row for row in rows if isinstance(row.get(name), int | float)]
        values = [float(row[name]) for row in found]
        if len(values) > 1 and values not in seen:  # an accuracy that is the reward is told once
            seen.append(values)
            word = words.get(name.removeprefix("eval/"), name.removeprefix("eval/").upper())
            ends = [f"{row[name]:.3f}{_error(row, name, words)}" for row in (found[0], found[-1])]
            told.append(f"{word} {ends[0]} → {ends[1]}{_best(values, words)}")
    if not told:
        return ""
    text = words["comma"].join(told) + _change(last, words)
    return f"<p><b>{escape(words['held_out'])}</b> {escape(text)}</p>"


def _error(row: Mapping[str, Any], name: str, words: dict[str, str]) -> str:
    """The standard error over prompts: as it was logged; of an accuracy p that is not the reward, sqrt(p (1 - p) / n).
    An accuracy of 0 or 1 has its 95% interval (Clopper-Pearson): n alike are no proof of all."""
    value, error = float(row[name]), row.get(f"{name}_se")
    n = row.get("eval/judged", row.get("eval/prompts"))
    if name != "eval/accuracy":
        return _plus_minus(error)
    if error is None and value == row.get("eval/reward"):
        error = row.get("eval/reward_se")
    if not isinstance(n, int | float) or not math.isfinite(n) or n <= 1:
        return _plus_minus(error)
    if value in (0.0, 1.0):
        import torch  # late: most pages need none

        from anygrpo.core.intervals import rate

        found = rate(torch.full((round(n),), value, dtype=torch.float64))
        return words["range"].format(low=f"{found.low:.3f}", high=f"{found.high:.3f}")
    return _plus_minus(math.sqrt(max(value * (1 - value), 0.0) / n) if error is None else error)


def _plus_minus(error: Any) -> str:
    """Nothing where values are all alike, or there is one: that says nothing of other prompts."""
    if not isinstance(error, int | float) or not math.isfinite(error) or error <= 0:
        return ""
    return f" ± {error:.3f}" if error >= 5e-4 else f" ± {error:.1g}"


def _best(found: list[float], words: dict[str, str]) -> str:
    """The highest of the evaluations between, where it is above the first and the last."""
    best = max(found)
    return words["best"].format(best=f"{best:.3f}") if best > max(found[0], found[-1]) else ""


def _change(last: Mapping[str, Any], words: dict[str, str]) -> str:
    """Mean change of a prompt's reward, its standard error, and over how many prompts. An answer that could not be
    scored counts as in eval/reward."""
    gain, error, prompts = last.get(GAIN), last.get(ERROR), last.get("eval/prompts")
    if not isinstance(gain, int | float) or not isinstance(prompts, int | float) or not math.isfinite(prompts):
        return ""
    n = round(prompts * (1 - last.get("eval/faults", 0.0)))
    return words["change"].format(mean=f"{gain:+.3f}", error=_plus_minus(error), prompts=n)


def asked(row: dict[str, Any]) -> str:
    """What a row of evaluations/ asked, as a key."""
    return json.dumps(row["text"], sort_keys=True, ensure_ascii=False, default=str)

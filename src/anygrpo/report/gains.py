"""What training changed for each kind of degradation: PSNR and SSIM before and after, the gain with its interval."""

from __future__ import annotations

from html import escape
from typing import Any

_DIGITS = {"psnr": 2, "ssim": 3}


def gains_table(first: list[dict[str, Any]], last: list[dict[str, Any]], words: dict[str, str]) -> str:
    """A table of paired gains from the rows of two evaluations of the same pictures; "" where these are no pictures.

    Rows that are invalid in either are left out. Intervals (95%) resample pictures, as everywhere.
    """
    pairs = [(a, b) for a, b in zip(first, last) if _is_picture(a) and a["valid"] and b["valid"]]
    if not pairs:
        return ""
    names = list(dict.fromkeys(a["text"]["degradation"] for a, _ in pairs))
    rows = [_row(name, [p for p in pairs if p[0]["text"]["degradation"] == name]) for name in names]
    rows += [_row(words["all"], pairs)] if len(names) > 1 else []
    heads = [words["degradation"], words["held_out"]]
    heads += [f"{m} {words[w]}" for m in ("PSNR", "SSIM") for w in ("before", "after", "gain")]
    head = "".join(f"<th>{escape(h)}</th>" for h in heads)
    return f'<div class="scroll"><table class="answers gains"><tr>{head}</tr>{"".join(rows)}</table></div>'


def _is_picture(row: dict[str, Any]) -> bool:
    text, parts = row["text"], row["components"].keys()
    return isinstance(text, dict) and {"degradation", "picture"} <= text.keys() and parts >= _DIGITS.keys()


def _row(name: str, pairs: list[tuple[dict[str, Any], dict[str, Any]]]) -> str:
    import torch  # only where there is a table to make

    from anygrpo.tasks.restoration import paired_interval

    cells = [escape(name), str(len(pairs))]
    clusters = [a["text"]["picture"] for a, _ in pairs]
    for metric, digits in _DIGITS.items():
        before, after = (torch.tensor([p[i]["components"][metric] for p in pairs]).double() for i in (0, 1))
        mean, low, high = paired_interval(after - before, clusters)
        cells += [f"{x.mean():.{digits}f}" for x in (before, after)]
        interval = "" if low != low else f" [{low:+.{digits}f}, {high:+.{digits}f}]"  # nan: one picture tells no spread
        cells.append(f"{mean:+.{digits}f}{interval}")
    return f"<tr>{''.join(f'<td>{c}</td>' for c in cells)}</tr>"

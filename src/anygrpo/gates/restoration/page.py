"""What training changed for each kind of degradation: PSNR and SSIM before and after, the gain with its interval."""

from __future__ import annotations

from html import escape
from typing import Any

from anygrpo.spoken import Text
from anygrpo.spoken import table as words_of

_DIGITS = {"psnr": 2, "ssim": 3}


_WORDS = {
    "gains": Text(
        "Held-out pictures before and after, with 95% intervals of the paired gain (over pictures)",
        "留出图片训练前后对比，配对增益附 95% 区间（以图片为单位）",
    ),
    "strips": Text(
        "In the strips below, from the left: degraded, before training, after it, clean.",
        "下方图条从左到右：退化图、训练前、训练后、清晰图。",
    ),
    "degradation": Text("degradation", "退化类型"),
    "held_out": Text("pictures", "图片数"),
    "gain": Text("gain", "增益"),
    "all": Text("all", "全部"),
    "before": Text("before", "之前"),
    "after": Text("after", "之后"),
}


def gains(first: list[dict[str, Any]], last: list[dict[str, Any]], language: str) -> tuple[str, str] | None:
    """Heading and table of paired gains from the rows of two evaluations of the same pictures; None where these are no
    pictures.

    Rows that are invalid in either are left out. Intervals (95%) are over scenes.
    """
    words = words_of(_WORDS, language)
    pairs = [(a, b) for a, b in zip(first, last) if _is_picture(a) and a["valid"] and b["valid"]]
    if not pairs:
        return None
    names = list(dict.fromkeys(a["text"]["degradation"] for a, _ in pairs))
    rows = [_row(name, [p for p in pairs if p[0]["text"]["degradation"] == name]) for name in names]
    rows += [_row(words["all"], pairs)] if len(names) > 1 else []
    heads = [words["degradation"], words["held_out"]]
    heads += [f"{m} {words[w]}" for m in ("PSNR", "SSIM") for w in ("before", "after", "gain")]
    head = "".join(f"<th>{escape(h)}</th>" for h in heads)
    table = f'<div class="scroll"><table class="answers gains"><tr>{head}</tr>{"".join(rows)}</table></div>'
    return words["gains"], f'{table}<p class="seen">{escape(words["strips"])}</p>'


def _is_picture(row: dict[str, Any]) -> bool:
    text, parts = row["text"], row["components"].keys()
    return isinstance(text, dict) and {"degradation", "picture"} <= text.keys() and parts >= _DIGITS.keys()


def _row(name: str, pairs: list[tuple[dict[str, Any], dict[str, Any]]]) -> str:
    import torch  # only where there is a table to make

    from anygrpo.core.intervals import interval

    cells = [escape(name), str(len(pairs))]
    clusters = [a["text"].get("scene", a["text"]["picture"]) for a, _ in pairs]
    for metric, digits in _DIGITS.items():
        before, after = (torch.tensor([p[i]["components"][metric] for p in pairs]).double() for i in (0, 1))
        gain = interval(after - before, clusters)
        cells += [f"{x.mean():.{digits}f}" for x in (before, after)]
        span = f" [{gain.low:+.{digits}f}, {gain.high:+.{digits}f}]" if gain.units > 1 and gain.low < gain.high else ""
        cells.append(f"{gain.mean:+.{digits}f}{span}")
    return f"<tr>{''.join(f'<td>{c}</td>' for c in cells)}</tr>"

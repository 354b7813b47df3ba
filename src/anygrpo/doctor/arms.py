"""Two rates, or logs of any framework side by side: what their difference is worth."""

from __future__ import annotations

import math
from typing import Any

from anygrpo.doctor.columns import Columns
from anygrpo.doctor.series import Series, mean, normal_tail
from anygrpo.errors import ConfigError

MEASURES = (
    "reward/mean",
    "kl/reference",
    "entropy",
    "length/mean",
    "truncated/share",
    "grad_norm/total",
    "groups/dead",
)


def rates(a: float, b: float, n: int) -> dict[str, Any]:
    """Two shares of right answers, each on n questions, unpaired.

    Raises:
        ConfigError: no share, or no question.
    """
    if not (0 <= a <= 1 and 0 <= b <= 1) or n < 1:
        raise ConfigError(f"rates {a:g} and {b:g} on {n} questions", "give shares from 0 to 1 and n of at least 1")
    error = math.sqrt((a * (1 - a) + b * (1 - b)) / n)
    gap = a - b
    z = gap / error if error else math.inf if gap else 0.0
    middle = (a + b) / 2
    needed = math.ceil(2 * middle * (1 - middle) * (2.8 / gap) ** 2) if gap else None
    return {
        "difference": gap,
        "standard_error": error,
        "interval": [gap - 1.96 * error, gap + 1.96 * error],
        "p": 2 * normal_tail(abs(z)) if math.isfinite(z) else 0.0,
        "shown": abs(z) > 1.96,
        "questions_needed": needed,
        "n": n,
    }


def rates_text(found: dict[str, Any], lang: str = "en") -> str:
    low, high = found["interval"]
    zh = lang == "zh"
    if zh:
        head = f"差 {found['difference']:+.4f}，95% 区间 [{low:+.4f}, {high:+.4f}]，p = {found['p']:.2g}"
        word = "这些提示足以看出这个差别。" if found["shown"] else "这些提示看不出这个差别。"
        more = f"要看出它（5%，功效 80%）需要每边 {found['questions_needed']} 题；逐题配对所需更少。"
    else:
        head = f"difference {found['difference']:+.4f}, 95% interval [{low:+.4f}, {high:+.4f}], p = {found['p']:.2g}"
        word = f"{found['n']} questions {'show' if found['shown'] else 'cannot show'} this difference."
        needed = found["questions_needed"]
        more = f"To show it (5%, power 80%) takes {needed} questions a side; fewer if paired by question."
    return "\n".join([head, word] + ([more] if found["questions_needed"] else []))


def arms(runs: list[Columns]) -> dict[str, Any]:
    """Each run's measures, and against the first run: last quarters' difference, its error, and where they part."""
    out: dict[str, Any] = {"runs": [{"source": r.source, "rows": r.rows} for r in runs], "measures": {}}
    for name in MEASURES:
        found = [(run, s) for run in runs if (s := run.get(name))]
        if len(found) != len(runs):
            continue
        base = found[0][1]
        out["measures"][name] = [{"last": s.last, **({} if s is base else against(base, s, runs[0]))} for _, s in found]
    return out


def against(base: Series, other: Series, run: Columns) -> dict[str, Any]:
    """The difference of last quarters with rows that resemble each other counted once, and the step where they part."""
    error = math.sqrt(sum(s.noise**2 * s.inertia / s.quarter_size for s in (base, other)))
    gap = other.last - base.last
    return {
        "difference": gap,
        "standard_error": error,
        "shown": abs(gap) > 2 * error,
        "parts_at": parting(base, other, run),
    }


def parting(base: Series, other: Series, run: Columns, width: int = 10) -> float | None:
    """The first step from which the runs' trailing means stay over 3 standard errors apart, in rows of the first."""
    n = min(len(base), len(other))
    if n < 2 * width:
        return None
    error = 3 * math.sqrt(sum(s.noise**2 * s.inertia for s in (base, other)) / width)
    apart = [
        abs(mean(base.values[i - width : i]) - mean(other.values[i - width : i])) > error for i in range(width, n + 1)
    ]
    if not apart[-1] or error == 0:
        return None
    first = next((i for i in range(len(apart) - 1, 0, -1) if not apart[i - 1]), 0)
    row = base.rows[first + width - 1]
    return run.steps.get(row, float(row))


def arms_text(found: dict[str, Any], lang: str = "en") -> str:
    zh = lang == "zh"
    out = [f"{chr(65 + i)}: {r['source']} ({r['rows']})" for i, r in enumerate(found["runs"])]
    for name, arm in found["measures"].items():
        line = f"{name}: A {arm[0]['last']:.4g}"
        for i, other in enumerate(arm[1:], 1):
            word = (
                ("有差别" if zh else "differs") if other["shown"] else ("看不出差别" if zh else "not shown to differ")
            )
            at = (
                ""
                if other["parts_at"] is None
                else f", {'从第' if zh else 'from step'} {other['parts_at']:g}{' 步起' if zh else ''}"
            )
            gap = f"{other['difference']:+.3g} ± {other['standard_error']:.2g}"
            line += f"; {chr(65 + i)} {other['last']:.4g} ({gap}: {word}{at})"
        out.append(line)
    return "\n".join(out)

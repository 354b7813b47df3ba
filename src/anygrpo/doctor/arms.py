"""Two rates, or logs of any framework side by side: what their difference is worth."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from anygrpo.doctor.columns import Columns
from anygrpo.doctor.evidence.progress import outcomes
from anygrpo.doctor.seeds import grouped
from anygrpo.doctor.series import Series, mean, std
from anygrpo.doctor.shares import fisher, newcombe
from anygrpo.doctor.student_t import t_quantile
from anygrpo.errors import ConfigError
from anygrpo.spoken import Text, say

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
    """Two shares of right answers, each on n questions, unpaired: Newcombe's interval and Fisher's exact p.

    Shown is a difference that both show. Fisher's counts are the shares of n to the nearest answer; `standard_error` is
    sqrt((a (1 - a) + b (1 - b)) / n), which is 0 at shares of 0 and 1 and decides nothing.

    Raises:
        ConfigError: no share, or no question.
    """
    if not (0 <= a <= 1 and 0 <= b <= 1) or n < 1:
        raise ConfigError(
            Text(f"rates {a:g} and {b:g} on {n} questions", f"{n} 个问题上的比率 {a:g} 与 {b:g}"),
            Text("give shares from 0 to 1 and n of at least 1", "请给出 0 到 1 之间的比率，n 至少为 1"),
        )
    error = math.sqrt((a * (1 - a) + b * (1 - b)) / n)
    gap = a - b
    middle = (a + b) / 2
    low, high = newcombe(a, b, n)
    p = fisher(round(a * n), round(b * n), n)
    needed = math.ceil(2 * middle * (1 - middle) * (2.8 / gap) ** 2) if gap else None
    return {
        "difference": gap,
        "standard_error": error,
        "interval": [low, high],
        "p": p,
        "shown": p < 0.05 and not low <= 0 <= high,
        "questions_needed": needed,
        "n": n,
    }


def rates_text(found: dict[str, Any], lang: str = "en") -> str:
    low, high = found["interval"]
    span, needed = f"[{low:+.4f}, {high:+.4f}], p = {found['p']:.2g}", found["questions_needed"]
    head = say(
        f"difference {found['difference']:+.4f}, 95% interval {span}",
        f"差 {found['difference']:+.4f}，95% 区间 {span}",
        lang,
    )
    word = say(
        f"{found['n']} questions {'show' if found['shown'] else 'cannot show'} this difference.",
        "这些提示足以看出这个差别。" if found["shown"] else "这些提示看不出这个差别。",
        lang,
    )
    more = say(
        f"To show it (5%, power 80%) takes {needed} questions a side; fewer if paired by question.",
        f"要看出它（5%，功效 80%）需要每边 {needed} 题；逐题配对所需更少。",
        lang,
    )
    return "\n".join([head, word] + ([more] if needed else []))


def arms(runs: list[Columns], stated: Sequence[str] = ()) -> dict[str, Any]:
    """Arms over their seeds (`seeds.grouped`), each measure against the first arm: difference, interval, resolution,
    and the step from which they part.

    Args:
        stated: an arm's name for each run; else they are found by wandb's groups, settings, names or folders.

    Raises:
        ConfigError: fewer than two arms were stated.
    """
    found, how = grouped(runs, stated)
    out: dict[str, Any] = {
        "arms": [
            {"arm": name, "runs": [{"source": runs[i].source, "rows": runs[i].rows} for i in places]}
            for name, places in found.items()
        ],
        "grouped_by": how,
        "measures": {},
    }
    for name in (*MEASURES, *sorted({f"eval/{k}" for run in runs for k in outcomes(run)})):
        sides = [[(runs[i], s) for i in places if (s := runs[i].get(name))] for places in found.values()]
        if not all(sides):
            continue
        out["measures"][name] = [
            described(side) | ({} if side is sides[0] else against(sides[0], side, len(sides) - 1)) for side in sides
        ]
    return out


Side = list[tuple[Columns, Series]]
"""The runs of one arm that logged a measure."""


def described(side: Side) -> dict[str, Any]:
    levels = [s.last for _, s in side]
    return {"last": mean(levels), "seeds": len(levels)} | ({"between": spread(levels)} if len(levels) > 1 else {})


def against(base: Side, other: Side, pairs: int = 1) -> dict[str, Any]:
    """The difference of last quarters. Over seeds: Welch's t interval, all `pairs` of them at once (Bonferroni). Single
    runs: from their rows, those that resemble each other counted once; that covers no other seed.
    """
    levels = [[s.last for _, s in side] for side in (base, other)]
    gap = mean(levels[1]) - mean(levels[0])
    seeds = sum(map(len, levels)) > 2 and any(spread(x) > 0 for x in levels)
    error, freedom = welch(*levels) if seeds else (of_rows(base[0][1], other[0][1]), math.inf)
    reach = t_quantile(freedom, 1 - 0.025 / pairs)
    return {
        "difference": gap,
        "standard_error": error,
        "interval": [gap - reach * error, gap + reach * error],
        "shown": abs(gap) > reach * error,
        "covers": "seeds" if seeds else "rows",
        "resolution": (reach + t_quantile(freedom, 0.8)) * error,
        "seeds_needed": seeds_needed(gap, levels, pairs) if seeds else None,
        "parts_at": parting(base, other),
    }


def spread(levels: list[float]) -> float:
    """Standard deviation over seeds; 0 where they differ by rounding only."""
    return std(levels) if max(levels) - min(levels) > 1e-9 * max(map(abs, levels)) else 0.0


def of_rows(base: Series, other: Series) -> float:
    return math.sqrt(sum(s.noise**2 * s.inertia / s.quarter_size for s in (base, other)))


def welch(a: list[float], b: list[float]) -> tuple[float, float]:
    """(standard error, degrees of freedom) of a difference of means; an arm of one run varies as the other."""
    spreads = [spread(x) if len(x) > 1 else spread(y) for x, y in ((a, b), (b, a))]
    parts = [s * s / len(x) for s, x in zip(spreads, (a, b))]
    total = sum(parts)
    if min(len(a), len(b)) == 1:
        return math.sqrt(total), max(len(a), len(b)) - 1.0
    return math.sqrt(total), total**2 / sum(p * p / (len(x) - 1) for p, x in zip(parts, (a, b)) if p)


def seeds_needed(gap: float, levels: list[list[float]], pairs: int, most: int = 1000) -> int | None:
    """Seeds of each arm that would show a difference of this size (80% power); None beyond `most`."""
    typical = math.sqrt(mean([spread(x) ** 2 for x in levels if len(x) > 1]))
    for n in range(2, most):
        reach = t_quantile(2.0 * n - 2, 1 - 0.025 / pairs) + t_quantile(2.0 * n - 2, 0.8)
        if reach * typical * math.sqrt(2 / n) <= abs(gap):
            return n
    return None


def parting(base: Side, other: Side) -> float | None:
    """The first step from which the arms' curves stay over 3 standard errors apart, at steps of the first run.

    Curves are trailing means over a twentieth of a run (10 rows at least), averaged over seeds. The error is that of
    their rows and, over seeds, the spread between them, whichever is larger.
    """
    sides = [[curve(run, s) for run, s in side] for side in (base, other)]
    if any(c is None for side in sides for c in side):
        return None
    curves = [[c for c in side if c is not None] for side in sides]
    end = min(c[-1][0] for side in curves for c in side)
    grid = [step for step, _ in curves[0][0] if step <= end and all(c[0][0] <= step for side in curves for c in side)]
    if len(grid) < 2:
        return None
    heights = [[at(c, grid) for c in side] for side in curves]
    rows = sum(mean([s.noise**2 * s.inertia / width(s) for _, s in side]) / len(side) for side in (base, other))
    between = sum(mean([std(list(col)) ** 2 for col in zip(*side)]) / len(side) for side in heights if len(side) > 1)
    limit = 3 * math.sqrt(max(rows, between))
    means = [[mean(list(col)) for col in zip(*side)] for side in heights]
    apart = [abs(x - y) > limit for x, y in zip(*means)]
    if not apart[-1] or limit == 0:
        return None
    return grid[next((i for i in range(len(apart) - 1, 0, -1) if not apart[i - 1]), 0)]


def width(s: Series) -> int:
    return max(10, len(s) // 20)


def curve(run: Columns, s: Series) -> list[tuple[float, float]] | None:
    """(step, trailing mean) of one run; None where it is too short."""
    wide = width(s)
    if len(s) < 2 * wide:
        return None
    smooth = s.smooth(wide)
    return [(run.steps.get(r, float(r)), x) for r, x in zip(s.rows, smooth)][wide - 1 :]


def at(points: list[tuple[float, float]], grid: list[float]) -> list[float]:
    """The curve's latest height at each step of the grid."""
    out, i = list[float](), 0
    for step in grid:
        while i + 1 < len(points) and points[i + 1][0] <= step:
            i += 1
        out.append(points[i][1])
    return out


WAYS = {
    "stated": Text("stated", "指定"),
    "wandb group": Text("wandb group", "wandb 的 group"),
    "settings": Text("settings", "设置"),
    "names": Text("names", "名称"),
    "folders": Text("folders", "文件夹"),
    "each run by itself": Text("each run by itself", "每次运行各自一组"),
}


def arms_text(found: dict[str, Any], lang: str = "en") -> str:
    """One statement a line."""
    out = [say("grouped by: ", "分组依据：", lang) + WAYS[found["grouped_by"]].said(lang)]
    for i, arm in enumerate(found["arms"]):
        runs = ", ".join(f"{r['source']} ({r['rows']})" for r in arm["runs"])
        out.append(f"{chr(65 + i)} = {arm['arm']}: {runs}")
    for name, sides in found["measures"].items():
        out.append(f"{name}: " + "; ".join(side_text(chr(65 + i), side, lang) for i, side in enumerate(sides)))
    if which := over_rows(found["measures"]):
        out.append(
            say(
                f"the intervals of {', '.join(which)} cover the noise of rows, not of seeds: run three seeds or more of"
                " each",
                f"{'、'.join(which)} 的区间只覆盖各行的噪声，不覆盖随机种子：每组跑三个以上种子",
                lang,
            )
        )
    return "\n".join(out)


def over_rows(measures: dict[str, Any]) -> list[str]:
    """The arms whose intervals cover rows only; with the measures, where others of the arm cover seeds."""
    out: list[str] = []
    for i in range(1, max(map(len, measures.values()), default=1)):
        rows = [name for name, sides in measures.items() if sides[i]["covers"] == "rows"]
        if rows:
            out.append(chr(65 + i) + ("" if len(rows) == len(measures) else f" ({', '.join(rows)})"))
    return out


def side_text(letter: str, side: dict[str, Any], lang: str) -> str:
    spread = f" ± {side['between']:.2g}" if "between" in side else ""
    count = f", {side['seeds']} {say('seeds', '个种子', lang)}" if side["seeds"] > 1 else ""
    line = f"{letter} {side['last']:.4g}{spread}{count}"
    if "difference" not in side:
        return line
    low, high = side["interval"]
    word = say("differs", "有差别", lang) if side["shown"] else say("not shown to differ", "看不出差别", lang)
    line += f" ({side['difference']:+.3g} [{low:+.3g}, {high:+.3g}]: {word}"
    line += f"{say('; could show', '，可分辨', lang)} {side['resolution']:.2g}"
    if side["seeds_needed"] and not side["shown"]:
        line += f"{say('; seeds needed', '，需种子', lang)} {side['seeds_needed']}"
    if side["parts_at"] is not None:
        line += say(f", from step {side['parts_at']:g}", f"，从第 {side['parts_at']:g} 步起", lang)
    return line + ")"

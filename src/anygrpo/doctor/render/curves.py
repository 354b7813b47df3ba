"""One metric as an SVG curve with the decisive rows marked: our own few lines, so that the page needs nothing else."""

from __future__ import annotations

from html import escape

from anygrpo.doctor.render.style import element
from anygrpo.doctor.series import Series
from anygrpo.doctor.words import number_text

LEFT, RIGHT, BOTTOM, TOP = 58, 6, 22, 8


def curve(series: Series, marked: tuple[int, ...], caption: str, aria: str, legend: str = "", width: int = 560) -> str:
    """An inline <figure>. Up to 400 points are drawn; each stands for the mean of its rows, behind it their range.

    Args:
        marked: row numbers to mark.
        caption: the metric's name, shown above.
        aria: text for screen readers.
        legend: what the marked stretches are.
        width: of the drawing in its own units; a third of it is the height.
    """
    height = 60 + width // 5
    first, last = series.rows[0], max(series.rows[-1], series.rows[0] + 1)
    low, high = series.low, series.high
    pad = 0.06 * (high - low) or max(abs(high) * 0.1, 0.5)
    low, high = low - pad, high + pad

    def x(row: float) -> float:
        return LEFT + (row - first) / (last - first) * (width - LEFT - RIGHT)

    def y(value: float) -> float:
        return TOP + (high - value) / (high - low) * (height - TOP - BOTTOM)

    points = buckets(series)
    line = " ".join(f"{x(r):.1f},{y(m):.1f}" for r, m, _, _ in points)
    upper = [f"{x(r):.1f},{y(b):.1f}" for r, _, _, b in points]
    lower = [f"{x(r):.1f},{y(a):.1f}" for r, _, a, _ in reversed(points)]
    band = f'<polygon class="band" points="{" ".join(upper + lower)}"/>' if len(series) > len(points) else ""
    tall = height - TOP - BOTTOM
    marks = "".join(
        f'<rect class="mark" x="{x(a) - 1.5:.1f}" y="{TOP}" width="{max(3.0, x(b) - x(a) + 3):.1f}" height="{tall}"/>'
        for a, b in spans(marked, first, last)
    )
    at = series.at()
    few = [r for r in marked if r in at] if len(marked) <= 12 else []
    dots = "".join(f'<circle class="dot" cx="{x(r):.1f}" cy="{y(at[r]):.1f}" r="3.5"/>' for r in few)
    grid = "".join(
        f'<line class="grid" x1="{LEFT}" x2="{width - RIGHT}" y1="{y(v):.1f}" y2="{y(v):.1f}"/>'
        f'<text x="{LEFT - 7}" y="{y(v) + 4:.1f}" text-anchor="end">{number_text(v)}</text>'
        for v in sorted({series.low, series.high})
    )
    ticks = (
        f'<text x="{LEFT}" y="{height - 5}">{first}</text>'
        f'<text x="{width - RIGHT}" y="{height - 5}" text-anchor="end">{last}</text>'
    )
    drawing = f'{marks}{grid}{band}<polyline class="line" points="{line}"/>{dots}{ticks}'
    key = " " + element("span", escape(legend), "key") if legend and marked else ""
    svg = element("svg", drawing, viewBox=f"0 0 {width} {height}", role="img", aria_label=aria)
    return element("figure", element("figcaption", escape(caption) + key) + svg)


def buckets(series: Series, most: int = 400) -> list[tuple[float, float, float, float]]:
    """(row, mean, lowest, highest) of at most `most` equal stretches."""
    n = len(series)
    size = -(-n // most)
    out: list[tuple[float, float, float, float]] = []
    for i in range(0, n, size):
        part, rows = series.values[i : i + size], series.rows[i : i + size]
        out.append((sum(rows) / len(rows), sum(part) / len(part), min(part), max(part)))
    return out


def spans(rows: tuple[int, ...], first: int, last: int) -> list[tuple[int, int]]:
    """Runs of marked rows inside the drawn range; gaps of a fiftieth of the range are closed."""
    gap = max(1, (last - first) // 50)
    out: list[tuple[int, int]] = []
    for r in sorted(r for r in set(rows) if first <= r <= last):
        if out and r - out[-1][1] <= gap:
            out[-1] = (out[-1][0], r)
        else:
            out.append((r, r))
    return out

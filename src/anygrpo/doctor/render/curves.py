"""One metric as an SVG curve with the decisive rows marked: our own few lines, so that the page needs nothing else."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from html import escape

from anygrpo.doctor.render.style import element
from anygrpo.doctor.series import Series
from anygrpo.doctor.words import number_text

LEFT, RIGHT, BOTTOM, TOP = 58, 6, 22, 8
_CUTS: ContextVar[tuple[int, ...]] = ContextVar("cuts", default=())
_STEPS: ContextVar[Mapping[int, float] | None] = ContextVar("steps", default=None)


@contextmanager
def cut_at(rows: tuple[int, ...]) -> Generator[None]:
    """Inside, curves are cut before these rows: what follows was made under other settings, or of other data."""
    token = _CUTS.set(rows)
    try:
        yield
    finally:
        _CUTS.reset(token)


@contextmanager
def counted_in(steps: Mapping[int, float]) -> Generator[None]:
    """Inside, the ends of an axis are the steps of their rows, where the log has them; else row numbers.

    Args:
        steps: row number -> step, of the rows of training.
    """
    token = _STEPS.set(steps)
    try:
        yield
    finally:
        _STEPS.reset(token)


def step_of(row: int) -> str:
    """What an axis calls a row: its step; a row between (an evaluation's own) the step before it, or the first one."""
    steps = _STEPS.get()
    if not steps:
        return str(row)
    before = max((r for r in steps if r <= row), default=min(steps))
    return f"{steps[before]:g}"


@dataclass(frozen=True)
class Frame:
    """Where rows and values lie in a drawing of `width` by `height` units."""

    width: int
    height: int
    first: int
    last: int
    low: float
    high: float

    @staticmethod
    def around(series: Series, width: int) -> Frame:
        """Room for all values and a little more; a constant gets a band around it."""
        pad = 0.06 * (series.high - series.low) or max(abs(series.high) * 0.1, 0.5)
        last = max(series.rows[-1], series.rows[0] + 1)
        return Frame(width, 60 + width // 5, series.rows[0], last, series.low - pad, series.high + pad)

    @property
    def tall(self) -> int:
        return self.height - TOP - BOTTOM

    def x(self, row: float) -> float:
        return LEFT + (row - self.first) / (self.last - self.first) * (self.width - LEFT - RIGHT)

    def y(self, value: float) -> float:
        return TOP + (self.high - value) / (self.high - self.low) * self.tall

    def axes(self, values: Iterable[float]) -> str:
        """A thin line and a number at each value, and the first and last step (or row) below."""
        right = self.width - RIGHT
        lines = "".join(
            f'<line class="grid" x1="{LEFT}" x2="{right}" y1="{self.y(v):.1f}" y2="{self.y(v):.1f}"/>'
            f'<text x="{LEFT - 7}" y="{self.y(v) + 4:.1f}" text-anchor="end">{number_text(v)}</text>'
            for v in values
        )
        under = self.height - 5
        ends = f'<text x="{LEFT}" y="{under}">{step_of(self.first)}</text>'
        return lines + ends + f'<text x="{right}" y="{under}" text-anchor="end">{step_of(self.last)}</text>'

    def shades(self, marked: tuple[int, ...]) -> str:
        return "".join(
            f'<rect class="mark" x="{self.x(a) - 1.5:.1f}" y="{TOP}" '
            f'width="{max(3.0, self.x(b) - self.x(a) + 3):.1f}" height="{self.tall}"/>'
            for a, b in spans(marked, self.first, self.last)
        )


def curve(series: Series, marked: tuple[int, ...], caption: str, aria: str, legend: str = "", width: int = 560) -> str:
    """An inline <figure>. Up to 400 points are drawn; each stands for the mean of its rows, behind it their range.

    Args:
        marked: row numbers to mark.
        caption: the metric's name, shown above.
        aria: text for screen readers.
        legend: what the marked stretches are.
        width: of the drawing in its own units; the height follows.
    """
    frame, points = Frame.around(series, width), buckets(series)
    x, y = frame.x, frame.y
    cuts = [c for c in _CUTS.get() if frame.first < c <= frame.last]
    parts = [[p for p in points if sum(c <= p[0] for c in cuts) == i] for i in range(len(cuts) + 1)]
    lines = [" ".join(f"{x(r):.1f},{y(m):.1f}" for r, m, _, _ in part) for part in parts if part]
    drawn = "".join(f'<polyline class="line" points="{line}"/>' for line in lines)
    drawn += "".join(
        f'<line class="cut" stroke="currentColor" stroke-dasharray="3 3" x1="{x(c - 0.5):.1f}" x2="{x(c - 0.5):.1f}" '
        f'y1="{TOP}" y2="{TOP + frame.tall}"/>'
        for c in cuts
    )
    upper = [f"{x(r):.1f},{y(b):.1f}" for r, _, _, b in points]
    lower = [f"{x(r):.1f},{y(a):.1f}" for r, _, a, _ in reversed(points)]
    band = f'<polygon class="band" points="{" ".join(upper + lower)}"/>' if len(series) > len(points) else ""
    at = series.at()
    few = [r for r in marked if r in at] if len(marked) <= 12 else []
    dots = "".join(f'<circle class="dot" cx="{x(r):.1f}" cy="{y(at[r]):.1f}" r="3.5"/>' for r in few)
    axes = frame.axes(sorted({series.low, series.high}))
    drawing = f"{frame.shades(marked)}{axes}{band}{drawn}{dots}"
    key = " " + element("span", escape(legend), "key") if legend and marked else ""
    svg = element("svg", drawing, viewBox=f"0 0 {width} {frame.height}", role="img", aria_label=aria)
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

"""Rows that take several lines of text: boxes, Markdown tables, "key: value" blocks, dicts without their braces."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from anygrpo.doctor.canonical import WIDE, names_outcome
from anygrpo.doctor.log import Row, number
from anygrpo.doctor.readers import lines
from anygrpo.doctor.readers.source import Rows

RULE = re.compile(r"^\s*\|?\s*:?-{2,}:?\s*(?:\|\s*:?-{2,}:?\s*)+\|?\s*$|^\s*\|\s*:?-{2,}:?\s*\|\s*$")
"""The second line of a Markdown table."""
FRAME = re.compile(r"^\s*[-=+]{5,}\s*$")
BOX = re.compile(r"^\s*\|\s*([^|]+?)\s*\|\s*([^|]*?)\s*\|\s*$")
CELL = re.compile(r"^\s*\|\s*([A-Za-z_][\w./]*)\s{2,}(" + lines.NUMBER + r")\s*\|\s*$", re.I)
"""A name and its number in one frame: "| episode_reward_mean      63.1 |"."""
PLUS = re.compile(r"^\s*\+[-=+]{3,}\+\s*$")
"""A rule of a table drawn with plus signs."""
BANNER = re.compile(
    r"^\W*(?:(?:training|train)\s+)?(step|iter(?:ation)?|update|epoch|round|第)\s*[:#=]?\s*(\d+)\s*(?:/\s*\d+)?\s*"
    r"(?:步|轮|次)?\W*$",
    re.I,
)
PAIR = re.compile(
    r"^\s*(?:[•*\-–>]\s+)?[*`\"']*([A-Za-z_\u4e00-\u9fff][^:=|{}\"']{0,70}?)[*`\"']*\s*[:=]\s*[*`\"']*("
    + lines.NUMBER
    + r")(/\d+)?[*`\"']*\s*[,;。]?\s*(?:\([^)]{0,60}\)|[a-zA-Z%]{1,12}(?:/s)?)?\s*$",
    re.I,
)
PREFIX = re.compile(r"^\[[^\]]{3,60}\]\s+")
"""What a logger puts before its text: "[0101 10:00:10 @monitor.py:476] "."""
COLUMN = re.compile(
    r"^(?:(?:step|epoch|iter(?:ation)?|update|round|第)\s*[:#=_]?\s*)?(\d+)\s*(?:k)?\s*(?:步|轮|epochs?|steps?)?$", re.I
)
SPAN = re.compile(r"^\s*\d+\s*[-–—~至到]\s*(\d+)\s*(?:步|轮)?\s*$")
"""Steps from here to there in one cell ("81-160"): a row of averages, told by its end."""
PATIENCE = 3  # foreign lines that one block may hold


@dataclass
class Blocks:
    """ "key: value" lines under a banner, or repeated without one: a key that comes again begins the next row."""

    rows: Rows = field(default_factory=Rows)
    foreign: int = 0
    open: bool = False

    def line(self, text: str) -> bool:
        """Take a line; whether it was a banner or a pair."""
        if banner := BANNER.match(text):
            self.begin({"step": float(banner[2])})
            return True
        pair = PAIR.match(text) or PAIR.match(PREFIX.sub("", text))
        x = number(pair[2]) if pair else None
        if pair is None or x is None:
            self.pass_over(text)
            return False
        key = pair[1].strip()
        named = lines.STEP.fullmatch(f"{key}={pair[2]}")
        if named:
            key = "step"
        if not self.open or key in self.rows[-1]:
            self.begin({})
        self.rows[-1][key] = x
        self.foreign = 0
        return True

    def pass_over(self, text: str) -> None:
        """A line that is no part of a block; some of them end it."""
        self.foreign += bool(text.strip())
        self.open = self.open and self.foreign <= PATIENCE

    def begin(self, row: Row) -> None:
        if self.rows and len(self.rows[-1]) - ("step" in self.rows[-1]) == 0:
            self.rows.pop()  # a banner with nothing under it
        self.rows.append(row)
        self.open, self.foreign = True, 0


@dataclass
class Boxes:
    """Stable-Baselines3's framed tables: "| rollout/ | |" opens a group, "|    ep_rew_mean | 87.6 |" is a value."""

    rows: Rows = field(default_factory=Rows)
    group: str = ""
    row: Row = field(default_factory=Row)

    def line(self, text: str) -> bool:
        if FRAME.match(text):
            self.close()
            return False
        cells = BOX.match(text) or CELL.match(text)
        if cells is None:
            return False
        name, value = cells[1], cells[2]
        if name.endswith("/") and not value:
            self.group = name
            return True
        x = number(value)
        if x is None:
            return False
        self.row[f"{self.group}{name}"] = x
        return True

    def close(self) -> None:
        if len(self.row) > 1:
            self.rows.append(self.row)
        self.row, self.group = Row(), ""


@dataclass
class Markdown:
    """Tables of pipes. Metrics as rows and steps as columns are turned round; two columns are one row of numbers."""

    rows: Rows = field(default_factory=Rows)
    before: str = ""
    header: list[str] = field(default_factory=list[str])
    body: list[list[str]] = field(default_factory=list[list[str]])

    def line(self, text: str) -> bool:
        if PLUS.match(text) and not self.header and "|" in self.before:
            cells = cells_of(self.before)
            if len(cells) > 2 and not any(number(c) is not None for c in cells):
                self.header = cells
            return bool(self.header)
        if "|" not in text:
            if self.header:
                self.close()
            self.before = ""
            return False
        if RULE.match(text) and "|" in self.before:
            self.close()
            self.header = cells_of(self.before)
            return True
        if self.header:
            cells = cells_of(text)
            if len(cells) == len(self.header):
                self.body.append(cells)
                return True
            self.close()
        self.before = text
        return False

    def close(self) -> None:
        """Add what the table says to the rows."""
        header, body = self.header, self.body
        self.header, self.body = [], []
        if not header or not body:
            return
        for row in table_rows(header, body):
            self.rows.append(row)


def cells_of(text: str) -> list[str]:
    return [c.strip().strip("*`").strip() for c in text.strip().strip("|").split("|")]


def table_rows(header: list[str], body: list[list[str]]) -> list[Row]:
    """Rows of a table of text cells, whichever way round it is."""
    body = [[SPAN.sub(r"\1", cells[0].translate(WIDE)), *cells[1:]] for cells in body]
    first = [number(cells[0]) for cells in body]
    if all(x is None for x in first) and len(header) > 1:
        counters = [COLUMN.match(h.translate(WIDE)) for h in header[1:]]
        if len(header) > 2 and all(counters):
            return turned([float(m[1]) for m in counters if m], body)
        found = {cells[0]: leading(cells[1]) for cells in body}
        values = {k: x for k, x in found.items() if x is not None}
        if len(header) <= 4 and len(values) * 2 >= len(body) and len(set(values)) == len(values):
            return [values]
    out: list[Row] = []
    for cells in body:
        row = {("step" if is_step(h) else h): x for h, c in zip(header, cells) if h and (x := number(c)) is not None}
        if row:
            out.append(row)
    return out


def turned(steps: list[float], body: list[list[str]]) -> list[Row]:
    """Metrics as rows, steps or epochs as columns."""
    rows: list[Row] = [{"step": step} for step in steps]
    for cells in body:
        for row, cell in zip(rows, cells[1:]):
            if (x := leading(cell)) is not None:
                row[cells[0]] = x
    return [row for row in rows if len(row) > 1]


def leading(cell: str) -> float | None:
    """The number a cell begins with: "0.42 (±0.01)", "1,024", "≈ 3e-4"."""
    text = cell.translate(WIDE).strip().lstrip("≈~约= ").replace(",", "")
    match = re.match(lines.NUMBER, text, re.I)
    return number(match[0]) if match else None


def is_step(name: str) -> bool:
    return bool(re.fullmatch(r"(?:global[_ ]?)?steps?|iter(?:ation)?s?|步数?|训练步数?|轮次?", name.strip(), re.I))


WORD = re.compile(r"^[A-Za-z_\u4e00-\u9fff][\w./%()\-]*$")


@dataclass
class Aligned:
    """Columns set by blanks, as a data frame prints them (with an index or without), or by "&" as in LaTeX."""

    rows: Rows = field(default_factory=Rows)
    header: list[str] = field(default_factory=list[str])

    def line(self, text: str) -> bool:
        """Take a line; whether it was a head or a row of numbers under one."""
        latex = text.rstrip().endswith("\\\\")
        cells = [c.strip() for c in text.rstrip("\\ ").split("&")] if latex else text.replace("|", " ").split()
        if len(cells) < 2:
            return False
        values = [number(c) for c in cells]
        if self.header and len(values) - len(self.header) in (0, 1) and all(x is not None for x in values):
            own = values[len(values) - len(self.header) :]
            self.rows.append({("step" if is_step(h) else h): x for h, x in zip(self.header, own) if x is not None})
            return True
        if len(cells) >= 4 - latex and all(WORD.match(c) for c in cells) and any(map(names_outcome, cells)):
            self.header = cells
            return True
        return False

"""Rows from lines of any shape: which shapes belong together, what counts the steps, and whether it all is proved."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from itertools import pairwise

from anygrpo.doctor.canonical import names_outcome, step_of, words_of
from anygrpo.doctor.log import Row
from anygrpo.doctor.readers import template
from anygrpo.doctor.readers.lines import HELD_OUT
from anygrpo.doctor.readers.proof import FEWEST, counted, proved
from anygrpo.doctor.readers.template import Shape

GENERIC = {"value", "val", "mean", "avg", "average", "last", "current", "v", "result", "x", ""}
COUNTING = re.compile(
    r"^(?:(?:global|train|training|env|environment|total|gradient|optimizer|learner|learning|outer|policy|current|num"
    r"|the)[ _/]*)*"
    r"(?:(?P<step>step|iter(?:ation)?|it|update|步数?|第|训练步数?|迭代(?:次数)?)"
    r"|(?P<epoch>epoch|round|batch|轮次?|回合|generation|cycle)|(?P<far>frames?|timesteps?|episodes?|samples|tokens))"
    r"(?:s|[ _]?(?:num(?:ber)?|idx|no|#|count))?$",
    re.I,
)


def mine(lines: Iterable[str]) -> list[Row]:
    """Rows of a text that no reader knows; empty where its numbers prove nothing.

    A row needs metrics of training; the whole needs FEWEST rows, and a counter that climbs or two metrics a row.
    """
    shapes = shapes_of(lines)
    for shape in shapes:
        template.named(shape)
    by_words(shapes)
    rows = with_steps(assembled([s for s in shapes if any(s.names)]))
    return rows if proved(rows) else []


def shapes_of(lines: Iterable[str]) -> list[Shape]:
    """Shapes with at least FEWEST lines; over bare numbers the nearest head with as many cells."""
    text = list(lines)
    comma = decimal_comma(text)
    found: dict[tuple[str, ...], Shape] = {}
    heads: list[str] = []
    open_keys: list[tuple[int, str]] = []
    for i, raw in enumerate(text):
        line = template.cleaned(raw, comma)
        texts, values = template.split(line)
        while open_keys and template.WORDY.search(raw) and len(raw) - len(raw.lstrip()) <= open_keys[-1][0]:
            open_keys.pop()
        if not values:
            if template.WORDY.search(line):
                heads = [*heads[-5:], line]
            if opened := KEY.match(raw):
                open_keys.append((len(opened[1]), opened[2]))
            continue
        if open_keys and len(values) == 1 and KEYED.match(raw):
            texts = ("/".join([*(key for _, key in open_keys), texts[0].strip(" -")]), texts[1])
        key = template.key_of(texts)
        shape = found.get(key)
        if shape is None:
            shape = found[key] = Shape(texts)
            if shape.wordless and len(values) > 1:
                shape.header = head_of(heads, len(values))
        shape.lines.append((i, values))
    heads_shared(found.values(), heads)
    return [s for s in joined_tables(found.values()) if len(s.lines) >= FEWEST]


def decimal_comma(lines: list[str]) -> bool:
    """Whether numbers are written 0,5: no point stands between digits, and commas not only before three digits."""
    some = [template.TIMES.sub(" ", x) for x in lines[:2000]]
    points = sum(bool(re.search(r"\d\.\d", x)) for x in some)
    commas = sum(bool(re.search(r"\b0,\d|\d,(?:\d{1,2}|\d{4,})(?!\d)", x)) for x in some)
    return commas > 3 and points * 10 < commas


def head_of(heads: list[str], many: int) -> list[str] | None:
    """The cells of the nearest line of words that has as many as there are numbers."""
    for line in reversed(heads):
        for mark in (r"\s*&\s*", r"\s*\|\s*", r"\s*;\s*", r"\s*,\s*", r"\t+", r"\s{2,}", r"\s+"):
            cells = [c.strip(" *`'\"\\_") for c in re.split(mark, line.strip().strip("|").strip())]
            cells = [c for c in cells if c]
            if len(cells) in (many, many + 1) and any(map(template.known, cells)):
                return cells[-many:] if len(cells) == many or template.known(cells[-1]) else cells[:many]
    return None


KEY = re.compile(r"^(\s*)(?:- )?[\"'*]*([A-Za-z_][\w./-]{0,40})(?:[\"'*]*:|\*\*)\s*$")
KEYED = re.compile(r"^\s*(?:- )?[\"']?[\w./ -]{1,40}[\"']?:\s*\S+\s*,?$")
"""A key with nothing behind it, and a key with one value: what stands deeper belongs to it."""


def heads_shared(shapes: Iterable[Shape], last: list[str]) -> None:
    """Rows of one table that differ in their blanks or signs have the head of the others, or one below the table."""
    for shape in shapes:
        if shape.wordless and shape.header is None and len(shape.texts) > 2 and len(shape.lines) >= FEWEST:
            shape.header = head_of(last, len(shape.texts) - 1)
    heads = {len(s.texts): s.header for s in shapes if s.header}
    for shape in shapes:
        if shape.wordless and shape.header is None:
            shape.header = heads.get(len(shape.texts))


def joined_tables(shapes: Iterable[Shape]) -> list[Shape]:
    """Rows under one head as one shape, in the order of their lines."""
    out: list[Shape] = []
    tables: dict[tuple[str, ...], Shape] = {}
    for shape in shapes:
        if shape.header is None or not shape.wordless:
            out.append(shape)
        elif (own := tables.get(tuple(shape.header))) is None:
            tables[tuple(shape.header)] = shape
        else:
            own.lines += shape.lines
    for shape in tables.values():
        shape.lines.sort(key=lambda x: x[0])
    return [*out, *tables.values()]


def by_words(shapes: list[Shape]) -> None:
    """Shapes that say "value" of their number: the word in which they differ is its name."""
    alike: dict[tuple[str, ...], list[Shape]] = {}
    for shape in shapes:
        if shape.names and (words_of(shape.names[-1]) or [""])[-1] in GENERIC and not shape.wordless:
            alike.setdefault((str(len(shape.texts)), *shape.names), []).append(shape)
    for group in alike.values():
        counts = Counter(w for s in group for w in set(tokens(s)))
        for shape in group:
            own = [w for w in tokens(shape) if counts[w] < len(group) or len(group) == 1]
            named = [w for w in own if template.known(template.best_name(w))]
            if named:
                shape.names[-1] = template.best_name(named[-1])


def tokens(shape: Shape) -> list[str]:
    return re.findall(r"[^\W\d][\w./@-]*", " ".join(shape.texts))


def assembled(shapes: list[Shape]) -> list[Row]:
    """Numbers in the order of their lines; a row ends where a name comes again or the counter moves."""
    cells: list[tuple[int, Row]] = []
    for k, shape in enumerate(shapes):
        names = names_in(shape, k)
        shares = [p and max(shape.column(i)) > 1 for i, p in enumerate(shape.percent)]
        for at, values in shape.lines:
            row: Row = {}
            for name, x, share in zip(names, values, shares):
                if name and name not in row:
                    row[name] = x / 100 if share else x
            cells.append((at, row))
    cells.sort(key=lambda cell: cell[0])
    rows: list[Row] = []
    for _, row in cells:
        if rows and fits(rows[-1], row):
            rows[-1].update(row)
        else:
            rows.append(dict(row))
    return rows


def names_in(shape: Shape, k: int) -> list[str]:
    """Keys of a shape's numbers: counters as they are called, nameless ones that may count get a key of their own."""
    held = bool(HELD_OUT.search(shape.texts[0])) and not re.search(r"train", shape.texts[0], re.I)
    out: list[str] = []
    for i, name in enumerate(shape.names):
        column = shape.column(i)
        counts = ticks(column) or (climbs(column) and not template.known(name))
        if counts and not (name and COUNTING.match(name)):
            name = f"{COUNTER}{k}.{i}.{name}"
        elif name and held and not COUNTING.match(name) and not name.lower().startswith(("eval", "val", "test")):
            name = f"eval_{name}"
        out.append(name)
    return out


COUNTER = "\x00"
"""What the key of a number begins with that has no name of a counter, and climbs like one."""


def ticks(values: list[float]) -> bool:
    """Whole numbers one distance apart: a counter, whatever stands beside it."""
    return climbs(values) and len({b - a for a, b in pairwise(values)}) == 1


def climbs(values: list[float]) -> bool:
    """Whole numbers that never fall and mostly rise."""
    if len(values) < FEWEST or not all(x == x and abs(x) < 1e15 and x == int(x) for x in values):
        return False
    rises = sum(b > a for a, b in pairwise(values))
    return all(b >= a for a, b in pairwise(values)) and rises * 2 >= len(values) - 1


def fits(row: Row, new: Row) -> bool:
    """Whether numbers belong to the row before them: no name twice, unless it is a counter that stands still."""
    return all(
        row[k] == x and (COUNTING.match(k) is not None or k.startswith(COUNTER)) for k, x in new.items() if k in row
    )


def with_steps(rows: list[Row]) -> list[Row]:
    """Rows under the counter that proves itself best; what only seemed to count is dropped."""
    rows = [row for row in rows if any(names_outcome(key) for key in row)]
    best = max(((rank(key, rows), key) for key in {k for row in rows for k in row}), default=None)
    key = best[1] if best and best[0] > (0, 0, 0.0) else None
    out: list[Row] = []
    for row in rows:
        kept = {k: x for k, x in row.items() if not k.startswith(COUNTER) and not (k != key and step_like(k))}
        if key is not None and key in row:
            kept.pop(key, None)
            kept = {"step": row[key]} | kept
        out.append(kept)
    return out


def counted_rows(rows: list[Row]) -> list[Row]:
    """A reader's rows with a step, where one of their columns counts better than what was taken for the step."""
    if not rows or (counted(rows) and all(step_of(row) == row.get("step") for row in rows[:8])):
        return rows
    own = next((k for k in ("step", "global_step", "_step") if k in rows[0]), None)
    training = [row for row in rows if any(map(names_outcome, row))]
    keys = {
        k
        for row in training[:64]
        for k in row
        if (m := COUNTING.match(k.rpartition("/")[2])) and (m["step"] or m["epoch"])
    }
    best = max(((rank(k.rpartition("/")[2], renamed(training, k)), k) for k in keys - {own}), default=None)
    if own or best is None or best[0][0] < 3:
        return rows
    return [{"step": row[best[1]], **row} if best[1] in row else row for row in rows]


def renamed(rows: list[Row], key: str) -> list[Row]:
    """One column under the last part of its name."""
    return [{key.rpartition("/")[2]: row[key]} if key in row else {} for row in rows]


def step_like(key: str) -> bool:
    match = COUNTING.match(key)
    return bool(match and match["step"])


def rank(key: str, rows: list[Row]) -> tuple[int, int, float]:
    """How well a column counts: its name, whether its distance is constant, in how many rows it stands."""
    values = [row[key] for row in rows if key in row]
    if len(values) < FEWEST or len(values) * 2 < len(rows) or not climbs(values):
        return (0, 0, 0.0)
    match = COUNTING.match(key)
    kind = 0 if match is None else 4 if match["step"] else 3 if match["epoch"] else 2
    if not kind and not key.startswith(COUNTER):
        return (0, 0, 0.0)
    gaps = Counter(b - a for a, b in pairwise(values) if b > a)
    even = int(bool(gaps) and max(gaps.values()) * 10 >= 9 * sum(gaps.values()))
    strict = sum(b > a for a, b in pairwise(values)) / max(1, len(values) - 1)
    return (max(kind, 1) if strict > 0.9 or kind > 2 else 0, even, strict) if kind or even else (0, 0, 0.0)

"""Console output line by line: which shape each line has, the rows of each shape, and how the run died."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from anygrpo.doctor.canonical import WIDE, names_outcome
from anygrpo.doctor.log import Ending, Row, number
from anygrpo.doctor.readers import lines
from anygrpo.doctor.readers.shapes import PATIENCE, Aligned, Blocks, Boxes, Markdown
from anygrpo.doctor.readers.source import Rows, special

HINTS = (
    "rew", "loss", "kl", "adv", "entropy", "score", "return", "accuracy", "grad", "奖励", "损失", "得分", "优势", "熵",
)  # fmt: skip
ERROR = re.compile(r"^\s*(?:[A-Za-z_]\w*\.)*\w*(?:Error|Exception|Interrupt|SystemExit)\b")
ENDS = re.compile("ill|ault|Bus|oom|OOM|memory")  # a cheap look before the careful one
KILLED = re.compile(
    r"^\s*(?:Killed|Segmentation fault.*|Bus error.*|.*oom[-_]kill.*|.*out-of-memory handler.*)\s*$", re.I
)
SIGNAL = re.compile(r"KeyboardInterrupt|SignalException|got signal: (?:1|2|15)\b|SIGHUP|SIGTERM|SIGINT")
NUMBERED = re.compile(r"[=:]\s*[-+.\d\['ni]", re.I)  # a cheap look before the careful one
SHAPE = dict.fromkeys(map(ord, "0123456789.+-e"))
"""What numbers are made of; a line without it is its shape."""
KEPT, LONGEST = 3 << 20, 4000
"""Characters of the text, and of a line, that are looked through again where no reader knows its shape."""
MAX_WRAPPED = 200  # lines that one printed dict may be wrapped over


@dataclass
class Scan:
    """State of the single pass. Rows are kept by shape, and the best shape is chosen at the end."""

    dicts: Rows = field(default_factory=Rows)
    verl: Rows = field(default_factory=Rows)
    pairs: Rows = field(default_factory=Rows)
    table: Rows = field(default_factory=Rows)
    singles: Rows = field(default_factory=Rows)
    fragments: Rows = field(default_factory=Rows)
    blocks: Blocks = field(default_factory=Blocks)
    boxes: Boxes = field(default_factory=Boxes)
    markdown: Markdown = field(default_factory=Markdown)
    aligned: Aligned = field(default_factory=Aligned)
    summary: Row = field(default_factory=Row)
    head: list[str] = field(default_factory=list[str])
    open_dict: list[str] = field(default_factory=list[str])
    header: list[str] = field(default_factory=list[str])
    traceback: int = 0
    error: Ending | None = None
    rows_at_error: int = -1
    seen: set[str] = field(default_factory=set[str])
    survived: set[str] = field(default_factory=set[str])
    finished_at: int = 0
    at: int = 0
    paired_at: int = 0
    raw: str = ""
    thinned: Rows | None = None
    kept: list[str] = field(default_factory=list[str])
    room: int = field(default_factory=lambda: KEPT)
    cut: int = 0
    shape: str = ""
    skipped: tuple[int, str] | None = None

    def count(self) -> int:
        many = (self.dicts, self.verl, self.pairs, self.table, self.singles, self.fragments, self.boxes.rows)
        return (
            sum(map(len, many))
            + len(self.aligned.rows)
            + len(self.blocks.rows)
            + len(self.markdown.rows)
            + len(self.markdown.body)
        )

    def line(self, i: int, raw: str) -> None:
        """Take line number `i`."""
        self.at = i
        if self.room > 0 and not raw.isspace() and len(raw) < LONGEST:
            self.kept.append(lines.clean(raw.rstrip("\n")))
            self.room -= len(raw)
            self.cut = i if self.room <= 0 else 0
        if self.thinned is not None and self.thinned.seen % self.thinned.stride and raw.translate(SHAPE) == self.shape:
            self.thinned.skip()
            self.skipped = i, raw
            return
        self.raw = raw
        text = lines.clean(raw.rstrip("\n"))
        if i <= 2000 and len(text) < 400 and not self.count():
            self.head.append(text)
        if self.failure(i, text):
            return
        if self.open_dict:
            self.wrapped(i, text)
        elif (at := text.find("{'")) >= 0 or (at := text.find('{"')) >= 0:
            self.dictionary(i, text[at:], text[:at])
        elif "step:" in text and " - " in text and (row := lines.verl_row(text)):
            self.added(self.verl, row)
        elif "\t" not in text and ("|" in text or self.markdown.header or text[:1] == "+") and self.framed(text):
            pass
        elif ("':" in text or '":' in text) and lines.FRAGMENT.match(text):
            self.fragment(lines.dict_row(text))
        elif "\t" in text:
            self.tabbed(text)
        else:
            self.free(text)

    def added(self, rows: Rows, row: Row) -> None:
        """Append a row; of a long log, lines like this one are passed over from now on, where they would not stay."""
        rows.append(row)
        if rows.stride > 1 and not special(row):
            self.thinned, self.shape = rows, self.raw.translate(SHAPE)
        self.skipped = None

    def catch_up(self) -> None:
        """Read the last line that was passed over: the last row before an end is always there."""
        if self.skipped is not None:
            (i, raw), self.thinned = self.skipped, None
            self.line(i, raw)

    def framed(self, text: str) -> bool:
        """Whether a line belongs to a box or a Markdown table."""
        table = self.markdown.line(text)
        return (not table and self.boxes.line(text)) or table

    def fragment(self, row: Row) -> None:
        """Part of a dict whose braces were lost in copying: one row until a name comes again."""
        if not self.fragments or set(row) & set(self.fragments[-1]):
            self.fragments.append(Row())
        self.fragments[-1].update(row)

    def failure(self, i: int, text: str) -> bool:
        """Tracebacks and kills; the last exception line before the next metric row is the one to quote."""
        if "Traceback (most recent call last)" in text:
            self.catch_up()
            if self.count() > self.rows_at_error:
                self.survived |= self.seen
            self.traceback, self.rows_at_error, self.error = i, self.count(), None
            self.open_dict = []
            return True
        if self.traceback and i - self.traceback < 2000 and ERROR.match(text):
            if self.count() > self.rows_at_error:
                return False
            kind = "signal" if SIGNAL.search(text) else "crash"
            self.error = Ending(kind, text.strip()[:300], i)
            self.seen.add(text.split(":", 1)[0].strip())
            return True
        if len(text) < 200 and ENDS.search(text) and KILLED.match(text):
            self.catch_up()
            self.error, self.rows_at_error, self.traceback = Ending("crash", text.strip(), i), self.count(), i
            return True
        return False

    def dictionary(self, i: int, text: str, before: str = "") -> None:
        """A printed dict; `before`: what the line says ahead of it, perhaps the step."""
        end = text.rfind("}")
        if end < 0:
            if "':" in text or '":' in text:
                self.open_dict = [text]
            return
        if self.dicts.wanted(text):
            row = lines.dict_row(text[: end + 1])
            if row and "step" not in row and (named := lines.STEP.search(before)):
                row["step"] = float(named[1])
            self.keep(i, row)
        else:
            self.dicts.skip()

    def wrapped(self, i: int, text: str) -> None:
        """A dict wrapped by the terminal or pretty-printed: join without a space, since a number may be cut in two."""
        end = text.rfind("}")
        self.open_dict.append(text if end < 0 else text[: end + 1])
        if end >= 0:
            joined, self.open_dict = "".join(self.open_dict), []
            self.keep(i, lines.dict_row(joined))
        elif len(self.open_dict) > MAX_WRAPPED:
            self.open_dict = []

    def unfinished(self) -> None:
        """A last dict that was cut in copying: its whole pairs are a row; the last one may have lost digits."""
        whole = "".join(self.open_dict).rpartition(",")[0]
        self.open_dict = []
        if whole:
            self.keep(self.at, lines.dict_row(whole))

    def keep(self, i: int, row: Row) -> None:
        if "train_runtime" in row:
            self.summary, self.finished_at = row, i
        elif len(row) > 1 and any(names_outcome(key) for key in row):
            self.added(self.dicts, row)

    def tabbed(self, text: str) -> None:
        """Tables that notebooks print: a header that starts with Step, then rows of numbers."""
        cells = [c.strip() for c in text.split("\t")]
        if cells[0].lower() == "step" and len(cells) > 2:
            self.header = cells
        elif self.header and len(cells) == len(self.header):
            found = {name: number(cell) for name, cell in zip(self.header, cells)}
            if found[self.header[0]] is not None:
                self.table.append({name.lower(): x for name, x in found.items() if x is not None})
        else:
            self.free(text.replace("\t", "  "))

    def free(self, text: str) -> None:
        """Pairs on one line, one pair a line, or the frame of a box."""
        if len(text) > 20000:
            return
        if not text.isascii():
            text = text.translate(WIDE)
        if text[:1] in "-=+" or text.lstrip()[:1] in "-=+":
            self.boxes.line(text)
        if "→" in text or "为" in text or "是" in text:
            text = lines.SAID.sub("=", text)
        if ("&" in text or "  " in text) and self.aligned.line(text):
            return
        numbered = bool(NUMBERED.search(text))
        if len(text) < 200 and (numbered or (len(text) < 60 and text[-1:] in "0123456789:=*-#]步轮次")):
            if self.blocks.line(text) and len(NUMBERED.findall(text)) < 2:
                self.single(text)
                return
        else:
            self.blocks.pass_over(text)
        if not numbered and "|" not in text and "," not in text and not text[-1:].isdigit():
            return
        lower = text.lower()
        if any(hint in lower for hint in HINTS):
            row = lines.pair_row(text)
            known = any(names_outcome(key) for key in row)
            if len(row) - ("step" in row) > 1 and known:
                self.same_step(row, text)
                self.paired_at = self.at
            elif "step" in row and known:
                self.singles.append(row)

    def single(self, text: str) -> None:
        """ "Step 30 | reward: .4" is a row; "reward: .4" alone belongs to its block, or to the pairs just before it."""
        row = lines.pair_row(text)
        if not any(names_outcome(key) for key in row):
            return
        if lines.STEP.search(text):
            self.singles.append(row)
        elif self.pairs and self.at - self.paired_at <= PATIENCE and not set(row) & set(self.pairs[-1]):
            self.pairs[-1].update(row)

    def same_step(self, row: Row, text: str) -> None:
        """A progress bar prints a step several times: the last stands."""
        last = self.pairs[-1] if self.pairs else None
        repeats = last is not None and "step" in row and last.get("step") == row["step"]
        if repeats and set(last or ()) == set(row) and lines.BAR.search(text):
            self.pairs.replace_last(row)
        else:
            self.added(self.pairs, row)

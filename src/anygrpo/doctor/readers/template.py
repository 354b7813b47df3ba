"""Lines of any text as numbers with names: what a line says between its numbers is its shape, and names them.

No format is known here. Lines that differ only in their numbers are one `Shape`; a number's name is what stands before
it, after it, or above it, whichever reads as training in more of a shape's places. `inferred_rows` makes rows of them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import lru_cache

from anygrpo.doctor.canonical import concept, of_another, words_of
from anygrpo.doctor.log import number

NUMBER = re.compile(
    r"(?<![A-Za-z0-9_.])(?:(?<![A-Za-z0-9_)\]])[-+−])?"
    r"(?:(?:\d{1,3}(?:,\d{3})+(?!\d)(?:\.\d+)?|\d+(?:\.\d+)?|\.\d+)(?:[eE][-+]?\d+)?"
    r"(?:\s?[%％]|\s?‰|[kKMG](?![A-Za-z/])|万)?|(?i:nan|inf(?:inity)?|NA)(?![\w.]))"
)
"""A number with its unit of thousands: 1,024, 12%, 1.2k, 3e-4, nan."""
DECIMAL_COMMA = re.compile(r"(?<![\d,.])([-+]?\d+),(\d+)(?![\d,]|\.\d)")
TIMES = re.compile(
    r"\d{4}[-/.]\d\d?[-/.]\d\d?(?:[T_ -]+\d\d?:\d\d(?::\d\d)?(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?)?"
    r"|\b\d{1,3}:\d\d(?::\d\d)?(?:[.,]\d+)?\b|\b\d{8}[-_ T]\d\d:?\d\d:?\d\d(?:\.\d+)?|\b[IWEF]\d{4}\b"
    r"|\b\w+\.(?:py|go|cc|cpp|rs|java|ipynb):\d+|\b(?:\d{1,3}\.){3}\d{1,3}\b|\b(?=[a-f]*\d)(?=\d*[a-f])[0-9a-f]{7,}\b"
    r"|\bcuda:\d+|\bpid[= ]?\d+|\b0x[0-9a-fA-F]+"
)
"""Clocks, dates, places in files, addresses: never measurements."""
BAR = re.compile(r"\|[█▉▊▋▌▍▎▏#\s.>=-]*\|(?=\s*\d)|[█▉▊▋▌▍▎▏░▒▓]+")
MARKUP = re.compile(r"\\(?:text|math)\w*\{([^{}]*)\}|\\[a-zA-Z]+(?![a-zA-Z{])|\\(?=[%&_#\\])|\$")
TENSOR = re.compile(
    r"(?:\b[\w.]*(?:tensor|array|float\d*|int\d*|Decimal|Array|bfloat16)\()\[?\s*(" + NUMBER.pattern + r")"
    r"\s*\]?\s*(?:,\s*\w+\s*=\s*[\w.'\":]+)*\s*,?\s*\)",
    re.I,
)
"""How Python shows a number: tensor(0.4, device='cuda:0'), np.float64(0.4)."""
LABELS = re.compile(r"""\{\w+="[^"]*"(?:,\s*\w+="[^"]*")*\}(?=\s)""")
QUOTED = re.compile(r"^\s*[>#/*•·-]+\s+(?=\S)")
MARK = "\x00"
"""What a clock leaves behind: no name goes across it."""


def cleaned(text: str, comma: bool = False) -> str:
    """A line without clocks, bars and markup; its numbers as Python writes them."""
    text = TENSOR.sub(r"\1", text) if "(" in text else text
    text = MARKUP.sub(r"\1", text) if "\\" in text or "$" in text else text
    text = LABELS.sub("", text) if '="' in text else text
    text = BAR.sub(f" {MARK} ", TIMES.sub(MARK, text))
    if comma:
        text = DECIMAL_COMMA.sub(r"\1.\2", text)
    return QUOTED.sub("", text)


THOUSANDS = {"k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "万": 1e4, "‰": 1e-3}


def value(token: str) -> float | None:
    """The number that a token writes: "1,024", "1.2k", "12.5 %"."""
    text = token.replace("−", "-").replace("％", "%").replace(" ", "")
    if text.upper() == "NA":
        return None
    if text[-1:] in THOUSANDS:
        inner = value(text[:-1])
        return None if inner is None else inner * THOUSANDS[text[-1]]
    if "," in text:
        text = text.replace(",", "")
    return number(text)


OPENERS = " \t\"'`*_~=:：<([{→➜▸>≈约-–—»|@为是达到"
ASSIGN = re.compile(r"[,;|•▸➜→›»<>\"'`=:：，；。、（）【】［］｜·\t()\[\]{}\x00?!]+|\s[-–—]+\s|\.\s+|\.$")
PICTURES = re.compile("[\u2190-\u2bff\ufe0f\U0001f000-\U0001faff]+")
CALL = re.compile(r"[\w.]*\w\($")
GROUP = re.compile(r"\s*[(（\[][^()（）\[\]]*[)）\]]\s*$")
WORDY = re.compile(r"[^\W\d_]")


def name_before(text: str) -> str:
    """What the text before a number calls it: the last part with letters in it."""
    text = PICTURES.sub(" | ", text)
    text = text.rstrip(OPENERS.replace("_", "")) if not CALL.search(text) else CALL.sub("", text).rstrip(OPENERS)
    while (shorter := GROUP.sub("", text)) != text and WORDY.search(shorter):
        text = shorter.rstrip(OPENERS)
    parts = [p.strip(" _*~.-+") for p in ASSIGN.split(text)]
    return next((p for p in reversed(parts) if WORDY.search(p)), "")


def name_after(text: str) -> str:
    """What the text behind a number calls it: "0.31 reward, 0.002 KL"."""
    text = PICTURES.sub(" | ", text)
    parts = [p.strip(" _*~.-+") for p in ASSIGN.split(text)]
    told = parts and WORDY.search(parts[0]) and text.partition(parts[0])[2].lstrip()[:1] not in tuple(":：=")
    return parts[0] if told else ""


FILLER = {
    "is", "was", "now", "at", "of", "the", "this", "a", "an", "per", "in", "on", "so", "far", "info", "debug", "stats",
    "metrics", "average", "mean", "avg", "current", "training", "train", "epoch", "step", "update", "iteration",
    "batch", "with", "and", "to", "ok", "done", "policy", "overall", "extras", "status", "logging", "log", "result",
    "results", "value", "undiscounted", "discounted", "episode", "episodic", "group", "token", "sample", "samples",
    "answers", "completions", "responses",
    "rollout", "rollouts", "approx", "estimated", "global", "total", "actor", "ppo", "grpo", "rl", "agent",
    "completed", "finished", "running", "smoothed", "raw", "last", "new", "我们", "本", "步", "轮", "当前", "本步",
    "本轮", "其中", "此时", "约", "了", "的",
}  # fmt: skip
"""Words around a metric's name that change nothing of what it measures."""


@lru_cache(maxsize=8192)
def best_name(raw: str) -> str:
    """The part of a phrase that names a metric, where all that is left out is filler; else the phrase."""
    raw = " ".join(raw.split())[-120:]
    if concept(raw) or not raw:
        return raw
    words = [w for w in words_of(raw) if w]
    if not raw.isascii():
        for cut in range(1, min(6, len(raw) - 1)):
            if raw[:cut] in FILLER and concept(raw[cut:]):
                return raw[cut:]
    for size in range(min(len(words) - 1, 5), 0, -1):
        for at in range(len(words) - size, -1, -1):
            rest = words[:at] + words[at + size :]
            if all(w in FILLER or w.isdigit() for w in rest) and not any(of_another(w) for w in rest):
                found = "_".join(words[at : at + size])
                if known(found):
                    return found
    return raw


@lru_cache(maxsize=8192)
def known(name: str) -> bool:
    """Whether a name means a metric of training, and not just any part of a reward."""
    found = concept(name)
    return found is not None and not found[0].startswith(("reward/component", "time/", "eval/"))


UNIT = re.compile(r"^\s?(?:s|ms|sec|min|h|it/s|s/it|tok/s|tok|nats?|bits?|GB|MB|GiB|MiB|秒)(?![A-Za-z])")


@dataclass
class Shape:
    """Lines that differ only in their numbers.

    Attributes:
        texts: what stands before each number, and behind the last.
        names: of the numbers; "" where none was found.
        percent: which numbers are shares in percent by the head of their column.
        lines: (line number, numbers).
    """

    texts: tuple[str, ...]
    header: list[str] | None = None
    names: list[str] = field(default_factory=list[str])
    percent: list[bool] = field(default_factory=list[bool])
    lines: list[tuple[int, list[float]]] = field(default_factory=list[tuple[int, list[float]]])

    @property
    def wordless(self) -> bool:
        return not any(WORDY.search(UNIT.sub("", t)) for t in self.texts)

    def column(self, i: int) -> list[float]:
        return [values[i] for _, values in self.lines]

    def constant(self, i: int) -> bool:
        first = self.lines[0][1][i]
        return all(values[i] == first for _, values in self.lines)


def split(text: str) -> tuple[tuple[str, ...], list[float]]:
    """A cleaned line as what stands between its numbers, and the numbers."""
    texts: list[str] = []
    values: list[float] = []
    at = 0
    before = ""
    for match in NUMBER.finditer(text):
        x = value(match[0])
        before += text[at : match.start()]
        at = match.end()
        if x is None:
            before += MARK
            continue
        texts.append(before)
        values.append(x)
        before = ""
    return (*texts, before + text[at:]), values


def key_of(texts: tuple[str, ...]) -> tuple[str, ...]:
    """What lines of one shape share: blanks and digits within words do not part them, nor rows of signs."""
    return tuple(SIGNS.sub(r"\1", DIGITS.sub("0", " ".join(t.split()))) for t in texts)


DIGITS = re.compile(r"\d+")
SIGNS = re.compile(r"([-=_.*#+─━═])\1{2,}")


def named(shape: Shape) -> None:
    """Give each number of a shape its name."""
    many = len(shape.texts) - 1
    percent = [False] * many
    if shape.header and len(shape.header) == many:
        names = [best_name(GROUP.sub("", h)) for h in shape.header]
        percent = [bool(re.search(r"[%％]\s*[)\]）]?$", h)) for h in shape.header]
    else:
        before = with_headings(shape.texts, [best_name(name_before(t)) for t in shape.texts[:-1]])
        after = [best_name(name_after(t)) for t in shape.texts[1:]]
        if sum(map(known, after)) > sum(map(known, before)):
            names = [a or b for a, b in zip(after, before[:1] + [""] * many)]
        else:
            names = spread(shape, parted(shape.texts, before, after))
        percent = [bool(re.search(r"[(\[（]\s*[%％]\s*[)\]）]\W*$", t)) for t in shape.texts[:-1]]
    shape.names, shape.percent = names, percent


def parted(texts: tuple[str, ...], before: list[str], after: list[str]) -> list[str]:
    """Names by where a comma stands: "0.57 success, kl 0.01" says what is behind the first and before the second."""
    out = list(before)
    for i in range(1, len(out)):
        if texts[i].rstrip()[-1:] in SEPARATORS and texts[i].strip() and texts[i].lstrip()[:1] not in SEPARATORS:
            out[i] = ""
    for i, name in enumerate(out):
        if (
            not name
            and after[i]
            and after[i] not in out
            and texts[i].strip() not in ("/", "of", "±", "+/-", "+-")
            and texts[i + 1].lstrip()[:1] not in SEPARATORS
        ):
            out[i] = after[i]
    return out


SEPARATORS = tuple(",;，；、|)")


def spread(shape: Shape, names: list[str]) -> list[str]:
    """Names of numbers that share one: "reward/kl: .4 / .2" gives each its own; "x: [(0, .4)]" gives the last x.

    A second number behind a bare sign ("± .3", "/ 80") is no measurement of its own.
    """
    out = list(names)
    i = 0
    while i < len(out):
        end = i + 1
        while end < len(out) and not WORDY.search(shape.texts[end]):
            end += 1
        run = end - i
        if run > 1 and out[i]:
            parts = phrases(shape.texts[i], run)
            if parts and parts[0] not in out[:i]:
                out[i:end] = parts
            elif (
                shape.constant(i)
                and not shape.constant(end - 1)
                and (gap := shape.texts[i + 1].strip())
                and "/" not in gap
            ):
                out[i], out[end - 1] = "", out[i]
        i = end
    return out


def phrases(text: str, many: int) -> list[str]:
    """As many names as there are numbers, from one text: "(reward, kl, entropy) = "."""
    inner = text.rstrip(OPENERS + ")]} ").rpartition("\x00")[2]
    for mark in ("/", ",", "|", ";", "、"):
        parts = [p.strip(" \"'`*([{") for p in inner.split(mark)]
        parts = [name_before(parts[0]), *parts[1:]]
        if head := name_before(inner.rpartition("(")[0]):  # "reward (min/mean/max): "
            parts = [p if known(best_name(p)) else f"{head} {p}" for p in parts]
        if len(parts) == many and all(WORDY.search(p) for p in parts):
            found = [best_name(p) for p in parts]
            return found if sum(map(known, found)) > 1 else []
    return []


HEADING = re.compile(r"[\"']?([A-Za-z_][\w./-]*)[\"']?\s*[=:]\s*(?:[A-Za-z_][\w.]*)?[({]|[)}]")


def with_headings(texts: tuple[str, ...], names: list[str]) -> list[str]:
    """Names under what a nested text opens around them: "reward=Stats(mean=" is reward/mean."""
    stack: list[str] = []
    out: list[str] = []
    for text, name in zip(texts, names):
        for match in HEADING.finditer(text):
            if match[1]:
                stack.append(match[1])
            elif stack:
                stack.pop()
        full = "/".join([*stack, name]) if stack and name else name
        out.append(full if stack and known(full) else name)
    return out

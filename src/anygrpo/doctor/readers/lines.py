"""One line of console output as numbers: Python dicts, verl's "step:N - a:b", "key: value" pairs, list rewards."""

from __future__ import annotations

import json
import re

from anygrpo.doctor.log import Row, flatten, list_statistics, number

ANSI = re.compile(r"\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b[@-_]|\[(?:0|1|3[0-7]|9[0-7])m")
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
PREFIX = re.compile(r"^\s*\((?:[\w.:]+ )+?pid=\d+(?:, ip=[\d.]+)?\)\s?|^\[(?:default|rank)\d+\]:\s?")
NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?%?|[-+]?(?:nan|inf)(?![a-z])"
DICT_PAIR = re.compile(
    r"""['"]([^'"{}]{1,120})['"]\s*:\s*(?:(\[[^\]]*\])|(?:[\w.]+\()?['"]?(""" + NUMBER + r""")(/\d+)?)""", re.I
)
FRAGMENT = re.compile(r"""^\s*['"][^'"{}]{1,120}['"]\s*:\s*['"]?(?:""" + NUMBER + r"""|\[)""", re.I)
VERL_ROW = re.compile(r"(?:^|\s)step:\s*(\d+) - (.*)")
VERL_PAIR = re.compile(r"([\w@./()\-]+(?: [\w@./()\-]+)*):\s*(?:[\w.]+\()?(" + NUMBER + r")\)?$", re.I)
EQUAL_PAIR = re.compile(
    r"([A-Za-z_\u4e00-\u9fff][\w./@\-]*)\s?=\s?(?:(\[[^\]]*\])|(" + NUMBER + r")(/\d+)?(?![\w.]))", re.I
)
COLON_PAIR = re.compile(
    r"(?:^|[,|;:•*\[\](){}\t]\s*|\s-\s|\s{2,}|(?<=[\d%])\s)([A-Za-z_\u4e00-\u9fff][\w./@\- ]{0,40}?)"
    r"\s*:\s*(?:(\[[^\]]*\])|(" + NUMBER + r")(/\d+)?(?![\w:]))",
    re.I,
)
BLANK_PAIR = re.compile(
    r"(?:^|[|,;\]]|(?<=\d):)\s*([A-Za-z_\u4e00-\u9fff][\w./@\-]*(?: [A-Za-z_][\w./@\-]*){0,2}?)\s*?\s("
    + NUMBER
    + r")(?=\s*(?:[|,;。(]|$))",
    re.I,
)
"""Name, blank, number, between bars or commas: "| rew 0.31 | kl 0.004 |", "奖励 0.398, KL 0.0041"."""
WIDE_PAIR = re.compile(
    r"(?:^|[|\]])\s*([A-Za-z][\w./]*(?: [A-Za-z][\w./]*){1,4}) = (" + NUMBER + r")(?=\s*(?:\||$))", re.I
)
"""A name of several words between bars: "| Episode Return = 31.2 |"."""
PLAIN_PAIRS = re.compile(r"^(?:[A-Za-z_][\w./@\-]*[ \t]+(?:" + NUMBER + r")[ \t]*){2,}$", re.I)
"""Nothing but names and numbers: "step 5 reward 0.31 kl 0.002"."""
PLAIN_PAIR = re.compile(r"([A-Za-z_][\w./@\-]*)[ \t]+(" + NUMBER + r")(?=\s|$)", re.I)
SAID = re.compile(r"(?<=[\w\u4e00-\u9fff)])\s*(?:→|->|恒?为|[都]?是|等于|达到|降到|升到)\s*(?=[-+.\d])")
"""What stands between a name and its number in a sentence: "平均奖励为0.3", "reward→0.3"."""
STEP = re.compile(r"\b(?:global[_ ]?step|step|iter(?:ation)?|update)s?\b\s*[:=#\[]*\s*(\d+)(?![\d.]*\s*%)", re.I)
STEP_WORD = re.compile("step|iter|update", re.I)  # a cheap look before the careful one
COUNTER = re.compile(
    r"(?:第|步骤|步数|轮次|迭代)\s*(\d+)\s*(?:[步轮次：:,，]|$)|\((\d+)/\d+\)|^\s*\[(\d+)(?:/\d+)?\]|\|\s*(\d+)/\d+\s*\["
)
PACKED = re.compile(
    r"([A-Za-z_\u4e00-\u9fff][\w./]*)\s*\(((?:mean|avg|std|max|min|median)(?:/(?:mean|avg|std|max|min|median))+)\)(\s*=?\s*)("
    + rf"(?:{NUMBER})(?:\s*/\s*(?:{NUMBER}))+)",
    re.I,
)
"""Several statistics of one metric among plain pairs: "len(mean/max) 512.0/ 512"."""
BAR = re.compile(r"\d(?:\.\d+)?\s?(?:\w+/s|s/\w+)\b|\d%\|")
HELD_OUT = re.compile(r"\b(?:eval(?:uation|uator)?|valid(?:ation)?|val|test(?:ing)?|held[- ]?out)\b", re.I)
LIST_ITEM = re.compile(NUMBER, re.I)


FRAMES = str.maketrans(dict.fromkeys("│┃║", "|") | dict.fromkeys("─━═┄┅╭╮╰╯┌┐└┘├┤┬┴┼┏┓┗┛┣┫┳┻╋┡┩╇╈╞╡╪╔╗╚╝╠╣╦╩╬", "-"))
"""Signs of drawn boxes as those of plain ones."""


def clean(line: str) -> str:
    """Without colours, drawn frames, and the prefixes that Ray and torchrun put before a worker's line."""
    if "\x1b" in line or "[36m" in line:
        line = ANSI.sub("", line)
    if not line.isprintable():
        line = CONTROL.sub("", line)
    if not line.isascii() and any(sign in line for sign in "│┃║─━═"):
        line = line.translate(FRAMES)
    if "pid=" in line or line.startswith(("[rank", "[default")):
        line = PREFIX.sub("", line)
    return line


def dict_row(text: str) -> Row:
    """The numbers of a printed dict; numbers may be strings, np.float64(x), tensor(x), nan."""
    if text.startswith('{"'):
        try:
            return flatten(json.loads(text))
        except (ValueError, RecursionError):
            pass
    row: Row = {}
    for key, many, one, of in DICT_PAIR.findall(text):
        add(row, "step" if of and "step" in key else key, many, one)
    return row


def verl_row(line: str) -> Row | None:
    """verl's console logger: "step:12 - actor/kl_loss:0.01 - critic/score/mean:np.float64(0.5)"."""
    match = VERL_ROW.search(line)
    if not match:
        return None
    row: Row = {"step": float(match[1])}
    for part in match[2].split(" - "):
        if pair := VERL_PAIR.match(part.strip()):
            x = number(pair[2])
            if x is not None:
                row[pair[1]] = x
    return row if len(row) > 2 else None


def pair_row(line: str) -> Row:
    """A line of "key: value" or "key=value" pairs. Lines that speak of evaluation get the prefix "eval_"."""
    row: Row = {}
    if "/" in line and "(" in line:
        line = PACKED.sub(unpacked, line)
    first = len(line)
    if "|" in line and " = " in line:
        for match in WIDE_PAIR.finditer(line):
            add(row, match[1], "", match[2])
            first = min(first, match.start())
        line = WIDE_PAIR.sub("|", line) if row else line
    for pattern, mark in ((EQUAL_PAIR, "="), (COLON_PAIR, ":")):
        for match in pattern.finditer(line) if mark in line else ():
            key, many, one, _ = match.groups()
            key = key.strip()
            if key not in row and not (STEP_WORD.search(key) and STEP.fullmatch(f"{key}=1")):
                add(row, key, many, one)
                first = min(first, match.start())
    if not row and PLAIN_PAIRS.match(line):
        for match in PLAIN_PAIR.finditer(line):
            if not STEP.fullmatch(f"{match[1]}=1"):
                add(row, match[1], "", match[2])
    if not row and ("|" in line or "," in line or ";" in line):
        for match in BLANK_PAIR.finditer(line):
            if match[1] not in row and not STEP.fullmatch(f"{match[1]}=1"):
                add(row, match[1].strip(), "", match[2])
                first = min(first, match.start())
    if row and HELD_OUT.search(line[:first]):
        row = {f"eval_{key}": value for key, value in row.items()}
    if row:
        found = STEP.search(line) or COUNTER.search(line)
        if found:
            row["step"] = float(next(g for g in found.groups() if g))
    return row


def unpacked(match: re.Match[str]) -> str:
    """ "len(mean/max)=310/512" as "len/mean=310 len/max=512"; as it was where the counts differ."""
    name, kinds, sign, numbers = match.groups()
    values = [x.strip() for x in numbers.split("/")]
    parts = kinds.split("/")
    if len(parts) != len(values):
        return match[0]
    return " ".join(f"{name}/{kind}{sign if sign.strip() else ' '}{x}" for kind, x in zip(parts, values))


def add(row: Row, key: str, many: str, one: str) -> None:
    if many:
        values = [number(x) for x in LIST_ITEM.findall(many)]
        row.update({key: values[0]} if len(values) == 1 and values[0] is not None else list_statistics(key, values))
    elif (x := number(one)) is not None:
        row[key] = x

"""Numbers, settings and claims in a person's note: prose, bullets, tables either way round, shell exports."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from anygrpo.doctor import canonical
from anygrpo.doctor.log import Row, number
from anygrpo.doctor.readers.shapes import Markdown, leading
from anygrpo.doctor.settings import concept_of
from anygrpo.doctor.synonyms import WORDS_METRIC, WORDS_SETTING

AUTOPSY: dict[str, str] = {
    "ratio/mean": "mean_ratio", "ratio/max": "max_ratio", "log_ratio/mean": "mean_log_ratio",
    "loss/policy": "policy_loss", "loss/total": "loss", "kl/reference": "kl", "beta": "beta",
    "advantage/mean": "mean_advantage", "advantage/std": "advantage_std", "advantage/max": "advantage_max",
    "advantage/abs_max": "advantage_max", "reward/std_within": "std_reward", "reward/std": "std_reward",
    "reward/mean": "mean_reward", "grad_norm/total": "grad_norm", "log_prob/current": "log_prob_current",
    "log_prob/reference": "log_prob_ref", "group_size": "group_size", "queries": "queries", "std_floor": "std_floor",
    "clamp": "clamp", "groups/size": "group_size",
}  # fmt: skip
"""Canonical metric or setting -> the autopsy's name of it."""
EXPORT = re.compile(r"^\s*(?:export\s+|set\s+)?([A-Za-z_]\w*)\s*=\s*[\"']?([^\s\"'#;]+)")
VALUE = (
    r"\s*(?:的?值|值)?\s*(?:现在|目前|当前|一直|始终|基本)?\s*(?:(?:稳定|保持|维持|停留?|集中)在|(?:恒|均|都)?为|(?:恒|都)?是|等于|达到?了?"
    r"|高达|只有|只剩|仅为?|约为?|接近|[降升涨]?到|of|is|was|stays at|at|=|:|：|≈|~)?\s*"
    r"(?:about|only|around|大约|约)?\s*[*`]*("
)
NUM = r"[-+]?\d[\d,]*\.?\d*(?:[eE][-+]?\d+)?|[-+]?\.\d+(?:[eE][-+]?\d+)?"
RANKED = re.compile(r"(?:rank|排名|名次)[^\n。]{0,12}(?:advantage|优势|归一)", re.I)
CENTRED = re.compile(
    r"只减(?:去)?(?:组内?)?的?(?:均|平均)值|不(?:再)?除(?:以)?(?:组内)?(?:标准差|std)"
    r"|cent(?:re|er)ed only|only cent(?:re|er)ed|(?:no|without|not divided by (?:the|their)) std|dr\.?\s?grpo",
    re.I,
)
"""The advantages are rewards minus the group's mean, as they are."""


def name_of(raw: str) -> str | None:
    """The autopsy's name of a metric or setting under anybody's name, or None."""
    plain = canonical.plain_name(raw)
    if plain in WORDS_SETTING and WORDS_SETTING[plain] in AUTOPSY:
        return AUTOPSY[WORDS_SETTING[plain]]
    found = canonical.concept(raw)
    if found and found[0] in AUTOPSY:
        return AUTOPSY[found[0]]
    if plain in DIMENSIONS:
        return "dimensions"
    setting = concept_of(raw)
    return AUTOPSY.get(setting) if setting else None


COUNTS = (
    (re.compile(r"(?<![\d.])(\d[\d,]*)\s*(?:个|条)?\s*(?:查询|提示|queries|prompts)", re.I), "queries"),
    (re.compile(r"每组(?:采样|有|共)?\s*(\d+)\s*(?:个|条)|(?:groups? of|组大小)\s*(\d+)", re.I), "group_size"),
    (re.compile(r"(?<![\d.])(\d[\d,]{2,})\s*(?:个)?\s*(?:维度?|dimensions|dims)", re.I), "dimensions"),
)
"""Counts that stand before what they count: "640 个查询", "groups of 4"."""
DIMENSIONS = {"dimensions", "dims", "维度", "维数", "维度数", "num_dims", "total_dims", "总维度", "总维数"}


def _vocabulary() -> list[tuple[str, str]]:
    """(word, autopsy name), longest first, of words that may stand in prose."""
    out = {w: AUTOPSY[c] for w, c in WORDS_METRIC.items() if c in AUTOPSY and len(w) > 1}
    out |= {w: AUTOPSY[c] for w, c in WORDS_SETTING.items() if c in AUTOPSY}
    out |= dict.fromkeys(DIMENSIONS, "dimensions")
    out |= {"mean ratio": "mean_ratio", "policy loss": "policy_loss", "advantage std": "advantage_std",
            "std of the advantages": "advantage_std", "group size": "group_size", "kl penalty": "kl", "beta": "beta",
            "mean advantage": "mean_advantage", "reward std": "std_reward", "total loss": "loss",
            "adv_std": "advantage_std",
            "adv std": "advantage_std", "queries": "queries", "prompts": "queries", "log ratio": "mean_log_ratio",
            "log_ratio": "mean_log_ratio", "mean_log_ratio": "mean_log_ratio", "kl": "kl"}  # fmt: skip
    others = ("kl loss", "value loss", "critic loss", "loss_kl", "kl损失", "value_loss", "有效组数", "无效组数")
    others += tuple(f"{x}的组数" for x in ("信号", "差异", "梯度", "方差"))
    out |= dict.fromkeys(others, "")  # read, so that their ends are not taken for "loss" and "组数"
    return sorted(((flexible(w), name) for w, name in out.items()), key=lambda p: -len(p[0]))


def flexible(word: str) -> str:
    """A word as a pattern: "_" or a blank in it, and a blank or none where Latin letters meet Chinese ("KL 权重")."""
    text = re.sub(r"(?<=[a-z])(?=[\u4e00-\u9fff])|(?<=[\u4e00-\u9fff])(?=[a-z])", "\0", word)
    return "".join({"_": "[_ ]", "\0": r"\s?"}.get(c, c if c in "[] " else re.escape(c)) for c in text)


PROSE = [
    (re.compile(r"(?<![A-Za-z_])" + word + r"(?![A-Za-z_])" + VALUE + NUM + r")", re.I), name)
    for word, name in _vocabulary()
]


IDENTIFIER = re.compile(r"(?<![\w/.])([A-Za-z][\w/]{1,40})" + VALUE + NUM + r")(?![\w])", re.I)
"""A column's name and its number, as in "adv_max 0.06"."""


_LOG_PROB = r"(?:log[_ ]?probs?|logps?|对数概率)"
_ROLES = {
    "current": r"current|new|now|policy|pi|π|当前策略|当前|现策略|新策略|新",
    "reference": r"reference|ref|base|参考策略|参考模型|参考",
    "behaviour": r"old|behaviou?r|sampler|旧策略|旧|采样策略",
}
_SIDE = rf"(?:mean[_ ])?(?:{_LOG_PROB}[_ ]?)?(?P<%s>{'|'.join(_ROLES.values())})(?:[_ 的]?{_LOG_PROB})?(?:平均|均值)?"
DIFFERENCE = re.compile(
    rf"(?<![\w\u4e00-\u9fff]){_SIDE % 'a'}\s*(?:[-−–]|minus|减去?)\s*{_SIDE % 'b'}"
    r"(?:\s*(?:的?差[异值距]?|difference|gap))?" + VALUE + NUM + ")", re.I,
)  # fmt: skip
"""One log-prob minus another, as a number: it is neither of the two."""
_GAPS = {("current", "reference"): ("log_prob_gap", 1), ("reference", "current"): ("log_prob_gap", -1),
         ("current", "behaviour"): ("mean_log_ratio", 1), ("behaviour", "current"): ("mean_log_ratio", -1)}  # fmt: skip
"""What a difference of two roles is a number of, and its sign there."""


@dataclass
class Note:
    """What a note holds: autopsy name -> number as it was written, names not known, its claims' sentences."""

    numbers: dict[str, str]
    unused: list[str]
    normaliser: str | None
    text: str


def read_note(text: str) -> Note:
    """Everything that can be read; the first number said of a name stands, measured ones before settings."""
    note = Note({}, [], "rank" if RANKED.search(text) else "centred" if CENTRED.search(text) else None, text)
    tables(text, note)
    for line in text.splitlines():
        plain = line.translate(canonical.WIDE).strip()
        if "|" in plain:
            continue
        plain = differences(plain, note)
        if export := EXPORT.match(plain):
            put(note, export[1], export[2])
        pair = re.match(r"^\W*([A-Za-z_\u4e00-\u9fff][^:=]{0,40}?)[*`]*\s*[:=]\s*(.*)$", plain)
        if pair and (x := first_number(pair[2])) and name_of(pair[1].strip(" *`")):
            put(note, pair[1].strip(" *`"), x)
        prose(plain, note)
        for pattern, name in COUNTS:
            if found := pattern.search(plain):
                note.numbers.setdefault(name, next(x for x in found.groups() if x).replace(",", ""))
    return note


def tables(text: str, note: Note) -> None:
    """Markdown tables: the last column of numbers is the current one, unless a head says so of another."""
    table = Markdown()
    cells = [x.replace(",", "") for line in text.splitlines() if "|" in line for x in re.findall(NUM, line)]
    printed = {float(x): x for x in reversed(cells) if number(x) is not None}  # .60 is no .6: digits are evidence
    for line in [*text.splitlines(), ""]:
        table.line(line)
        if table.header and table.body and "|" not in line:
            table.close()
    table.close()
    for row in newest_first(table.rows):
        for key, x in row.items():
            if key != "step":
                put(note, key, printed.get(x, f"{x:.12g}"))


def newest_first(rows: list[Row]) -> list[Row]:
    """Rows of one table whose steps climb, the last before the first: a note speaks of how it stands now."""
    out: list[list[Row]] = []
    for row in rows:
        if out and "step" in row and out[-1][0].get("step", math.inf) < row["step"]:
            out[-1].insert(0, row)
        else:
            out.append([row])
    return [row for together in out for row in together]


def put(note: Note, raw: str, value: str) -> None:
    name = name_of(raw)
    if name is None:
        if raw not in note.unused and len(raw) < 40:
            note.unused.append(raw)
        return
    if number(value.replace(",", "")) is not None:
        note.numbers.setdefault(name, value.replace(",", ""))


def differences(line: str, note: Note) -> str:
    """The line without its "current - reference = -94037", which are noted as the differences they are."""
    for found in DIFFERENCE.finditer(line):
        name, sign = _GAPS.get((_role(found["a"]), _role(found["b"])), ("", 1))
        value = found[found.re.groups].rstrip(".,").replace(",", "")
        if name and number(value) is not None:
            turned = value.removeprefix("-") if value.startswith("-") else "-" + value.removeprefix("+")
            note.numbers.setdefault(name, value if sign > 0 else turned)
    return DIFFERENCE.sub(" ", line)


def _role(word: str) -> str:
    return next(role for role, words in _ROLES.items() if re.fullmatch(words, word, re.I))


def first_number(text: str) -> str | None:
    """The number that a text begins with, perhaps after "current:" or its like."""
    head = re.sub(r"^[*`\s]*(?:当前值?|现在|目前|current(?: value)?|now)\s*[:=是为]?\s*", "", text.strip(), flags=re.I)
    if leading(head) is None:
        return None
    found = re.match(r"[\s≈~约=*`]*(" + NUM + ")", head)
    return found[1] if found else None


def prose(line: str, note: Note) -> None:
    """ "mean ratio is 485165216", "KL散度高达197562", in running text; what was read is not read again."""
    for pattern, name in PROSE:
        for found in pattern.finditer(line):
            value = found[1].rstrip(".,")
            if name and number(value.replace(",", "")) is not None:
                note.numbers.setdefault(name, value.replace(",", ""))
        line = pattern.sub(" ", line)
    for found in IDENTIFIER.finditer(line):
        name, value = name_of(found[1]), found[2].rstrip(".,").replace(",", "")
        if name and number(value) is not None:
            note.numbers.setdefault(name, value)

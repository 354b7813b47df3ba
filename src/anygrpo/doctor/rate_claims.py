"""Two rates that a note sets beside each other ("57.8% against 57.3% of 800 questions: better"), and what they show."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from anygrpo.doctor.arms import rates
from anygrpo.doctor.claims import Answer, Claim
from anygrpo.spoken import Text

NUM = r"(?<![@\d])(?:[-+]?\d[\d,]*\.?\d*(?:[eE][-+]?\d+)?%?|[-+]?\.\d+%?)"  # the 8 of pass@8 is no rate


RATE = re.compile(
    r"(?:准确率|正确率|成功率|通过率|得分率|胜率|accuracy|acc|success rate"
    r"|(?:pass|acc|avg|mean|maj|cons|best)@(?:\d+(?!\d)|k))"
    r"(?:\s+(?:of|for)\s+(?:[A-Za-z][\w-]*\s+){1,3}?(?:went|goes|rose|fell|moved|climbed|dropped|(?:in|de)creased"
    r"|improved|grew|changed)\s+(?:up\s+|down\s+)?from\s)?\D{0,12}?(" + NUM + r")(?![\d.])"
    r"(?:\D{0,16}?(?:到|至|和|与|及|->|→|to|and|vs\.?|[,，、;；]\s*(?=(?:方法|模型|方案)?\s*[A-Za-z]\s*(?:为|是|的?只?有|is|:|：)))"
    r"\s*(?:(?:方法|模型|方案)\s*)?[A-Za-z]?\D{0,12}?(" + NUM + "))?",
    re.I,
)
ASKED = re.compile(
    r"(?<![\d.])(\d[\d,]*)\s*[道个条]?\s*(?:题|问题|(?:测试)?样本|questions|problems|prompts|examples)", re.I
)
_SAID = r"(?=\s*(?:than|accura|results?|on|in|at|by|[,.;:!)]|$))"  # "A is better.", and no "a higher learning rate"
BETTER = re.compile(
    r"(?:更好|更高)(?!的?(?:学习率|温度|权重|系数|成本|上限|熵|奖励))|优于|好于|胜过|高于|领先"
    rf"|better{_SAID}|higher{_SAID}|outperform(?:s|ed)?",
    re.I,
)
ROSE = re.compile("提升|提高|改进|上升|涨|增加" r"|" "improve|rose|gain", re.I)
FELL = re.compile("降|跌|减|退" r"|" "fell|drop|down|decreas|los[et]", re.I)
WORSE = re.compile(r"\bhurts?\b|\bworse\b|\bharm(?:s|ful|ed)?\b|变差|更差|退步|有害|损害", re.I)
NOTHING_ELSE = re.compile(
    r"\s*(?:了\s*)?(?:(?:the\s+)?(?:accuracy|performance|results?|model|quality|reasoning|it)|准确率|正确率|成功率|通过率|性能|效果|表现|结果|成绩)?"
    r"(?:\s+than\s+(?:before|(?:the\s+)?\w+))?(?:\s+(?:slightly|much|a\s+lot|overall))?(?:\s*(?:了|很多|不少))?\s*(?:[,.;:!)，。；：！）\n]|$|(?:on|of|by)\b)",
    re.I,
)
"""What may stand behind "hurts" where the accuracy itself is hurt: "hurts the training speed" says nothing of it."""
DENIED = re.compile(
    r"(?:没有?|未|并非|不(?!仅|但|只|过|断))\S{0,2}\s*(?:比.*)?$|(?:\b(?:not(?! only)|no|never)|n['’]t)\s+(?:\w+\s+)?$",
    re.I,
)
ASKING = re.compile(r"是否|能否|会不会|whether|\bif\b|如果|若", re.I)
HEAD = re.compile(r"^(?:因此|所以|故|可见|说明|那么|即|so|thus|hence|therefore|the|our)\s*(?![a-z])", re.I)
NOBODY = re.compile(
    r"['’]s\b|(?-i:\ba\b)"
    r"|\b(?:an|the|this|that|it|we|our|is|was|has|have|had|did|does|do|not|no|also|still|clearly|so|thus|and|but"
    r"|however|first|second|latter|former|which|new|model|training|run|policy|method|accuracy|acc|score|rate|performance"
    r"|results?|overall|there|with)\b|我们|模型|训练|策略|方法|方案|准确率|正确率|成功率|通过率|性能|效果|表现|结果|整体|总体"
    r"|因此|所以|可见|说明|确实|明显|显著|大幅|有所|得到|后者|前者|没有?|并|也|还|又|仍|未|不|有|的|了|是",
    re.I,
)
"""Words of a subject that name nobody: what is left of them does."""
TAIL = re.compile(
    r"(?:\s*(?:明显|显著|并?没有?|并?不|未|要|也|\bis|\bwas|\bdoes|\bnot|\bno|\bclearly|\bsignificantly|\bperforms|\bscores))+$",
    re.I,
)
APART = re.compile(r"[,，、;；。/]|\b(?:and|vs|to|while|but)\b|和|与|及|而|到|至|->|→", re.I)
"""What stands between a rate with its owner and the next."""


@dataclass(frozen=True)
class Rate:
    """A rate as it was written, where it stands, and the number of the match it came from."""

    raw: str
    start: int
    end: int
    match: int

    @property
    def share(self) -> float:
        x = float(self.raw.rstrip("%").replace(",", ""))
        return x / 100 if "%" in self.raw or x > 1 else x


def subject_of(text: str, verb: re.Match[str]) -> str:
    """Who is said to be the better: "A" of "so A is clearly better", of "A 比 B 更好"; "" where nobody is named."""
    clause = re.split(r"[，。,.;；:：\n(（]", text[: verb.start()])[-1].strip()
    return HEAD.sub("", TAIL.sub("", re.sub(r"\s*比.*$", "", clause)).strip()).strip()


def names(subject: str, text: str) -> bool:
    """Whether a text names the subject: whole words, and single letters as they are written ("A" is no "a")."""
    word = rf"(?<![A-Za-z]){re.escape(subject)}(?![A-Za-z])"
    return bool(subject) and re.search(word, text, 0 if len(subject) == 1 else re.I) is not None


def owner_of(text: str, subject: str, rates_: tuple[Rate, Rate]) -> int | None:
    """Whose rate it is, the first (0) or the second (1): that beside which the subject stands; None where not told."""
    one, two = rates_
    before, between = re.split(r"[。；;\n]", text[: one.start])[-1], text[one.end : two.start]
    cut = APART.search(between)
    left, right = (between[: cut.start()], between[cut.end() :]) if cut else ("", between)
    after = re.split(r"[，。,.;；\n]", text[two.end :])[0]
    near = [names(subject, before) or names(subject, left), names(subject, right) or names(subject, after)]
    return None if near[0] == near[1] else near.index(True)


def of_another(text: str, verb: re.Match[str], pair: tuple[Rate, Rate]) -> bool:
    """Whether "B did not improve" speaks of somebody whom the words beside the two rates do not name."""
    before = re.split(r"[，。,;；\n]|\.\s", text[: pair[0].start])[-1]
    after = re.split(r"[，。,.;；\n]", text[pair[1].end :])[0]
    near = f"{before} {text[pair[0].end : pair[1].start]} {after}"
    named = re.findall(r"[A-Za-z][\w-]*|[\u4e00-\u9fff]+", NOBODY.sub(" ", subject_of(text, verb)))
    return bool(named) and not any(names(x, near) for x in named)


def said_better(text: str, pair: tuple[Rate, Rate]) -> int | None:
    """Which of two rates is claimed to be the larger; where that is not told the larger, so that nothing is refuted.

    None where no such claim is made.
    """
    one, two = pair
    larger, between = int(two.share > one.share), text[one.end : two.start]
    if verb := BETTER.search(text):
        clause = re.split(r"[，。,.;；:：\n]", text[: verb.start()])[-1]
        if ASKING.search(clause):
            return None
        passive = verb[0].lower() == "outperformed" and re.match(r"\s*by\b", text[verb.end() :]) is not None
        owner = owner_of(text, subject_of(text, verb), pair)
        denied = bool(DENIED.search(clause)) != passive  # "B is not better": the other is at least as good
        return larger if owner is None else 1 - owner if denied else owner
    rises = list(ROSE.finditer(text))
    steps = one.match == two.match and re.search(r"到|至|->|→|\bto\b", between, re.I)
    if rises and FELL.search(between) and not ROSE.search(between):  # "fell from .. to ..": nobody says that it rose
        return 0 if steps else None
    worse = WORSE.search(text, two.end)
    itself = worse and NOTHING_ELSE.match(text, worse.end()) and not of_another(text, worse, pair)
    if worse and itself and steps and not rises:  # "went from .578 to .573: the method hurts"
        clause = re.split(r"[，。,.;；:：\n]", text[: worse.start()])[-1]
        return None if DENIED.search(clause) or ASKING.search(clause) else 0
    verb = next((v for v in rises if not of_another(text, v, pair)), None)
    if verb is None:
        return None
    clause = re.split(r"[，。,.;；:：\n]", text[: verb.start()])[-1]
    return larger if not steps else 0 if DENIED.search(clause) else 1


def rate_claims(text: str) -> Iterator[Claim]:
    """ "57.8% against 57.3% of 800 questions: better": what so many questions can show."""
    values = [
        Rate(m[i], m.start(i), m.end(i), k)
        for k, m in enumerate(RATE.finditer(text))
        for i in (1, 2)
        if m[i] is not None
    ]
    if len(values) < 2 or not all(0 <= x.share <= 1 for x in values[:2]):
        return
    pair = values[0], values[1]
    better = said_better(text, pair)
    if better is None:
        return
    first, second = pair[better].share, pair[1 - better].share
    asked, said = ASKED.search(text), f"{first:.4g} > {second:.4g}"
    if asked is None:
        yield Claim(said, "open", Text("on how many questions each was measured was not said", "没有说明各用了多少题"))
        return
    n = int(asked[1].replace(",", ""))
    result = rates(first, second, n)
    (low, high), more = result["interval"], result["questions_needed"]
    answer: Answer = "open" if not result["shown"] else "holds" if first > second else "fails"
    show = answer == "open" and more
    yield Claim(
        f"{said} ({n})",
        answer,
        Text(
            f"difference {result['difference']:+.4f}, 95% interval [{low:+.4f}, {high:+.4f}] on {n} questions"
            + (f"; to show it takes {more} questions a side" if show else ""),
            f"差 {result['difference']:+.4f}，{n} 题上的 95% 区间 [{low:+.4f}, {high:+.4f}]"
            + (f"；要看出它每边需要 {more} 题" if show else ""),
        ),
    )

"""Two rates that a note sets beside each other ("57.8% against 57.3% of 800 questions: better"), and what they show."""

from __future__ import annotations

import re
from collections.abc import Iterator

from anygrpo.doctor.arms import rates
from anygrpo.doctor.claims import Answer, Claim
from anygrpo.spoken import Text

NUM = r"[-+]?\d[\d,]*\.?\d*(?:[eE][-+]?\d+)?%?|[-+]?\.\d+%?"


RATE = re.compile(
    r"(?:准确率|正确率|成功率|通过率|得分率|胜率|accuracy|acc|pass@1|success rate)\D{0,12}?(" + NUM + r")(?![\d.])"
    r"(?:\D{0,16}?(?:到|至|和|与|及|->|→|to|and|vs\.?|[,，、;；]\s*(?=(?:方法|模型|方案)?\s*[A-Za-z]\s*(?:为|是|的?只?有|:|：)))"
    r"\s*(?:(?:方法|模型|方案)\s*)?[A-Za-z]?\D{0,12}?(" + NUM + "))?",
    re.I,
)
ASKED = re.compile(
    r"(?<![\d.])(\d[\d,]*)\s*[道个条]?\s*(?:题|问题|(?:测试)?样本|questions|problems|prompts|examples)", re.I
)
BETTER = re.compile("更好|优于|好于|胜过|更高|高于|领先" r"|" "better|outperform|higher", re.I)
ROSE = re.compile("提升|提高|改进|上升|涨|增加" r"|" "improve|rose|gain", re.I)


def said_of(text: str, better: re.Match[str], values: list[tuple[str, int]]) -> int:
    """Which of two rates is called the better one: that whose words come again before the verb; else the larger."""
    before = re.split(r"[，。,.;；\n]", text[: better.start()])[-1].strip()
    subject = re.sub(r"(?:明显|显著|比\S*|is|was|clearly|significantly)\s*$", "", before, flags=re.I).strip()
    second = text.find(values[1][0], values[0][1] + 1 + len(values[0][0]))
    owners = text[: values[0][1]], text[values[0][1] : second]
    near = [bool(subject) and subject[:12].lower() in re.split(r"[。；;\n]", o)[-1].lower() for o in owners]
    if near[0] != near[1]:
        return near.index(True)
    numbers = [float(x.rstrip("%").replace(",", "")) for x, _ in values[:2]]
    return int(numbers[1] > numbers[0])


def rate_claims(text: str) -> Iterator[Claim]:
    """ "57.8% against 57.3% of 800 questions: better": what so many questions can show."""
    values = [(x, m.start()) for m in RATE.finditer(text) for x in m.groups() if x]
    better, rose = BETTER.search(text), ROSE.search(text)
    if len(values) < 2 or not (better or rose):
        return
    numbers = [float(x.rstrip("%").replace(",", "")) for x, _ in values[:2]]
    shares = [x / 100 if "%" in raw or x > 1 else x for x, (raw, _) in zip(numbers, values)]
    if not all(0 <= x <= 1 for x in shares):
        return
    later = rose is not None and values[0][1] == values[1][1]  # "from .. to ..": the second is said to be the better
    first, second = shares[::-1] if later or not better else shares
    if better:  # "B is better than A": which of the two rates is B's; where that is not told, nothing is refuted
        first, second = shares if said_of(text, better, values) == 0 else shares[::-1]
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

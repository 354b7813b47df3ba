"""What answers with a high advantage share against those with a low one, and what drifts. Nothing leaves the machine.

Each difference is a mean over answers inside their own groups, with the standard error of that mean: prompts differ in
difficulty, so answers are compared with others to the same prompt only.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from anygrpo.doctor.log import CONTROL
from anygrpo.doctor.samples import Sample
from anygrpo.doctor.series import mean, std
from anygrpo.spoken import say

REFUSAL = re.compile(r"\bI (?:cannot|can't|am unable|won't)\b|as an AI|无法回答|抱歉，我|作为一个AI", re.I)
GAMING = re.compile(
    r"sys\.exit|os\._exit|__eq__|unittest\.mock|assert True|pytest\.skip|except:\s*pass|if __name__ == .test", re.I
)


@dataclass
class Difference:
    """A property of answers, and how it differs between high and low ones of one prompt.

    Attributes:
        high, low: its mean among the better and the worse half of each group.
        z: the difference of those in standard errors over the groups.
        quotes: three answers that show it.
    """

    name: str
    high: float
    low: float
    z: float
    quotes: list[str] = field(default_factory=list[str])


@dataclass
class Study:
    """What was found in the answers."""

    answers: int
    groups: int
    differences: list[Difference]
    drifts: dict[str, tuple[float, float, float]]
    duplicates: float
    against_truth: dict[str, float]

    def as_dict(self) -> dict[str, Any]:
        """Plain data: differences strongest first; each is "likely" from 4 standard errors on, else "ask"."""
        return {
            "answers": self.answers,
            "groups": self.groups,
            "duplicates": self.duplicates,
            "differences": [vars(d) | {"certainty": certainty(d.z)} for d in self.differences],
            "drift": {
                k: {"first": a, "last": b, "z": z, "certainty": certainty(z)} for k, (a, b, z) in self.drifts.items()
            },
            "score_of_right_and_wrong": self.against_truth,
        }


def certainty(z: float) -> str:
    return "likely" if abs(z) >= 4 else "ask"


PROPERTIES: dict[str, Callable[[Sample], float]] = {
    "length in characters": lambda s: float(len(s.text)),
    "share of repeated words": lambda s: repetition(s.text),
    "share of non-Latin letters": lambda s: foreign(s.text),
    "refusals": lambda s: float(bool(REFUSAL.search(s.text))),
    "copied from the prompt": lambda s: copied(s),
    "attempts on the test": lambda s: float(bool(GAMING.search(s.text))),
    "boxed or tagged answer": lambda s: float(bool(re.search(r"\\boxed|<answer>|####", s.text))),
    "code blocks": lambda s: float("```" in s.text),
    "lists": lambda s: float(bool(re.search(r"^\s*(?:[-*]|\d+\.)\s", s.text, re.M))),
    "ends in a full stop": lambda s: float(s.text.rstrip().endswith((".", "。", "!", "？", "?"))),
}


def repetition(text: str) -> float:
    words = text.split()
    return 1 - len(set(words)) / len(words) if len(words) > 4 else 0.0


def foreign(text: str) -> float:
    letters = [c for c in text[:4000] if c.isalpha()]
    return mean([float("LATIN" not in unicodedata.name(c, "LATIN")) for c in letters]) if letters else 0.0


def copied(s: Sample, width: int = 5) -> float:
    """Share of the answer's five-word runs that stand in the prompt."""
    words = s.text.split()
    runs = [" ".join(words[i : i + width]) for i in range(len(words) - width + 1)]
    return mean([float(run in s.prompt) for run in runs[:400]]) if runs else 0.0


def study(samples: list[Sample]) -> Study:
    """Compare answers inside their groups (same step and prompt), and the last quarter of steps with the first."""
    groups: dict[tuple[float, str], list[Sample]] = {}
    for s in samples:
        groups.setdefault((s.step, s.prompt), []).append(s)
    split = [halves(group) for group in groups.values()]
    pairs = [pair for pair in split if pair]
    properties = PROPERTIES | phrases(pairs)
    found = [d for name, measure in properties.items() if (d := difference(name, measure, pairs))]
    same = sum(n - 1 for group in groups.values() for n in Counter(s.text for s in group).values())
    return Study(
        len(samples),
        len(groups),
        sorted(found, key=lambda d: -abs(d.z))[:8],
        drifts(samples),
        same / len(samples),
        truth_of(samples),
    )


def halves(group: list[Sample]) -> tuple[list[Sample], list[Sample]] | None:
    """(better, worse) of a group that has both, split at its mean score."""
    centre = mean([s.score for s in group])
    better, worse = [s for s in group if s.score > centre + 1e-9], [s for s in group if s.score < centre - 1e-9]
    return (better, worse) if better and worse else None


def difference(
    name: str, measure: Callable[[Sample], float], pairs: list[tuple[list[Sample], list[Sample]]]
) -> Difference | None:
    """The mean within-group difference, from 2 standard errors on."""
    rows = [(mean([measure(s) for s in a]), mean([measure(s) for s in b])) for a, b in pairs]
    gaps = [a - b for a, b in rows]
    spread = max(std(gaps), 0.1 * abs(mean(gaps)))  # a property that never fails has no spread, and is no less sure
    if len(gaps) < 4 or spread == 0:
        return None
    z = mean(gaps) / (spread / math.sqrt(len(gaps)))
    if abs(z) < 2:
        return None
    side = 0 if z > 0 else 1
    shown = sorted((s for pair in pairs for s in pair[side]), key=measure, reverse=True)[:3]
    return Difference(name, mean([a for a, _ in rows]), mean([b for _, b in rows]), z, [quote(s.text) for s in shown])


def quote(text: str, most: int = 160) -> str:
    short = CONTROL.sub(" ", text).strip()
    return short if len(short) <= most else short[: most // 2] + " … " + short[-most // 2 :]


def phrases(pairs: list[tuple[list[Sample], list[Sample]]], most: int = 12) -> dict[str, Callable[[Sample], float]]:
    """Three-word phrases that are commonest in better against worse answers, as properties to be tested."""
    up: Counter[str] = Counter()
    for better, worse in pairs[:400]:
        for side, sign in ((better, 1), (worse, -1)):
            for s in side[:4]:
                for phrase in {" ".join(w) for w in zip(*(s.text.split()[i:300] for i in range(3)))}:
                    up[phrase] += sign
    ranked = [p for p, n in up.most_common(most) if n >= 4] + [
        p for p, n in up.most_common()[: -most - 1 : -1] if n <= -4
    ]
    return {f'the phrase "{p}"': (lambda s, p=p: float(p in s.text)) for p in ranked}


def drifts(samples: list[Sample]) -> dict[str, tuple[float, float, float]]:
    """Properties that changed between the first and the last quarter of the steps: (first, last, standard errors)."""
    steps = sorted({s.step for s in samples})
    if len(steps) < 4:
        return {}
    early, late = set(steps[: len(steps) // 4]), set(steps[-(len(steps) // 4) :])
    out: dict[str, tuple[float, float, float]] = {}
    for name, measure in PROPERTIES.items():
        a, b = ([measure(s) for s in samples if s.step in part] for part in (early, late))
        error = math.sqrt(std(a) ** 2 / len(a) + std(b) ** 2 / len(b))
        if error > 0 and abs(mean(b) - mean(a)) > 3 * error:
            out[name] = (mean(a), mean(b), (mean(b) - mean(a)) / error)
    return out


def truth_of(samples: list[Sample]) -> dict[str, float]:
    """Mean score of right and of wrong answers, where the truth is there: a reward that pays wrong ones is a hack."""
    known = [s for s in samples if s.right is not None]
    sides = {"right": [s.score for s in known if s.right], "wrong": [s.score for s in known if not s.right]}
    return {name: mean(scores) for name, scores in sides.items() if scores}


def text_of(found: Study, lang: str = "en") -> str:
    """The study as lines of text."""
    head = say(
        f"{found.answers} answers in {found.groups} groups; repeated inside a group: {found.duplicates:.1%}",
        f"{found.answers} 条回答，{found.groups} 组；组内重复 {found.duplicates:.1%}",
        lang,
    )
    out = [head]
    word = {"likely": say("likely", "很可能", lang), "ask": say("ask", "需再测", lang)}
    for d in found.differences:
        pair = say(f"high {d.high:.3g}, low {d.low:.3g}", f"高分 {d.high:.3g}，低分 {d.low:.3g}", lang)
        out.append(f"[{word[certainty(d.z)]}] {d.name}: {pair} ({d.z:+.1f} se)")
        out += [f"    > {q}" for q in d.quotes]
    for name, (a, b, z) in found.drifts.items():
        out.append(
            f"[{word[certainty(z)]}] {say('over time', '随时间', lang)}: {name} {a:.3g} -> {b:.3g} ({z:+.1f} se)"
        )
    if found.against_truth:
        out.append(
            say("mean score of right and wrong answers: ", "对错各自的平均得分：", lang) + str(found.against_truth)
        )
    return "\n".join(out)

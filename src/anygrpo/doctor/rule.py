"""Rules as data: a causal place, the metrics it needs, what it explains, its words, and one small function.

A rule is one file in `rules/`, called after its id. It holds the function under `@rule(...)`, `WORDS` in both
languages, and `fires` and `silent`: a log on which it must speak and the look-alike on which it must not. Nothing else
names it: the folder is looked through, and the causal order, the words, the tests and `doctor --rules` follow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Literal

from anygrpo.doctor.columns import Columns
from anygrpo.doctor.findings import Certainty, Change, Fact, Finding, Severity
from anygrpo.spoken import Text

Result = Finding | Iterable[Finding] | None
Live = Literal["usual", "at_once", "patient", "never"]

STAGES = (
    "log", "scoring", "answers", "reward", "groups", "advantages", "step", "drift", "entropy", "aim", "outcome",
    "facts",
)  # fmt: skip
"""The causal order: what stands in an earlier stage comes before, and may explain, what stands in a later one."""


@dataclass(frozen=True)
class Rule:
    """One line of the doctor's book.

    Attributes:
        stage: its place in the causal order; `order` sorts within the stage.
        certainty: what kind of statement it makes.
        needs: canonical metrics it cannot do without ("reward/mean|reward/std": either).
        trend: needs enough rows (a log too short gets a refusal instead).
        explains: rules that follow from this one and are demoted when it holds.
        replaces: rules that say the same less exactly; dropped when this one weighs.
        live: beside a running loop: "at_once" from a single row, "patient" (the absence of something), "never".
        experiment: key of `experiments.EXPERIMENTS` that decides a suspicion of it; "" where none does.
        words: title, evidence, cause, prescription, principle, unlike, and "evidence:VARIANT" and so on.
    """

    id: str
    stage: str
    order: int
    certainty: Certainty
    needs: tuple[str, ...]
    trend: bool
    explains: tuple[str, ...]
    replaces: tuple[str, ...]
    live: Live
    check: Callable[[Columns], Result]
    experiment: str = ""
    words: dict[str, Text] = field(default_factory=dict[str, Text])

    @property
    def place(self) -> tuple[int, int]:
        return STAGES.index(self.stage), self.order

    def observable(self, run: Columns) -> bool:
        return all(any(run.get(name) for name in need.split("|")) for need in self.needs)

    def apply(self, run: Columns) -> list[Finding]:
        result = self.check(run)
        if result is None:
            return []
        return [result] if isinstance(result, Finding) else list(result)


RULES: dict[str, Rule] = {}
"""id -> rule, in causal order once `anygrpo.doctor.rules` is imported."""


def rule(
    *,
    stage: str,
    order: int,
    certainty: Certainty,
    needs: tuple[str, ...] = (),
    trend: bool = False,
    explains: tuple[str, ...] = (),
    replaces: tuple[str, ...] = (),
    live: Live = "usual",
    experiment: str = "",
) -> Callable[[Callable[[Columns], Result]], Callable[[Columns], Result]]:
    """Register a function as the rule of its own name, with the `WORDS` of its module."""
    assert stage in STAGES, f"{stage!r} is no stage of the causal order: {', '.join(STAGES)}"

    def register(check: Callable[[Columns], Result]) -> Callable[[Columns], Result]:
        words: dict[str, Text] = check.__globals__["WORDS"]
        id = check.__name__
        RULES[id] = Rule(id, stage, order, certainty, needs, trend, explains, replaces, live, check, experiment, words)
        return check

    return register


def finding(
    id: str,
    severity: Severity,
    rows: Iterable[int] = (),
    *,
    variant: str = "",
    certainty: Certainty | None = None,
    changes: tuple[Change, ...] = (),
    metrics: tuple[str, ...] = (),
    explains: tuple[str, ...] = (),
    **facts: Fact,
) -> Finding:
    """A finding of a registered rule, with its certainty unless another is given. `metrics`: curves that show it."""
    return Finding(
        id,
        certainty or RULES[id].certainty,
        severity,
        tuple(rows),
        facts,
        variant,
        changes,
        metrics=metrics,
        explains=explains,
    )

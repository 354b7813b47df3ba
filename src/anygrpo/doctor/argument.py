"""What an autopsy collects while it argues."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from anygrpo.doctor.findings import Certainty, Fact, Finding, Severity
from anygrpo.doctor.printed import Measured

if TYPE_CHECKING:
    from anygrpo.doctor.claims import Claim


OTHER_SCALE = re.compile(
    r"整批|(?:批次?内?|全局|滑动)的?(?:标准差|归一化|标准化)|分量[^，。\n]{0,6}归一|不(?:再)?除(?:以)?(?:组内)?(?:标准差|std)|只减"
    r"|(?:std|normali[sz]ed) (?:of|over|across|by|with|within) the (?:whole |entire )?(?:mini)?-?batch"
    r"|(?:batch|global|globally|running)[- ](?:level |wise )?(?:std|statistic|normali)|per[- ]component|component-?wise"
    r"|components? normali|(?:no|without) std|cent(?:re|er)ed only|only cent(?:re|er)ed|gdpo|dr\.?\s?grpo",
    re.I,
)


@dataclass
class Autopsy:
    """What the numbers prove.

    Attributes:
        findings: in the order of the argument.
        inferred: group_size, clamp, beta, live_groups; None where these numbers do not determine it.
        open: keys of `words` "cannot" sentences that apply.
        given: the numbers used.
        unused: names that were given and are not known.
        claims: what was stated, against what follows.
        text: the note around the numbers.
        beta_range: between what the printing of the numbers lets beta lie.
    """

    given: dict[str, Measured]
    normaliser: str | None
    unused: tuple[str, ...] = ()
    findings: list[Finding] = field(default_factory=list[Finding])
    inferred: dict[str, float | int | None] = field(
        default_factory=lambda: dict.fromkeys(("group_size", "clamp", "beta", "live_groups"))
    )
    open: list[str] = field(default_factory=list[str])
    claims: list[Claim] = field(default_factory=lambda: [])
    text: str = ""
    beta_range: tuple[float, float] | None = None

    @property
    def other_scale(self) -> bool:
        """Whether the note says that advantages are scaled by something else than the group's own std."""
        return OTHER_SCALE.search(self.text) is not None

    def say(self, rule: str, severity: Severity, variant: str, certainty: Certainty = "certain", **facts: Fact) -> None:
        self.findings.append(Finding(rule, certainty, severity, (), facts, variant))

"""The same rules beside a training loop, at a bounded cost."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from anygrpo.doctor.columns import Columns, build
from anygrpo.doctor.diagnose import Diagnosis, judge
from anygrpo.doctor.findings import SEVERITIES, Finding
from anygrpo.doctor.log import Log, Row, flatten
from anygrpo.doctor.rules import RULES
from anygrpo.doctor.settings import concepts_of

COUNTED = 10
"""Rows after which an absence that was counted, not inferred, is said."""


class LiveDoctor:
    """Feeds on one flat metrics dict a step and says each finding once, when it becomes true.

    Every row is checked alone by the urgent rules. All rules run again after max(`every`, a tenth of the rows so far),
    so their total cost grows linearly with the rows. Thread-unsafe, pure Python, no torch.

    Args:
        config: settings under any framework's names, or concepts.
        every: least number of rows between two full examinations.
        patience: rows before a missing gain is worth a word.
        keep: rows held; of longer runs every second old row is dropped.
    """

    def __init__(
        self, config: Mapping[str, Any] | None = None, every: int = 10, patience: int = 50, keep: int = 4000
    ) -> None:
        self.settings = concepts_of(dict(config or {}))
        self.every, self.patience, self.keep = every, patience, keep
        self.rows: list[Row] = []
        self.said: dict[str, int] = {}
        self.seen = 0
        self.next_look = every

    def observe(self, row: Mapping[str, Any]) -> list[Finding]:
        """Take one step's metrics; return findings that are new, or have become graver, with this row."""
        flat = flatten(dict(row))
        flat.setdefault("step", float(self.seen + 1))
        self._hold(flat)
        self.seen += 1
        if self.seen >= self.next_look:
            self.next_look = self.seen + max(self.every, self.seen // 10)
            return self.new(list(self.diagnosis().findings))
        alone = build(Log("live", "anygrpo", [flat]), settings=self.settings)
        urgent = [rule for rule in RULES.values() if rule.live == "at_once" and rule.observable(alone)]
        return self.new([f for rule in urgent for f in rule.apply(alone)])

    def state(self) -> dict[str, Any]:
        """What was said and when the next examination is, as plain data; the rows are in the log."""
        return {"said": dict(self.said), "seen": self.seen, "next_look": self.next_look}

    def go_on(self, rows: list[Row], state: Mapping[str, Any]) -> None:
        """Continue as the doctor whose `state` this is, which had seen `rows`."""
        self.said = {str(rule): int(weight) for rule, weight in state["said"].items()}
        self.seen, self.next_look = int(state["seen"]), int(state["next_look"])
        self.rows = []
        for row in rows:
            self._hold(flatten(dict(row)))

    def _hold(self, row: Row) -> None:
        self.rows.append(row)
        if len(self.rows) > self.keep:
            half = self.keep // 2
            self.rows = self.rows[:half:2] + self.rows[half:]

    def run(self) -> Columns:
        return build(Log("live", "anygrpo", self.rows), settings=self.settings)

    def diagnosis(self) -> Diagnosis:
        """Everything that can be said now; what the end of training writes to doctor.json and report.html."""
        return judge(self.run())

    def new(self, findings: list[Finding]) -> list[Finding]:
        out: list[Finding] = []
        for f in findings:
            weight = SEVERITIES.index(f.severity)
            patience = COUNTED if f.certainty == "certain" else self.patience  # counted groups need not be waited for
            live = RULES[f.rule].live
            waiting = live == "never" or (live == "patient" and self.seen < patience)
            if not waiting and self.said.get(f.rule, -1) < weight:
                self.said[f.rule] = weight
                out.append(f)
        return out

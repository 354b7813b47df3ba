"""Each suspicion of a run's diagnosis, its experiment run, and what is known of it after."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from anygrpo.doctor import Finding
from anygrpo.doctor.evidence.progress import progress
from anygrpo.doctor.experiments import EXPERIMENTS, experiment_of, suspicions
from anygrpo.doctor.rules import RULES
from anygrpo.doctor.rules.log_ratio_explosion import TIERS
from anygrpo.errors import AnygrpoError, ConfigError, suggestion
from anygrpo.probes.confirm.forks import two_rates
from anygrpo.probes.confirm.ground import Ground, Trial
from anygrpo.probes.confirm.rewards import gold_and_wrong, then_and_now
from anygrpo.probes.confirm.sampling import cap_doubled, larger_group
from anygrpo.probes.confirm.scale import one_batch
from anygrpo.probes.confirm.scoring import frozen_replay, zero_rate
from anygrpo.spoken import Text, table

Experiment = Callable[[Ground, str, Finding | None], Trial]

RUNS: dict[str, Experiment] = {
    "zero_rate": zero_rate, "frozen_replay": frozen_replay, "gold_and_wrong": gold_and_wrong,
    "then_and_now": then_and_now, "larger_group": larger_group, "cap_doubled": cap_doubled, "two_rates": two_rates,
    "one_batch": one_batch,
}  # fmt: skip
"""Name of an experiment (`doctor.experiments.EXPERIMENTS`) -> what runs it."""


@dataclass(frozen=True)
class Confirmed:
    """A suspicion before and after its experiment.

    Attributes:
        variant: which of the rule's sentences applied.
        before: the certainty with which the log alone said it ("likely" or "ask"; "named": the user suspects it).
        trial: what the experiment showed; its verdict is what is known after.
        seconds: that it took.
    """

    rule: str
    variant: str
    experiment: str
    before: str
    trial: Trial
    seconds: float

    def as_dict(self, lang: str = "en") -> dict[str, Any]:
        words = table(RULES[self.rule].words, lang)
        return {
            "rule": self.rule, "title": words.get(f"title:{self.variant}", words["title"]),
            "experiment": self.experiment,
            "do": EXPERIMENTS[self.experiment].do.said(lang), "before": self.before, "after": self.trial.verdict,
            "evidence": self.trial.say(lang), "seconds": round(self.seconds, 1),
        }  # fmt: skip


def confirm(folder: Path, seconds: float = 60.0, named: Collection[str] = ()) -> list[Confirmed]:
    """Run the experiment of each suspicion of weight, or of the rules named. Nothing in the folder is changed.

    Args:
        folder: a run folder of ours.
        seconds: budget of each experiment, roughly.
        named: rules to try whether the log suspects them or not.

    Raises:
        DataError: no run of ours.
        ConfigError: a rule that does not exist, or that no experiment decides.
    """
    ground = Ground(folder, seconds)
    findings = {f.rule: f for f in ground.diagnosis.findings}
    wanted = [checked(rule) for rule in named] or [f.rule for f in suspicions(ground.diagnosis.findings)]
    return [one(ground, rule, findings.get(rule)) for rule in wanted]


def checked(rule: str) -> str:
    if rule not in RULES:
        raise ConfigError(Text(f"no rule is called {rule!r}", f"没有名为 {rule!r} 的规则"), suggestion(rule, RULES))
    if experiment_of(rule) is None:
        raise ConfigError(
            Text(f"no experiment decides {rule}", f"没有实验能判定 {rule}"),
            Text(
                "`anygrpo doctor --rules --json` names those that have one",
                "`anygrpo doctor --rules --json` 列出有实验的规则",
            ),
        )
    return rule


def one(ground: Ground, rule: str, finding: Finding | None) -> Confirmed:
    """One suspicion tried. An experiment that cannot be run says why and decides nothing."""
    began, name = time.perf_counter(), RULES[rule].experiment
    try:
        trial = by_the_log(ground, rule) or RUNS[name](ground, rule, finding)
    except AnygrpoError as error:
        trial = Trial("undecided", Text("could not be run: {why}", "无法进行：{why}"), {"why": str(error)})
    before = finding.certainty if finding is not None else "named"
    variant = finding.variant if finding is not None else ""
    return Confirmed(rule, variant, name, before, trial, time.perf_counter() - began)


def by_the_log(ground: Ground, rule: str) -> Trial | None:
    """Refuted without an experiment, where the log shows that what is suspected is not there to be explained."""
    p, rate = progress(ground.log), ground.log.get("lr")
    if rule in ("no_learning", "lr_too_small") and p is not None and p.rose:
        text = Text("the reward rose in the log, from {a:.4g} to {b:.4g}", "日志中奖励从 {a:.4g} 升到 {b:.4g}")
        return Trial("refuted", text, {"a": p.reward.first, "b": p.reward.last})
    if rule == "lr_exhausted" and rate and rate.values[-1] > 0.05 * rate.high:
        text = Text("the rate ends at {a:.2g} of at most {b:.2g}", "学习率结束时为 {a:.2g}，最大 {b:.2g}")
        return Trial("refuted", text, {"a": rate.values[-1], "b": rate.high})
    wide = ground.log.get("log_ratio/abs_max")
    if rule == "log_ratio_explosion" and wide and wide.high <= TIERS[-1][0]:
        text = Text("no log-ratio in the log is above {a:.3g}", "日志中没有超过 {a:.3g} 的对数比值")
        return Trial("refuted", text, {"a": wide.high})
    return None

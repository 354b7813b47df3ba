"""All probes on one stage of a recipe."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch

from anygrpo.core.probe_outcome import Outcome, not_applicable
from anygrpo.core.task import Task
from anygrpo.errors import ConfigError, suggestion
from anygrpo.families import family_of, resolve
from anygrpo.probes import attacks, cheats, conformance, groups, idle_settings, learning, parity, payment, rate
from anygrpo.probes.subject import Subject
from anygrpo.recipe.recipe import Recipe
from anygrpo.scratch import Scratch
from anygrpo.spoken import Text
from anygrpo.train.build import new_run
from anygrpo.train.run import Run

Probe = Callable[[Subject], Outcome]

PROBES: dict[str, Probe] = {
    "faults_off": parity.faults_off,
    "ratio_one": parity.ratio_one,
    "replay_parity": parity.replay_parity,
    "markov_bound": parity.markov_bound,
    "z2": parity.z2,
    "time_slices": conformance.time_slices,
    "state_restored": conformance.state_restored,
    "reference_kl": parity.reference_kl,
    "sampling": groups.sampling,
    "truncation": payment.truncation,
    "live_groups": groups.live_groups,
    "components": groups.components,
    "sites": groups.sites,
    "gold_and_wrong": payment.gold_and_wrong,
    "cheats": cheats.cheats,
    "repeatable_reward": payment.repeatable_reward,
    "attacks": attacks.attacks,
    "trainable": learning.trainable,
    "learning_rate": rate.find_rate,
    "steering": learning.steering,
    "gradient_terms": learning.gradient_terms,
    "no_effect": idle_settings.no_effect,
    "equivalent_settings": groups.equivalent_settings,
}
"""In the order of causes: what explains comes before what follows."""

_ASKED_BY_OTHERS = ("replay_parity", "learning_rate")
"""Probes whose outcome others read."""
_OF_THE_WEIGHTS = ("live_groups", "sites", "body", "gradient_terms", "learning_rate")
"""Probes whose outcome depends on what the network has learnt."""
_NEEDS_A_SCORER = ("reference_kl", "learning_rate", "steering", "gradient_terms")
"""Probes that mean nothing while the same rows are scored differently each time."""


@dataclass(frozen=True)
class Report:
    """What `check` returns: the stage looked at, its outcomes in the order of `PROBES`, and the seconds taken."""

    stage: str
    outcomes: list[Outcome]
    seconds: float

    @property
    def serious(self) -> bool:
        return any(o.status == "serious" for o in self.outcomes)


def check(
    recipe: Recipe,
    stage: str | None = None,
    kl_per_update: float = rate.TARGET,
    seconds: float = 60.0,
    task: Task | None = None,
    only: Collection[str] = (),
) -> Report:
    """Probe a recipe; nothing is written, and random state is left as it was.

    Args:
        stage: its name; the first one that samples where not given, else the first.
        kl_per_update: what the recommended learning rate moves in one update, per decision.
        seconds: time the probes may take, roughly: sets how many groups the gradient probes use.
        task: an object in the place of the recipe's task.
        only: names of the probes to run; all where empty.

    Raises:
        ConfigError, DataError: the recipe cannot be built, or has no such stage.
    """
    began = time.perf_counter()
    with torch.random.fork_rng(), temporary_run(recipe, task) as run:
        index = _stage_index(run, stage)
        outcomes = probe_stage(Subject(run, index, seconds), kl_per_update, only)
        return Report(run.stages[index].stage.name, outcomes, time.perf_counter() - began)


def probe_stage(subject: Subject, kl_per_update: float = rate.TARGET, only: Collection[str] = ()) -> list[Outcome]:
    """Every probe in turn, the family's own last; those of `only` where it names some. One that fails by an exception
    is a serious outcome: training would fail there too."""
    every = PROBES | _of_family(subject)
    only = only or tuple(every)
    for name, probe in every.items():
        if name == "learning_rate":
            probe = partial(rate.find_rate, target=kl_per_update)
        if name in only or name in _ASKED_BY_OTHERS:
            subject.outcomes[name] = _before_the_warm_up(_outcome(name, probe, subject), subject)
    return [outcome for name, outcome in subject.outcomes.items() if name in only]


def _before_the_warm_up(outcome: Outcome, subject: Subject) -> Outcome:
    """What an untrained network cannot do yet is no fault of a recipe whose earlier stages would train it: a warning.
    Where the recipe names a model to begin from, it is judged as it is."""
    begin, model = subject.planned.begin, getattr(subject.run.recipe.policy, "model", None)
    if outcome.probe not in _OF_THE_WEIGHTS or outcome.status != "serious" or not begin or model:
        return outcome
    cure = Text(
        "the {before} steps of the stages before this one have not been taken here: train them, then check with "
        "policy.model = their run",
        "本阶段之前各阶段的 {before} 步在此尚未训练：先训练它们，再以 policy.model = 该运行 检查",
    )
    return replace(outcome, status="warning", cure=cure, numbers=outcome.numbers | {"before": begin}, certainty="ask")


def _of_family(subject: Subject) -> dict[str, Probe]:
    """Probes of its own that the family of the recipe's policy brings."""
    family = family_of(subject.run.recipe.policy.kind)
    named = family.probes if family else {}
    return {name: resolve(text) for name, text in named.items() if name not in PROBES}


def _outcome(name: str, probe: Probe, subject: Subject) -> Outcome:
    random_scorer = subject.outcomes.get("replay_parity")
    if name in _NEEDS_A_SCORER and random_scorer is not None and random_scorer.status == "serious":
        return not_applicable(
            name, Text("mend replay_parity first: scores are random", "先解决 replay_parity：打分是随机的")
        )
    try:
        return probe(subject)
    except Exception as error:
        text = Text("this probe failed: {error}", "该检查失败：{error}")
        return Outcome(name, "serious", text, numbers={"error": f"{type(error).__name__}: {error}"})


@contextmanager
def temporary_run(recipe: Recipe, task: Task | None = None) -> Iterator[Run]:
    """The recipe's run in a folder that goes afterwards, without trackers."""
    with Scratch("check") as folder:
        quiet: dict[str, Any] = {"sinks": (), "samples_every": 0}
        training = recipe.training.model_copy(update=quiet)
        changed = recipe.model_copy(update={"folder": str(folder / "run"), "training": training})
        run = new_run(changed, task=task)
        try:
            yield run
        finally:
            run.close()


def _stage_index(run: Run, name: str | None) -> int:
    names = [planned.stage.name for planned in run.stages]
    if name is None:
        return next((i for i, planned in enumerate(run.stages) if planned.stage.source == "policy"), 0)
    if name not in names:
        raise ConfigError(Text(f"the recipe has no stage {name!r}", f"配方没有阶段 {name!r}"), suggestion(name, names))
    return names.index(name)

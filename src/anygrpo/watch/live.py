"""What stands beside a training run: the doctor while it runs, the report when it ends."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from anygrpo.doctor import Diagnosis, Finding, LiveDoctor, diagnose_log, read
from anygrpo.doctor.words import tell
from anygrpo.spoken import say
from anygrpo.train import checkpoint, schema, snapshot
from anygrpo.train.folder import read_rows
from anygrpo.train.run import Run
from anygrpo.train.stages import Controls
from anygrpo.watch.acting import REMEDIES, TIERS_CLIP, Actor
from anygrpo.watch.levers import Setting, ShadowLevers

COST = 0.01
"""Largest share of the run's time that the doctor may take; it looks less often before it takes more."""


class RunLevers:
    """The doctor's levers on one of our own runs."""

    def __init__(self, run: Run) -> None:
        self.run, self.went_back_to = run, 0

    def in_force(self) -> Setting:
        return Setting(**asdict(self.run.controls))

    def turn(self, setting: Setting) -> None:
        self.run.controls = Controls(
            learning_rate=setting.learning_rate,
            beta=setting.beta,
            beta_at_least=setting.beta_at_least,
            clip=setting.clip,
        )

    def roll_back(self, step: int) -> str | None:
        """To the newest sound checkpoint that was made before `step` was over."""
        folder = self.run.folder.checkpoints
        candidates = [p for p in (*checkpoint.complete(folder), folder / "best") if checkpoint.is_complete(p)]
        early = [(checkpoint.step_of(p), p) for p in candidates if checkpoint.step_of(p) <= step + 1]
        if not early:
            return None
        self.went_back_to, chosen = max(early, key=lambda pair: pair[0])
        self.run.roll_back_to(chosen)
        return chosen.name

    def stop(self, reason: str) -> None:
        self.run.stop(f"the doctor: {reason}")


class LiveWatch:
    """An observer of a run: says each finding once, acts where it may, and keeps its own cost in bounds.

    Attributes:
        doctor: the rules, fed with each row.
        actor: None unless the recipe lets the doctor act, or say what it would do.
        acted: who acted before a resume in a mode that pulls no lever; None where nobody did, or `actor` acts itself.
        seconds, step_seconds: the time taken by the doctor, and by the steps it watched.
        broken: why it stopped looking, should it fail itself.
    """

    def __init__(self, run: Run) -> None:
        config = run.recipe.doctor
        self.language = config.language
        self.doctor = LiveDoctor(_settings(run), every=config.every)
        self.levers = RunLevers(run)
        unit = run.policy.clip.high / TIERS_CLIP
        self.shadow = config.mode == "shadow"
        levers = ShadowLevers() if self.shadow else self.levers
        acts = config.mode in ("act", "shadow")
        self.actor = Actor(levers, config.max_actions, unit=unit) if acts else None
        self.acted: Actor | None = None
        self.seconds = self.step_seconds = 0.0
        self.broken = ""
        self._waiting: list[dict[str, Any]] = []
        self._dearest = 0.0

    def __call__(self, row: dict[str, Any], run: Run) -> None:
        """Look at a step. The doctor's own failure is reported once and never ends a training run."""
        if self.broken:
            return
        began = time.perf_counter()
        try:
            self._look(row, run)
        except Exception as error:
            self.broken = f"{type(error).__name__}: {error}"
            self._tell(run, f"the live doctor failed and is off from here on: {self.broken}")
        run.watched = self.state()
        taken = time.perf_counter() - began
        self.seconds, self._dearest = self.seconds + taken, max(self._dearest, taken)

    def state(self) -> dict[str, Any]:
        """What a resumed run's watch goes on from, as plain data."""
        return {
            "doctor": self.doctor.state(),
            "waiting": len(self._waiting),
            "seconds": [self.seconds, self.step_seconds, self._dearest],
            "actor": None if self.actor is None else self.actor.state(),
            "shadow": self.shadow,
            "acted": None if self.acted is None else self.acted.state(),
        }

    def load(self, state: dict[str, Any], rows: list[dict[str, Any]]) -> None:
        """Go on as the watch whose `state` this is; `rows`: those that the run has logged so far."""
        seen = max(len(rows) - int(state["waiting"]), 0)
        self.doctor.go_on(rows[:seen], state["doctor"])
        self._waiting = rows[seen:]
        self.seconds, self.step_seconds, self._dearest = map(float, state["seconds"])
        self._go_on_acting(state["actor"], state.get("shadow"), state.get("acted"))

    def _go_on_acting(self, known: dict[str, Any] | None, shadow: bool | None, acted: dict[str, Any] | None) -> None:
        """Only what was done counts as done: a shadow's acts are none, and none of its own are what the run did.

        Args:
            known: the state of the actor that there was, of a shadow where `shadow`. None of an older checkpoint: it
                does not say, and nothing is taken for done but what is in force.
            acted: the state of who acted before that.
        """
        done = known if shadow is False and known is not None else acted
        if done is not None:
            self.acted = Actor(ShadowLevers(), self.levers.run.recipe.doctor.max_actions)
            self.acted.load(done)
        if self.actor is None:
            return
        seen = done if known is None else known
        if seen is not None:
            self.actor.load(seen)
        if known is None or shadow is not self.shadow:
            self.actor.answers_for(None if self.shadow else self.acted, self.levers.in_force())
        if not self.shadow:
            self.acted = None

    def _look(self, row: dict[str, Any], run: Run) -> None:
        self.step_seconds += float(row.get("time/step", 0.0))
        if row.get("step", 0) >= 0:
            self._waiting.append(row)
        findings: list[Finding] = []
        if self._affordable():
            findings = [f for waiting in self._waiting for f in self.doctor.observe(waiting)]
            self._waiting = []
        for finding in findings:
            if finding.severity != "info":
                self._say(finding, run)
        if self.actor is not None and row.get("step", 0) >= 0:
            self._act(row, findings, run)

    def _affordable(self) -> bool:
        """Whether one more look, at the price of the dearest so far, keeps the doctor under its share of the time. Rows
        before the first full look are checked one by one, which costs next to nothing."""
        early = self.doctor.seen < self.doctor.every - 1 and not self._waiting[1:]
        return early or self.seconds + self._dearest <= COST * self.step_seconds

    def _say(self, finding: Finding, run: Run) -> None:
        told = tell(finding, self.doctor.run(), self.language)
        text = f"doctor: {told.title} [{finding.rule}, {finding.certainty}] {told.evidence} -> {told.prescription}"
        self._tell(run, text)

    def _act(self, row: dict[str, Any], findings: list[Finding], run: Run) -> None:
        assert self.actor is not None
        own = [f for f in findings if f.rule in REMEDIES or f.rule == "log_ratio_explosion"]  # others begin elsewhere
        action = self.actor.consider(row, findings, self._first_step(own))
        if action is None:
            return
        self._tell(run, f"would have: {action.text()}" if self.shadow else action.text())
        if action.kind == "roll_back":  # those steps are taken again: what was logged of them is no longer this run's
            self.doctor.said.pop(action.rule, None)  # should it come back, it is said again
            kept = lambda rows: [r for r in rows if r["step"] < self.levers.went_back_to]  # noqa: E731
            self.doctor.rows, self._waiting = kept(self.doctor.rows), kept(self._waiting)

    @staticmethod
    def _tell(run: Run, text: str) -> None:
        print(text, file=sys.stderr, flush=True)
        run.folder.log(text)

    def _first_step(self, findings: list[Finding]) -> int | None:
        """The step of the earliest row that any of these findings names."""
        rows = [r for f in findings for r in f.rows]
        steps = [row.get("step") for row in self.doctor.rows]
        return int(steps[min(rows) - 1]) if rows and min(rows) <= len(steps) else None  # type: ignore[arg-type]

    def as_dict(self, diagnosis: Diagnosis) -> dict[str, Any]:
        """doctor.json: the schema of `anygrpo doctor --json`, what was done, and what the watching cost."""
        from anygrpo.doctor.render.as_json import as_json

        actions = [] if self.actor is None else [a.as_dict() for a in self.actor.actions]
        share = self.seconds / self.step_seconds if self.step_seconds else 0.0
        cost = {"seconds": round(self.seconds, 3), "share_of_step": round(share, 5)}
        extra = {"actions": actions, "shadow": self.shadow, "cost": cost} | (
            {"failed": self.broken} if self.broken else {}
        )
        if self.acted is not None:
            in_force = asdict(self.levers.in_force())
            extra |= {"acted": [a.as_dict() for a in self.acted.actions], "in_force": in_force}
        return as_json(diagnosis, self.language) | extra


def attach_doctor(run: Run) -> LiveWatch | None:
    """Observe the run with the live doctor, in the mode its recipe says. None where it is off.

    In mode "act" the state at the start is saved first, so that there is always somewhere to go back to. Of a resumed
    run it goes on with what it knew, had done and may still do.

    Raises:
        DataError: what the checkpoint holds of it is no such thing.
    """
    if run.recipe.doctor.mode != "act":
        _tell_what_holds(run)
    if run.recipe.doctor.mode == "off":
        return None
    watch = LiveWatch(run)
    if run.watched:  # resumed
        rows = read_rows(run.folder.metrics)[0] if run.folder.metrics.is_file() else []
        with schema.fitting(run.folder.checkpoints):
            watch.load(run.watched, [row for row in rows if row.get("step", 0) >= 0])
    run.observers.append(watch)
    if watch.actor is not None and not watch.shadow and not checkpoint.complete(run.folder.checkpoints):
        snapshot.save(run)
    return watch


def _tell_what_holds(run: Run) -> None:
    """What an acting doctor has set stays in force in the other modes, and nothing takes it back."""
    own = asdict(Setting())
    if turned := [f"{name} {value:g}" for name, value in asdict(run.controls).items() if value != own[name]]:
        listed = ", ".join(turned)
        LiveWatch._tell(
            run,
            say(
                f"doctor: what it set while it acted stays in force: {listed}; only mode act takes it back",
                f"诊断器：先前自动执行时的设置仍然有效：{listed}；只有 act 模式会撤回",
            ),
        )


def finish(run: Run, doctor: LiveWatch | None) -> None:
    """doctor.json and report.html in the run folder; a run that logged nothing gets neither."""
    folder = run.folder.path
    if doctor is None or not run.folder.metrics.is_file() or not run.folder.metrics.stat().st_size:
        return
    diagnosis = diagnose_log(read(str(folder)))
    (folder / "doctor.json").write_text(_json(doctor.as_dict(diagnosis)), encoding="utf-8")
    from anygrpo.report import write_report

    write_report(folder, folder / "report.html", doctor.language)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2)


def _settings(run: Run) -> dict[str, Any]:
    """The recipe's settings as the doctor reads them from a run folder."""
    from anygrpo.doctor.configs import read_settings

    return read_settings(str(Path(run.folder.path) / "config.toml"))

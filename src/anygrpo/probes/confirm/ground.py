"""What experiments stand on: a run folder's recipe, log and weights. Nothing in the folder is changed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import torch

from anygrpo.doctor import Diagnosis, Finding, diagnose_log, read
from anygrpo.doctor.columns import Columns
from anygrpo.errors import DataError
from anygrpo.probes.subject import Subject
from anygrpo.recipe.load import load_recipe
from anygrpo.recipe.recipe import Recipe
from anygrpo.scratch import Scratch
from anygrpo.spoken import Text
from anygrpo.train import checkpoint, snapshot
from anygrpo.train.build import new_run
from anygrpo.train.loop import train
from anygrpo.train.run import Run

Verdict = Literal["confirmed", "refuted", "undecided"]


@dataclass(frozen=True)
class Trial:
    """What an experiment showed: its verdict on the suspicion, a sentence in both languages, and the numbers in it."""

    verdict: Verdict
    sentence: Text
    numbers: dict[str, Any] = field(default_factory=dict[str, Any])

    def say(self, lang: str) -> str:
        return self.sentence.said(lang).format(**self.numbers)


class Ground:
    """A run folder.

    Args:
        folder: with config.toml and metrics.jsonl.
        seconds: budget of one experiment, roughly.

    Raises:
        DataError: it is no run of ours.
    """

    def __init__(self, folder: Path, seconds: float) -> None:
        if not (folder / "config.toml").is_file():
            raise DataError(
                Text(f"{folder} is no run of anygrpo", f"{folder} 不是 anygrpo 的运行"),
                Text("--confirm needs its config.toml and checkpoints", "--confirm 需要它的 config.toml 和检查点"),
            )
        self.folder, self.seconds = folder, seconds
        self.recipe: Recipe = load_recipe(folder / "config.toml")

    @cached_property
    def diagnosis(self) -> Diagnosis:
        return diagnose_log(read(str(self.folder)))

    @property
    def log(self) -> Columns:
        return self.diagnosis.run

    @cached_property
    def newest(self) -> Path | None:
        folder = self.folder / "checkpoints"
        return checkpoint.newest(folder) if folder.is_dir() else None

    @property
    def best(self) -> Path | None:
        found = self.folder / "checkpoints" / "best"
        return found if checkpoint.is_complete(found) else None

    def before(self, step: float) -> Path | None:
        """The newest checkpoint of before `step`; None: the start."""
        folder = self.folder / "checkpoints"
        early = [p for p in checkpoint.complete(folder) if checkpoint.step_of(p) < step] if folder.is_dir() else []
        return max(early, key=checkpoint.step_of) if early else None

    def changed(self, section: str, **values: Any) -> Recipe:
        """The recipe with some numbers of one section replaced, for all stages."""
        table = getattr(self.recipe, section).model_copy(update=values)
        return self.recipe.model_copy(update={section: table})

    @contextmanager
    def run(self, at: Path | None = None, recipe: Recipe | None = None) -> Iterator[Run]:
        """A copy of the run in a folder that goes afterwards: at its start, or as a checkpoint holds it."""
        recipe = recipe or self.recipe
        with torch.random.fork_rng(), Scratch("confirm") as folder:
            quiet: dict[str, Any] = {"sinks": (), "samples_every": 0, "checkpoint_every": 10**9}
            training = recipe.training.model_copy(update=quiet)
            run = new_run(recipe.model_copy(update={"folder": str(folder / "run"), "training": training}))
            try:
                if at is not None:
                    snapshot.restore(run, at)
                yield run
            finally:
                run.close()

    @contextmanager
    def subject(self, at: Path | None = None, recipe: Recipe | None = None) -> Iterator[Subject]:
        """What probes look at: the first stage that samples, with the weights of the start or of a checkpoint."""
        with self.run(at, recipe) as run:
            yield subject_of(run, self.seconds)

    def fork(
        self, at: Path | None, steps: int, rate: float = 1.0, beta: float = 1.0, recipe: Recipe | None = None
    ) -> list[dict[str, Any]]:
        """The rows of `steps` steps from there, with the learning rate and beta times a factor and the same seeds."""
        rows: list[dict[str, Any]] = []
        with self.run(at, recipe) as run:
            run.controls.learning_rate, run.controls.beta = rate, beta
            end = run.step + steps

            def note(row: dict[str, Any], own: Run) -> None:
                rows.append(row)
                if row["step"] + 1 >= end:
                    own.stop("the fork is long enough")

            run.observers.append(note)
            train(run)
        return rows

    def seconds_per_step(self) -> float:
        time = self.log.get("time/step")
        return max(time.median, 1e-3) if time else 1.0

    def first_row(self, finding: Finding | None) -> float:
        """The step of the first row that decides a finding; 0 where none does."""
        if finding is None or not finding.rows:
            return 0.0
        row = min(finding.rows)
        return self.log.steps.get(row, float(row))


def subject_of(run: Run, seconds: float) -> Subject:
    """The stage to look at: the one that the run stands in, where that one samples; else the first that does."""
    sampling = [i for i, planned in enumerate(run.stages) if planned.stage.source == "policy"]
    here = [i for i in sampling if run.stages[i].begin <= run.step - 1 < run.stages[i].end]
    return Subject(run, (here or sampling or [0])[0], seconds)

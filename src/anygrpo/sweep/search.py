"""Search over a recipe's settings: optuna on SQLite, resumable, pruned by validation, with intervals at the end.

Several processes may work on one folder at the same time: start the same command again. A trial whose process died is
noticed by its missing heartbeat and tried once more.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError, model_validator

from anygrpo.errors import AnygrpoError, ConfigError, DataError
from anygrpo.files import read_toml
from anygrpo.recipe.load import apply_flags, parse_recipe
from anygrpo.recipe.recipe import Recipe
from anygrpo.recipe.refusals import readable
from anygrpo.recipe.section import Section
from anygrpo.spoken import Text
from anygrpo.sweep.results import Result, results, trial_folder
from anygrpo.train.build import new_run
from anygrpo.train.loop import train
from anygrpo.train.places import remove
from anygrpo.train.run import Run

_HEARTBEAT = 30  # seconds


class Range(Section):
    """A number between two bounds."""

    low: float
    high: float
    log: bool = False
    "Search the logarithm."
    whole: bool = False
    "Whole numbers only."

    @model_validator(mode="after")
    def _ordered(self) -> Range:
        if self.low >= self.high or (self.log and self.low <= 0):
            raise ValueError(
                Text(
                    f"range from {self.low} to {self.high}" + (" on a log scale" if self.log else ""),
                    f"范围 {self.low} 到 {self.high}" + ("（对数刻度）" if self.log else ""),
                )
            )
        return self


class Space(Section):
    """A space file: settings by their recipe names, each a list of values or a range."""

    trials: int | None = Field(None, ge=1)
    "How many to run; None: the whole grid (lists only), else 20."
    sampler: Literal["tpe", "random", "grid"] = "tpe"
    direction: Literal["maximize", "minimize"] = "maximize"
    metric: str | None = None
    "None: the recipe's evaluation.metric."
    prune: bool = True
    "Stop trials that validate worse than the median of others at the same step."
    settings: dict[str, list[bool | int | float | str] | Range]

    @model_validator(mode="after")
    def _grid_is_finite(self) -> Space:
        ranges = [name for name, choice in self.settings.items() if isinstance(choice, Range)]
        if self.sampler == "grid" and ranges:
            raise ValueError(
                Text(
                    f'sampler = "grid" needs lists of values, but {ranges[0]} is a range',
                    f'sampler = "grid" 需要取值的列表，而 {ranges[0]} 是范围',
                )
            )
        if not self.settings:
            raise ValueError(Text("no settings to search", "没有要搜索的设置"))
        return self

    @property
    def count(self) -> int:
        if self.trials is None and self.sampler == "grid":
            return math.prod(len(c) for c in self.settings.values() if isinstance(c, list))
        return self.trials or 20


def read_space(path: str | Path) -> Space:
    """Read a space file.

    Raises:
        DataError: no such file. ConfigError: not TOML, or a setting that is neither list nor range.
    """
    path = Path(path)
    if not path.is_file():
        raise DataError(
            Text(f"no space at {path}", f"没有搜索空间文件 {path}"),
            Text("recipes/selection/space.toml is an example", "recipes/selection/space.toml 是示例"),
        )
    try:
        return Space.model_validate(read_toml(path))
    except ValidationError as error:
        raise readable(error, Space) from None


def sweep(table: dict[str, Any], space: Space, folder: Path, flags: Sequence[str] = ()) -> list[Result]:
    """Run trials until `space.count` are finished, in this and earlier calls together.

    Args:
        table: the recipe as read from TOML. flags: overrides for every trial.

    Raises:
        ConfigError: a setting that the recipe does not know; found before the first trial.
    """
    import optuna

    recipe = configured(table, {name: _first(choice) for name, choice in space.settings.items()}, flags)
    metric = space.metric or recipe.evaluation.metric
    if recipe.evaluation.smaller_is_better:
        raise ConfigError(
            Text(
                f"a sweep takes larger values of {metric!r} as better, evaluation.smaller_is_better "
                "= true says otherwise",
                f"搜索以较大的 {metric!r} 为好，而 evaluation.smaller_is_better = true 说的是相反",
            ),
            Text("sweep over a metric that grows", "请用越大越好的指标搜索"),
        )
    study = open_study(folder, space)

    def one(trial: optuna.Trial) -> float:
        settings = {name: _suggest(trial, name, choice) for name, choice in space.settings.items()}
        return _trial(trial, configured(table, settings, flags), trial_folder(folder, trial.number), metric)

    def enough(study: optuna.Study, _: Any) -> None:
        if len(_finished(study)) >= space.count:
            study.stop()

    if len(_finished(study)) < space.count:
        study.optimize(one, callbacks=[enough], catch=(AnygrpoError,))
    return results(study, folder)


def open_study(folder: Path, space: Space) -> Any:
    """The study in `folder`/study.db, made if it is not there."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    folder.mkdir(parents=True, exist_ok=True)
    if (folder / "study.db").is_symlink():
        raise DataError(
            Text(
                f"{folder / 'study.db'} is a link: a search writes there",
                f"{folder / 'study.db'} 是链接：搜索会写入其中",
            ),
            Text("remove it, or search in another folder", "请删除它，或换一个文件夹"),
        )
    with warnings.catch_warnings():  # heartbeats have been "experimental" since optuna 2.8
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        storage = optuna.storages.RDBStorage(
            f"sqlite:///{folder / 'study.db'}",
            heartbeat_interval=_HEARTBEAT,
            grace_period=2 * _HEARTBEAT,
            heartbeat_stale_trial_callback=optuna.storages.RetryHeartbeatStaleTrialCallback(max_retry=1),
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)  # constant_liar
        sampler = _sampler(space)
    pruner = optuna.pruners.MedianPruner(n_startup_trials=4) if space.prune else optuna.pruners.NopPruner()
    common: dict[str, Any] = {"storage": storage, "study_name": "sweep", "sampler": sampler, "pruner": pruner}
    try:
        return optuna.create_study(**common, direction=space.direction)
    except (
        optuna.exceptions.DuplicatedStudyError
    ):  # joined or continued: with the same seed it would draw the same again
        sampler.reseed_rng()
        return optuna.load_study(**common)


def _sampler(space: Space) -> Any:
    import optuna

    if space.sampler == "random":
        return optuna.samplers.RandomSampler(seed=0)
    if space.sampler == "grid":
        grid = {name: choice for name, choice in space.settings.items() if isinstance(choice, list)}
        return optuna.samplers.GridSampler(grid, seed=0)
    return optuna.samplers.TPESampler(seed=0, constant_liar=True)  # what other processes run counts as bad


def configured(table: dict[str, Any], settings: dict[str, Any], flags: Sequence[str]) -> Recipe:
    """The recipe with settings (by dotted name) and flags applied and validated."""
    import copy

    fresh = copy.deepcopy(table)
    apply_flags(fresh, flags)
    for name, value in settings.items():
        apply_flags(fresh, [f"--{name}", _toml(value)])
    return parse_recipe(fresh)


def _toml(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else repr(value) if isinstance(value, float) else str(value)


def _first(choice: list[Any] | Range) -> Any:
    if isinstance(choice, list):
        return choice[0]
    return int(choice.low) if choice.whole else choice.low


def _suggest(trial: Any, name: str, choice: list[Any] | Range) -> Any:
    if isinstance(choice, list):
        return trial.suggest_categorical(name, choice)
    if choice.whole:
        return trial.suggest_int(name, int(choice.low), int(choice.high), log=choice.log)
    return trial.suggest_float(name, choice.low, choice.high, log=choice.log)


def _trial(trial: Any, recipe: Recipe, folder: Path, metric: str) -> float:
    """Train one recipe; its best value of the metric. Pruned trials stop at their next evaluation."""
    import optuna

    remove(folder)  # a trial that is tried again begins anew; of a link, in its place, the link alone goes
    run = new_run(recipe.model_copy(update={"folder": str(folder)}))
    sign = 1 if trial.study.direction == optuna.study.StudyDirection.MAXIMIZE else -1
    seen: list[dict[str, float]] = []

    def watch(row: dict[str, Any], run: Run) -> None:
        if metric not in row:
            return
        seen.append(
            {"step": row["step"], "value": row[metric], "n": row.get("eval/prompts", 0), "se": _se(row, metric)}
        )
        trial.report(row[metric], row["step"])
        if trial.should_prune():
            run.stop("pruned: worse than the median of other trials at this step")

    run.observers.append(watch)
    try:
        train(run)
    finally:
        run.close()
    if not seen:
        raise ConfigError(
            Text(f"no evaluation logged {metric!r}", f"没有评测记录 {metric!r}"),
            Text(
                "set evaluation.metric, or `metric` in the space file",
                "请设置 evaluation.metric，或搜索空间文件中的 `metric`",
            ),
        )
    best = max(seen, key=lambda x: sign * x["value"])
    trial.set_user_attr("se", best["se"])
    trial.set_user_attr("n", int(best["n"]))
    trial.set_user_attr("step", int(best["step"]))
    if run.stop_reason and run.stop_reason.startswith("pruned"):
        raise optuna.TrialPruned
    return best["value"]


def _se(row: dict[str, float], metric: str) -> float:
    """Standard error of a held-out mean: logged for the reward, binomial for a share, unknown (0) otherwise."""
    if metric == "eval/reward":
        return row.get("eval/reward_se", 0.0)
    p, n = row[metric], row.get("eval/prompts", 0)
    return math.sqrt(p * (1 - p) / n) if n and 0 <= p <= 1 else 0.0


def _finished(study: Any) -> list[Any]:
    return [t for t in study.trials if t.state.name in ("COMPLETE", "PRUNED")]

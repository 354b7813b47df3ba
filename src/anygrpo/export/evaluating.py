"""`anygrpo evaluate`: a task's held-out measures of any policy that can be opened, with intervals, and pairs."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from anygrpo.core.build import build_task
from anygrpo.core.hub import located
from anygrpo.core.intervals import difference, of_prompts, rate
from anygrpo.core.task import Scores, Task
from anygrpo.errors import ConfigError, DataError
from anygrpo.export.opened import Opened, beside
from anygrpo.export.own import RECIPE
from anygrpo.files import lines_of
from anygrpo.recipe.load import load_recipe
from anygrpo.recipe.recipe import Recipe
from anygrpo.recipe.training import EvaluationConfig
from anygrpo.spoken import Text
from anygrpo.train.evaluation import HELD_OUT, counted, evaluate, faults_of, scored, step_seed, valid_of
from anygrpo.train.passing import pass_at_k, right, success_of

START = Path("evaluations") / "step_00000000.jsonl"
"""A run's evaluation before its first step."""
WHOLE = 2**31
"""More prompts than a file of them holds."""
SEE_TO = Text(
    "see to the judge or the tool; what an offline file does not hold is unknown: `anygrpo select evaluate`",
    "请检查评判或工具；离线文件中没有的内容是未知的：`anygrpo select evaluate`",
)


def recipe_of(runs: list[str], named: str | None) -> Recipe[Any, Any] | None:
    """The recipe whose task is measured and whose settings exports and base models are used with: the one named, else
    that of the first run, or beside the first export."""
    if named:
        return load_recipe(named)
    places = [located(run) for run in runs]
    for place in places:
        for folder in (place, place.parent.parent):
            if (folder / "config.toml").is_file():
                return load_recipe(folder / "config.toml")
    return next(filter(None, (beside(place / RECIPE) for place in places)), None)


def settings_of(
    found: Recipe[Any, Any] | None, task: Task, prompts: int | None, samples: int, k: int | None, whole: bool = False
) -> EvaluationConfig:
    """The recipe's [evaluation], so that the numbers are those that training wrote, with what was asked for besides.

    Args:
        whole: measure all prompts of the task, whatever the recipe says, where `prompts` does not bound them.

    Raises:
        ConfigError: pass@k is asked for and nothing says when an answer is right.
    """
    asked: dict[str, Any] = {"prompts": prompts} if whole or prompts is not None else {}
    asked |= {} if k is None else {"pass_k": k, "pass_samples": max(samples, k)}
    base = EvaluationConfig() if found is None else found.evaluation
    config = EvaluationConfig.model_validate(base.model_dump(exclude_unset=True) | asked)
    if k is not None and success_of(task, config) is None:
        success = '{component = "reward", at_least = 1.0}'
        cure = Text(
            f"set evaluation.success in a recipe for --task, as {success}",
            f"请在 --task 的配方中设 evaluation.success，如 {success}",
        )
        raise ConfigError(
            Text(
                f"--k {k}: nothing says when an answer of {type(task).__name__} is right",
                f"--k {k}：没有说明 {type(task).__name__} 的回答何时算对",
            ),
            cure,
        )
    return config


def task_of(found: Recipe[Any, Any] | None, held_out: str | None, prompts: int | None = None) -> Task:
    """The task of a recipe's last stage, on other held-out prompts where a file of them is given.

    Args:
        held_out: a file, read whole, whatever bound the recipe has for its own.
        prompts: so many at least are read of a file, also of the recipe's own.

    Raises:
        ConfigError: there is no recipe, or its task has no file of held-out prompts.
    """
    if found is None:
        raise ConfigError(
            Text("nothing says on which task to evaluate", "没有说明在哪个任务上评测"), "--task recipe.toml"
        )
    section = found.resolved_stages()[-1].task
    if held_out is not None:
        if "held_out_path" not in type(section).model_fields:
            raise ConfigError(
                Text(
                    f"task.kind = {section.kind!r} has no file of held-out prompts",
                    f"task.kind = {section.kind!r} 没有留出提示的文件",
                ),
                Text("leave --held-out out", "请不要给出 --held-out"),
            )
        section = _with(section, held_out_path=held_out, held_out=prompts or WHOLE)
    elif prompts is not None and getattr(section, "held_out_path", None) is not None:
        section = _with(section, held_out=max(prompts, section.held_out))
    task: Task = build_task(section, found.seed)
    return task


def _with(section: Any, **more: Any) -> Any:
    return type(section).model_validate(section.model_dump(exclude_unset=True) | more)


def measured(
    opened: Opened, task: Task, config: EvaluationConfig, samples: int, k: int | None, file: Path
) -> dict[str, Any]:
    """One policy's held-out numbers: those that training writes, the reward's interval over prompts, and with
    `samples` answers a prompt pass@k, the mean and the best of them.

    Raises:
        DataError: the task holds no prompts out.
    """
    seed = 0
    if opened.recipe is not None and opened.step is not None:  # the row of training that these weights were measured in
        seed = step_seed(opened.recipe.seed, opened.step - 1, HELD_OUT)
    numbers = evaluate(opened.policy, task, config, seed, file)
    if not numbers:
        raise DataError(
            Text("the task holds no prompts out", "任务没有留出提示"),
            Text("give --held-out FILE, or a task with held-out prompts", "请给出 --held-out FILE，或有留出提示的任务"),
        )
    rows = _lines(file)
    rewards = torch.tensor([row["reward"] for row in rows if not row.get("fault")], dtype=torch.float64)
    if not len(rewards):
        raise DataError(
            Text("no answer could be scored, through no fault of the answers", "没有任何回答能评分，原因不在回答本身"),
            SEE_TO,
        )
    rule = success_of(task, config)
    judge = None if rule is None else rule.component
    reward = asdict(of_prompts(rewards, judge == "reward"))
    out: dict[str, Any] = {"source": opened.source, "numbers": numbers, "judged": len(rewards), "reward": reward}
    out["parts"] = {
        name: asdict(of_prompts(torch.tensor(x).double(), judge == name)) for name, x in parts_of(rows).items()
    }
    if samples > 1:
        out["samples"] = _sampled(opened, task, config, samples, k)
    return out


def parts_of(rows: list[dict[str, Any]]) -> dict[str, list[float]]:
    """The values over prompts of each part of the score (accuracy, psnr, ...), where it could be had."""
    out: dict[str, list[float]] = {}
    for row in rows:
        for name, value in ({} if row.get("fault") else row.get("components") or {}).items():
            if value is not None:
                out.setdefault(name, []).append(float(value))
    return out


@torch.no_grad()
def _sampled(opened: Opened, task: Task, config: EvaluationConfig, samples: int, k: int | None) -> dict[str, Any]:
    """Mean and best of n, and pass@k, over prompts."""
    asked = task.held_out()[: config.prompts]
    rule = success_of(task, config)
    made: list[tuple[Scores, torch.Tensor]] = []
    for at in range(0, len(asked), 32):
        part = asked[at : at + 32]
        with opened.policy.measured():
            rollout = opened.policy.sample(part, samples, 2**31 + at)
        made.append((scored(task, part, opened.policy.decode(rollout.samples)), rollout.valid.cpu()))
    judged = ~torch.cat([faults_of(s).cpu() for s, _ in made])
    valid = torch.cat([valid_of(s).cpu() & drawn for s, drawn in made])
    rewards = torch.cat([s.rewards.cpu() for s, _ in made])
    table = counted(Scores(rewards, valid=valid), task)
    some = judged.any(1)  # a prompt whose every sample failed through no fault of its own is left out
    if not bool(some.any()):
        raise DataError(
            Text("no sample could be scored, through no fault of the answers", "没有任何样本能评分，原因不在样本本身"),
            SEE_TO,
        )
    on_reward = rule is not None and rule.component == "reward"
    mean = (table * judged).sum(1)[some] / judged.sum(1)[some]
    out: dict[str, Any] = {
        "n": samples,
        "mean": asdict(of_prompts(mean, on_reward)),
        "best": asdict(of_prompts(torch.where(judged, table, -torch.inf).amax(1)[some], on_reward)),
    }
    if rule is not None:
        passed = torch.cat([right(s, rule).cpu() for s, _ in made]) & valid
        wanted: set[int] = {1, samples} | ({k} if k else set())
        for each in sorted(wanted):
            found = pass_at_k(passed, each, judged)
            if bool(found.isfinite().any()):
                out[f"pass_at_{each}"] = asdict(rate(found[found.isfinite()]))
    return out


def own_start(run: str, rows: Path) -> dict[str, Any] | None:
    """The gain of a run's policy (or of one of its checkpoints) over what it started from, by the evaluation that the
    run made before its first step. None where there is none, or it asked other prompts.

    Args:
        rows: the file of `measured`.
    """
    place = Path(run)
    file = next((f / START for f in (place, place.parent.parent) if (f / "config.toml").is_file()), None)
    if file is None or not file.is_file():
        return None
    asked, before = ({r["prompt"]: r["text"] for r in _lines(f)} for f in (rows, file))
    if asked != before:
        return None
    return paired(file, rows)


def _lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in lines_of(file.read_text(encoding="utf-8"))]


def paired(first: Path, second: Path) -> dict[str, Any]:
    """The gain of the second policy over the first on the prompts that both files judge, over prompts; of no
    such prompt `gain` is None."""
    a, b = ({row["prompt"]: row for row in _lines(f)} for f in (first, second))
    common = [i for i in a if i in b and not a[i].get("fault") and not b[i].get("fault")]
    same = sum(a[i]["output"] == b[i]["output"] for i in common) / max(len(common), 1)
    rewards = (torch.tensor([x[i]["reward"] for i in common], dtype=torch.float64) for x in (a, b))
    gain = asdict(difference(*rewards)) if common else None
    out = {"prompts": len(common), "gain": gain, "same_output": same if common else None}
    return out | {"parts": _gains([(a[i].get("components") or {}, b[i].get("components") or {}) for i in common])}


def _gains(pairs: list[tuple[dict[str, Any], dict[str, Any]]]) -> dict[str, Any]:
    """The gain in each part of the score, over the prompts where both policies have it."""
    out = {}
    for name in dict.fromkeys(name for x, _ in pairs for name in x):
        both = [(x[name], y[name]) for x, y in pairs if x.get(name) is not None and y.get(name) is not None]
        if both:
            values = torch.tensor(both, dtype=torch.float64)
            out[name] = asdict(difference(values[:, 0], values[:, 1]))
    return out

"""Two runs or checkpoints: did the policy change, did the result? From their held-out answers and their weights."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from anygrpo.core.intervals import arms, hierarchical
from anygrpo.doctor import read
from anygrpo.doctor.columns import build
from anygrpo.doctor.configs import dotted
from anygrpo.doctor.pair import no_effect
from anygrpo.errors import DataError
from anygrpo.files import lines_of, run_of, toml_table
from anygrpo.probes.significance import mcnemar, paired
from anygrpo.spoken import Text
from anygrpo.train import checkpoint
from anygrpo.train.run import MOST_FAULTS

_JUDGES = ("correct", "accuracy", "exact", "math_verify", "number", "score")
"""Names of 0/1 components that mean "right", in order of preference."""
_IGNORED = ("folder", "name")
MANY = 10
"""Seeds of each recipe from which a bootstrap over seeds is worth showing."""


@dataclass(frozen=True)
class Answers:
    """One evaluation: by prompt number, the prompt, the greedy output and its scores. An answer that could not be
    scored has the lowest reward; what failed through no fault of the answer is left out, and counted."""

    step: int
    rows: dict[int, dict[str, Any]]
    faults: float = 0.0


def evaluations(path: Path) -> list[Answers]:
    """All held-out evaluations of a run, in order; of one of its checkpoints, those up to its own.

    Raises:
        DataError: the run kept none, or none of that checkpoint.
    """
    run = run_of(path)
    files = {int(f.stem.removeprefix("step_")): f for f in sorted((run / "evaluations").glob("step_*.jsonl"))}
    if not files:
        raise DataError(
            Text(f"{run} has no evaluations/", f"{run} 没有 evaluations/"),
            Text(
                "it needs held-out prompts: see [evaluation] and the task's held_out",
                "需要留出提示：见 [evaluation] 和任务的 held_out",
            ),
        )
    if run == path:
        return [_answers(file) for file in files.values()]
    step = checkpoint.step_of(path)
    if step not in files:
        raise DataError(
            Text(
                f"{path} was not evaluated at its step {step}; the run was at {', '.join(map(str, files))}",
                f"{path} 在第 {step} 步没有评测；该运行评测过的步：{', '.join(map(str, files))}",
            ),
            Text(
                "set evaluation.every to the rhythm of training.checkpoint_every, or compare other checkpoints",
                "请使 evaluation.every 与 training.checkpoint_every 一致，或比较别的检查点",
            ),
        )
    return [_answers(file) for at, file in files.items() if at <= step]


def _answers(file: Path) -> Answers:
    try:
        lines = [json.loads(line) for line in lines_of(file.read_text(encoding="utf-8")) if line.strip()]
        if any(not {"text", "output", "reward", "components", "valid"} <= row.keys() for row in lines):
            raise KeyError("text, output, reward, components or valid")
        rows = {row["prompt"]: row for row in lines if not row.get("fault")}
        return Answers(int(file.stem.removeprefix("step_")), rows, 1 - len(rows) / max(len(lines), 1))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DataError(
            Text(
                f"{file} is not what a run writes: {type(error).__name__}: {error}",
                f"{file} 不是运行写出的内容：{type(error).__name__}: {error}",
            ),
            Text("see `anygrpo verify` on that run", "请对那次运行用 `anygrpo verify`"),
        ) from None


def _sound(answers: Answers, run: Path) -> Answers:
    """Raises: DataError where too many answers were not scored through no fault of theirs."""
    if answers.faults > MOST_FAULTS:
        raise DataError(
            Text(
                f"{run}: {answers.faults:.1%} of the held-out answers were not scored through no fault of theirs "
                f"(at most {MOST_FAULTS:.0%})",
                f"{run}：{answers.faults:.1%} 的留出回答没有评分，原因不在回答本身（至多 {MOST_FAULTS:.0%}）",
            ),
            Text(
                "evaluate again when the machine, tool or endpoint works; what an offline file does "
                "not hold is unknown: "
                "see `anygrpo select evaluate`",
                "请在机器、工具或端点正常后重新评测；离线文件中没有的内容是未知的：见 `anygrpo select evaluate`",
            ),
        )
    return answers


def settings_that_differ(a: Path, b: Path) -> list[dict[str, Any]]:
    """Resolved settings of the two recipes that are not equal.

    Raises:
        DataError: one of them is no run.
    """
    first, second = (_settings(run) for run in (a, b))
    keys = sorted(k for k in first.keys() | second.keys() if first.get(k) != second.get(k))
    return [{"setting": k, "a": first.get(k), "b": second.get(k)} for k in keys if k not in _IGNORED]


def _settings(run: Path) -> dict[str, Any]:
    file = run_of(run) / "config.toml"
    if not file.is_file():
        raise DataError(
            Text(f"{run} holds no run", f"{run} 中没有运行记录"),
            Text(
                "give a folder that contains config.toml and metrics.jsonl",
                "请给出含有 config.toml 和 metrics.jsonl 的文件夹",
            ),
        )
    try:
        return dotted(toml_table(file.read_text(encoding="utf-8")))
    except ValueError as error:  # not TOML, not UTF-8
        raise DataError(
            Text(f"{file} is not valid TOML: {error}", f"{file} 不是有效的 TOML：{error}"),
            Text("see `anygrpo verify` on that run", "请对那次运行用 `anygrpo verify`"),
        ) from None


def results(a: Path, b: Path) -> dict[str, Any]:
    """The last evaluations of both runs, paired by prompt: reward with its interval, and right answers with McNemar.

    Raises:
        DataError: no evaluations, or not one prompt in common.
    """
    first, second = _sound(evaluations(a)[-1], a), _sound(evaluations(b)[-1], b)
    common = [i for i in first.rows if i in second.rows and first.rows[i]["text"] == second.rows[i]["text"]]
    if not common:
        raise DataError(
            Text(f"{a} and {b} have no held-out prompt in common", f"{a} 与 {b} 没有共同的留出提示"),
            Text("compare runs of the same task and split", "请比较同一任务、同一划分的运行"),
        )
    left, right = ([x.rows[i] for i in common] for x in (first, second))
    values = [torch.tensor([row["reward"] for row in rows], dtype=torch.float64) for rows in (left, right)]
    out: dict[str, Any] = {"step_a": first.step, "step_b": second.step, "reward": asdict(paired(*values))}
    out["prompts_left_out"] = left_out([first, second])
    name = judge(left + right)
    if name is not None:
        wins = [torch.tensor([_part(row, name) > 0.5 for row in rows]) for rows in (left, right)]
        accuracy = asdict(paired(*(w.double() for w in wins)))
        out["accuracy"] = {"measure": name} | accuracy | {"mcnemar": asdict(mcnemar(*wins))}
    return out


def recipes(runs: list[Path]) -> list[list[Path]]:
    """Runs that differ in nothing but their seed (and name), in the order given.

    Raises:
        DataError: one of them is no run.
    """
    found: dict[str, list[Path]] = {}
    for run in runs:
        settings = {key: value for key, value in _settings(run).items() if key not in (*_IGNORED, "seed")}
        found.setdefault(json.dumps(settings, sort_keys=True, default=str), []).append(run)
    return list(found.values())


def seed_of(run: Path) -> Any:
    """The seed that a run was made with, as its config.toml has it."""
    return _settings(run).get("seed", 0)


def results_of_recipes(a: list[Path], b: list[Path]) -> dict[str, Any]:
    """The last evaluations of two recipes over their seeds, on the prompts that all runs share.

    Under "measures" by measure; "compared" is what that rests on: the step of each run's last evaluation, and how many
    prompts were left out.

    Raises:
        DataError: no evaluations, no prompt in common, or a recipe with a single seed.
    """
    sides = [[_sound(evaluations(run)[-1], run) for run in side] for side in (a, b)]
    if min(map(len, sides)) < 2:
        raise DataError(
            Text(
                f"{len(a)} and {len(b)} runs: of a recipe with one seed nothing is known about seeds",
                f"{len(a)} 次与 {len(b)} 次运行：配方只有一个种子时，对种子的影响一无所知",
            ),
            Text("run each recipe with three seeds or more", "请每个配方运行三个以上的种子"),
        )
    every = [answers for side in sides for answers in side]
    texts = every[0].rows
    common = [i for i in texts if all(i in x.rows and x.rows[i]["text"] == texts[i]["text"] for x in every)]
    if not common:
        raise DataError(
            Text("these runs have no held-out prompt in common", "这些运行没有共同的留出提示"),
            Text("compare runs of the same task and split", "请比较同一任务、同一划分的运行"),
        )
    name = judge([x.rows[i] for x in every for i in common])
    out: dict[str, Any] = {}
    for what, measure in (("reward", "reward"), ("accuracy", name)):
        if measure is not None:
            tables = [torch.tensor([[_part(x.rows[i], measure) for i in common] for x in side]) for side in sides]
            found = asdict(arms(*tables))
            if min(map(len, sides)) >= MANY:
                found["bootstrap"] = hierarchical(*tables)  # type: ignore[arg-type]
            out[what] = found | ({"measure": name} if what == "accuracy" else {})
    steps = {str(run): answers.step for run, answers in zip([*a, *b], every)}
    return {"measures": out, "compared": {"steps": steps, "prompts_left_out": left_out(every)}}


def left_out(evaluated: list[Answers]) -> int:
    """The held-out prompts that not all of these evaluations have: other prompts, rows that are gone, answers that were
    not scored."""
    texts = [{(i, json.dumps(row["text"], sort_keys=True)) for i, row in x.rows.items()} for x in evaluated]
    return len(set.union(*texts) - set.intersection(*texts))


def judge(rows: list[dict[str, Any]]) -> str | None:
    """The score that says right or wrong: a 0/1 component with a telling name, else a 0/1 reward, else none."""
    names = [*(n for n in _JUDGES if all(n in row["components"] for row in rows)), "reward"]
    return next((n for n in names if {_part(row, n) for row in rows} <= {0.0, 1.0}), None)


def _part(row: dict[str, Any], name: str) -> float:
    value = row["reward"] if name == "reward" else row["components"][name]
    return float(value) if value is not None and row["valid"] else 0.0 if name != "reward" else float(row["reward"])


def agreement(one: Answers, two: Answers) -> dict[str, Any]:
    """Share of common prompts with the same greedy answer."""
    common = [i for i in one.rows if i in two.rows and one.rows[i]["text"] == two.rows[i]["text"]]
    same = sum(one.rows[i]["output"] == two.rows[i]["output"] for i in common)
    return {"prompts": len(common), "same": same / len(common) if common else None}


def greedy_agreement(a: Path, b: Path, noise: Path | None) -> dict[str, Any]:
    """Each end with its own start, the ends with each other, and A with another seed of A: what chance changes."""
    first, second = evaluations(a), evaluations(b)
    out = {"a_start_to_end": agreement(first[0], first[-1]), "b_start_to_end": agreement(second[0], second[-1])}
    out["a_to_b"] = agreement(first[-1], second[-1])
    if noise is not None:
        out["a_to_second_seed"] = agreement(first[-1], evaluations(noise)[-1])
    return out


def inert_setting(a: Path, b: Path) -> dict[str, Any] | None:
    """The doctor's `no_effect`: the curves are equal although a setting differs."""
    found = no_effect(build(read(str(run_of(a)))), build(read(str(run_of(b)))))
    return None if found is None else {"rule": found.rule, "certainty": found.certainty} | dict(found.facts)

"""Two runs: did the policy change, did the result? From their held-out answers, and from their weights."""

from __future__ import annotations

import json
import tomllib
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from anygrpo.doctor import read
from anygrpo.doctor.columns import build
from anygrpo.doctor.configs import dotted
from anygrpo.doctor.pair import no_effect
from anygrpo.errors import DataError
from anygrpo.probes.significance import mcnemar, paired

_JUDGES = ("correct", "accuracy", "exact", "math_verify", "number", "score")
"""Names of 0/1 components that mean "right", in order of preference."""
_IGNORED = ("folder", "name")


@dataclass(frozen=True)
class Answers:
    """One evaluation: by prompt number, the prompt, the greedy output and its scores. Invalid ones left out."""

    step: int
    rows: dict[int, dict[str, Any]]


def evaluations(run: Path) -> list[Answers]:
    """All held-out evaluations of a run, in order.

    Raises:
        DataError: the run kept none.
    """
    files = sorted((run / "evaluations").glob("step_*.jsonl"))
    if not files:
        raise DataError(
            f"{run} has no evaluations/", "it needs held-out prompts: see [evaluation] and the task's held_out"
        )
    return [_answers(file) for file in files]


def _answers(file: Path) -> Answers:
    try:
        lines = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines() if line.strip()]
        kept = [row for row in lines if row["valid"]]
        if any(not {"text", "output", "reward", "components"} <= row.keys() for row in kept):
            raise KeyError("text, output, reward or components")
        return Answers(int(file.stem.removeprefix("step_")), {row["prompt"]: row for row in kept})
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DataError(
            f"{file} is not what a run writes: {type(error).__name__}: {error}", "see `anygrpo verify` on that run"
        ) from None


def settings_that_differ(a: Path, b: Path) -> list[dict[str, Any]]:
    """Resolved settings of the two recipes that are not equal.

    Raises:
        DataError: one of them is no run.
    """
    first, second = (_settings(run) for run in (a, b))
    keys = sorted(k for k in first.keys() | second.keys() if first.get(k) != second.get(k))
    return [{"setting": k, "a": first.get(k), "b": second.get(k)} for k in keys if k not in _IGNORED]


def _settings(run: Path) -> dict[str, Any]:
    file = run / "config.toml"
    if not file.is_file():
        raise DataError(f"{run} holds no run", "give a folder that contains config.toml and metrics.jsonl")
    try:
        return dotted(tomllib.loads(file.read_text(encoding="utf-8")))
    except ValueError as error:  # not TOML, not UTF-8
        raise DataError(f"{file} is not valid TOML: {error}", "see `anygrpo verify` on that run") from None


def results(a: Path, b: Path) -> dict[str, Any]:
    """The last evaluations of both runs, paired by prompt: reward with its interval, and right answers with McNemar.

    Raises:
        DataError: no evaluations, or not one prompt in common.
    """
    first, second = evaluations(a)[-1], evaluations(b)[-1]
    common = [i for i in first.rows if i in second.rows and first.rows[i]["text"] == second.rows[i]["text"]]
    if not common:
        raise DataError(f"{a} and {b} have no held-out prompt in common", "compare runs of the same task and split")
    left, right = ([x.rows[i] for i in common] for x in (first, second))
    values = [torch.tensor([row["reward"] for row in rows], dtype=torch.float64) for rows in (left, right)]
    out: dict[str, Any] = {"step_a": first.step, "step_b": second.step, "reward": asdict(paired(*values))}
    name = judge(left + right)
    if name is not None:
        wins = [torch.tensor([_part(row, name) > 0.5 for row in rows]) for rows in (left, right)]
        accuracy = asdict(paired(*(w.double() for w in wins)))
        out["accuracy"] = {"measure": name} | accuracy | {"mcnemar": asdict(mcnemar(*wins))}
    return out


def judge(rows: list[dict[str, Any]]) -> str | None:
    """The score that says right or wrong: a 0/1 component with a telling name, else a 0/1 reward, else none."""
    names = [*(n for n in _JUDGES if all(n in row["components"] for row in rows)), "reward"]
    return next((n for n in names if {_part(row, n) for row in rows} <= {0.0, 1.0}), None)


def _part(row: dict[str, Any], name: str) -> float:
    return float(row["reward"] if name == "reward" else row["components"][name])


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
    found = no_effect(build(read(str(a))), build(read(str(b))))
    return None if found is None else {"rule": found.rule, "certainty": found.certainty} | dict(found.facts)

"""What a run was made of, as fingerprints, and what a resume changed: said aloud, in log.txt and in resumes.jsonl."""

from __future__ import annotations

import json
import math
import os
import shlex
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn

from anygrpo.core.digest import digest
from anygrpo.core.policy import Policy
from anygrpo.files import lines_of
from anygrpo.recipe.load import plain_table
from anygrpo.recipe.recipe import Recipe
from anygrpo.recipe.written import RESUMES, flat
from anygrpo.spoken import Text, say
from anygrpo.train.folder import FINGERPRINTS
from anygrpo.train.run import Run
from anygrpo.train.stages import PlannedStage, at

_PROMPTS, _NUMBERS, _BYTES = 64, 256, 1 << 28
"""Prompts of each kind, numbers of each weight, and bytes of each file that are looked at."""
_WORDS = {
    "data": Text("the prompts are others", "提示变了"),
    "model": Text("the model's start weights are others", "模型的初始权重变了"),
    "template": Text("the chat template is another", "对话模板变了"),
    "environment": Text("versions of packages, or the machine, are others", "软件包版本或机器变了"),
}


def fingerprints(recipe: Recipe, policy: Policy, stages: list[PlannedStage]) -> dict[str, str]:
    """Short digests: "recipe", "data" (prompts), "model" (start weights), what the policy adds (its template), and
    "file <key>" of every file that the recipe names: data, reward code, weights. What cannot be read is left out."""
    table = plain_table(recipe)
    made = {"recipe": digest({k: v for k, v in table.items() if k != "folder"})}
    with torch.random.fork_rng(devices=[]):
        tasks = {id(planned.task): planned.task for planned in stages}.values()
        parts = {
            "data": lambda: digest([_prompts(task) for task in tasks]),
            "model": lambda: _of_weights(policy.trainable()),
        }
        for name, part in parts.items():
            try:
                made[name] = part()
            except Exception:  # a user's task or module that cannot be looked at so: a record is no reason to end a run
                continue
        made |= {name: digest(value) for name, value in policy.identity().items()}
    return made | {f"file {key}": digest(content) for key, content in _files(table)}


def _prompts(task: Any) -> Any:
    size = int(getattr(task, "size", 0) or 0)
    return [size, task.held_out()[:_PROMPTS], task.prompts(0, min(size, _PROMPTS)) if size else []]


@torch.no_grad()
def _of_weights(module: nn.Module) -> str:
    """Of names, shapes, and numbers taken evenly from each weight: all of them would take minutes of a large model."""
    parts = []
    for name, p in module.state_dict().items():
        if isinstance(p, torch.Tensor) and not p.is_meta:
            flat_p = p.reshape(-1)
            some = flat_p[:: max(1, flat_p.numel() // _NUMBERS)][:_NUMBERS]
            parts.append([name, list(p.shape), some.double().cpu()])
    return digest(parts)


def _files(table: Any) -> Iterator[tuple[str, Any]]:
    for key, value in flat(table).items():
        path = value.rpartition(":")[0] if isinstance(value, str) and ".py:" in value else value
        if isinstance(path, str) and key != "folder" and os.path.isfile(path):
            try:
                with open(path, "rb") as file:
                    yield key, [os.path.getsize(path), file.read(_BYTES)]
            except OSError:
                continue


def resumed(run: Run, before: Recipe, prints: dict[str, str], environment: dict[str, Any]) -> list[str]:
    """Say what is not as it was when the run was last started, and keep it; returns the sentences. Of rank 0."""
    folder = run.folder.path
    settings = changed_settings(before, run.recipe)
    lines = [f"{key}: {_short(a)} -> {_short(b)}" for key, (a, b) in settings.items()]
    told = [Text(line, line) for line in lines]
    known = last_fingerprints(folder)
    prints = prints | {"environment": environment_digest(environment)}
    for name in sorted(known.keys() | prints.keys()):
        if name != "recipe" and name in known and known[name] != prints.get(name):
            key = name.removeprefix("file ")
            file = Text(f"the content of the file of {key} is another", f"{key} 的文件内容变了")
            told.append(_WORDS.get(name, file if key != name else Text(name, name)))
    told += _learning_rate(run, before)
    said = [one.en for one in told]  # the record has one language, the screen the reader's
    line = {"step": run.step, "time": time.strftime("%Y-%m-%d %H:%M:%S"), "command": shlex.join(sys.argv)}
    line |= {"changed": {k: list(v) for k, v in settings.items()}, "said": said, "fingerprints": prints}
    with (folder / RESUMES).open("a", encoding="utf-8") as file:
        file.write(json.dumps(line, ensure_ascii=False) + "\n")
    for one in told:
        run.folder.log(f"changed at step {run.step}: {one.en}")
        head = say("changed since the run was last started: ", "自上次启动以来有变化：")
        print(head + one.said(), file=sys.stderr, flush=True)
    return said


def environment_digest(environment: dict[str, Any]) -> str:
    return digest({k: environment.get(k) for k in ("python", "packages", "device")})


def last_fingerprints(folder: Path) -> dict[str, str]:
    """Those of the newest resume, else of the start; empty where there are none that can be read."""
    found: Any = {}
    try:
        found = json.loads((folder / FINGERPRINTS).read_text(encoding="utf-8")).get("fingerprints")
    except (OSError, ValueError, AttributeError, RecursionError):
        found = {}
    for line in resumes(folder):
        found = line.get("fingerprints", found)
    return found if isinstance(found, dict) else {}


def resumes(folder: Path) -> list[dict[str, Any]]:
    """The lines of resumes.jsonl that can be read."""
    try:
        text = (folder / RESUMES).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    found = []
    for line in lines_of(text):
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict):
            found.append(value)
    return found


def changed_settings(before: Recipe, after: Recipe) -> dict[str, tuple[Any, Any]]:
    """key -> (before, after) of resolved settings that differ; None stands for a key that is not there."""
    a, b = flat(plain_table(before)), flat(plain_table(after))
    return {key: (a.get(key), b.get(key)) for key in sorted(a.keys() | b.keys()) if a.get(key) != b.get(key)}


def _learning_rate(run: Run, before: Recipe) -> list[Text]:
    """Where the rate of the next step is not what it would have been."""
    if run.step >= run.total_steps:
        return []
    index = run.stage_index(run.step)
    planned, stages = run.stages[index], before.resolved_stages()
    if index >= len(stages):
        return []
    old = stages[index]
    steps = old.steps
    if steps is None:
        assert old.epochs is not None
        steps = max(math.ceil(old.epochs * planned.task.size / old.algorithm.prompts_per_step), 1)
    here = run.step - planned.begin
    rates = (
        at(old.optimizer.learning_rate, here, steps),
        at(planned.stage.optimizer.learning_rate, here, planned.steps),
    )
    if rates[0] == rates[1] or None in rates:
        return []
    return [
        Text(
            f"the learning rate of step {run.step} is {rates[1]:.6g}; it would have been {rates[0]:.6g}",
            f"第 {run.step} 步的学习率是 {rates[1]:.6g}；原本会是 {rates[0]:.6g}",
        )
    ]


def _short(value: Any) -> str:
    text = "nothing" if value is None else json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 80 else text[:77] + "..."

"""Pictures of the same held-out prompts before and after training, for policies whose outputs can be seen."""

from __future__ import annotations

import json
from typing import Any

import torch

from anygrpo.core.packing import pack, unpack
from anygrpo.core.task import Task
from anygrpo.core.tensor_files import read_json, read_tensors, write_tensors
from anygrpo.errors import ConfigError
from anygrpo.train.run import Run

_SHOWN = 7
_BEFORE = "before"


def remember(run: Run) -> None:
    """Keep what the untrained policy makes of the first held-out prompts (in the run folder: a resumed run has it)."""
    task = _task(run)
    if task is not None and run.step == 0:
        run.folder.pictures.mkdir(exist_ok=True)
        tensors: dict[str, torch.Tensor] = {}
        try:
            packed = pack(_outputs(run, task.held_out()[:_SHOWN]), tensors, "before")
        except ConfigError as error:  # outputs of a kind of their own: a run goes on without pictures
            run.folder.log(f"no pictures: {error.what}")
            return
        write_tensors(run.folder.pictures / f"{_BEFORE}.safetensors", tensors)
        (run.folder.pictures / f"{_BEFORE}.json").write_text(json.dumps(packed), encoding="utf-8")


def draw(run: Run) -> None:
    """pictures/* by the task, where `remember` was called before."""
    task = _task(run)
    file = run.folder.pictures / f"{_BEFORE}.json"
    if task is not None and file.is_file():
        prompts = task.held_out()[:_SHOWN]
        before = unpack(read_json(file), read_tensors(file.with_suffix(".safetensors")))
        task.pictures(prompts, before, _outputs(run, prompts), run.folder.pictures)


def _task(run: Run) -> Any:
    """The last stage's task, if it can make pictures."""
    task = run.stages[-1].task if run.stages else None
    return task if task is not None and getattr(type(task), "pictures", None) not in (None, Task.pictures) else None


@torch.no_grad()
def _outputs(run: Run, prompts: list[Any]) -> list[list[Any]]:
    rows = run.policy.decode(run.policy.greedy(prompts).samples)
    return [[x.cpu() if isinstance(x, torch.Tensor) else x for x in row] for row in rows]

"""Groups that wait to be trained on: as a page shows them, as a checkpoint has them, and back."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import torch

from anygrpo.core.policy import Policy
from anygrpo.core.rollout import Rollout
from anygrpo.core.task import Task
from anygrpo.core.tree import devices, placed, tree_map
from anygrpo.train.collect import numbers_of
from anygrpo.train.shown import rows_shown


@dataclass(frozen=True)
class Group:
    """One prompt's samples.

    Attributes:
        place: which draw of the stage it is.
        outputs: [1][G], for a page that may show them; None where the run writes none.
        row: as samples/step_*.jsonl shows it, where a checkpoint had it.
    """

    place: int
    prompt: Any
    rollout: Rollout
    outputs: list[list[Any]] | None = None
    row: dict[str, Any] | None = None

    def shown(self, policy: Policy) -> dict[str, Any] | None:
        """Its row. None: a checkpoint kept it before the recipe asked for its page."""
        if self.row is not None or self.outputs is None:
            return self.row
        return rows_shown(policy, [self.prompt], self.outputs, self.rollout)[0]


def oldest(rollout: Rollout) -> int:
    """The version of the oldest weights that drew a decision of it."""
    drawn = rollout.version[rollout.mask]
    return int(drawn.min()) if drawn.numel() else int(rollout.version.max())


def page(policy: Policy, groups: list[Group], most: int) -> list[dict[str, Any]]:
    """The rows of the first `most` that have one; no other is made."""
    return list(islice((row for group in groups if (row := group.shown(policy)) is not None), most))


def kept(group: Group, row: dict[str, Any] | None) -> dict[str, Any]:
    """As a checkpoint has it: on the CPU, with where its samples were, and its row as plain values."""
    rollout = group.rollout.on_host()
    held = replace(rollout, samples=tree_map(lambda x: x.cpu(), rollout.samples))
    row = json.loads(json.dumps(row, default=str))
    return {"place": group.place, "rollout": held, "devices": devices(rollout.samples), "row": row}


def restored(one: dict[str, Any], task: Task, prompt: Any, device: torch.device) -> Group:
    """What `kept` gave, of this prompt; its samples are where new ones are."""
    rollout = replace(one["rollout"], prompt_id=torch.tensor(numbers_of(task, [prompt])))
    if "devices" in one:
        rollout = replace(rollout, samples=placed(rollout.samples, one["devices"], device))
    return Group(one["place"], prompt, rollout, row=one["row"])

"""What a policy with gates is asked beside training: a trial before the first step, and what each gate does."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from importlib import import_module
from typing import Any

import torch
from torch import Tensor

from anygrpo.core.policy import Policy
from anygrpo.gates.choosing import Drawing


class Examined(Policy):
    """The part of `StochasticPolicy` that takes no part in training."""

    inputs: Sequence[str]
    supervised_gates: str

    @property
    def device(self) -> torch.device:
        """Where its weights lie."""
        raise NotImplementedError

    def run(self, rows: list[Tensor], choose: Any) -> tuple[Tensor, Any]:
        """Output and the visited sites."""
        raise NotImplementedError

    def seeded(self, seed: int) -> AbstractContextManager[None]:
        """Draws from `seed`, and the random state as it was afterwards."""
        raise NotImplementedError

    def examined(self, task: Any) -> dict[str, float]:
        return import_module("anygrpo.gates.effects").numbers_of(self, task)  # which names StochasticPolicy

    def check_stage(self, method: str, task: Any) -> None:
        """A pass with drawn gates and a gradient, as the stage will make them: a gate in a part that is checkpointed is
        refused now, not after the stages before."""
        if (method == "supervised" and self.supervised_gates == "mean") or not task.size:
            return
        prompt = task.prompts(0, 1)[0]
        rows = [prompt[key][None].to(self.device) for key in self.inputs]
        with torch.enable_grad(), self.seeded(0):
            self.run(rows, Drawing())

"""What a policy with gates is asked beside training: a trial before the first step, and what each gate does."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from importlib import import_module
from typing import Any

import torch
from torch import Tensor, nn

from anygrpo.core.device import exactly
from anygrpo.core.policy import Policy
from anygrpo.errors import ConfigError
from anygrpo.gates.calling import Call
from anygrpo.gates.choosing import Drawing, deterministic, replaying
from anygrpo.spoken import Text

SAME, SAME_IN_HALF = 2e-3, 0.05
"""Share of the largest number that an output may differ by, alone and beside others; where products are bfloat16."""
FEW = 0.01
"""Share of an output's numbers that may differ by more: rounding can turn a hard choice in the network (top-k, a
quantiser, a median) at a tie, and then a few numbers are quite others."""


class Examined(Policy):
    """The part of `StochasticPolicy` that takes no part in training."""

    inputs: Sequence[str]
    network: nn.Module
    call: Call
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
        """A pass with the gates as the stage will choose them, and its gradient: a gate in a part that is checkpointed
        is refused now, not after the stages before. Then a picture alone, with the same gates.

        Raises:
            ConfigError: its output is another one.
        """
        if not task.size:
            return
        prompt = task.prompts(0, 1)[0]
        rows = [prompt[key][None].to(self.device).repeat_interleave(2, 0) for key in self.inputs]
        mean = method == "supervised" and self.supervised_gates == "mean"
        with torch.enable_grad(), self.seeded(0):
            self.run(rows, deterministic("mean") if mean else Drawing())
        with torch.no_grad(), self.seeded(0), exactly():
            both, tape = self.run(rows, Drawing())
            alone = replaying({name: x[:1] for name, x in tape.values().items()})
            one, again = (self.run([x[:1] for x in rows], alone)[0] for _ in range(2))
        expect_same(type(self.network).__name__, both[:1], one, again, SAME_IN_HALF if self.call.half else SAME)


def expect_same(name: str, beside: Tensor, alone: Tensor, again: Tensor, share: float = SAME) -> None:
    """Of one input and the same gates: beside another row, alone, and alone once more.

    Raises:
        ConfigError: they differ by more than rounding; beside another row, in over `FEW` of the numbers.
    """
    if not bool(torch.isfinite(beside).all()):
        return  # told as what it is, when it is scored
    allowed = share * max(float(beside.float().abs().max()), 1e-6)
    if by_itself := _apart(alone, again, allowed, FEW if alone.is_cuda else 0.0):
        raise ConfigError(
            Text(
                f"{name} gives another output for the same input and gates ({by_itself:.2g} apart)",
                f"{name} 对相同的输入和门控给出不同的输出（相差 {by_itself:.2g}）",
            ),
            Text(
                "nothing but its gates may be random in eval mode, and no counter may act",
                "eval 模式下除门控外不应有随机，也不应有计数器起作用",
            ),
        )
    if by_others := _apart(beside, alone, allowed, FEW):
        raise ConfigError(
            Text(
                f"{name} gives a row another output beside others ({by_others:.2g} apart)",
                f"{name} 对同一行的输出因同批的行而异（相差 {by_others:.2g}）",
            ),
            Text(
                "what it computes of a row must not be pooled over the batch (dimension 0)",
                "对一行的计算不应沿批（第 0 维）汇总",
            ),
        )


def _apart(x: Tensor, y: Tensor, allowed: float, few: float) -> float:
    """The largest difference; 0 where rounding explains all but a share of `few`."""
    far = (x.float() - y.float()).abs()
    return float(far.max()) if float((far > allowed).float().mean()) > few else 0.0

"""Dynamic loss scaling: gradients that float16 would round to nothing are computed from a loss times a power of two."""

# pyright: reportPrivateImportUsage=false

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from anygrpo.train.parallel import local

_START, _MOST = 2.0**16, 2.0**24
_BACK = 16.0
_TRIES = 4
"""Passes of one update at ever smaller factors. What is not finite after the last was no matter of the factor, which
returns to what it was, and is refused as anywhere."""
_CALM = 500
"""Sound updates in a row after which the scale doubles."""


class LossScale:
    """The factor on the loss of a policy whose gradients pass through float16 (`Policy.scales_loss`).

    As in Micikevicius et al., "Mixed Precision Training" (2018), section 3.2; but an update whose gradient overflows is
    made again at a smaller factor in place of being skipped. A power of two, so that nothing is rounded by it.

    Attributes:
        value: the factor; 1 where the policy needs none.
    """

    def __init__(self, wanted: bool) -> None:
        self.wanted, self.value = wanted, _START if wanted else 1.0
        self._sound = self._tries = 0
        self._before = self.value

    def put_on(self, loss: Tensor) -> Tensor:
        return loss * self.value if self.wanted else loss

    def taken_off(self, gradients: list[Tensor | None]) -> None:
        """Divide gradients of the scaled loss by the factor, in place."""
        given = [local(g) for g in gradients if g is not None]
        if self.wanted and given:
            torch._foreach_mul_(given, 1 / self.value)

    def too_large(self, loss_is_finite: bool, norm_is_finite: bool) -> bool:
        """Whether the update is to be made again at the smaller factor that is now in force.

        A loss that is not finite itself is no matter of the factor. All ranks must be told the same.
        """
        if not self.wanted or not loss_is_finite:
            return False
        if norm_is_finite:
            self._tries, self._sound = 0, self._sound + 1
            if self._sound >= _CALM:
                self._sound, self.value = 0, min(2 * self.value, _MOST)
            return False
        self._sound = 0
        if self._tries == 0:
            self._before = self.value
        if self._tries == _TRIES or self.value == 1:
            self._tries, self.value = 0, self._before
            return False
        self._tries, self.value = self._tries + 1, max(1.0, self.value / _BACK)
        return True

    def told(self) -> dict[str, float]:
        """For metrics.jsonl, where there is one."""
        return {"loss_scale": self.value} if self.wanted else {}

    def state(self) -> dict[str, Any]:
        return {"scale": self.value, "sound": self._sound} if self.wanted else {}

    def load(self, state: dict[str, Any]) -> None:
        if self.wanted and state:
            self.value, self._sound = float(state["scale"]), int(state["sound"])

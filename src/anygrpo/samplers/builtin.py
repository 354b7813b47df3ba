"""The built-in engine: generates with the policy's own weights, in this process."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn

from anygrpo.samplers.base import Generation, Sampling, Turn
from anygrpo.samplers.capability import Ability
from anygrpo.samplers.captured import Captured
from anygrpo.samplers.group import generate_groups
from anygrpo.samplers.head import Head
from anygrpo.samplers.mirror import refresh
from anygrpo.samplers.plain import generate_plain


class BuiltinEngine:
    """Implements `Engine`.

    Args:
        model: a mirror of the policy's model, or the model itself.
        dtype: of the copies made by `refresh`.
        head: model -> its output layer.
        text: ids -> text, for stop texts.
        ability: whether prompts may be shared.
    """

    def __init__(
        self,
        model: nn.Module,
        dtype: torch.dtype,
        head: Callable[[nn.Module], Head],
        text: Callable[[list[int]], str],
        ability: Ability,
    ) -> None:
        self.model, self.dtype, self._head, self._text, self.ability = model, dtype, head, text, ability
        self._captured = Captured(model)

    def with_model(self, model: nn.Module, dtype: torch.dtype) -> BuiltinEngine:
        """The same engine on another model object."""
        return BuiltinEngine(model, dtype, self._head, self._text, self.ability)

    def refresh(self, weights: Iterable[tuple[str, Tensor]]) -> None:
        refresh(self.model, weights, self.dtype)

    def generate(
        self, prompts: list[list[int]], group_size: int, sampling: Sampling, seed: int, turn: Turn | None = None
    ) -> Generation:
        head, longest = self._head(self.model), max(map(len, prompts)) + sampling.max_new_tokens
        if not self.ability.fits(longest):
            return generate_plain(self.model, head, prompts, group_size, sampling, seed, turn, self._text)
        if head.weight.is_cuda and turn is None and not sampling.stop:
            return self._captured.generate(head, prompts, group_size, sampling, seed)
        return generate_groups(self.model, head, prompts, group_size, sampling, seed, turn, self._text)

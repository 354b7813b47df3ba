"""The built-in engine: generates with the policy's own weights, in this process."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn

from anygrpo.language.compute.head import Head
from anygrpo.language.compute.mirror import refresh
from anygrpo.language.compute.paths import Paths
from anygrpo.language.engine.group import generate_groups
from anygrpo.language.engine.own import generate_own
from anygrpo.language.engine.plain import generate_plain
from anygrpo.language.engine.shapes import Captured
from anygrpo.language.generation import Generation, Sampling, Turn


class BuiltinEngine:
    """Implements `Engine`.

    Args:
        model: a mirror of the policy's model, or the model itself.
        dtype: of the copies made by `refresh`.
        head: model -> its output layer.
        text: ids -> text, for stop texts.
        paths: how this model is computed.
        live: `model` is the one that is trained: it is up to date by itself.
    """

    def __init__(
        self,
        model: nn.Module,
        dtype: torch.dtype,
        head: Callable[[nn.Module], Head],
        text: Callable[[list[int]], str],
        paths: Paths,
        live: bool = False,
    ) -> None:
        self.live = live
        self.model, self.dtype, self._head, self._text, self.paths = model, dtype, head, text, paths
        self._captured = Captured(model)

    def with_model(
        self, model: nn.Module, dtype: torch.dtype, text: Callable[[list[int]], str] | None = None
    ) -> BuiltinEngine:
        """The same engine on another model object, and with another tokenizer's texts."""
        return BuiltinEngine(model, dtype, self._head, text or self._text, self.paths)

    @property
    def apart(self) -> bool:
        """On a CPU, with copies of all trained weights, where threads of both sides find cores of their own. On a GPU
        both would share one queue."""
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        trained = any(p.requires_grad for p in self.model.parameters())
        on_cpu = next(self.model.parameters()).device.type == "cpu"
        return on_cpu and not trained and not self.live and 2 * torch.get_num_threads() <= cores

    def refresh(self, weights: Iterable[tuple[str, Tensor]]) -> None:
        if not self.live:
            refresh(self.model, weights, self.dtype)

    def generate(
        self, prompts: list[list[int]], group_size: int, sampling: Sampling, seed: int, turn: Turn | None = None
    ) -> Generation:
        head, longest = self._head(self.model), max(map(len, prompts)) + sampling.max_new_tokens
        given = (self.model, head, prompts, group_size, sampling, seed, turn, self._text)
        if self.paths.form is None or not self.paths.ability.fits(longest):
            return (
                generate_plain(*given, self.paths)
                if self.paths.sampling == "padded"
                else generate_own(*given, self.paths)
            )
        assert head.weight is not None
        if head.weight.is_cuda and turn is None and not sampling.stop:
            return self._captured.generate(head, prompts, group_size, sampling, seed)
        return generate_groups(*given)

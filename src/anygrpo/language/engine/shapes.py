"""Captured decoders by the shape of what they decode: made where there is none, kept from call to call."""

# pyright: reportOptionalMemberAccess=false

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from anygrpo.language.compute.head import Head
from anygrpo.language.engine.captured import CapturedDecoder
from anygrpo.language.engine.rows import uniforms
from anygrpo.language.generation import Generation, Sampling

ROUND = 128
"""Prompt buffers grow in steps of this many tokens, so that a graph serves prompts of similar length."""

AHEAD = 4
"""Prompts whose keys are held at once, in parts of those that are decoded at once."""


class Captured:
    """Keeps the decoders of recent shapes; the oldest leaves when there are more than `most`."""

    def __init__(self, model: nn.Module, most: int = 2) -> None:
        self.model, self.most = model, most
        self.decoders: dict[tuple[Any, ...], CapturedDecoder] = {}

    def generate(
        self,
        head: Head,
        prompts: list[list[int]],
        group_size: int,
        sampling: Sampling,
        seed: int,
        capture: bool = True,
    ) -> Generation:
        """All rows, `sampling.rows` of them (whole groups, at least one) at a time, refilled as they are done."""
        noise = uniforms(len(prompts) * group_size, sampling, seed, head.weight.device)
        step = AHEAD * max(1, (sampling.rows or len(prompts) * group_size) // group_size)
        parts = []
        for a in range(0, len(prompts), step):
            part = prompts[a : a + step]
            mine = None if noise is None else noise[a * group_size : (a + step) * group_size]
            parts.append(self._decoder(head, part, group_size, sampling, capture).generate(part, mine))
        return joined(parts)

    def _decoder(
        self, head: Head, prompts: list[list[int]], group_size: int, sampling: Sampling, capture: bool
    ) -> CapturedDecoder:
        width = -(-max(map(len, prompts)) // ROUND) * ROUND
        key = (len(prompts), group_size, width, sampling, head.weight.data_ptr())
        decoder = self.decoders.pop(key, None)
        if decoder is None:
            while len(self.decoders) >= self.most:
                self.decoders.pop(next(iter(self.decoders)))
            decoder = CapturedDecoder(self.model, head, len(prompts), group_size, width, sampling, capture)
        self.decoders[key] = decoder
        return decoder


def joined(parts: list[Generation]) -> Generation:
    """The rows of several generations under one another; shorter ones padded."""
    width = max(part.ids.shape[1] for part in parts)
    wide = lambda x: torch.nn.functional.pad(x, (0, width - x.shape[1]))  # noqa: E731
    return Generation(
        torch.cat([wide(part.ids) for part in parts]),
        torch.cat([part.lengths for part in parts]),
        torch.cat([wide(part.chosen) for part in parts]),
        torch.cat([wide(part.log_probs) for part in parts]),
        torch.cat([part.ended for part in parts]),
        {name: sum(part.seconds[name] for part in parts) for name in parts[0].seconds},
    )

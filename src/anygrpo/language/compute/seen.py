"""What a model's processor made of a prompt's pictures: as tensors, joined for a batch, and as a number of its own."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import torch
from torch import Tensor, nn

FIRST = 2**40
"""Ids from here on are places of pictures; no vocabulary is as large."""


@dataclass(frozen=True)
class Seen:
    """What the processor made of one prompt's pictures.

    Attributes:
        inputs: arguments of the model's forward (pixel_values, image_grid_thw ...), first axis pictures or prompts.
        places: tokens of the prompt that stand for pictures.
    """

    inputs: dict[str, Tensor]
    places: int

    @property
    def bytes(self) -> int:
        return sum(x.nbytes for x in self.inputs.values())


def joined(parts: list[Tensor]) -> Tensor:
    """Along the first axis; what differs in size behind it is padded with zeros at its end, as processors do."""
    size = [max(sizes) for sizes in zip(*(x.shape[1:] for x in parts))]
    padded = []
    for x in parts:
        more = [n for now, want in reversed(list(zip(x.shape[1:], size))) for n in (0, want - now)]
        padded.append(nn.functional.pad(x, more) if any(more) else x)
    return torch.cat(padded)


def numbered(ids: Tensor, inputs: dict[str, Tensor]) -> int:
    """40 bits of what a prompt says and shows."""
    found = hashlib.blake2b(ids.numpy().tobytes(), digest_size=5)
    for name in sorted(inputs):
        found.update(name.encode() + inputs[name].contiguous().numpy().tobytes())
    return int.from_bytes(found.digest(), "big")

"""Which tensors of a user's own code nobody could compute with."""

from __future__ import annotations

import torch
from torch import Tensor

from anygrpo.spoken import Text

DENSE = Text("a dense tensor of real numbers on a real device", "真实设备上的稠密实数张量")


def unusable(x: Tensor) -> str:
    """What is the matter with it: "torch.complex64", "device=meta" (without values), "torch.sparse_coo"; else ""."""
    if x.is_complex():
        return str(x.dtype)
    if x.device.type == "meta":
        return "device=meta"
    return "" if x.layout is torch.strided else str(x.layout)

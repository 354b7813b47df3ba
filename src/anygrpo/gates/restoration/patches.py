"""What each patch of a restored picture earns."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def rewards_by_patch(restored: Tensor, clean: Tensor, side: int, low: float, high: float) -> Tensor:
    """Pictures [n, c, H, W] as files hold them -> [n, K]: PSNR of each patch of `side` pixels, low to high as 0 to 1.

    K = ceil(H / side) x ceil(W / side), row by row; patches at the right and lower edge may be smaller.
    """
    squares = (restored - clean).square().mean(1, keepdim=True)
    each = F.avg_pool2d(squares, side, ceil_mode=True).flatten(1)
    psnr = -10 * each.clamp(min=1e-12).log10()
    return (psnr.clamp(low, high) - low) / (high - low)


def placed(parts: list[tuple[Tensor, Tensor, Tensor]], shape: tuple[int, int]) -> Tensor:
    """[P, G, K] from rewards [n, k] of samples at (p, g): K is the most patches of a picture, NaN fills the others."""
    out = torch.full((*shape, max(x.shape[1] for *_, x in parts)), torch.nan)
    for p, g, x in parts:
        out[p, g, : x.shape[1]] = x.cpu()
    return out

"""Per-row losses between an output and its target, [n, ...] x [n, ...] -> [n]."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from torch import Tensor


def l1(x: Tensor, y: Tensor) -> Tensor:
    """Mean absolute difference."""
    return (x - y).abs().flatten(1).mean(1)


def mse(x: Tensor, y: Tensor) -> Tensor:
    """Mean squared difference."""
    return (x - y).square().flatten(1).mean(1)


def charbonnier(x: Tensor, y: Tensor, eps: float = 1e-3) -> Tensor:
    """mean sqrt((x - y)^2 + eps^2): L1 with a round bottom."""
    return ((x - y).square() + eps**2).sqrt().flatten(1).mean(1)


def ssim(x: Tensor, y: Tensor) -> Tensor:
    """1 - SSIM of pictures [n, c, H, W] in [0, 1] (torchmetrics: Gaussian window 11, sigma 1.5)."""
    from torchmetrics.functional.image import structural_similarity_index_measure as measure

    return 1 - measure(x, y, data_range=1.0, reduction="none").reshape(-1)  # type: ignore[union-attr]


LOSSES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "l1": l1,
    "mse": mse,
    "charbonnier": charbonnier,
    "ssim": ssim,
}


def weighted(weights: Mapping[str, float], x: Tensor, y: Tensor) -> Tensor:
    """[n]: the weighted sum of the named losses."""
    total = x.new_zeros(x.shape[0])
    for name, weight in weights.items():
        total = total + weight * LOSSES[name](x.float(), y.float())
    return total

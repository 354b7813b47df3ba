"""Per-row losses between an output and its target, [n, ...] x [n, ...] -> [n]."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from torch import Tensor

from anygrpo.core.task import Stored
from anygrpo.errors import ConfigError
from anygrpo.spoken import Text

CORNER = 1e-3
"""Differences below it are squared: LapSRN's (arXiv 1704.03915)."""


def l1(x: Tensor, y: Tensor) -> Tensor:
    """Mean absolute difference."""
    return (x - y).abs().flatten(1).mean(1)


def mse(x: Tensor, y: Tensor) -> Tensor:
    """Mean squared difference."""
    return (x - y).square().flatten(1).mean(1)


def charbonnier(x: Tensor, y: Tensor) -> Tensor:
    """mean sqrt((x - y)^2 + CORNER^2): L1 with a round bottom."""
    return ((x - y).square() + CORNER**2).sqrt().flatten(1).mean(1)


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
    """[n]: the weighted sum of the named losses.

    Raises:
        ConfigError: output and target differ in shape.
    """
    if x.shape != y.shape:
        made, wanted = list(x.shape[1:]), list(y.shape[1:])
        raise ConfigError(
            Text(f"the network gives {made}, and the target is {wanted}", f"网络给出 {made}，而目标为 {wanted}"),
            Text(
                "name another policy.output, or task.scale where the network enlarges",
                "请改 policy.output；若网络会放大，请设 task.scale",
            ),
        )
    total = x.new_zeros(x.shape[0])
    for name, weight in weights.items():
        total = total + weight * LOSSES[name](x.float(), y.float())
    return total


def one_target(target: str | None, stored: Stored) -> str:
    """The prompts' key of the target.

    Raises:
        ConfigError: there is none, or not one target a prompt is stored.
    """
    if target is None:
        raise ConfigError(
            Text("this policy has no target, so nothing to supervise", "这个策略没有目标，因此无法监督"),
            Text("set policy.target", "请设置 policy.target"),
        )
    lengths = {len(a) for a in stored.actions}
    if lengths != {1}:
        raise ConfigError(
            Text(
                f"a restorer needs exactly one target a prompt, got {sorted(lengths)}",
                f"复原器的每个提示应恰有一个目标，现有 {sorted(lengths)}",
            )
        )
    return target

"""One decision's Gaussian: log-density, its reductions over dimensions, KL. Pure functions, float32.

Shapes: n decisions, each over an event of shape E (a motion [L, F], a latent [C, H, W]); `valid` broadcasts to [n, *E].
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from anygrpo.core.policy import ClipDefaults

PUBLISHED_SHIFT = 0.025
"""Clip of published runs in units of one dimension's std: per-dimension mean log-probs clipped at 1e-4 over the 65,536
dimensions of an SD3 latent allow a shift d of 1e-4 x sqrt(65536) = 0.0256 (Flow-GRPO's setting)."""


def expand(x: Tensor, like: Tensor) -> Tensor:
    """[n] as [n, 1, 1, ...] with the rank of `like`."""
    return x.reshape(x.shape[0], *[1] * (like.dim() - 1))


def total(x: Tensor, valid: Tensor) -> Tensor:
    """Sum over the valid dimensions: [n, *E] -> [n], accumulated in float64 because E may have 1e5 dimensions."""
    return (x * valid).flatten(1).sum(1, dtype=torch.float64)


def dimensions(valid: Tensor, like: Tensor) -> Tensor:
    """Number of valid dimensions D of each decision: [n] float64."""
    repeats = like[0].numel() // valid[0].numel()
    return valid.flatten(1).sum(1, dtype=torch.float64).expand(len(like)) * repeats


def whitened(action: Tensor, mean: Tensor, std: Tensor) -> Tensor:
    """(action - mean) / std, [n, *E]; std [n]."""
    return (action - mean) / expand(std, mean)


def _square_and_constant(action: Tensor, mean: Tensor, std: Tensor, valid: Tensor) -> tuple[Tensor, Tensor]:
    """The two parts of log N(action; mean, std^2) = -z^2/2 - (log std + log(2 pi)/2): -z^2/2 summed over the valid
    dimensions, and what each of them adds besides; [n] float64 each."""
    square = total(whitened(action, mean, std).square(), valid)
    return -0.5 * square, -(std.double().log() + 0.5 * math.log(2 * math.pi))


def reduce_sum(action: Tensor, mean: Tensor, std: Tensor, valid: Tensor, noise: Tensor | None) -> Tensor:
    """The log-density of the event, [n]. Its log-ratio has sd d sqrt(D): only usable where D is small."""
    square, constant = _square_and_constant(action, mean, std, valid)
    return (square + dimensions(valid, mean) * constant).float()


def reduce_mean(action: Tensor, mean: Tensor, std: Tensor, valid: Tensor, noise: Tensor | None) -> Tensor:
    """Log-density per dimension, [n] (DDPO, Flow-GRPO). The log-ratio is N(-d^2/2, d^2/D): beyond d ~ 2/sqrt(D) it
    is always below 0 and the upper clip never fires."""
    square, constant = _square_and_constant(action, mean, std, valid)
    return (square / dimensions(valid, mean) + constant).float()


def reduce_centred(action: Tensor, mean: Tensor, std: Tensor, valid: Tensor, noise: Tensor | None) -> Tensor:
    """Dimension-free log-prob relative to the behaviour policy, [n].

    With z the noise that was drawn, delta = (mean - behaviour mean) / std and d its rms over D dimensions, the
    log-ratio of the event is sum(z delta) - D d^2 / 2. Adding D d^2 / 2 and dividing by sqrt(D) leaves
    sum(z delta) / sqrt(D): mean 0 and sd d for samples of the behaviour policy at any D, so that one clip range
    serves all. Under the behaviour policy itself it is 0. Its gradient there is the exact score over sqrt(D).

    Args:
        noise: [n, *E] z as drawn; the behaviour mean is action - std z.
    """
    assert noise is not None, "the centred reduction needs the noise of the sample"
    behaviour = action - expand(std, action) * noise
    delta = (mean - behaviour) / expand(std, mean)
    return (total(noise * delta, valid) / dimensions(valid, mean).sqrt()).float()


def reduce_squared_error(action: Tensor, mean: Tensor, std: Tensor, valid: Tensor, noise: Tensor | None) -> Tensor:
    """-(action - mean)^2, mean over dimensions, [n]: what CPS's code calls a log-prob (no 2 std^2, no constant). It is
    the mean reduction times 2 std^2, so that its clip range is smaller (published: 1e-5)."""
    return (-total((action - mean).square(), valid) / dimensions(valid, mean)).float()


def reduce_guard(action: Tensor, mean: Tensor, std: Tensor, valid: Tensor, noise: Tensor | None) -> Tensor:
    """GRPO-Guard's log-ratio (arXiv 2510.22319), [n]: (mean reduction + |mean - behaviour|^2 / (2 std^2)) std, which is
    the mean over dimensions of noise (mean - behaviour mean). `centred` times std / sqrt(D)."""
    d = dimensions(valid, mean)
    return (reduce_centred(action, mean, std, valid, noise).double() * std.double() / d.sqrt()).float()


@dataclass(frozen=True)
class Reduction:
    """An event reduction, and the clip range that fits it.

    Attributes:
        log_prob: (action, mean, std, valid, noise) -> [n].
        scale: (dimensions [n] float64, std [n] float64) -> [n]: this log-prob's gradient at the behaviour policy over
            the event's own. The KL is multiplied by it too, so that one beta means one strength beside the policy term.
        needs_noise: whether the drawn noise is stored with the samples.
        clip: D -> default clip range.
    """

    log_prob: Callable[[Tensor, Tensor, Tensor, Tensor, Tensor | None], Tensor]
    scale: Callable[[Tensor, Tensor], Tensor]
    needs_noise: bool
    clip: Callable[[int], ClipDefaults]


def _same(width: float) -> ClipDefaults:
    return ClipDefaults(width, width)


REDUCTIONS: dict[str, Reduction] = {
    "sum": Reduction(reduce_sum, lambda d, std: torch.ones_like(d), False, lambda d: _same(0.2)),
    "mean": Reduction(reduce_mean, lambda d, std: 1 / d, False, lambda d: _same(PUBLISHED_SHIFT / math.sqrt(d))),
    "centred": Reduction(reduce_centred, lambda d, std: d.rsqrt(), True, lambda d: _same(PUBLISHED_SHIFT)),
    "squared_error": Reduction(
        reduce_squared_error,
        lambda d, std: 2 * std**2 / d,
        False,
        lambda d: _same(0.1 * PUBLISHED_SHIFT / math.sqrt(d)),
    ),
    "guard": Reduction(reduce_guard, lambda d, std: std / d, True, lambda d: _same(PUBLISHED_SHIFT / math.sqrt(d))),
}


def kl_same_std(mean: Tensor, other: Tensor, std: Tensor, valid: Tensor) -> Tensor:
    """KL(N(mean, std^2) || N(other, std^2)) = |mean - other|^2 / (2 std^2) of the event, summed over the valid
    dimensions: [n] float64. Exact, and so is its gradient. `std` is the step's own, with dt in it."""
    return total(0.5 * ((mean - other) / expand(std, mean)).square(), valid)

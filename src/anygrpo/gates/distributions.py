"""What a gate needs of a distribution: a deterministic value, a safe draw, and which family it is."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.distributions import Bernoulli, Beta, Categorical, Distribution, Independent, Normal, OneHotCategorical

from anygrpo.errors import ConfigError
from anygrpo.spoken import Text

FAMILIES = (Beta, Normal, Categorical, OneHotCategorical, Bernoulli)
EDGE = 1e-6
"""Beta draws are kept this far from 0 and 1, where the log-density is infinite; how often is reported."""


def base_of(distribution: Distribution) -> Distribution:
    """The family under any `Independent` wrappers.

    Raises:
        ConfigError: not one of the families a gate knows.
    """
    while isinstance(distribution, Independent):
        distribution = distribution.base_dist
    if not isinstance(distribution, FAMILIES):
        known = ", ".join(f.__name__ for f in FAMILIES)
        raise ConfigError(
            Text(
                f"a gate cannot draw from {type(distribution).__name__}",
                f"门控不能从 {type(distribution).__name__} 采样",
            ),
            Text(f"use one of {known}", f"可用：{known}"),
        )
    return distribution


def in_float32(distribution: Distribution) -> tuple[Distribution, torch.dtype | None]:
    """The same distribution with float32 parameters, and the type that they had (None: float32 already). Densities in
    bfloat16 are off by whole units.

    Raises:
        ConfigError: not one of the families a gate knows.
    """
    base = base_of(distribution)
    held = _given(base).dtype
    if held in (torch.float32, torch.float64):
        return distribution, None
    return _in_float32(distribution), held


def _given(base: Distribution) -> Tensor:
    """A parameter as it was given: reading it computes nothing."""
    if isinstance(base, Beta):
        return base.concentration1
    if isinstance(base, Normal):
        return base.loc
    return (base._categorical if isinstance(base, OneHotCategorical) else base)._param  # type: ignore[union-attr]


def _in_float32(d: Distribution) -> Distribution:
    if isinstance(d, Independent):
        return Independent(_in_float32(d.base_dist), d.reinterpreted_batch_ndims)
    if isinstance(d, Beta):
        return Beta(d.concentration1.float(), d.concentration0.float())
    if isinstance(d, Normal):
        return Normal(d.loc.float(), d.scale.float())
    return type(d)(logits=d.logits.float())  # type: ignore[call-arg]  # a choice or a coin


def rounded(value: Tensor, distribution: Distribution, dtype: torch.dtype | None) -> Tensor:
    """A value as the network takes it, in `dtype`; a Beta's stays off 0 and 1 there too."""
    if dtype is None or not value.is_floating_point():
        return value
    value = value.to(dtype)
    if isinstance(base_of(distribution), Beta):
        value = value.clamp(EDGE, 1 - torch.finfo(dtype).eps)
    return value


def middle(distribution: Distribution, kind: str = "mean") -> Tensor:
    """The deterministic value, with its gradient: "mean" or "mode".

    A Categorical has no mean (its values are indices), so it gives its mode. The mean of a OneHotCategorical or a
    Bernoulli is their probability: a soft choice. A Beta's value stays off 0 and 1 by `EDGE`.
    """
    base = base_of(distribution)
    if isinstance(base, Categorical):
        return base.probs.argmax(-1)
    if isinstance(base, Bernoulli) and kind == "mode":
        return (base.probs >= 0.5).to(base.probs.dtype)  # torch gives nan at exactly 0.5
    value = base.mean if kind == "mean" else base.mode
    return value.clamp(EDGE, 1 - EDGE) if isinstance(base, Beta) else value


def draw(distribution: Distribution) -> tuple[Tensor, Tensor]:
    """A draw without gradient from torch's current random state, and how many numbers of each row `EDGE` moved, [n]."""
    with torch.no_grad():
        value = sampled(distribution)
        if not isinstance(base_of(distribution), Beta):
            return value, torch.zeros(value.shape[0], dtype=torch.int64, device=value.device)
        kept = value.clamp(EDGE, 1 - EDGE)
        return kept, (kept != value).reshape(value.shape[0], -1).sum(1)


def sampled(distribution: Distribution) -> Tensor:
    """`distribution.sample()`, the same numbers. A choice is drawn as `torch.multinomial` draws one, without its check
    of the probabilities, which waits for the device."""
    if not isinstance(distribution, (Categorical, OneHotCategorical)):
        return distribution.sample()
    probs = distribution.probs.reshape(-1, distribution.probs.shape[-1])
    index = (probs / torch.empty_like(probs).exponential_()).argmax(-1).reshape(distribution.batch_shape)
    if isinstance(distribution, Categorical):
        return index
    return torch.zeros_like(distribution.probs).scatter_(-1, index[..., None], 1.0)


def in_support(distribution: Distribution, value: Tensor) -> Tensor:
    """`value`, or the mode where `value` is a soft mean that a discrete distribution gives no probability."""
    support = distribution.support
    if support is None or not isinstance(base_of(distribution), (OneHotCategorical, Bernoulli)):
        return value
    possible = support.check(value)
    possible = possible.reshape(*possible.shape, *[1] * (value.dim() - possible.dim()))
    return torch.where(possible, value, middle(distribution, "mode").to(value.dtype))

"""Log-ratios of the new policy to the behaviour policy: [n, t] in, [n, t] out. n rows, t decisions."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from anygrpo.errors import AnygrpoError


def log_ratio(new: Tensor, old: Tensor, mask: Tensor) -> Tensor:
    """log(new / old) [n, t] where `mask`, else 0. Whatever stands at masked places (inf, NaN) never enters.

    Raises:
        AnygrpoError: shapes that differ.
    """
    if not new.shape == old.shape == mask.shape:
        raise AnygrpoError(f"log-probs {tuple(new.shape)}, old {tuple(old.shape)}, mask {tuple(mask.shape)} differ")
    return torch.where(mask, new, 0.0) - torch.where(mask, old, 0.0)


def sequence_log_ratio(new: Tensor, old: Tensor, mask: Tensor) -> Tensor:
    """Mean log-ratio over a row's decisions, at each of its decisions [n, t]; 0 at masked places.

    The value is the length-normalised sequence ratio of GSPO, (1/T) sum_t log(new_t / old_t); the gradient of place t
    goes to new_t alone (GSPO-token, arXiv 2507.18071, eq. 14). Under any per-row mean over decisions the gradient is
    that of the sequence form. Needs all decisions of a row.
    """
    ratio = log_ratio(new, old, mask)
    length = mask.sum(1, keepdim=True).clamp(min=1)
    mean = (ratio.sum(1, keepdim=True) / length).detach()
    own = mean + (ratio - ratio.detach())
    return torch.where(mask, torch.where(ratio.isfinite(), own, mean), 0.0)  # inf - inf is NaN; the mean still says inf


def ratio_stats(ratio: Tensor, mask: Tensor) -> dict[str, Tensor]:
    """Scalars about log-ratios [n, t], per decision: `log_ratio/mean`, `log_ratio/abs_max`, `ratio/mean`, `ratio/max`,
    `ratio/ess` (effective sample size as a share of the decisions, (sum r)^2 / (n sum r^2)).

    No ratio is clamped: beyond float64 they are inf. Nothing selected: log-ratios 0, ratios 1.
    """
    x = ratio.detach()[mask].double()
    if x.numel() == 0:
        x = x.new_zeros(1)
    ess = 2 * x.logsumexp(0) - (2 * x).logsumexp(0) - math.log(x.numel())
    return {
        "log_ratio/mean": x.mean(),
        "log_ratio/abs_max": x.abs().max(),
        "ratio/mean": x.exp().mean(),
        "ratio/max": x.max().exp(),
        "ratio/ess": ess.exp(),
    }

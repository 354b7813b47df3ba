"""Picking without replacement: masks, Plackett-Luce log-probabilities, Gumbel top-k, orders of a set.

Letters: n rows, M candidates (padded), K picks. A pick is a position in the pool, `STOP`, or `NOTHING` (the row had
already ended). Distributions have M + 1 columns: the last is STOP.
"""

from __future__ import annotations

import itertools

import torch
from torch import Tensor

from anygrpo.errors import ConfigError
from anygrpo.spoken import Text

STOP, NOTHING = -1, -2


def columns(chosen: Tensor, size: int) -> Tensor:
    """Picks as columns of an M + 1 wide distribution: STOP and NOTHING both point at the last column."""
    return torch.where(chosen < 0, torch.full_like(chosen, size), chosen)


def open_columns(choosable: Tensor, chosen: Tensor, stop: bool, min_shots: int) -> Tensor:
    """What could be picked at each step.

    Args:
        choosable: [..., M] bool, before the first pick.
        chosen: [..., K] picks; leading dimensions broadcast with those of `choosable`.
        stop: whether STOP is an action at all.
        min_shots: picks before STOP is allowed.

    Returns:
        [..., K, M + 1] bool. An ended row has its STOP column alone, so that its log-probability is 0.
    """
    size, shots = choosable.shape[-1], chosen.shape[-1]
    steps = torch.arange(shots, dtype=torch.int16, device=chosen.device)
    # The step that takes each column away; STOP and NOTHING take the last one, which is set by itself below.
    taken_at = torch.full((*chosen.shape[:-1], size + 1), shots, dtype=torch.int16, device=chosen.device)
    taken_at.scatter_(-1, columns(chosen, size), steps.expand_as(chosen))
    left = choosable[..., None, :] & (taken_at[..., None, :size] >= steps[:, None])
    left &= (chosen != NOTHING)[..., None]
    may_stop = (steps >= min_shots) & stop
    last = may_stop | ~left.any(-1)
    return torch.cat([left, last[..., None]], -1)


class Remaining:
    """What each row may still pick, while it picks: `open_columns` one step at a time."""

    def __init__(self, choosable: Tensor, stop: bool, min_shots: int) -> None:
        """choosable [..., M] bool; it is copied."""
        self.left, self.stop, self.min_shots, self.step = choosable.clone(), stop, min_shots, 0
        self.ended = torch.zeros_like(choosable[..., 0])

    def options(self) -> Tensor:
        """[..., M + 1] bool, open columns of the next pick."""
        may_stop = self.stop and self.step >= self.min_shots
        last = torch.ones_like(self.ended) if may_stop else ~self.left.any(-1)
        return torch.cat([self.left, last[..., None]], -1)

    def take(self, column: Tensor) -> Tensor:
        """Columns [...] as picks: STOP for the last one, NOTHING where a row had ended before."""
        size = self.left.shape[-1]
        stops = column == size
        pick = torch.where(self.ended, NOTHING, torch.where(stops, STOP, column))
        self.left.scatter_(-1, column.clamp(max=size - 1)[..., None], False)
        self.ended = self.ended | stops
        self.left &= ~self.ended[..., None]
        self.step += 1
        return pick

    def select(self, parents: Tensor) -> None:
        """Go on with the rows that `parents` [u, r'] name in each prompt; rows are [u, r]."""
        self.left = self.left.gather(1, parents[..., None].expand(-1, -1, self.left.shape[-1]))
        self.ended = self.ended.gather(1, parents)


def decision_mask(options: Tensor, chosen: Tensor) -> Tensor:
    """[n, K] bool: made by the policy: the row had not ended, and more than one option was open."""
    return (chosen != NOTHING) & (options.sum(-1) > 1)


def log_softmax(logits: Tensor, options: Tensor) -> Tensor:
    """Log-probabilities over the open columns, -inf elsewhere; [..., M + 1]."""
    return torch.where(options, logits, -torch.inf).log_softmax(-1)


def of_chosen(log_probs: Tensor, chosen: Tensor) -> Tensor:
    """[..., K] of what was chosen; exactly 0 where nothing was (ended rows have their last column alone)."""
    chosen = chosen.to(log_probs.device)
    column = columns(chosen, log_probs.shape[-1] - 1)
    return log_probs.gather(-1, column[..., None])[..., 0]


def entropy(log_probs: Tensor) -> Tensor:
    """Exact entropy in nats of categoricals [..., C] that may hold -inf; [...]."""
    safe = log_probs.masked_fill(log_probs == -torch.inf, 0.0)
    return -(log_probs.exp() * safe).sum(-1)


def kl(log_probs: Tensor, reference: Tensor) -> Tensor:
    """Exact KL(p || q) in nats of categoricals [..., C] with the same open columns; [...]."""
    closed = log_probs == -torch.inf
    difference = log_probs.masked_fill(closed, 0.0) - reference.masked_fill(closed, 0.0)
    return (log_probs.exp() * difference).sum(-1)


def gumbel(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    """Standard Gumbel noise, drawn on the CPU so that a seed means the same on every device."""
    uniform = torch.rand(shape, generator=generator, dtype=torch.float64)
    return uniform.clamp_min_(1e-300).log_().neg_().float().log_().neg_()


def gumbel_top_k(log_probs: Tensor, k: int, generator: torch.Generator) -> Tensor:
    """k columns without replacement, in order: the same law as picking one after the other and renormalising
    (Plackett-Luce), in one draw. Kool, van Hoof and Welling 2019.

    Args:
        log_probs: [n, C] that don't change with what was picked; at least k of them finite.

    Returns:
        [n, k] int64.
    """
    noise = gumbel(tuple(log_probs.shape), generator).to(log_probs.device)
    return (log_probs + noise).topk(k, dim=-1).indices


def tuples(chosen: Tensor) -> list[list[tuple[int, ...]]]:
    """Picks [P, G, K] as tuples of positions, STOP and NOTHING left out."""
    return [[tuple(i for i in row if i >= 0) for row in group] for group in chosen.tolist()]


def orders(chosen: Tensor) -> Tensor:
    """Every order of each row's picks, STOP and NOTHING staying behind.

    Args:
        chosen: [n, K], K <= 4.

    Returns:
        [n, K!, K]; a row with fewer picks repeats its orders, K! / L! times each.

    Raises:
        ConfigError: K > 4.
    """
    k = chosen.shape[1]
    if k > 4:
        raise ConfigError(
            Text(f"a set of {k} has too many orders", f"大小为 {k} 的集合次序太多"),
            Text("use sets of at most 4", "集合至多取 4 个"),
        )
    every = torch.tensor(list(itertools.permutations(range(k))), device=chosen.device)  # [K!, K]
    shuffled = chosen[:, every]  # [n, K!, K]
    rank = torch.where(shuffled >= 0, 0, 1)
    place = rank.argsort(dim=-1, stable=True)  # real picks first, in the permuted order
    picks = shuffled.gather(-1, place)
    tail = (chosen < 0)[:, None, :].expand_as(picks)
    return torch.where(tail, chosen[:, None, :].expand_as(picks), picks)


def repeats(chosen: Tensor) -> Tensor:
    """[n] how often `orders` repeats each distinct order: (K)! / (L)! with L real picks."""
    k = chosen.shape[1]
    factorial = torch.tensor([1.0, 1.0, 2.0, 6.0, 24.0], device=chosen.device)
    return factorial[k] / factorial[(chosen >= 0).sum(-1)]

"""Where the window of stochastic steps lies (MixGRPO, arXiv 2507.21802)."""

from __future__ import annotations

import math

import torch

from anygrpo.denoising.settings import DenoisingConfig


def window_start(config: DenoisingConfig, updates: int, seed: int) -> int:
    """First stochastic step of a rollout that is sampled after so many updates.

    drawn: from the seed. progressive: `window_every` updates a place, then `window_stride` steps on, and back to the
    first at the end. decaying: the same with ceil(every exp(-decay max(0, start - from))) updates at a place, so that
    early steps, which decide most, are trained longest. linear: every (1 - p) + least p of them, rounded down, p the
    place's share of the steps - 2 that the published code counts.
    """
    low, high = config.window_starts
    if config.window_moves == "drawn":
        return low + int(torch.randint(high - low + 1, (1,), generator=torch.Generator().manual_seed(seed)))
    starts = range(low, high + 1, config.window_stride)
    stay = [_stay(config, start) for start in starts]
    left = updates % sum(stay)
    for start, count in zip(starts, stay):
        if left < count:
            return start
        left -= count
    raise AssertionError("the remainder is below the sum")


def _stay(config: DenoisingConfig, start: int) -> int:
    if config.window_moves == "progressive":
        return config.window_every
    if config.window_moves == "linear":
        least = config.window_least or max(1, config.window_every // 4)
        way = start / (config.steps - 2) if config.steps > 2 else 0.0
        return max(least, int(config.window_every * (1 - way) + least * way))
    late = max(0, start - config.window_decay_from)
    return math.ceil(config.window_every * math.exp(-config.window_decay * late))

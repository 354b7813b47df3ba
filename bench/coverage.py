"""How often the nominal 95% of `anygrpo.core.intervals` hold the true value, and 80% power is had: docs/compare.md.

python bench/coverage.py 20000
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator

import torch
from torch import Tensor

from anygrpo.core.intervals import Interval, arms, hierarchical, interval, rate


def coverage(draws: int, seed: int = 0) -> Iterator[tuple[str, float]]:
    """(what, share of `draws` that held the truth); of rates, scenes and recipes a quarter as many draws."""
    generator = torch.Generator().manual_seed(seed)
    normal = lambda *shape: torch.randn(*shape, generator=generator, dtype=torch.float64)  # noqa: E731
    for n in (5, 9, 40):
        held = sum(_holds(interval(normal(n)), 0.0) for _ in range(draws))
        yield f"mean of {n} pictures", held / draws
    for n in (5, 9, 20, 40):
        skewed = sum(_holds(interval(normal(n).exp()), math.exp(0.5)) for _ in range(draws))
        yield f"mean of {n} skewed (log-normal) values", skewed / draws
    for n in (3, 5, 9, 20, 40):
        drawn = [interval(normal(n)) for _ in range(draws // 4)]
        told = sum(x.detectable for x in drawn) / len(drawn)
        yield f"power at what {n} pictures are told to show", sum(x.low + told > 0 for x in drawn) / len(drawn)
    scenes = [i for i in range(9) for _ in range(7)]
    held = sum(_holds(interval((normal(9, 1) + normal(9, 7)).flatten(), scenes), 0.0) for _ in range(draws // 4))
    yield "mean over 9 scenes of 7 pictures", held / (draws // 4)
    for n, share, each in ((20, 0.5, 1), (20, 0.95, 1), (50, 0.1, 1), (20, 0.9, 8), (50, 0.5, 8)):
        found = [rate(_passes(n, share, each, generator)) for _ in range(draws // 4)]
        held = sum(_holds(x, share) for x in found)
        yield f"rate {share} over {n} prompts, {each} samples each", held / (draws // 4)
    for seeds in (3, 5, 10):
        held = drawn = 0
        for _ in range(draws // 4):
            easy = normal(1, 60)
            a, b = (0.5 * normal(seeds, 1) + 0.5 * easy * s + normal(seeds, 60) for s in (1.0, 1.2))
            found = arms(a, b)
            held += found.low <= 0 <= found.high
            if seeds >= 10:
                low, high = hierarchical(a, b)
                drawn += low <= 0 <= high
        yield f"two recipes, {seeds} seeds each, 60 prompts", held / (draws // 4)
    yield "the same 10 seeds each, bootstrap over both", drawn / (draws // 4)


def _passes(prompts: int, share: float, samples: int, generator: torch.Generator) -> Tensor:
    """Pass rates of prompts of unequal difficulty: at each prompt p is share or, for one sample, a coin of it."""
    if samples == 1:
        return (torch.rand(prompts, generator=generator) < share).double()
    easy = (torch.rand(prompts, generator=generator) < share).double()  # solved by nearly all samples, or by few
    at = 0.9 * easy + 0.1 * share
    return (torch.rand(prompts, samples, generator=generator) < at[:, None]).double().mean(1)


def _holds(found: Interval, true: float) -> bool:
    return found.low <= true <= found.high


if __name__ == "__main__":
    torch.set_num_threads(1)
    for what, share in coverage(int(sys.argv[1])):
        print(f"| {what} | {share:.3f} |", flush=True)

"""Intervals: numbers by hand, and how often they hold the truth."""

from __future__ import annotations

import pytest
import torch

from anygrpo.core.intervals import arms, hierarchical, interval, t_quantile


def test_t_by_hand():
    assert t_quantile(3) == pytest.approx(3.182446, abs=1e-6)
    found = interval(torch.tensor([1.0, 2.0, 3.0, 4.0]))
    half = 3.182446 * (5 / 3) ** 0.5 / 2
    assert (found.mean, found.units) == (2.5, 4)
    assert (found.low, found.high) == (pytest.approx(2.5 - half, abs=1e-5), pytest.approx(2.5 + half, abs=1e-5))


def test_crops_of_one_photograph_are_one_unit():
    values = torch.tensor([1.0, 1.0, 1.0, 2.0, 3.0])
    found = interval(values, ["a", "a", "a", "b", "c"])
    assert found.units == 3
    assert found.mean == pytest.approx(1.6)
    assert found.high - found.low > 2 * (interval(values).high - interval(values).low) * 0.9


def test_equal_values_are_bounded_and_never_exact():
    found = interval(torch.zeros(20), span=1.0)
    assert found.high == pytest.approx(1 - 0.025**0.05)
    assert found.detectable > 0


def test_seeds_widen_what_prompts_alone_would_show():
    generator = torch.Generator().manual_seed(0)
    a = 0.5 + 0.05 * torch.randn(4, 1, generator=generator) + 0.2 * torch.randn(4, 400, generator=generator)
    b = a + 0.02
    b = b + 0.05 * torch.randn(4, 1, generator=generator)
    found = arms(a, b)
    by_prompts = interval(b.mean(0) - a.mean(0))
    assert found.high - found.low > 2 * (by_prompts.high - by_prompts.low)
    assert (found.seeds_a, found.seeds_b, found.prompts) == (4, 4, 400)
    assert found.seeds_needed is None or found.seeds_needed > 4


def test_one_seed_says_nothing_of_seeds():
    with pytest.raises(ValueError, match="two at least"):
        arms(torch.zeros(1, 5), torch.zeros(3, 5))


def test_arms_hold_the_truth():
    generator = torch.Generator().manual_seed(1)
    held = 0
    for _ in range(300):
        easy = torch.randn(1, 30, generator=generator)
        a, b = (
            0.5 * torch.randn(3, 1, generator=generator) + easy + torch.randn(3, 30, generator=generator) for _ in "ab"
        )
        found = arms(a, b)
        held += found.low <= 0 <= found.high
    assert 0.91 <= held / 300 <= 0.99


def test_a_bootstrap_over_many_seeds_agrees_with_arms():
    generator = torch.Generator().manual_seed(2)
    a, b = (torch.randn(20, 1, generator=generator) + torch.randn(20, 50, generator=generator) for _ in "ab")
    found, (low, high) = arms(a, b), hierarchical(a, b)
    assert high - low == pytest.approx(found.high - found.low, rel=0.25)

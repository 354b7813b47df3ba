"""Intervals: numbers by hand, and how often they hold the truth."""

from __future__ import annotations

import math

import pytest
import torch

from anygrpo.core.intervals import arms, difference, hierarchical, interval, largest, of_prompts, rate, t_quantile


def _passes(prompts: int, share: float, samples: int, generator: torch.Generator) -> torch.Tensor:
    """Pass rates of prompts of unequal difficulty: at each prompt p is share or, for one sample, a coin of it."""
    if samples == 1:
        return (torch.rand(prompts, generator=generator) < share).double()
    easy = (torch.rand(prompts, generator=generator) < share).double()  # solved by nearly all samples, or by few
    at = 0.9 * easy + 0.1 * share
    return (torch.rand(prompts, samples, generator=generator) < at[:, None]).double().mean(1)


def test_t_by_hand():
    """Symmetric values: nothing is added to t."""
    assert t_quantile(3) == pytest.approx(3.182446, abs=1e-6)
    found = interval(torch.tensor([1.0, 2.0, 3.0, 4.0]))
    half = 3.182446 * (5 / 3) ** 0.5 / 2
    assert (found.mean, found.units) == (2.5, 4)
    assert (found.low, found.high) == (pytest.approx(2.5 - half, abs=1e-5), pytest.approx(2.5 + half, abs=1e-5))


def test_skewed_values_by_hand():
    """0, 0, 0, 4: mean 1, se 1, skewness of the mean 24 / 12^1.5 x 12^.5 / 2 = 1. T = 3 (cbrt(1 + y - 1/6) - 1) at
    y = -3.182446 and 3.182446 is -6.987 and 1.767: on the short side t is the wider."""
    found = interval(torch.tensor([0.0, 0.0, 0.0, 4.0]))
    assert found.low == pytest.approx(1 - 3.182446, abs=1e-5)
    assert found.high == pytest.approx(1 + 3 * (1 + (3.182446 + 1 / 6 - 1) ** (1 / 3)), abs=1e-5)
    assert found.detectable == pytest.approx(found.high - 1 + 0.978472, abs=1e-5)  # the wider side, and t at .8
    turned = interval(torch.tensor([0.0, 0.0, 0.0, -4.0]))
    assert (turned.low, turned.high) == (pytest.approx(-found.high), pytest.approx(-found.low))
    crops = interval(torch.tensor([0.0, 0.0, 0.0, 0.0, 4.0, 4.0]), ["a", "b", "c", "c", "d", "d"])
    assert crops.mean == pytest.approx(8 / 6)
    assert crops.high - crops.mean > crops.mean - crops.low


@pytest.mark.parametrize("count", [5, 9, 20])
def test_what_is_detectable_is_shown_four_times_in_five(count):
    """Of normal values, by the interval itself; t at .975 and at .8 alone: .60, .69, .77."""
    values = torch.randn(1000, count, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    found = [interval(x) for x in values]
    least = sum(x.detectable for x in found) / 1000
    assert 0.77 <= sum(x.low + least > 0 for x in found) / 1000 <= 0.88


@pytest.mark.parametrize(("count", "least"), [(5, 0.88), (9, 0.89), (40, 0.92)])
def test_intervals_of_skewed_values_hold_the_truth(count, least):
    """Log-normal: Student's t alone covers .82, .83, .89."""
    values = torch.randn(1500, count, generator=torch.Generator().manual_seed(4), dtype=torch.float64).exp()
    found = [interval(x) for x in values]
    assert sum(x.low <= math.exp(0.5) <= x.high for x in found) / 1500 >= least


def test_crops_of_one_photograph_are_one_unit():
    values = torch.tensor([1.0, 2.0, 2.5, 4.0])
    crops = interval(values.repeat_interleave(3), [name for name in "abcd" for _ in range(3)])
    alone, as_if = interval(values), interval(values.repeat_interleave(3))
    assert (crops.units, crops.low, crops.high) == (4, pytest.approx(alone.low), pytest.approx(alone.high))
    assert crops.high - crops.low > 2 * (as_if.high - as_if.low)
    uneven = interval(torch.tensor([1.0, 1.0, 1.0, 2.0, 3.0]), ["a", "a", "a", "b", "c"])
    assert (uneven.units, uneven.mean) == (3, pytest.approx(1.6))


def test_equal_values_are_bounded_and_never_exact():
    found = interval(torch.zeros(20), span=1.0)
    assert found.high == pytest.approx(1 - 0.025**0.05)
    assert found.detectable > 0


@pytest.mark.parametrize(("value", "n"), [(0.1, 9), (1 / 3, 9), (0.9, 40), (-0.2, 6)])
def test_equal_values_whose_mean_rounds_are_equal(value, n):
    """The sum of nine times .1 is not .9: what an unseen unit of -1 or 1 would change, and no width of 1e-17."""
    found, share = interval(torch.full((n,), value, dtype=torch.float64), span=1.0), 1 - 0.025 ** (1 / n)
    assert found.low == pytest.approx(max(-1.0, value - share * (1 + value)))
    assert found.high == pytest.approx(min(1.0, value + share * (1 - value)))
    assert found.detectable == pytest.approx(share * (1 + abs(value)))  # the wider side


def test_a_gain_that_is_the_same_everywhere_is_bounded_and_one_of_rounding_is_none():
    a = torch.tensor([0.2, 0.3, 0.7, 0.1, 0.6, 0.5, 0.4, 0.8, 0.9], dtype=torch.float64)
    found, share = difference(a, a + 0.1), 1 - 0.025 ** (1 / 9)
    assert found.high - found.low > 2 * share
    assert not found.shown
    rounding = difference(a, (a + 0.1) - 0.1)
    assert abs(rounding.mean) < 1e-16
    assert (rounding.low, rounding.high) == (pytest.approx(-0.9 * share), pytest.approx(0.9 * share))
    alone = interval(torch.full((9,), 27.3, dtype=torch.float64), span=1.0)  # no span: a value is beyond it
    assert alone.high - 27.3 == pytest.approx(27.3 - alone.low)
    assert alone.high > 30


def test_recipes_that_differ_by_rounding_only_are_bounded():
    a = torch.full((3, 9), 0.1, dtype=torch.float64)
    found, share = arms(a, torch.full((4, 9), 0.7 - 0.6, dtype=torch.float64)), 1 - 0.025 ** (1 / 9)
    assert found.high == pytest.approx(0.1 * share)
    gained = arms(a, a + 0.5)
    assert gained.high - gained.difference == pytest.approx((0.6 + 0.5) * share)
    assert gained.difference - gained.low == pytest.approx((0.6 + 0.5) * share)


def test_no_interval_of_bounded_values_leaves_the_bounds():
    """Twenty gains of 1: of an unseen prompt it may be -1. Of one right answer more in three no gain is above 1."""
    found = difference(torch.zeros(20), torch.ones(20))
    assert (found.low, found.high) == (pytest.approx(1 - 2 * (1 - 0.025**0.05)), 1.0)
    assert interval(torch.ones(20), span=1.0) == found
    few = difference(torch.zeros(3), torch.tensor([0.0, 0.0, 1.0]))
    assert (few.low, few.high) == (-1.0, 1.0)
    signs = difference(torch.tensor([-1.0, -1.0, 1.0]), torch.tensor([-1.0, -1.0, -1.0]))
    assert (signs.low, signs.high) == (-2.0, 2.0)
    free = difference(torch.tensor([0.0, 0.0, 0.0]), torch.tensor([0.0, 0.0, 1.5]))
    assert free.high > 1.5
    shares = of_prompts(torch.tensor([1.0, 1.0, 1.0, 0.5, 1.0, 1.0]))
    assert 0 <= shares.low < shares.high <= 1


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


@pytest.mark.parametrize(("gap", "needed"), [(1.0, 17), (3.0, 4), (10.0, 2), (0.0, None)])
def test_seeds_needed_is_the_two_sample_t_tests(gap, needed):
    """Spread 1 from seed to seed, and prompts that all differ alike: n = 17 for one standard deviation (Cohen's table
    of power), 4 for three, where normal quantiles would say 16 and 2."""
    seeds = torch.tensor([-1.0, 0.0, 1.0], dtype=torch.float64)[:, None].expand(3, 40)
    found = arms(seeds, seeds + gap)
    assert found.between_seeds == pytest.approx(1.0)
    assert found.seeds_needed == needed


def test_what_prompts_alone_hide_no_seeds_show():
    prompts = torch.tensor([-1.0, 1.0] * 10, dtype=torch.float64)
    a = torch.tensor([[0.0], [1e-3]], dtype=torch.float64).expand(2, 20)
    assert arms(a, a + prompts + 0.1).seeds_needed is None


def test_one_seed_says_nothing_of_seeds():
    with pytest.raises(ValueError, match="two at least"):
        arms(torch.zeros(1, 5), torch.zeros(3, 5))


@pytest.mark.parametrize("value", [0.0, 1.0])
def test_runs_that_all_answer_alike_show_no_difference_and_not_that_there_is_none(value):
    found = arms(torch.full((3, 20), value), torch.full((4, 20), value))
    bound = 1 - 0.025**0.05  # so many of the prompts could differ, and none of 20 show it
    assert (found.low, found.high) == (pytest.approx(-bound), pytest.approx(bound))
    assert found.detectable == pytest.approx(bound)


def test_the_span_of_differences_is_the_largest_one_and_of_zeros_one():
    assert largest(torch.tensor([0.0, -3.0]), torch.tensor([2])) == 5.0
    assert largest(torch.tensor([5.0, 4.0])) == largest(torch.tensor([-5.0])) == 5.0
    assert largest(torch.zeros(4)) == largest(torch.zeros(0)) == 1.0


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


def test_a_rate_by_hand_stays_within_0_and_1():
    """Clopper-Pearson of 9 of 10, and of 20 of 20: .025^(1/20)."""
    found = rate(torch.tensor([1.0] * 9 + [0.0]))
    assert (found.low, found.high) == (pytest.approx(0.55498, abs=1e-5), pytest.approx(0.99747, abs=1e-5))
    assert interval(torch.tensor([1.0] * 9 + [0.0])).high > 1
    sure = rate(torch.ones(20))
    assert (sure.low, sure.high) == (pytest.approx(0.025**0.05), 1.0)
    none = rate(torch.zeros(20))
    assert (none.low, none.high) == (0.0, pytest.approx(1 - 0.025**0.05))
    with pytest.raises(ValueError, match="are no rates"):
        rate(torch.tensor([0.2, 1.2]))


def test_a_rate_of_shares_by_hand():
    """Units .25, .75, .5: spread .125, with a unit at 0 and one at 1 .625; 12 x .25 / .625 = 4.8 trials, 2.4 passed."""
    from scipy.stats import beta

    found = rate(torch.tensor([0.25, 0.75, 0.5]))
    assert found.low == pytest.approx(beta.ppf(0.025, 2.4, 3.4), abs=1e-9)
    assert found.high == pytest.approx(beta.ppf(0.975, 3.4, 2.4), abs=1e-9)
    doubled = rate(torch.tensor([0.25, 0.75, 0.5]).repeat_interleave(2), ["a", "a", "b", "b", "c", "c"])
    assert (doubled.low, doubled.high, doubled.units) == (pytest.approx(found.low), pytest.approx(found.high), 3)


@pytest.mark.parametrize(("prompts", "share", "samples"), [(20, 0.95, 1), (20, 0.9, 8), (50, 0.5, 8)])
def test_rates_hold_the_truth(prompts, share, samples):
    generator = torch.Generator().manual_seed(3)
    found = [rate(_passes(prompts, share, samples, generator)) for _ in range(400)]
    assert sum(x.low <= share <= x.high for x in found) / 400 >= 0.93
    assert all(0 <= x.low <= x.high <= 1 for x in found)


@pytest.mark.parametrize("values", [[1.0, 0.0, 1.0], [1.0, 0.5, 1.0]])
def test_rewards_within_0_and_1_are_rates_and_others_are_not(values):
    values = torch.tensor(values)
    assert of_prompts(values) == rate(values)
    assert of_prompts(2 * values) == interval(2 * values)


def test_one_value_alone_is_a_rate_where_the_task_says_so():
    """0 of 20 prompts may be the best value of a penalty, and 1 that of a reward of -1 and 1."""
    share = 1 - 0.025**0.05
    zeros, ones = of_prompts(torch.zeros(20)), of_prompts(torch.ones(20))
    assert (zeros.low, zeros.high) == (pytest.approx(-share), pytest.approx(share))
    assert (ones.low, ones.high) == (pytest.approx(1 - 2 * share), 1.0)
    assert of_prompts(torch.ones(20), success=True) == rate(torch.ones(20))
    five = of_prompts(torch.full((20,), 5.0))
    assert (five.low, five.high) == (pytest.approx(5 - 10 * share), pytest.approx(5 + 10 * share))
    assert of_prompts(torch.tensor([0.3])).high == math.inf

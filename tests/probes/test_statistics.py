"""Against hand-computed constants, scipy's tests, and coverage by simulation."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from anygrpo.core.intervals import interval
from anygrpo.probes.significance import mcnemar, paired


def test_mcnemar_by_hand():
    a = torch.tensor([True] * 8 + [False] * 12)
    b = torch.tensor([True] * 7 + [False] * 1 + [True] * 6 + [False] * 6)
    found = mcnemar(a, b)
    assert (found.only_a, found.only_b) == (1, 6)
    assert found.p == pytest.approx(2 * (1 + 7) / 2**7)  # two-sided: at most 1 head in 7 coins
    assert mcnemar(a, a).p == 1.0


@given(st.integers(0, 40), st.integers(0, 40))
def test_mcnemar_is_the_binomial_test(only_a, only_b):
    a = torch.tensor([True] * only_a + [False] * only_b + [True] * 3)
    b = torch.tensor([False] * only_a + [True] * only_b + [True] * 3)
    expected = binomtest(only_a, only_a + only_b).pvalue if only_a + only_b else 1.0
    assert mcnemar(a, b).p == pytest.approx(expected, abs=1e-12)


def test_paired_numbers_by_hand():
    a = torch.tensor([0.0, 0.0, 1.0, 1.0])
    b = torch.tensor([1.0, 0.0, 1.0, 1.0])
    found = paired(a, b)
    assert (found.n, found.mean_a, found.mean_b, found.difference) == (4, 0.5, 0.75, 0.25)
    assert found.low == pytest.approx(0.25 - 3.182446 * 0.25, abs=1e-5)  # t of 3 degrees of freedom, se = .5 / 2
    reach = 3 * (1 + (3.182446 + 1 / 6 - 1) ** (1 / 3))  # Hall's, of skewness 1: the wider side
    assert found.detectable == pytest.approx((reach + 0.978472) * 0.5 / 2, rel=1e-5)
    assert found.needed == 35  # Cohen's table of a paired t test, d = .5: 34; the interval is 1.03 t for normal values


@pytest.mark.parametrize(("gap", "needed"), [(2.5, 5), (1.0, 12)])
def test_so_many_prompts_as_are_needed_show_the_difference_four_times_in_five(gap, needed):
    """Of normal gaps of sd 1: by t alone 4 and 10 prompts, whose interval shows it .66 and .70 of times."""
    generator = torch.Generator().manual_seed(5)
    drawn = torch.randn(4000, generator=generator, dtype=torch.float64)
    drawn = (drawn - drawn.mean()) / drawn.std() + gap
    assert paired(torch.zeros(4000), drawn).needed == needed
    few = [torch.randn(needed, generator=generator, dtype=torch.float64) + gap for _ in range(600)]
    assert 0.75 <= sum(interval(x).low > 0 for x in few) / 600 <= 0.88


def test_equal_runs_have_no_width_and_no_needed_number():
    found = paired(torch.ones(10), torch.ones(10))
    bound = 1 - 0.025**0.1  # of ten equal pairs: so many could differ by 1 and not be among them
    assert (found.difference, found.needed) == (0.0, None)
    assert (-found.low, found.high) == (pytest.approx(bound), pytest.approx(bound))
    assert found.detectable > 0


def test_the_interval_covers_the_truth_about_95_times_in_100():
    generator = torch.Generator().manual_seed(3)
    hits = 0
    for _ in range(100):
        a = torch.randn(40, generator=generator)
        found = paired(a, a + 0.3 + torch.randn(40, generator=generator))
        hits += found.low <= 0.3 <= found.high
    assert 88 <= hits <= 99


def test_the_detectable_difference_is_seen_four_times_in_five():
    generator = torch.Generator().manual_seed(4)
    seen = 0
    for _ in range(200):
        noise = torch.randn(100, generator=generator)
        gap = noise + 2.8016 / 10  # sd 1, n 100
        seen += abs(float(gap.mean() / (gap.std() / 10))) > 1.984
    assert 0.70 < seen / 200 < 0.90

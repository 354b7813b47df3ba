"""Group sizes by hand and beside exhaustive search; what unequal groups estimate, by enumeration of all outcomes."""

import itertools
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from anygrpo.algorithm.advantages import compute
from anygrpo.algorithm.allocation import Seen, equal_share, expected_spread, sizes
from anygrpo.errors import ConfigError


def test_spread_of_passes_is_that_of_jeffreys_mean():
    for n, k in [(0, 0), (1, 1), (8, 0), (8, 3), (8, 8)]:
        mean = (k + 0.5) / (n + 1)
        seen = Seen().after([1.0] * k + [0.0] * (n - k), 0.5)
        assert expected_spread(seen, 0.0, 1.0) == pytest.approx(math.sqrt(mean * (1 - mean)), abs=1e-12)
    assert expected_spread(Seen(), 0.0, 1.0) == 0.5  # the largest: nothing is known
    assert expected_spread(Seen(), -3.0, 5.0) == 4.0


def test_spread_of_graded_rewards_is_their_own():
    seen = Seen().after([0.5 + 0.1 * (-1) ** i for i in range(1000)], 0.5)
    assert expected_spread(seen, 0.0, 1.0) == pytest.approx(math.sqrt((1000 * 0.01 + 2 * 0.125) / 1001), rel=1e-6)


def test_older_visits_count_less():
    seen = Seen().after([1, 1, 1, 1], 0.5).after([0, 0], 0.5)
    assert (seen.count, seen.total, seen.squares) == (4.0, 2.0, 2.0)


def test_sizes_by_hand():
    assert sizes([0.5, 0.5], 8, 2, 64) == [4, 4]
    assert sizes([0.4, 0.1], 20, 2, 64) == [16, 4]  # 4 to 1, as the spreads are
    assert sizes([0.0, 0.5, 0.0], 20, 2, 64) == [2, 16, 2]
    assert sizes([0.0, 0.5, 0.0], 20, 2, 8) == [6, 8, 6]  # what one cannot take goes to the others, evenly
    assert sizes([1.0, 1.0], 100, 4, 10) == [8, 8]  # multiples of the unit; the rest is not drawn
    assert sizes([0.3, 0.3, 0.3], 8, 2, 64) == [4, 2, 2]


def test_too_small_a_budget_names_what_it_takes():
    with pytest.raises(ConfigError, match="6 or more"):
        sizes([1.0, 1.0, 1.0], 4, 2, 64)


@given(st.lists(st.floats(0, 2), min_size=1, max_size=3), st.integers(0, 6), st.integers(1, 4))
def test_no_other_sizes_have_less_variance(spreads, extra, largest):
    unit, budget = 2, 2 * (len(spreads) + extra)
    made = sizes(spreads, budget, unit, largest * unit)
    cost = lambda ns: sum(s * s / n for s, n in zip(spreads, ns))  # noqa: E731
    ladder = range(unit, largest * unit + 1, unit)
    every = [ns for ns in itertools.product(ladder, repeat=len(spreads)) if sum(ns) <= budget]
    assert sum(made) <= budget
    assert cost(made) <= min(map(cost, every)) + 1e-9


LOGITS = torch.tensor([0.4, -0.3, 0.1], dtype=torch.float64)
REWARDS = torch.tensor([1.0, 0.0, 0.25], dtype=torch.float64)


def exact_gradient() -> torch.Tensor:
    logits = LOGITS.clone().requires_grad_()
    (gradient,) = torch.autograd.grad((logits.softmax(0) * REWARDS).sum(), logits)
    return gradient


def expected_estimate(advantage: str, n: int) -> torch.Tensor:
    """E[(1/n) sum_i A_i grad log p(a_i)] over all outcomes of a group of n."""
    p, total = LOGITS.softmax(0), torch.zeros(3, dtype=torch.float64)
    for arms in itertools.product(range(3), repeat=n):
        rewards = REWARDS[list(arms)][None]
        a = compute(advantage, rewards, torch.ones(1, n, dtype=torch.bool)).values[0].double()
        scores = torch.nn.functional.one_hot(torch.tensor(arms), 3) - p  # grad log p(arm)
        total += p[list(arms)].prod() * (a[:, None] * scores).sum(0) / n
    return total


@pytest.mark.parametrize("n", [2, 3, 5])
def test_leave_one_out_is_unbiased_for_every_size_and_the_groups_mean_by_its_factor(n):
    torch.testing.assert_close(expected_estimate("leave_one_out", n), exact_gradient(), rtol=1e-5, atol=1e-7)
    torch.testing.assert_close(expected_estimate("centred", n), exact_gradient() * (n - 1) / n, rtol=1e-5, atol=1e-7)


def test_a_division_by_the_groups_deviation_is_biased_otherwise_at_each_size():
    """Not even the direction is that of the gradient, and it turns with n: what docs/algorithm.md says of z-scores."""
    cosine = [torch.cosine_similarity(expected_estimate("zscore", n), exact_gradient(), 0).item() for n in (2, 5)]
    assert cosine[0] < 0.9999
    assert abs(cosine[0] - cosine[1]) > 1e-4


def test_shares_make_prompts_count_the_same():
    assert equal_share([4, 4, 4], 4.0) == [1.0, 1.0, 1.0]
    sizes_, mean = [2, 8, 2], 4.0
    assert [n * f for n, f in zip(sizes_, equal_share(sizes_, mean))] == [4.0, 4.0, 4.0]
    assert equal_share([0, 4], 2.0) == [0.0, 0.5]

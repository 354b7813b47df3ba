"""Constant groups, extreme numbers, invalid samples: where others go wrong."""

import math

import pytest
import torch
from advantage_helpers import IN_GROUP, adv, close

from anygrpo.algorithm import ADVANTAGES, TOLERANCE, AdvantageOptions, is_constant
from anygrpo.errors import ConfigError

INF, NAN = math.inf, math.nan


@pytest.mark.parametrize("name", IN_GROUP)
@pytest.mark.parametrize("value", [0.1, 0.7, 1e7, 1e-6, 0.0, 1 / 3])
@pytest.mark.parametrize("n", [2, 3, 7, 8])
def test_constant_groups_get_exactly_zero(name, value, n):
    result = adv(name, torch.full((3, n), value))
    assert result.constant.all()
    assert (result.values == 0).all()


@pytest.mark.parametrize("name", IN_GROUP)
def test_float32_rounding_is_not_spread(name):
    r = torch.tensor([[0.1 + 0.2, 0.3, 0.3, 0.3]], dtype=torch.float32)
    r[0, 0] = torch.nextafter(r[0, 0], torch.tensor(1.0))
    result = adv(name, r)
    assert result.constant.all()
    assert (result.values == 0).all()


@pytest.mark.parametrize("offset", [0.0, 1e7, -1e7])
def test_large_rewards_are_centred(offset):
    r = torch.tensor([[0.0, 1, 2, 3]]) + offset
    close(adv("zscore", r).values, [[-1.161895, -0.387298, 0.387298, 1.161895]])


@pytest.mark.parametrize("scale", [1e-6, 1e-20, 1e20])
def test_rewards_of_any_scale_keep_their_advantage(scale):
    close(adv("zscore", torch.tensor([[1.0, 0, 0, 0]]) * scale).values, [[1.5, -0.5, -0.5, -0.5]])


def test_a_denominator_of_zero_gives_zero():
    r = torch.tensor([[1e-200, 0.0]], dtype=torch.float64)  # its square is 0 in float64
    values = ADVANTAGES["zscore"](r, torch.ones_like(r, dtype=torch.bool), AdvantageOptions())
    assert (values == 0).all()


def test_the_tolerance_is_relative_to_the_largest_reward():
    r = torch.tensor([[1.0, 1.0 + 1e-7], [1.0, 1.0 + 1e-6], [0.0, 1e-7]], dtype=torch.float64)
    valid = torch.ones_like(r, dtype=torch.bool)
    assert is_constant(r, valid).tolist() == [True, False, False]
    result = adv("zscore", r)
    assert (result.values[0] == 0).all()
    assert result.constant.tolist() == [True, False, False]
    assert 1.2e-7 < TOLERANCE < 3e-7


def test_the_tolerance_holds_wherever_spread_is_judged():
    # Beside 5 the others are equal up to a float32's rounding: the difference stays undivided.
    close(adv("leave_one_out_std", torch.tensor([[1.0, 1.0 + 1e-7, 5]], dtype=torch.float64)).values[0, 2], 4.0)
    # Mean 1e7, standard deviation 1: less than the tolerance (2), so there is none.
    assert (adv("running", torch.tensor([[0.0, 2]], dtype=torch.float64) + 1e7).values == 0).all()
    close(adv("running", [[0.0, 2]]).values, [[-1, 1]])


@pytest.mark.parametrize("name", sorted(set(ADVANTAGES) - {"running", "pass_at_k"}))  # pass_at_k refuses: k < G
def test_a_group_of_one_gets_zero(name):
    result = adv(name, [[1.0]])
    assert result.values.item() == 0
    assert result.constant.item()


@pytest.mark.parametrize("name", sorted(ADVANTAGES))
@pytest.mark.parametrize("bad", [INF, -INF, NAN])
def test_a_non_finite_reward_leaves_the_group(name, bad):
    with_bad = adv(name, [[1.0, bad, 0, 0, 2], [1.0, 0.5, 0, 4, 2]]).values
    marked = adv(name, [[1.0, 77, 0, 0, 2], [1.0, 0.5, 0, 4, 2]], [[True, False, True, True, True], [True] * 5]).values
    close(with_bad, marked)
    assert with_bad[0, 1] == 0
    assert torch.isfinite(with_bad).all()


@pytest.mark.parametrize("name", sorted(ADVANTAGES))
def test_an_invalid_sample_is_as_if_it_were_not_there(name):
    options = {"k": 2} if name == "pass_at_k" else {}
    short = adv(name, [[1.0, 0, 4]], **options)
    long = adv(name, [[1.0, 50, 0, 4]], [[True, False, True, True]], **options)
    close(long.values[:, [0, 2, 3]], short.values)


def test_all_invalid():
    for name in sorted(ADVANTAGES):
        result = adv(name, [[1.0, 2], [NAN, 0]], [[False, False], [True, False]])
        assert (result.values == 0).all()
        assert result.constant.all()


def test_maxrl_refuses_negative_rewards():
    with pytest.raises(ConfigError, match=r"-0\.5"):
        adv("maxrl", [[1.0, -0.5]])


def test_best_gap_of_two_winners_is_zero():
    assert (adv("best_gap", [[2.0, 2, 0]]).values == 0).all()

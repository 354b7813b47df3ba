"""Means and standard deviations of groups to the last digit of float64, whatever the offset, scale and holes."""

import math
from fractions import Fraction

import pytest
import torch

from anygrpo.algorithm.statistics import group_mean, group_std, is_constant

T, F = True, False


def mean(rows, valid=None):
    x = torch.tensor(rows, dtype=torch.float64)
    return group_mean(x, torch.ones_like(x, dtype=torch.bool) if valid is None else torch.tensor(valid))[:, 0].tolist()


def test_means_are_exact_at_any_offset():
    assert mean([[1e15, 1e15 + 1, 1e15 + 2, 1e15 + 3], [0.0, 1, 1, 2]]) == [1e15 + 1.5, 1.0]


def test_the_second_pass_takes_off_the_rounding_of_the_first():
    rewards = [1001.0, 0.8, 9999999.2]
    assert sum(rewards) / 3 == 3333667.0
    exact = float(sum(map(Fraction, rewards)) / 3)
    assert mean([rewards] * 3) == [exact] * 3 == [3333666.9999999995] * 3


def test_what_is_not_valid_leaves_no_trace():
    means = mean([[1e-20, 3e-20, 7.0], [5.0, math.inf, math.nan]], [[T, T, F], [T, F, F]])
    assert means == pytest.approx([2e-20, 5.0], rel=1e-15, abs=0)
    assert mean([[1.0, 2.0]], [[F, F]]) == [0.0]
    tiny = torch.tensor([[0.0, 1e-20, 9.0], [3.0, 9.0, 9.0], [1.0, 2.0, 3.0]])
    assert is_constant(tiny, torch.tensor([[T, T, F], [T, F, F], [F, F, F]])).tolist() == [F, T, T]


@pytest.mark.parametrize(("ddof", "expected"), [(1, math.sqrt(14 / 3)), (0, math.sqrt(14 / 4))])
def test_standard_deviation_by_hand(ddof, expected):
    x = torch.tensor([[0.0, 1, 2, 5, 99], [3, 0, 0, 0, 0]], dtype=torch.float64)
    valid = torch.tensor([[T, T, T, T, F], [T, F, F, F, F]])
    assert group_std(x, valid, ddof)[:, 0].tolist() == pytest.approx([expected, 0.0])

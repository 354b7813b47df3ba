"""Filters: by hand, and that the number of live groups is told after each."""

import pytest
import torch

from anygrpo.algorithm import FILTERS, Groups, apply_filters, live_groups, soft_overlong_penalty
from anygrpo.errors import ConfigError

T, F = True, False


def groups(rewards, valid=None, ended=None, **components):
    r = torch.tensor(rewards)
    ones = torch.ones_like(r, dtype=torch.bool)
    return Groups(
        r,
        ones if valid is None else torch.tensor(valid),
        ones if ended is None else torch.tensor(ended),
        {name: torch.tensor(x) for name, x in components.items()},
    )


def kept(name, data, **options):
    return FILTERS[name](data, **options).tolist()


def test_drop_constant():
    data = groups([[0.0, 1], [0.3, 0.3], [5, 9]], [[T, T], [T, T], [T, F]])
    assert kept("drop_constant", data) == [[T, T], [F, F], [F, F]]
    assert kept("drop_constant", groups([[1.0, 1.001]])) == [[T, T]]


@pytest.mark.parametrize(
    ("low", "high", "expected"), [(0.25, 0.75, [F, T, T, F]), (0, 1, [T, T, T, F]), (0.6, 1, [F, F, T, F])]
)
def test_pass_rate_band(low, high, expected):
    # pass rates 0, 1/2, 3/4 with the invalid sample left out; the last group has no valid sample
    data = groups(
        [[0.0, 0, 0, 0, 0], [1, 1, 0, 0, 1], [1, 1, 0.5, 0, 1], [1, 1, 1, 1, 1]],
        [[T] * 5, [T, T, T, T, F], [T, T, T, T, F], [F] * 5],
    )
    assert [any(row) for row in kept("pass_rate_band", data, low=low, high=high)] == expected


def test_pass_rate_threshold_and_bad_band():
    alone = groups([[0.0, 1.0, 0.0]], [[F, T, F]])
    assert kept("pass_rate_band", alone, low=1, high=1) == [[F, T, F]]
    data = groups([[0.2, 0.2]])
    assert kept("pass_rate_band", data, low=1, high=1, threshold=0.2) == [[T, T]]
    assert kept("pass_rate_band", data, low=1, high=1, threshold=0.21) == [[F, F]]
    for low, high in [(0.5, 0.4), (-0.1, 1), (0, 1.1)]:
        with pytest.raises(ConfigError, match="pass-rate band"):
            kept("pass_rate_band", data, low=low, high=high)


def test_component_at_least_reads_the_part_not_the_sum():
    """A positive-query filter that tests reward >= 1 would keep the second group: two halves of soft reward."""
    data = groups([[1.5, 0.0], [1.2, 0.1], [1.0, 0]], [[T, T], [T, T], [F, T]], correct=[[1.0, 0], [0, 0], [1, 0]])
    assert kept("component_at_least", data, component="correct", threshold=1.0) == [[T, T], [F, F], [F, F]]
    with pytest.raises(ConfigError, match="did you mean 'correct'"):
        kept("component_at_least", data, component="corect", threshold=1.0)


def test_minimum_spread():
    data = groups([[5.0, 5.01], [-7, -6.9], [0, 9], [3, 3]], [[T, T], [T, T], [T, F], [T, T]])
    assert kept("minimum_spread", data, spread=0.09) == [[F, F], [T, T], [F, F], [F, F]]
    assert kept("minimum_spread", groups([[1.0, 2]]), spread=1.0) == [[T, T]]
    assert kept("minimum_spread", groups([[0.9, 0.6], [0.9, 0.61]]), spread=0.3) == [[T, T], [F, F]]  # float32's .3


def test_top_k_by_reward():
    data = groups([[1.0, 3, 2, 9], [5, 5, 5, 5]], [[T, T, T, F], [T, T, T, T]])
    assert kept("top_k_by_reward", data, k=2) == [[F, T, T, F], [T, T, F, F]]
    assert kept("top_k_by_reward", data, k=9) == [[T, T, T, F], [T] * 4]
    many = [i % 2 for i in range(40)]  # beyond 16 values a sort that is not stable mixes equal ones
    assert kept("top_k_by_reward", groups([many]), k=3) == [[i in (1, 3, 5) for i in range(40)]]
    with pytest.raises(ConfigError, match="k = 1"):
        kept("top_k_by_reward", data, k=1)


def test_best_and_worst():
    data = groups([[1.0, 3, 2, 0, 9], [5, 5, 5, 5, 5]], [[T, T, T, T, F], [T] * 5])
    assert kept("best_and_worst", data, k=1) == [[F, T, F, T, F], [T, F, F, F, F]]
    assert kept("best_and_worst", data, k=2) == [[T, T, T, T, F], [T, T, F, F, F]]
    assert kept("best_and_worst", groups([[1.0, 2, 3, 4, 5, 6]]), k=2) == [[T, T, F, F, T, T]]
    with pytest.raises(ConfigError, match="k = 0"):
        kept("best_and_worst", data, k=0)


def test_overlong_mask():
    assert kept("overlong_mask", groups([[1.0, 2, 3]], [[T, T, F]], [[T, F, T]])) == [[T, F, F]]


def test_soft_overlong_penalty_by_hand():
    lengths = torch.tensor([0, 80, 81, 90, 100, 500])
    torch.testing.assert_close(
        soft_overlong_penalty(lengths, 100, 20), torch.tensor([0.0, 0.0, -0.05, -0.5, -1.0, -1.0])
    )
    assert soft_overlong_penalty(torch.tensor([99, 100]), 100, 1).tolist() == [0, -1]
    assert soft_overlong_penalty(torch.tensor([0, 50]), 100, 100).tolist() == [0, -0.5]
    for buffer in (0, 101):
        with pytest.raises(ConfigError, match=f"buffer {buffer}"):
            soft_overlong_penalty(lengths, 100, buffer)


def test_top_k_makes_groups_homogeneous_and_the_counts_say_so():
    # One success in four: kept together with a failure only while k exceeds the successes.
    data = groups([[1.0, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0], [0, 0, 0, 0]])
    result = apply_filters(data, [("drop_constant", {}), ("top_k_by_reward", {"k": 2})])
    assert result.counts == {
        "groups/live": 0.75,
        "groups/live_after/drop_constant": 0.75,
        "groups/live_after/top_k_by_reward": 0.25,
    }
    assert result.live.tolist() == [T, F, F, F]
    assert result.keep.tolist() == [[T, T, F, F], [T, T, F, F], [T, T, F, F], [F, F, F, F]]


def test_each_filter_sees_what_the_ones_before_left():
    data = groups([[1.0, 0, 0.5]], ended=[[F, T, T]])
    result = apply_filters(data, [("overlong_mask", {}), ("top_k_by_reward", {"k": 2})])
    assert result.keep.tolist() == [[F, T, T]]
    constant_then = apply_filters(groups([[1.0, 0, 0]], ended=[[F, T, T]]), [("overlong_mask", {})])
    assert constant_then.counts == {"groups/live": 1.0, "groups/live_after/overlong_mask": 0.0}


def test_nothing_left_is_an_answer_not_an_error():
    result = apply_filters(groups([[1.0, 1], [0, 0]]), [("drop_constant", {}), ("minimum_spread", {"spread": 1.0})])
    assert not result.keep.any()
    assert result.counts["groups/live_after/minimum_spread"] == 0.0
    empty = apply_filters(Groups(*(torch.zeros(0, 4, dtype=d) for d in (torch.float32, torch.bool, torch.bool))), [])
    assert empty.counts == {"groups/live": 0.0}


def test_all_truncated_and_masked_is_told():
    result = apply_filters(groups([[1.0, 0], [0, 1]], ended=[[F, F], [F, F]]), [("overlong_mask", {})])
    assert result.counts == {"groups/live": 1.0, "groups/live_after/overlong_mask": 0.0}


def test_a_neutral_filter_leaves_what_the_update_is_made_of():
    """drop_constant says which groups a refill replaces; statistics, terms and denominators keep every row."""
    data = groups([[1.0, 0], [1, 1], [3, 3]], [[T, T], [T, T], [T, F]])
    result = apply_filters(data, [("drop_constant", {})])
    assert result.keep.tolist() == [[T, T], [F, F], [F, F]]
    assert result.counted.tolist() == [[T, T], [T, T], [T, F]]
    assert result.live.tolist() == [T, F, F]
    both = apply_filters(data, [("drop_constant", {}), ("minimum_spread", {"spread": 0.0})])
    assert both.keep.tolist() == [[T, T], [F, F], [F, F]]
    assert both.counted.tolist() == [[T, T], [T, T], [T, F]]  # what comes later sees the groups that stay
    removed = apply_filters(data, [("minimum_spread", {"spread": 0.5}), ("drop_constant", {})])
    assert removed.counted.tolist() == [[T, T], [F, F], [F, F]]


def test_a_function_of_ones_own_is_a_filter_by_its_name():
    def first_only(groups, *, n):
        return torch.arange(groups.valid.shape[1]).expand(groups.valid.shape) < n

    result = apply_filters(groups([[1.0, 0, 2]]), [(first_only, {"n": 1})])
    assert result.counted.tolist() == result.keep.tolist() == [[T, F, F]]
    assert result.counts == {"groups/live": 1.0, "groups/live_after/first_only": 0.0}


def test_no_filters_keep_the_valid():
    data = groups([[1.0, 1, 2]], [[T, T, F]])
    assert apply_filters(data, []).keep.tolist() == [[T, T, F]]
    assert live_groups(data.rewards, data.valid).tolist() == [F]


def test_bad_chains():
    with pytest.raises(ConfigError, match="did you mean 'drop_constant'"):
        apply_filters(groups([[0.0, 1]]), [("drop_constants", {})])
    with pytest.raises(ConfigError, match="top_k_by_reward"):
        apply_filters(groups([[0.0, 1]]), [("top_k_by_reward", {"kk": 2})])

"""Schedules by hand, their ends exactly, and that they move one way."""

import doctest
import itertools
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anygrpo.algorithm import schedules, value_at
from anygrpo.errors import ConfigError

KINDS = ["linear", "cosine", "exponential"]


@pytest.mark.parametrize(
    ("kind", "end", "expected"),
    [
        ("constant", 0.0, [8, 8, 8, 8, 8]),
        ("linear", 0.0, [8, 6.4, 4.8, 3.2, 1.6]),  # 0 comes a step later: no last step is wasted
        ("linear", 16.0, [8, 10, 12, 14, 16]),
        ("cosine", 1.0, [8, 4.5 + 3.5 / math.sqrt(2), 4.5, 4.5 - 3.5 / math.sqrt(2), 1]),
        ("cosine", 0.0, [4 + 4 * math.cos(math.pi * i / 5) for i in range(5)]),
        ("exponential", 0.5, [8, 4, 2, 1, 0.5]),
    ],
)
def test_by_hand(kind, end, expected):
    assert [value_at(kind, 8.0, end, i, 5) for i in range(5)] == pytest.approx(expected)


def test_steps_fall_at_their_milestones():
    values = [value_at("step", 8.0, 0.0, i, 6, milestones=(2, 4), factor=0.5) for i in range(6)]
    assert values == [8, 8, 4, 4, 2, 2]
    assert value_at("step", 8.0, 0.0, 0, 4, milestones=(0,)) == 4  # without warm-up the first step may be one


def test_warm_up_starts_above_zero_and_ends_at_start():
    assert [value_at("linear", 8.0, 0.0, i, 8, warmup=4) for i in range(9)] == pytest.approx(
        [2, 4, 6, 8, 6.4, 4.8, 3.2, 1.6, 0]
    )
    assert [value_at("constant", 8.0, 0.0, i, 4, warmup=2) for i in range(4)] == [4, 8, 8, 8]
    assert [value_at("step", 8.0, 0.0, i, 4, warmup=2, milestones=(3,)) for i in range(4)] == [4, 8, 8, 4]


@pytest.mark.parametrize("kind", KINDS)
def test_the_last_step_has_the_end_exactly_and_keeps_it(kind):
    # 0.3 + (0.9 - 0.3) and 0.3 x (0.9 / 0.3) are not 0.9 in floating point
    assert [value_at(kind, 0.3, 0.9, step, 10) for step in (9, 10, 11, 50)] == [0.9] * 4
    assert value_at(kind, 0.3, 0.9, 0, 10) == 0.3


@pytest.mark.parametrize("kind", KINDS)
def test_stages_too_short_to_move(kind):
    assert value_at(kind, 8.0, 1.0, 0, 1) == 8.0
    assert value_at(kind, 8.0, 1.0, 1, 2) == 1.0
    assert [value_at(kind, 8.0, 1.0, i, 2, warmup=4) for i in range(2)] == [2, 4]
    assert value_at(kind, 8.0, 1.0, 3, 4, warmup=4) == 8.0


@settings(deadline=None)
@given(
    st.sampled_from(KINDS), st.floats(0.01, 10), st.floats(0.01, 10), st.integers(2, 50), st.integers(0, 10), st.data()
)
def test_values_lie_between_and_move_one_way(kind, start, end, steps, warmup, data):
    warmup = min(warmup, steps - 1)
    after = [value_at(kind, start, end, i, steps, warmup) for i in range(max(warmup - 1, 0), steps)]
    slack = 1e-9 * max(start, end)
    assert all(min(start, end) - slack <= v <= max(start, end) + slack for v in after)
    assert all((b - a) * (end - start) >= -slack for a, b in itertools.pairwise(after))


@pytest.mark.parametrize("kind", ["linear", "cosine"])
@pytest.mark.parametrize("steps", [2, 3, 10])
def test_a_fall_to_zero_wastes_no_step(kind, steps):
    values = [value_at(kind, 2.0, 0.0, i, steps) for i in range(steps + 2)]
    assert values[0] == 2.0
    assert min(values[:steps]) > 0
    assert values[steps:] == [0.0, 0.0]
    assert [-v for v in values] == [value_at(kind, -2.0, 0.0, i, steps) for i in range(steps + 2)]


def test_a_function_of_ones_own():
    def square(start, end, progress):
        return start + (end - start) * progress**2

    assert [value_at(square, 1.0, 3.0, i, 5) for i in range(6)] == pytest.approx([1, 1.125, 1.5, 2.125, 3, 3])
    assert [value_at(square, 1.0, 3.0, i, 5, warmup=2) for i in range(2)] == [0.5, 1.0]
    with pytest.raises(ConfigError, match=r"'below' from 1.0 to 0.0 gives -1.0 at step 1"):
        value_at(_named(lambda *_: -1.0, "below"), 1.0, 0.0, 1, 5)
    with pytest.raises(ConfigError, match="gives nan"):
        value_at(_named(lambda *_: math.nan, "n"), 1.0, 0.0, 1, 5)
    assert value_at(_named(lambda *_: -0.5, "n"), -1.0, 0.0, 1, 5) == -0.5


def _named(function, name):
    function.__name__ = name
    return function


def test_errors():
    with pytest.raises(ConfigError, match="did you mean 'cosine'"):
        value_at("cosin", 1, 0, 0, 5)
    with pytest.raises(ConfigError, match="0 steps"):
        value_at("linear", 1, 0, 0, 0)
    with pytest.raises(ConfigError, match="-1 of warm-up"):
        value_at("linear", 1, 0, 0, 5, warmup=-1)
    for start, end in [(1.0, 0.0), (0.0, 1.0), (-1.0, 1.0)]:
        with pytest.raises(ConfigError, match="exponential"):
            value_at("exponential", start, end, 1, 5)
    assert value_at("exponential", -4.0, -1.0, 1, 3) == -2.0


def test_the_example_in_the_docstring():
    result = doctest.testmod(schedules)
    assert result.failed == 0
    assert result.attempted >= 1  # mutation testing copies the function with its docstring

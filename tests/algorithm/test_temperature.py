"""The temperature's controller by hand, its bounds, and that it finds its target."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anygrpo.algorithm.temperature import AdaptiveTemperature, StepSeen, update
from anygrpo.errors import ConfigError


def controller(of="entropy", target=0.5, value=1.0, **more):
    return AdaptiveTemperature(value, of, target, **({"start": 1.0, "low": 0.5, "high": 1.5, "rate": 0.1} | more))


def test_entropy_by_hand():
    assert update(controller(), StepSeen(entropy=0.5)).value == 1.0
    assert update(controller(), StepSeen(entropy=0.25)).value == pytest.approx(math.exp(0.05))
    assert update(controller(), StepSeen(entropy=0.75)).value == pytest.approx(math.exp(-0.05))
    assert update(controller(), StepSeen(entropy=9.0)).value == pytest.approx(math.exp(-0.1))  # at most the rate


def test_live_share_by_hand():
    live = lambda value, *seen: update(controller("live", value=value), StepSeen(None, *seen)).value  # noqa: E731
    assert live(1.0, 0.25, 0.7, 0.05) == pytest.approx(math.exp(0.05))  # all pass: heat
    assert live(1.0, 0.25, 0.05, 0.7) == 1.0  # all fail: no heat above the start
    assert live(0.8, 0.25, 0.05, 0.7) == pytest.approx(0.8 * math.exp(0.05))  # below it: back
    assert live(1.2, 0.25, 0.05, 0.7) == pytest.approx(1.2 * math.exp(-0.1))  # above it: back
    assert live(1.05, 0.25, 0.05, 0.7) == 1.0  # and no further than the start
    assert live(1.0, 0.75, 0.25, 0.0) == pytest.approx(math.exp(-0.05))


@pytest.mark.parametrize("seen", [StepSeen(), StepSeen(entropy=math.nan), StepSeen(live=0.1)])
def test_what_is_not_known_changes_nothing(seen):
    assert update(controller(), seen) == controller()


def test_bounds_are_checked():
    with pytest.raises(ConfigError, match=r"low = 0.5, start = 2.0, high = 1.5"):
        controller(start=2.0)


@given(st.lists(st.floats(0, 3), max_size=60), st.sampled_from(["entropy", "live"]))
def test_it_stays_within_its_bounds(shown, of):
    state = controller(of)
    for x in shown:
        state = update(state, StepSeen(x, min(x, 1.0), max(0.0, 1 - x), 0.0))
        assert 0.5 <= state.value <= 1.5


def test_it_holds_the_entropy_of_a_sharpening_policy():
    """Two logits that grow apart: at a fixed temperature the entropy falls to a third; held, it stays."""

    def entropy(gap, temperature):
        p = 1 / (1 + math.exp(-gap / temperature))
        return -p * math.log(p) - (1 - p) * math.log(1 - p)

    state, gaps = controller(target=0.5, low=0.2, high=4.0), [1.0 + 0.02 * i for i in range(150)]
    for gap in gaps:
        state = update(state, StepSeen(entropy=entropy(gap, state.value)))
    assert entropy(gaps[-1], 1.0) < 0.5 / 3
    assert entropy(gaps[-1], state.value) == pytest.approx(0.5, abs=0.06)

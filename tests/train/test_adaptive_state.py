"""What of a run follows its own samples: the controller's view of a step, and its state."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from stages import stage_of

from anygrpo.algorithm.temperature import StepSeen
from anygrpo.core.rollout import Rollout
from anygrpo.train.adaptive import Adaptive

HELD = {"kind": "adaptive", "of": "live", "target": 0.5, "start": 1.5, "low": 0.5, "high": 2.5, "rate": 0.1}


def adaptive_of(stage, policy=None):
    return Adaptive(policy or SimpleNamespace(temperature=0.7), [SimpleNamespace(stage=stage)])


def begun(stage, **policy):
    made = adaptive_of(stage, SimpleNamespace(**policy) if policy else None)
    made.begin(stage, fresh=True)
    return made


def scored(rewards, valid=None, keys=None):
    rewards = torch.tensor(rewards)
    valid = torch.ones_like(rewards, dtype=torch.bool) if valid is None else torch.tensor(valid, dtype=torch.bool)
    more = {} if keys is None else {"prompt_id": torch.tensor(keys)}
    return Rollout.of({}, torch.zeros(*rewards.shape, 1), valid[..., None], rewards=rewards, valid=valid, **more)


def test_the_controller_has_the_recipes_numbers():
    made = begun(stage_of(temperature=HELD))
    assert made.heat is not None
    assert (made.heat.value, made.heat.of, made.heat.target, made.heat.start) == (1.5, "live", 0.5, 1.5)
    assert (made.heat.low, made.heat.high, made.heat.rate) == (0.5, 2.5, 0.1)
    made.begin(stage_of(temperature=1.0), fresh=False)
    assert made.heat is None


def test_a_fresh_stage_forgets_and_a_resumed_one_does_not():
    stage = stage_of(temperature=HELD, group_size="auto", samples_per_step=8, prompts_per_step=2, smallest_group=2)
    made = begun(stage)
    made.follow(stage, scored([[0.0, 4.0]], keys=[3]), {})
    made.ahead = 1.1
    assert made.book.seen
    book = made.book
    made.begin(stage, fresh=False)
    assert (made.book, made.rewards, made.ahead) == (book, (0.0, 4.0), 1.1)
    made.begin(stage, fresh=True)
    assert (made.book.seen, made.rewards, made.ahead) == ({}, None, None)


def test_whose_temperature_is_in_force():
    held, free = stage_of(temperature=HELD), stage_of()
    made = begun(held)
    assert made.with_temperature({"a": 1.0, "temperature": 9.0}, held, None) == {"a": 1.0, "temperature": 1.5}
    # the next stage has a number, and is asked for ahead of it
    assert made.with_temperature({"a": 1.0}, stage_of(temperature=0.9), 0.9) == {"a": 1.0, "temperature": 0.9}
    assert made.with_temperature({"a": 1.0}, free, None) == {"temperature": 0.7, "a": 1.0}  # the policy's own again
    assert made.with_temperature({"temperature": 0.2}, free, None) == {"temperature": 0.2}  # of a schedule of its own
    alone = adaptive_of(free)
    assert alone.with_temperature({"a": 1.0}, free, None) == {"a": 1.0}
    nothing = Adaptive(SimpleNamespace(), [SimpleNamespace(stage=stage_of(temperature=0.9))])
    assert nothing.with_temperature({}, free, None) == {}
    later = begun(free)
    assert later.with_temperature({}, held, None) == {}  # its controller begins with its stage


@pytest.mark.parametrize(
    ("rewards", "valid", "seen"),
    [
        ([[0.0, 1.0], [1.0, 1.0], [0.0, 0.0], [1.0, 1.0]], None, (1 / 4, 2 / 4, 1 / 4)),
        ([[0.0, 1.0], [1.0, 9.0]], [[1, 1], [1, 0]], (1.0, 0.0, 0.0)),  # one sample alone is not compared
        ([[0.0, 1.0, 0.0], [1.0, 1.0, 0.0]], [[1, 1, 1], [1, 1, 0]], (1 / 2, 1 / 2, 0.0)),
        ([[0.0, 0.0], [0.0, 0.0]], None, (0.0, 0.0, 1.0)),
        ([[-3.0, -3.0], [1.0, 1.0], [-1.0, -1.0]], None, (0.0, 1 / 3, 2 / 3)),  # the middle, -1, is no easy one
    ],
)
def test_what_a_step_shows(rewards, valid, seen):
    stage = stage_of(temperature=HELD)
    made = begun(stage)
    live, easy, hard = seen
    assert made._shown(scored(rewards, valid), {"entropy": 0.4}) == StepSeen(
        0.4, pytest.approx(live), pytest.approx(easy), pytest.approx(hard)
    )


def test_rewards_are_judged_against_all_of_the_stage():
    made = begun(stage_of(temperature=HELD))
    made._shown(scored([[0.0, 4.0]]), {})
    assert made.rewards == (0.0, 4.0)
    assert made._shown(scored([[1.0, 1.0], [3.0, 3.0]]), {}) == StepSeen(None, 0.0, 0.5, 0.5)
    assert made.rewards == (0.0, 4.0)
    made._shown(scored([[-1.0, 5.0]]), {})
    assert made.rewards == (-1.0, 5.0)


def test_nothing_compared_shows_the_entropy_alone():
    made = begun(stage_of(temperature=HELD))
    assert made._shown(scored([[1.0, 1.0]], [[0, 0]]), {"entropy": 0.4}) == StepSeen(0.4)
    assert made.rewards is None
    assert made._shown(scored([[1.0, 1.0]], [[1, 0]]), {"entropy": 0.4}) == StepSeen(0.4)


def test_a_step_moves_the_controller_and_the_book():
    stage = stage_of(temperature=HELD)
    made = begun(stage)
    made.follow(stage, scored([[0.0, 1.0]], keys=[3]), {})  # live 1 is above .5: cooler, by at most rate
    assert made.heat is not None
    assert made.heat.value == pytest.approx(1.5 * 2.718281828 ** (-0.1), rel=1e-6)
    assert made.book.seen == {}  # groups of one size: no account of prompts
    auto = stage_of(group_size="auto", samples_per_step=8, prompts_per_step=2, smallest_group=2)
    other = begun(auto)
    other.follow(auto, scored([[0.0, 1.0]], keys=[3]), {})
    assert set(other.book.seen) == {3}
    assert other.heat is None
    stored = stage_of(source="stored", group_size="auto", samples_per_step=8, prompts_per_step=2, smallest_group=2)
    other.follow(stored, scored([[0.0, 1.0]], keys=[4]), {})
    assert set(other.book.seen) == {3}


def test_its_state_comes_back_within_the_recipes_bounds():
    stage = stage_of(temperature=HELD, group_size="auto", samples_per_step=8, prompts_per_step=2, smallest_group=2)
    made = begun(stage)
    made.follow(stage, scored([[0.0, 1.0]], keys=[3]), {})
    made.ahead = 1.25
    state = made.state()
    assert state == {"temperature": made.heat.value, "ahead": 1.25, "rewards": (0.0, 1.0), "book": made.book.state()}
    again = begun(stage)
    again.load(state | {"rewards": [0.0, 1.0]})
    assert (again.heat, again.ahead, again.rewards, again.book) == (made.heat, 1.25, (0.0, 1.0), made.book)
    for value, bound in ((0.1, 0.5), (9.0, 2.5), (2.0, 2.0)):
        again.load(state | {"temperature": value})
        assert again.heat.value == bound
    again.load({})  # of an older version
    assert (again.ahead, again.rewards, again.book.seen, again.heat.value) == (None, None, {}, 2.0)
    plain = begun(stage_of())
    plain.load(state)
    assert plain.heat is None
    assert plain.state()["temperature"] is None

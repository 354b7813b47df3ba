"""Credit of turns: by hand, and what holds for every reward."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from anygrpo.algorithm import advantages, credit
from anygrpo.algorithm.advantages import AdvantageOptions


def compare(name):
    return lambda x, valid: advantages.compute(name, x, valid, AdvantageOptions()).values


def test_what_is_left_is_the_last_turns():
    exists = torch.tensor([[[True, True, False], [True, True, True], [False, False, False]]])
    paid = torch.tensor([[[0.5, math.nan, 9.0], [1.0, 2.0, 3.0], [math.nan] * 3]])
    total = torch.tensor([[2.0, 12.0, 5.0]])
    made = credit.by_turn(total, paid, 2.0, exists)
    assert made.tolist() == [[[1.0, 1.0, 0.0], [2.0, 4.0, 6.0], [0.0, 0.0, 0.0]]]


def test_to_go_by_hand():
    rewards = torch.tensor([[[1.0, 2.0, 4.0]]])
    assert credit.to_go(rewards, 0.5).tolist() == [[[3.0, 4.0, 4.0]]]
    assert credit.to_go(rewards, 1.0).tolist() == [[[7.0, 6.0, 4.0]]]
    assert credit.to_go(rewards, 0.0).tolist() == rewards.tolist()


def test_turns_by_hand():
    """Returns 3, 1 | 1, 1 | 2 at turn 0: mean 2; at turn 1 the two that have it are equal."""
    rewards = torch.tensor([[[2.0, 1.0], [0.0, 1.0], [2.0, 0.0]]])
    exists = torch.tensor([[[True, True], [True, True], [True, False]]])
    made = credit.turns(rewards, exists, compare("centred"), 1.0)
    assert made.tolist() == [[[1.0, 0.0], [-1.0, 0.0], [0.0, 0.0]]]


def test_process_by_hand():
    """All turns' rewards 2, 1, 0, 1 have mean 1; a turn has its own and those to come."""
    rewards = torch.tensor([[[2.0, 1.0], [0.0, 1.0]]])
    exists = torch.ones(1, 2, 2, dtype=torch.bool)
    assert credit.process(rewards, exists, compare("centred"), 1.0).tolist() == [[[1.0, 0.0], [-1.0, 0.0]]]


def test_a_turn_that_one_sample_alone_has_gets_nothing():
    rewards = torch.tensor([[[0.0, 5.0], [1.0, 0.0]]])
    exists = torch.tensor([[[True, True], [True, False]]])
    made = credit.turns(rewards, exists, compare("zscore"), 0.0)
    assert made[0, 0, 1] == 0.0
    assert made[0, :, 0].tolist() == pytest.approx([-(0.5**0.5), 0.5**0.5])


def test_decisions_have_their_turns():
    turn = torch.tensor([[[0, 0, 0, 1, 1]]])
    mask = torch.tensor([[[True, True, False, True, False]]])
    assert credit.existing(turn, mask, 3).tolist() == [[[True, True, False]]]
    assert credit.spread(torch.tensor([[[2.0, 3.0, 9.0]]]), turn, mask).tolist() == [[[2.0, 2.0, 0.0, 3.0, 0.0]]]


shapes = st.tuples(st.integers(1, 3), st.integers(2, 4), st.integers(1, 4))


@settings(max_examples=40, deadline=None)
@given(shapes, st.integers(0, 1000), st.sampled_from(["zscore", "centred", "leave_one_out"]))
def test_of_one_turn_all_are_the_outcome(shape, seed, name):
    p, g, _ = shape
    generator = torch.Generator().manual_seed(seed)
    total = torch.randn(p, g, generator=generator)
    exists = torch.ones(p, g, 1, dtype=torch.bool)
    rewards = credit.by_turn(total, torch.full((p, g, 1), math.nan), 1.0, exists)
    wanted = compare(name)(total, exists[..., 0])
    for choice in (credit.turns, credit.process, credit.outcome):
        assert torch.allclose(choice(rewards, exists, compare(name), 0.7)[..., 0].float(), wanted, atol=1e-6)


@settings(max_examples=40, deadline=None)
@given(shapes, st.integers(0, 1000))
def test_turns_sum_to_the_sample(shape, seed):
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, shape[2] + 1, shape[:2], generator=generator)
    exists = torch.arange(shape[2]) < lengths[..., None]
    paid, total = torch.randn(shape, generator=generator), torch.randn(shape[:2], generator=generator)
    rewards = credit.by_turn(total, paid, 0.3, exists)
    assert torch.allclose(rewards.sum(-1).float(), total, atol=1e-5)
    assert bool((rewards[~exists] == 0).all())


def test_parts_by_hand():
    """Part 0 earns 1, 3, 2: centred -1, 1, 0. Part 1 exists in two samples: 4 and 0. No part sees another's."""
    rewards = torch.tensor([[[1.0, 4.0], [3.0, 0.0], [2.0, 9.0]]])
    exists = torch.tensor([[[True, True], [True, True], [True, False]]])
    made = credit.parts(rewards, exists, compare("centred"), 1.0)
    assert made.tolist() == [[[-1.0, 2.0], [1.0, -2.0], [0.0, 0.0]]]

"""One number, or a reason, for each output: what a reward does to one output costs that output alone."""

from __future__ import annotations

import pytest

from anygrpo.denoising.output_rewards import Reward
from anygrpo.errors import ConfigError, TrainingError
from anygrpo.scoring.outcome import Raised, Unfit


def gives_up(columns: dict[str, list[object]]) -> list[float] | None:
    return None if "bad" in columns["images"] else [1.0] * len(columns["images"])


def test_a_reward_that_gives_up_on_a_call_is_asked_of_each_alone() -> None:
    reward = Reward("r", 1.0, gives_up)
    assert reward.outcomes({"images": ["a", "b"]}, 2) == [1.0, 1.0]
    found = reward.outcomes({"images": ["a", "bad", "c"]}, 3)
    assert (found[0], found[2]) == (1.0, 1.0)
    assert isinstance(found[1], Unfit)


def test_one_that_never_gives_numbers_is_the_authors_unless_it_is_only_watched() -> None:
    with pytest.raises(ConfigError, match="returned None"):
        Reward("r", 1.0, lambda columns: None).outcomes({"images": ["a", "b"]}, 2)
    watched = Reward("r", 0.0, lambda columns: 1 / 0).outcomes({"images": ["a", "b"]}, 2)
    assert all(isinstance(one, Raised) for one in watched)
    with pytest.raises(TrainingError):
        Reward("r", 1.0, lambda columns: 1 / 0).outcomes({"images": ["a", "b"]}, 2)


def test_another_number_of_rewards_is_the_authors() -> None:
    with pytest.raises(ConfigError, match="3 numbers for 2 outputs"):
        Reward("r", 1.0, lambda columns: [1.0] * 3).outcomes({"images": ["a", "b"]}, 2)

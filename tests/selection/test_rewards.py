"""Rewards of selections from their parts."""

from __future__ import annotations

import pytest
import torch

from anygrpo.errors import ConfigError
from anygrpo.selection.rewards import reward
from anygrpo.selection.settings import RewardConfig

NUMBER = torch.tensor([[0.0, 0.5, 1.0]])


@pytest.mark.parametrize(("mode", "carried"), [("info_score", "score"), ("score", "info_score")])
def test_a_files_number_and_a_judges_are_one_thing(mode, carried):
    """A file with score_list alone goes on online against a judge that returns a bare number, and back."""
    assert reward({carried: NUMBER}, RewardConfig(mode=mode)).tolist() == NUMBER.tolist()


def test_where_both_are_there_the_named_one_counts():
    parts = {"info_score": NUMBER, "score": 2 * NUMBER}
    assert reward(parts, RewardConfig(mode="info_score")).tolist() == NUMBER.tolist()


def test_no_other_part_is_taken_for_another():
    with pytest.raises(ConfigError, match="needs"):
        reward({"score": NUMBER}, RewardConfig(mode="hard_only"))

"""Samples as a person reads them."""

from __future__ import annotations

import math

import torch

from anygrpo.core.rollout import Rollout
from anygrpo.train.shown import rows_shown


class Shown:
    def show(self, prompts, outputs):
        return [{"prompt": p, "outputs": o} for p, o in zip(prompts, outputs)]


def test_each_prompt_has_its_own_rewards_parts_and_reasons():
    rollout = Rollout.of(
        {},
        torch.zeros(2, 3, 1),
        torch.ones(2, 3, 1, dtype=torch.bool),
        rewards=torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]),
        present=torch.tensor([[True, True, True], [True, True, False]]),
        components={"hit": torch.tensor([[0.5, math.nan, math.inf], [1.0, 0.0, 9.0]])},
        reasons={(0, 1): "late", (1, 0): "cut", (1, 1): "odd"},
    )
    assert rows_shown(Shown(), ["a", "b"], [["x"], ["y"]], rollout) == [
        {
            "prompt": "a",
            "outputs": ["x"],
            "rewards": [1.0, 2.0, 3.0],
            "components": {"hit": [0.5, None, None]},
            "invalid": {"1": "late"},
        },
        {
            "prompt": "b",
            "outputs": ["y"],
            "rewards": [4.0, 5.0],
            "components": {"hit": [1.0, 0.0]},
            "invalid": {"0": "cut", "1": "odd"},
        },
    ]

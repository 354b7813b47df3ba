"""A log that divides by running statistics: whose difficulty drowns the choice, and whose does not."""

from __future__ import annotations

import random

import pytest

from anygrpo.doctor import diagnose


def log(within: float, mean: float, names: tuple[str, str]) -> list[dict[str, float]]:
    g = random.Random(0)
    row = lambda i: {  # noqa: E731
        "step": i, "reward_mean": 0.55 + g.gauss(0, 0.05), "group_reward_std": within, names[0]: 0.55, names[1]: 0.11,
        "advantage_mean": g.gauss(0, mean), "advantage_std": 0.95, "advantage_max": 2.9, "policy_loss": 0.8,
    }  # fmt: skip
    return [row(i) for i in range(60)]


def named(rows: list[dict[str, float]]) -> list[str]:
    return [f.rule for f in diagnose(rows, format="jsonl").findings]


@pytest.mark.parametrize(
    "names", [("global_reward_mean", "global_reward_std"), ("reward/running_mean", "reward/running_std")]
)
def test_a_group_that_spreads_little_beside_the_running_std_is_drowned(names: tuple[str, str]) -> None:
    found = named(log(0.004, 0.3, names))
    assert "difficulty_dominates" in found
    assert "group_size_bound" not in found


def test_one_that_spreads_as_much_is_not_and_a_groups_own_baseline_is_none() -> None:
    names = ("global_reward_mean", "global_reward_std")
    assert "difficulty_dominates" not in named(log(0.09, 0.3, names))
    assert "difficulty_dominates" not in named(log(0.004, 0.0, names))

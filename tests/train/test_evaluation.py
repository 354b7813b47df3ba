"""Held-out numbers cannot be raised by what is not scored, and pass@k means what a judge calls right."""

from __future__ import annotations

import json
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from toys import Bandit, BestArm

from anygrpo.core.task import Scores, Success
from anygrpo.recipe.training import EvaluationConfig
from anygrpo.train.evaluation import evaluate
from anygrpo.train.passing import pass_at_k


class Fixed(BestArm):
    """Given rewards of twenty held-out prompts; None: could not be scored."""

    success = None

    def __init__(self, values, faults=(), again=()):
        super().__init__(0)
        self.values, self.faults, self.again, self.calls = values, set(faults), list(again), 0

    def held_out(self):
        return self.prompts(10**6, len(self.values))

    def score(self, prompts, outputs):
        self.calls += 1
        values = self.values if self.calls == 1 else self.again
        faults = torch.tensor([[i in self.faults and self.calls == 1] for i in range(len(values))])
        rewards = torch.tensor([[math.nan if v is None else v] for v in values])
        return Scores(rewards, valid=~rewards.isnan(), faults=faults)


def row(task, **settings):
    return evaluate(Bandit(0), task, EvaluationConfig(**settings), 0)


def test_what_cannot_be_scored_raises_nothing():
    honest = row(Fixed([1.0] * 10 + [0.0] * 10))
    flattered = row(Fixed([1.0] * 6 + [0.0] + [None] * 13))
    assert honest["eval/reward"] == 0.5
    assert flattered["eval/reward"] == pytest.approx(0.3)
    assert flattered["eval/reward_valid"] == pytest.approx(6 / 7)
    assert flattered["eval/invalid"] == pytest.approx(0.65)
    assert "eval/reward_valid" not in honest


def test_an_unscorable_answer_is_no_better_than_the_worst_scored_one():
    assert row(Fixed([-5.0, 1.0, None, None]))["eval/reward"] == pytest.approx((-5 + 1 - 5 - 5) / 4)
    task = Fixed([2.0, 1.0, None, None])
    task.lowest_reward = -1.0
    assert row(task)["eval/reward"] == pytest.approx((2 + 1 - 1 - 1) / 4)


def test_a_fault_of_the_machine_is_tried_again_then_left_out_and_counted(tmp_path):
    mended = row(Fixed([1.0, None, 0.0, 0.0], faults=[1], again=[1.0]))
    assert mended["eval/reward"] == 0.5
    assert "eval/faults" not in mended

    class Broken(Fixed):
        def score(self, prompts, outputs):
            scores = super().score(prompts, outputs)
            return scores if self.calls == 1 else Scores(scores.rewards, valid=scores.valid, faults=~scores.valid)

    file = tmp_path / "rows.jsonl"
    task = Broken([1.0, None, 0.0, 0.0], faults=[1], again=[None])
    left = evaluate(Bandit(0), task, EvaluationConfig(), 0, file)
    assert left["eval/reward"] == pytest.approx(1 / 3)
    assert left["eval/faults"] == 0.25
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    assert [r.get("fault", False) for r in rows] == [False, True, False, False]


def test_pass_at_k_by_hand():
    right = torch.tensor([[True, False, False, False], [False] * 4, [True] * 4, [True, True, False, False]])
    assert pass_at_k(right, 1).tolist() == [0.25, 0.0, 1.0, 0.5]
    assert pass_at_k(right, 2).tolist() == pytest.approx([0.5, 0.0, 1.0, 1 - 1 / 6])
    assert pass_at_k(right, 4).tolist() == [1.0, 0.0, 1.0, 1.0]


@given(st.lists(st.booleans(), min_size=3, max_size=7), st.integers(1, 3))
def test_pass_at_k_is_the_mean_over_subsets(samples, k):
    from itertools import combinations

    subsets = [any(c) for c in combinations(samples, k)]
    assert float(pass_at_k(torch.tensor([samples]), k)) == pytest.approx(sum(subsets) / len(subsets))


class Form(BestArm):
    """Nothing is ever right, and form earns .1."""

    success = None

    def score(self, prompts, outputs):
        return Scores(torch.full((len(outputs), len(outputs[0])), 0.1))


def test_without_a_rule_there_is_no_pass_at_k():
    assert not any(name.startswith("eval/pass") for name in row(Form(0), pass_k=4))


def test_a_rule_decides_what_passes():
    judged = Form(0)
    judged.success = Success("reward", 1.0)
    assert row(judged, pass_k=4)["eval/pass_at_4"] == 0.0
    by_recipe = row(Form(0), pass_k=4, success={"component": "reward", "at_least": 0.05})
    assert by_recipe["eval/pass_at_4"] == 1.0
    few = row(BestArm(0), pass_k=2, pass_samples=6)["eval/pass_at_2"]
    assert 0.0 < few < 1.0

"""pass@k and its rule."""

from __future__ import annotations

import math

import pytest
import torch
from toys import BestArm

from anygrpo.core.task import Scores, Success
from anygrpo.errors import ConfigError
from anygrpo.recipe.training import EvaluationConfig, SuccessConfig
from anygrpo.train.passing import pass_at_k, right, success_of, unanswerable


class Judged(BestArm):
    success = Success("hit", 0.5)


class Unjudged(BestArm):
    success = None


def test_of_five_samples_two_right():
    """1 - C(3, 2) / C(5, 2) = 7/10; with one right 1 - C(4, 2) / 10 = 4/10; with four right 1."""
    rows = torch.tensor([[1, 1, 0, 0, 0], [0, 0, 1, 0, 0], [1, 1, 1, 1, 0], [0] * 5], dtype=torch.bool)
    assert pass_at_k(rows, 2).tolist() == pytest.approx([0.7, 0.4, 1.0, 0.0])
    assert pass_at_k(rows, 5).tolist() == [1.0, 1.0, 1.0, 0.0]
    assert pass_at_k(rows, 1).dtype == torch.float64


def test_the_recipes_rule_comes_first():
    own = EvaluationConfig(success=SuccessConfig(component="other", at_least=2.0))
    assert success_of(Judged(), own) == Success("other", 2.0)
    assert success_of(Judged(), EvaluationConfig()) == Success("hit", 0.5)
    assert success_of(Unjudged(), EvaluationConfig()) is None


def test_what_nobody_can_answer_is_said():
    asked = EvaluationConfig(pass_k=4)
    assert "evaluation.pass_k = 4 is left out: nothing says when an answer of Unjudged" in (
        unanswerable(Unjudged(), asked) or ""
    )
    assert unanswerable(Judged(), asked) is None
    assert unanswerable(Unjudged(), EvaluationConfig()) is None
    assert unanswerable(Unjudged(), EvaluationConfig(pass_k=4, success=SuccessConfig())) is None


def test_right_is_at_least_the_threshold_and_valid():
    scores = Scores(torch.tensor([[1.0, 0.4, 2.0]]), {"hit": torch.tensor([[0.4, 0.5, 0.6]])})
    assert right(scores, Success("hit", 0.5)).tolist() == [[False, True, True]]
    assert right(scores, Success("reward", 1.0)).tolist() == [[True, False, True]]
    some = Scores(scores.rewards, scores.components, torch.tensor([[True, True, False]]))
    assert right(some, Success("hit", 0.5)).tolist() == [[False, True, False]]
    with pytest.raises(ConfigError, match="'hot' is not among the scores"):
        right(scores, Success("hot", 1.0))


def test_a_sample_that_nobody_could_judge_was_not_drawn():
    """Of the first prompt 4 are judged, 1 right: 1 - C(3, 2) / C(4, 2) = 1/2. The second has one judged sample."""
    rows = torch.tensor([[1, 0, 0, 0, 1], [1, 1, 1, 1, 1]], dtype=torch.bool)
    judged = torch.tensor([[1, 1, 1, 1, 0], [1, 0, 0, 0, 0]], dtype=torch.bool)
    found = pass_at_k(rows, 2, judged).tolist()
    assert found[0] == pytest.approx(0.5)
    assert math.isnan(found[1])
    assert pass_at_k(rows, 1, judged).tolist() == [0.25, 1.0]

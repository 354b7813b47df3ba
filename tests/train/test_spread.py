"""Groups of unequal size: the book of prompts, and groups put together by hand."""

from __future__ import annotations

import math
import random
from types import SimpleNamespace

import pytest
import torch
from stages import stage_of

from anygrpo.algorithm.allocation import Seen
from anygrpo.core.digest import digest
from anygrpo.core.rollout import Rollout
from anygrpo.core.task import Scores
from anygrpo.train.spread import KEPT, PromptBook, Spread, number_of

NAN = math.nan


def seen(keys, rewards, valid=None):
    rewards = torch.tensor(rewards)
    valid = torch.ones_like(rewards, dtype=torch.bool) if valid is None else torch.tensor(valid, dtype=torch.bool)
    return SimpleNamespace(prompt_id=torch.tensor(keys), rewards=rewards, valid=valid)


# --- the book


def test_an_earlier_visit_weighs_three_quarters():
    assert KEPT == 0.75
    book = PromptBook()
    book.learn(seen([3, 5, 0], [[1.0, 3.0], [2.0, 9.0], [7.0, 7.0]], [[1, 1], [1, 0], [1, 1]]))
    assert book.seen == {3: Seen(2.0, 4.0, 10.0), 5: Seen(1.0, 2.0, 4.0)}
    assert (book.lowest, book.highest) == (1.0, 3.0)  # a prompt without a number is not accounted for
    book.learn(seen([3, 5], [[0.0, 2.0], [8.0, 8.0]], [[1, 1], [0, 0]]))
    assert book.seen == {3: Seen(1.5 + 2, 3.0 + 2, 7.5 + 4), 5: Seen(1.0, 2.0, 4.0)}
    assert (book.lowest, book.highest) == (0.0, 3.0)


def test_sizes_follow_what_is_known():
    a = stage_of(
        group_size="auto", samples_per_step=16, smallest_group=2, largest_group=8, prompts_per_step=2
    ).algorithm
    book = PromptBook()
    assert book.sizes([1, 2], a) == [8, 8]
    book.learn(seen([1], [[1.0, 1.0]]))
    assert book.sizes([1, 2], a) == [8, 8]  # all rewards so far are the same
    book.learn(seen([1, 3], [[1.0] * 8, [0.0] * 8]))
    a = stage_of(
        group_size="auto", samples_per_step=12, smallest_group=2, largest_group=8, prompts_per_step=2
    ).algorithm
    assert book.sizes([1, 2], a) == [4, 8]  # the first always passes
    assert book.sizes([2, 1], a) == [8, 4]


@pytest.mark.parametrize("reward", [0.9, 0.3, 0.7])
@pytest.mark.parametrize("seed", range(5))
def test_equal_rewards_that_float32_rounds_give_equal_sizes(reward, seed):
    """Sums of their squares leave a little spread; it is not taken for something to learn."""
    a = stage_of(
        group_size="auto", samples_per_step=32, smallest_group=2, largest_group=16, prompts_per_step=4
    ).algorithm
    book, rng = PromptBook(), random.Random(seed)
    for _ in range(40):
        keys, n = rng.sample(range(1, 13), 4), rng.choice([2, 4, 6, 8, 12, 16])
        book.learn(seen(keys, [[reward] * n] * 4))
        assert book.sizes(rng.sample(range(1, 13), 4), a) == [8] * 4


def test_the_books_state_is_plain():
    book = PromptBook()
    book.learn(seen([3], [[1.0, 3.0]]))
    assert book.state() == [1.0, 3.0, [[3, 2.0, 4.0, 10.0]]]
    assert PromptBook.of(book.state()) == book
    assert PromptBook().state() == []
    assert PromptBook.of([]) == PromptBook()


def test_a_prompts_number():
    assert number_of("one") == int(digest("one")[:15], 16) + 1
    assert 0 < number_of("one") < 2**60 + 1


# --- groups put together


def units(**given):
    """Four units of two: samples 0 .. 7."""
    number = torch.arange(8).view(4, 2)
    values = {
        "rewards": number * 10.0,
        "valid": torch.tensor([[1, 1], [1, 0], [1, 1], [1, 1]], dtype=torch.bool),
        "ended": number % 3 > 0,
        "version": number + 100,
        "components": {"hit": number * 0.5},
        "reasons": {(1, 1): "late", (3, 0): "odd"},
        "turn": (number % 3)[..., None].expand(4, 2, 3).to(torch.int16),
        "turn_rewards": number[..., None] * 2.0,
    }
    mask = torch.arange(3) < (number % 3 + 1)[..., None]
    return Rollout.of({"n": number}, -(number[..., None] + torch.tensor([0.0, 0.1, 0.2])), mask, **values | given)


def test_units_become_groups():
    """Sizes 2, 4 and 2 of width 4: the units are 0; 1 and 2; 3. Where a group is short its first sample stands in."""
    made = Spread([2, 4, 2], 2, 4)._together(units())
    number = [[0, 1, 0, 0], [2, 3, 4, 5], [6, 7, 6, 6]]
    assert made.samples["n"].tolist() == number
    there = torch.tensor([[1, 1, 0, 0], [1, 1, 1, 1], [1, 1, 0, 0]], dtype=torch.bool)
    assert torch.equal(made.present, there)
    n = torch.tensor(number)
    assert torch.equal(made.rewards, n * 10.0)
    assert torch.equal(made.valid, there & (n != 3))
    assert torch.equal(made.ended, n % 3 > 0)
    assert torch.equal(made.version, (n + 100)[..., None].expand(3, 4, 3))  # of each decision
    assert torch.equal(made.components["hit"], n * 0.5)
    logs = torch.where(there[..., None], -(n[..., None] + torch.tensor([0.0, 0.1, 0.2])), 0.0)
    torch.testing.assert_close(made.log_probs, logs)
    assert torch.equal(made.mask, (torch.arange(3) < (n % 3 + 1)[..., None]) & there[..., None])
    assert torch.equal(made.turn, (n % 3)[..., None].expand(3, 4, 3).to(torch.int16))
    assert torch.equal(made.turn_rewards, n[..., None] * 2.0)
    assert made.reasons == {(1, 1): "late", (2, 0): "odd"}
    assert made.prompt_id.tolist() == [0, 0, 0]
    assert made.prompt_id.dtype == torch.int64


def test_reasons_of_later_units_keep_their_place():
    made = Spread([4, 4], 2, 4)._together(units(reasons={(1, 1): "a", (2, 0): "b", (3, 1): "c"}))
    assert made.reasons == {(0, 3): "a", (1, 0): "b", (1, 3): "c"}
    one = Spread([1, 3], 1, 3)._together(
        Rollout.of(
            {"n": torch.arange(4).view(4, 1)},
            torch.zeros(4, 1, 1),
            torch.ones(4, 1, 1, dtype=torch.bool),
            reasons={(3, 0): "d", (0, 0): "e"},
        )
    )
    assert one.samples["n"].tolist() == [[0, 0, 0], [1, 2, 3]]
    assert one.reasons == {(1, 2): "d", (0, 0): "e"}


def test_units_are_drawn_in_one_call_and_dealt_to_their_prompts():
    asked = []

    class Policy:
        def sample(self, prompts, group, seed):
            asked.append((prompts, group, seed))
            return units()

        def decode(self, samples):
            return [[f"{n}" for n in row] for row in samples["n"].tolist()]

    rollout, outputs = Spread([2, 4, 2], 2, 4).sample(Policy(), ["a", "b", "c"], 9)
    assert asked == [(["a", "b", "b", "c"], 2, 9)]
    assert outputs == [["0", "1"], ["2", "3", "4", "5"], ["6", "7"]]
    assert rollout.shape == (3, 4, 3)


def test_a_part_of_the_prompts():
    whole = Spread([2, 4, 6, 8], 2, 8)
    assert whole.part(1, 2) == Spread([4, 6], 2, 8)
    assert whole.part(2, 9) == Spread([6, 8], 2, 8)


# --- scores put together


class Later:
    def __init__(self, scores):
        self.scores = scores

    def result(self):
        return self.scores


@pytest.mark.parametrize("later", [False, True])
def test_scores_come_back_to_their_groups(later):
    """Groups of 1 and 2: "b" alone, "a" and "c" together; what one task does not say is filled up."""
    asked = []

    def score(prompts, outputs):
        asked.append((prompts, outputs))
        if len(prompts) == 1:
            made = Scores(
                torch.tensor([[5.0]]),
                {"x": torch.tensor([[0.5]])},
                faults=torch.tensor([[True]]),
                parts=torch.tensor([[[7.0]]]),
            )
        else:
            made = Scores(
                torch.tensor([[1.0, 2.0], [3.0, 4.0]]),
                {"y": torch.tensor([[0.1, 0.2], [0.3, 0.4]])},
                torch.tensor([[True, False], [True, True]]),
                {(1, 0): "why"},
                {"y": 2.0},
                parts=torch.tensor([[[1.0, 2.0], [3.0, 4.0]], [[5.0, 6.0], [7.0, 8.0]]]),
            )
        return Later(made) if later else made

    found = Spread([2, 1, 2], 1, 3).score(["a", "b", "c"], ["A", "B", "C"], score)
    found = found.result() if later else found
    assert asked == [(["b"], ["B"]), (["a", "c"], ["A", "C"])]
    assert found.rewards.tolist() == [[1, 2, 0], [5, 0, 0], [3, 4, 0]]
    assert found.valid.tolist() == [[True, False, False], [True, False, False], [True, True, False]]
    assert found.reasons == {(2, 0): "why"}
    assert found.weights == {"y": 2.0}
    assert found.faults.tolist() == [[False] * 3, [True, False, False], [False] * 3]
    nan = torch.tensor(NAN)
    expected = {"x": [[nan] * 3, [0.5, nan, nan], [nan] * 3], "y": [[0.1, 0.2, nan], [nan] * 3, [0.3, 0.4, nan]]}
    assert set(found.components) == set(expected)
    for name, rows in expected.items():
        torch.testing.assert_close(found.components[name], torch.tensor(rows), equal_nan=True)
    parts = torch.full((3, 3, 2), NAN)
    parts[0, :2], parts[2, :2], parts[1, 0, 0] = torch.tensor([[1.0, 2], [3, 4]]), torch.tensor([[5.0, 6], [7, 8]]), 7.0
    torch.testing.assert_close(found.parts, parts, equal_nan=True)


def test_what_no_task_says_is_not_said():
    score = lambda prompts, outputs: Scores(torch.ones(len(prompts), len(outputs[0])))  # noqa: E731
    found = Spread([1, 2], 1, 2).score(["a", "b"], [[0], [0, 0]], score)
    assert found.faults is None
    assert found.parts is None
    assert found.components == {}
    assert found.rewards.dtype == torch.float32

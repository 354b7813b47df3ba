"""The oracle is the pool's ceiling: exact where it says so, never below what fewer picks reach."""

from __future__ import annotations

import torch

from anygrpo.selection.oracle import oracle
from anygrpo.selection.task import SelectionTask


class NeedsSet(SelectionTask):
    """A prompt is answered by one set of positions alone, in any order."""

    def prompts(self, step, count):
        return []

    def held_out(self):
        return []

    def judge(self, prompts, selections):
        rows = [[float(set(s) == p["needs"]) for s in row] for p, row in zip(prompts, selections)]
        return {"correct": torch.tensor(rows)}


def prompt(needs, size=5, excluded=()):
    return {"candidates": torch.zeros(size, 1), "needs": set(needs), "excluded": excluded}


def test_all_sets_are_tried_and_fewer_picks_count_for_more():
    found = oracle(NeedsSet(), [prompt([3]), prompt([1, 4]), prompt([0, 1, 2]), prompt([])], [1, 2, 3])
    assert found.correct.tolist() == [[1, 0, 0, 1], [1, 1, 0, 1], [1, 1, 1, 1]]
    assert found.tried == (5, 10, 10)
    assert found.exact == (True, True, True)


def test_what_is_excluded_is_not_tried_and_ragged_pools_do_not_mix():
    prompts = [prompt([3], excluded=(3,)), prompt([6], size=7), prompt([1], size=2)]
    assert oracle(NeedsSet(), prompts, [1]).correct.tolist() == [[0, 1, 1]]


def test_a_size_with_too_many_sets_is_sampled_and_said_to_be():
    found = oracle(NeedsSet(), [prompt([0, 1, 2], size=12)], [1, 2, 3], limit=20)
    assert found.tried == (12, 20, 20)
    assert found.exact == (True, False, False)
    assert found.sentence.endswith("1: all 12 sets, 2: random 20 sets, 3: random 20 sets")


def test_a_pool_smaller_than_the_shots_ends_the_search():
    found = oracle(NeedsSet(), [prompt([0, 1], size=2), prompt([9], size=2)], [1, 2, 3])
    assert found.correct.tolist() == [[0, 0], [1, 0], [1, 0]]

"""Rows by prompt: every layout of a batch scores as each row alone does, and uneven groups cost little."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from anygrpo.core.tree import tree_map
from anygrpo.selection import picks
from anygrpo.selection.build import build
from anygrpo.selection.grouping import Grouping
from anygrpo.selection.settings import SelectorConfig

keys = st.lists(st.integers(-3, 3), min_size=1, max_size=24).map(torch.tensor)


@settings(max_examples=100, deadline=None)
@given(keys)
def test_rows_come_back_and_every_cell_is_of_one_prompt(key):
    grouping = Grouping.of(key)
    row = torch.arange(len(key))
    grid = grouping.spread(row, -1)
    assert torch.equal(grouping.rows(grid), row)
    assert grid.numel() < 2 * (len(key) + len(key.unique()))
    assert torch.equal(key[grouping.first].sort().values, key.unique())
    of_cell = grouping.cells(key[grouping.first])
    for cell, rows in zip(of_cell, grid):
        assert (key[rows[rows >= 0]] == cell).all()


def test_equal_groups_are_views():
    grouping = Grouping.of(torch.tensor([7, 7, -2, -2, 5, 5]))
    assert (grouping.prompt, grouping.place, grouping.shape) == (None, None, (3, 2))
    assert grouping.first.tolist() == [0, 2, 4]
    x = torch.arange(6)
    assert grouping.spread(x, -1).data_ptr() == x.data_ptr()


CHANGES = [{}, {"decoder": "gru", "stop": True}, {"diversity": True, "shots": 4}, {"decision": "set", "shots": 3}]


@pytest.mark.parametrize("changes", CHANGES, ids=str)
def test_any_rows_score_as_each_alone(changes):
    policy = build(SelectorConfig(**({"kind": "selector", "features": 6, "width": 16, "shots": 3} | changes)), 0)
    g = torch.Generator().manual_seed(0)
    prompts = [
        {"id": i, "query": torch.randn(6, generator=g), "candidates": torch.randn(5, 6, generator=g)} for i in range(3)
    ]
    rollout = policy.sample(prompts, 4, 0)
    rows = tree_map(lambda x: x.flatten(0, 1), rollout.samples)
    some = torch.tensor([9, 0, 1, 11, 2, 3, 8, 4])  # 4, 1 and 3 rows of the three prompts, mixed
    with torch.no_grad():
        together = policy.evaluate(tree_map(lambda x: x[some], rows), slice(None)).log_probs
        alone = [policy.evaluate(tree_map(lambda x, i=i: x[i : i + 1], rows), slice(None)).log_probs for i in some]
    torch.testing.assert_close(together, torch.cat(alone), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(together, rollout.log_probs.flatten(0, 1)[some], atol=1e-5, rtol=1e-5)


def test_remaining_is_open_columns_step_by_step():
    choosable = torch.tensor([[True, True, False, True], [True, False, False, False]])
    remaining = picks.Remaining(choosable, stop=True, min_shots=1)
    columns, seen, chosen = torch.tensor([[0, 0], [3, 4], [4, 4]]), [], []
    for column in columns:
        seen.append(remaining.options())
        chosen.append(remaining.take(column))
    chosen = torch.stack(chosen, 1)
    assert chosen.tolist() == [[0, 3, picks.STOP], [0, picks.STOP, picks.NOTHING]]
    assert torch.equal(torch.stack(seen, 1), picks.open_columns(choosable, chosen, stop=True, min_shots=1))

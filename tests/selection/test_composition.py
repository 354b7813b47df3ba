"""Tasks where one demonstration is not enough: what the pools hold, and that the frozen model needs both."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from anygrpo.core.build import build_task as build
from anygrpo.selection.composition import question
from anygrpo.selection.settings import CompositionConfig


@given(st.integers(0, 500), st.sampled_from([9, 10, 12]))
def test_codes_no_candidate_shows_both_halves_and_a_third_shows_each(number, pool):
    asked = question("codes", "train", number, pool)
    colour, shape = asked.text.removesuffix(" =").split()
    assert len(set(asked.pool)) == pool
    shows = [(colour in text.split(), shape in text.split()) for text in asked.pool]
    assert sum(c for c, _ in shows) == sum(s for _, s in shows) == pool // 3
    assert not any(c and s for c, s in shows)
    for text, (c, s) in zip(asked.pool, shows):
        assert (asked.answer[0] in text.split()) == c
        assert (asked.answer[1] in text.split()) == s


@given(st.integers(0, 500))
def test_hops_the_second_fact_does_not_name_who_is_asked_for(number):
    asked = question("hops", "test", number, 10)
    name = asked.text.removesuffix(" is")
    (own,) = [text for text in asked.pool if text.startswith(name)]
    _, _, city, team = own.removesuffix(".").split()
    (other,) = [text for text in asked.pool if text.startswith(f"{team} ")]
    assert (city, other.removesuffix(".").split()[-1]) == asked.answer
    assert name not in other


def test_splits_ask_different_questions_and_one_world_shares_its_pool():
    assert question("codes", "train", 3, 10) == question("codes", "train", 3, 10) != question("codes", "test", 3, 10)
    assert question("hops", "train", 0, 10).pool == question("hops", "train", 4, 10).pool
    assert question("hops", "train", 0, 10).pool != question("hops", "train", 5, 10).pool


def test_smollm2_needs_both_demonstrations_and_asks_once(tmp_path):
    config = CompositionConfig(kind="composition", cache=str(tmp_path / "a.sqlite"), batch_size=3, queries=4)
    task = build(config, 0)
    prompts = task.prompts(0, 4)
    both = []
    for p in prompts:
        colour, shape = p["text"].removesuffix(" =").split()
        both.append(tuple(next(i for i, t in enumerate(p["texts"]) if t.startswith(f"{w} =")) for w in (colour, shape)))
    rows = [[pair, pair[:1], ()] for pair in both]
    found = task.judge(prompts, rows)["gt_prob"]
    assert (found[:, 0] > found[:, 1]).all()
    assert (found[:, 1] > found[:, 2]).sum() >= 3
    computed = task.frozen.computed
    assert computed == len({(p["text"], tuple(p["texts"][i] for i in s)) for p, row in zip(prompts, rows) for s in row})
    again = build(config.model_copy(update={"batch_size": 12}), 0)
    torch.testing.assert_close(again.judge(prompts, rows)["gt_prob"], found)
    assert again.frozen.computed == 0


def test_pools_that_the_words_do_not_fill_are_refused():
    with pytest.raises(ValueError, match="as many people as teams"):
        CompositionConfig(kind="composition", rule="hops", pool=9)
    with pytest.raises(ValueError, match="words for at most 15"):
        CompositionConfig(kind="composition", pool=16)

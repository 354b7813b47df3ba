"""Did the policy change: agreement, what cannot flip, weights; and candidates for files."""

from __future__ import annotations

import math
from collections import Counter

import pytest
import torch

from anygrpo.core.task import Stored
from anygrpo.selection.build import build
from anygrpo.selection.changes import agreement, cannot_flip, ndcg, regret, weight_change
from anygrpo.selection.generate import Plan, generate
from anygrpo.selection.settings import SelectorConfig


def prompt(seed, size=6, **extra):
    g = torch.Generator().manual_seed(seed)
    query, candidates = torch.randn(4, generator=g), torch.randn(size, 4, generator=g)
    return {"id": f"q{seed}", "query": query, "candidates": candidates} | extra


def policy(**changes):
    return build(SelectorConfig(**({"kind": "selector", "features": 4, "width": 8, "shots": 2} | changes)), 0)


def test_agreement_by_hand():
    assert agreement([(1, 2), (3, 4)], [(2, 1), (3, 4)]) == {"sequence": 0.5, "set": 1.0, "slot": 0.5}
    assert agreement([()], [()]) == {"sequence": 1.0, "set": 1.0, "slot": 1.0}


def test_what_cannot_flip_really_does_not():
    p = torch.tensor([[0.6, 0.3, 0.1], [0.36, 0.34, 0.3]])
    assert cannot_flip(p, torch.tensor([0.04, 0.04])).tolist() == [True, False]  # leads .3, .02; reach sqrt(.08) = .283
    g = torch.Generator().manual_seed(0)
    before = torch.randn(4000, 5, generator=g).mul(2).softmax(-1)
    after = (before.log() + 0.4 * torch.randn(4000, 5, generator=g)).softmax(-1)
    kl = (before * (before / after).log()).sum(-1)
    safe = cannot_flip(before, kl)
    assert 0.2 < safe.float().mean() < 1
    assert bool((before.argmax(-1) == after.argmax(-1))[safe].all())
    assert not bool((before.argmax(-1) == after.argmax(-1)).all())


def test_weights_by_module():
    before = {"a.weight": torch.tensor([3.0, 4.0]), "b.bias": torch.tensor([1.0])}
    after = {"a.weight": torch.tensor([3.0, 4.5]), "b.bias": torch.tensor([1.0])}
    assert weight_change(before, after) == {"a": pytest.approx(0.1), "b": 0.0}


def test_ranking_measures_by_hand():
    assert ndcg([3.0, 2.0, 1.0], [0.0, 1.0, 0.0], 2) == pytest.approx(1 / math.log2(3))
    assert ndcg([1.0, 2.0], [0.0, 0.0], 2) == 1.0
    assert regret([0.1, 0.9], [1.0, 0.25]) == 0.75


def test_candidates_follow_the_plan_without_repeats():
    p = policy()
    rows = generate(p, [prompt(i, 20, excluded=[3]) for i in range(4)], Plan(), 0)
    for row in rows:
        counts = Counter(g.method for g in row)
        assert counts["beam"] == 5
        assert counts["sample"] <= 4
        assert len({g.selection for g in row}) == len(row)
        assert all(3 not in g.selection for g in row)
        assert [g.rank for g in row if g.method == "beam"] == list(range(5))
        assert all(g.log_prob is None for g in row if g.method in ("beam", "retrieval"))


def test_stored_log_probs_are_those_of_the_temperature_that_drew():
    p = policy()
    one = prompt(1)
    row = generate(p, [one], Plan(beams=0, samples=((1.7, 6),), random=2, retrieved=0), 0)[0]
    p.temperature = 1.7
    drawn = [g for g in row if g.method == "sample"]
    again = p.replay([one], Stored([[g.selection for g in drawn]]), 0).log_probs[0].sum(-1).cpu()
    torch.testing.assert_close(torch.tensor([g.log_prob for g in drawn]), again, atol=1e-5, rtol=0)
    assert all(g.log_prob == pytest.approx(-math.log(6 * 5)) for g in row if g.method == "random")
    assert p.temperature == 1.7

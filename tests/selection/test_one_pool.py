"""A pool that all queries share is encoded once: the same picks, numbers and gradients as a pool for each."""

from __future__ import annotations

import pytest
import torch

from anygrpo.core.task import Stored
from anygrpo.core.tree import tree_map
from anygrpo.selection.build import build
from anygrpo.selection.prompts import pools
from anygrpo.selection.settings import SelectorConfig

VARIANTS = [
    {},
    {"hidden": 24, "heads": 4},
    {"decoder": "none"},
    {"decoder": "gru", "shots": 3},
    {"logits": "additive"},
    {"logits": "bilinear", "stop": True},
    {"diversity": True, "shots": 3},
    {"layers": 3, "stop": True, "min_shots": 1, "decoder": "none", "temperature": 1.7},
    {"set_layers": 1},
    {"decision": "set"},
]
POOL = torch.randn(7, 6, generator=torch.Generator().manual_seed(9))
QUERIES = torch.randn(4, 6, generator=torch.Generator().manual_seed(8))


def prompts(one: bool, excluded: bool = True):
    return [
        {"id": i, "query": q, "candidates": POOL if one else POOL.clone()} | ({"excluded": [i]} if excluded else {})
        for i, q in enumerate(QUERIES)
    ]


def policy_of(**changes):
    return build(SelectorConfig(**({"kind": "selector", "features": 6, "width": 16, "shots": 2} | changes)), 0)


def outcome(policy, given, one_update):
    """Picks, log-probabilities, entropies and gradients of one rollout, of all its rows and of some."""
    policy.one_update = one_update
    rollout = policy.sample(given, 5, 3)
    out = [rollout.samples["chosen"], rollout.log_probs, policy.greedy(given).log_probs]
    want = frozenset({"entropy"}) if policy.config.decision == "pick" else frozenset()
    for index in (slice(None), torch.tensor([17, 0, 1, 8, 9])):
        policy.network.zero_grad()
        made = policy.evaluate(tree_map(lambda x, i=index: x.flatten(0, 1)[i], rollout.samples), slice(None), want)
        (
            torch.linspace(-1, 2, made.log_probs.numel()).to(made.log_probs).view_as(made.log_probs) * made.log_probs
        ).sum().backward()
        out += [made.log_probs.detach(), *(p.grad.clone() for p in policy.network.parameters() if p.grad is not None)]
    return out


@pytest.mark.parametrize("excluded", [False, True])
@pytest.mark.parametrize("one_update", [False, True])
@pytest.mark.parametrize("changes", VARIANTS, ids=str)
def test_the_same_as_a_pool_for_each(changes, one_update, excluded):
    one, each = (outcome(policy_of(**changes), prompts(shared, excluded), one_update) for shared in (True, False))
    assert len(one) == len(each)
    for a, b in zip(one, each):
        torch.testing.assert_close(a, b, atol=2e-5, rtol=1e-4)


def test_stored_selections_too():
    stored = Stored([[(1, 2), (5, 4)], [(0, 3)], [(6, 5)], [(0, 1)]])
    one, each = (policy_of().replay(prompts(shared), stored, 0).log_probs for shared in (True, False))
    torch.testing.assert_close(one, each)


def test_the_pool_is_encoded_once_and_held_once():
    policy, seen = policy_of(), []
    policy.network.encoder.input.register_forward_hook(lambda _, inputs, __: seen.append(tuple(inputs[0].shape)))
    rollout = policy.sample(prompts(True), 5, 3)
    assert seen == [(4, 6), (1, 7, 6)]
    held = rollout.samples["prompt"].values["candidates"]
    assert held.shape == (4, 7, 6)
    assert held.untyped_storage().nbytes() == 7 * 6 * 4
    seen.clear()
    policy.evaluate(tree_map(lambda x: x.flatten(0, 1), rollout.samples), slice(None))
    assert seen == [(4, 6), (1, 7, 6)]


def test_pools_that_only_look_alike_are_kept_apart():
    given = prompts(True)
    given[2]["candidates"] = POOL[:5]
    made = pools(given, 6, 1)
    assert made.candidates.stride(0) != 0
    assert not made.choosable[2, 5:].any()

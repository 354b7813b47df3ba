"""Scoring from what sampling recorded: the same numbers and gradients as scoring anew, and only where it fits."""

from __future__ import annotations

import pytest
import torch

from anygrpo.core.tree import tree_map
from anygrpo.selection.build import build
from anygrpo.selection.recorded import recordable
from anygrpo.selection.settings import SelectorConfig

ALL = slice(None)
VARIANTS = [
    {},
    {"heads": 4, "decoder": "gru", "shots": 3},
    {"stop": True, "min_shots": 1, "shots": 4},
    {"temperature": 1.7, "shots": 1},
    {"logits": "additive"},
    {"diversity": True, "shots": 3},
    {"decoder": "none"},
]


def prompt(seed, size=7, **extra):
    g = torch.Generator().manual_seed(seed)
    given = {"query": torch.randn(6, generator=g), "candidates": torch.randn(size, 6, generator=g)}
    return {"id": seed} | given | extra


PROMPTS = [prompt(0), prompt(1, 5), prompt(2, 6, excluded=(0, 2)), prompt(3)]


def policy_of(one_update=True, **changes):
    policy = build(SelectorConfig(**({"kind": "selector", "features": 6, "width": 16, "shots": 2} | changes)), 0)
    policy.one_update = one_update
    return policy


def rows(rollout, index: slice | torch.Tensor = ALL):
    return tree_map(lambda x: x.flatten(0, 1)[index], rollout.samples)


def gradient(policy, samples):
    policy.network.zero_grad()
    made = policy.evaluate(samples, ALL).log_probs
    (torch.linspace(-1, 2, made.numel()).to(made).view_as(made) * made).sum().backward()
    return made.detach(), {n: p.grad.clone() for n, p in policy.network.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("index", [ALL, torch.tensor([17, 0, 1, 8, 9])], ids=["all rows", "some rows"])
@pytest.mark.parametrize("changes", VARIANTS, ids=str)
def test_the_same_gradient_as_scoring_anew(changes, index):
    plain, fast = policy_of(False, **changes), policy_of(**changes)
    anew = gradient(plain, rows(plain.sample(PROMPTS, 5, 3), index))
    made = gradient(fast, rows(fast.sample(PROMPTS, 5, 3), index))
    assert fast._recorded is None  # the graph served, and is not held
    torch.testing.assert_close(made[0], anew[0], atol=1e-5, rtol=1e-5)
    assert made[1].keys() == anew[1].keys()
    for name, expected in anew[1].items():
        torch.testing.assert_close(made[1][name], expected, atol=1e-5 * (1 + float(expected.abs().max())), rtol=1e-4)


def test_the_recording_is_what_scores(monkeypatch):
    policy = policy_of()
    rollout = policy.sample(PROMPTS, 5, 3)
    monkeypatch.setattr(policy.network, "encode", None)  # nothing is encoded again
    policy.evaluate(rows(rollout), ALL).log_probs.sum().backward()


def test_the_encoding_serves_some_of_the_rows(monkeypatch):
    policy = policy_of()
    rollout = policy.sample(PROMPTS, 5, 3)
    monkeypatch.setattr(policy.network, "encode", None)
    policy.evaluate(rows(rollout, torch.tensor([6, 7, 19])), ALL).log_probs.sum().backward()


@pytest.mark.parametrize("change", ["weights", "second block", "other rollout", "scoring without gradient"])
def test_what_does_not_fit_is_scored_anew(change):
    policy = policy_of()
    samples = rows(policy.sample(PROMPTS, 5, 3))
    if change == "weights":
        with torch.no_grad():
            policy.network.decoder.query.weight.mul_(-1)
    if change == "second block":
        gradient(policy, samples)
    if change == "other rollout":
        policy.sample(PROMPTS, 5, 4)
    if change == "scoring without gradient":
        with torch.no_grad():
            policy.evaluate(samples, ALL)
        assert policy._recorded is not None  # still of use to the update
    made = gradient(policy, samples)
    plain = policy_of(False)
    plain.network.load_state_dict(policy.network.state_dict())
    anew = gradient(plain, samples)
    torch.testing.assert_close(made[0], anew[0], atol=1e-5, rtol=1e-5)
    for name, expected in anew[1].items():
        torch.testing.assert_close(made[1][name], expected, atol=1e-5 * (1 + float(expected.abs().max())), rtol=1e-4)


def test_nothing_is_kept_of_sharded_weights():
    policy = policy_of()
    policy.before_sharding(None)
    policy.sample(PROMPTS, 5, 3)
    assert policy._recorded is None


def test_which_networks_are_recordable():
    assert [recordable(policy_of(**v).network) for v in VARIANTS] == [True] * 4 + [False] * 3


def test_joined_rollouts_hold_each_prompt_once():
    policy = policy_of(False)
    first, second = policy.sample(PROMPTS[:2], 3, 0), policy.sample([prompt(4, 9)], 3, 1)
    joined = first.joined(second)
    assert joined.samples["prompt"].values["candidates"].shape == (3, 9, 6)
    assert joined.samples["prompt"].index.tolist() == [[0] * 3, [1] * 3, [2] * 3]
    log_probs = policy.evaluate(rows(joined), ALL).log_probs
    torch.testing.assert_close(log_probs, joined.log_probs.flatten(0, 1), atol=1e-5, rtol=1e-5)
    assert first.samples["prompt"] == policy.sample(PROMPTS[:2], 3, 0).samples["prompt"]
    assert first.samples["prompt"] != policy.sample(PROMPTS[1:3], 3, 0).samples["prompt"]

"""KL between two policies on own samples: the exact one by hand, and never below 0."""

from __future__ import annotations

import pytest
import torch
from runs import run_of
from toys import Bandit

from anygrpo.core.trained import state_of
from anygrpo.probes.policies import divergence
from anygrpo.probes.subject import Subject


class Sampled(Bandit):
    """Cannot compute its KL."""

    provides = frozenset()


@pytest.fixture
def two(tmp_path):
    """A subject, its prompts, and two policies of which the second is a little off the first."""
    run = run_of(tmp_path / "run")
    subject = Subject(run, 0, seconds=5)
    one = {name: p.clone() for name, p in state_of(run.policy.trainable()).items()}
    generator = torch.Generator().manual_seed(0)
    yield (
        subject,
        subject.task.held_out()[:64],
        one,
        lambda size: {name: p + size * torch.randn(p.shape, generator=generator) for name, p in one.items()},
    )
    run.close()


def exact(prompts, one, two):
    x = torch.stack([p["x"] for p in prompts]).double()
    logs = [(x @ s["weight"].double().T + s["bias"].double()).log_softmax(-1) for s in (one, two)]
    return float((logs[0].exp() * (logs[0] - logs[1])).sum(-1).mean())


def test_the_exact_kl_by_hand(two):
    subject, prompts, one, near = two
    other = near(0.5)
    found = divergence(subject, prompts, one, other)
    assert found["own_samples"]
    assert found["per_sample"] == pytest.approx(exact(prompts, one, other), rel=1e-4)
    assert found["per_sample_low"] < found["per_sample"] < found["per_sample_high"]


@pytest.mark.parametrize("size", [0.0, 0.001, 0.03, 0.5])
def test_the_estimate_is_never_below_0_and_holds_the_truth(two, size):
    subject, prompts, one, near = two
    subject.policy.__class__ = Sampled
    for _ in range(5):
        other = near(size)
        found = divergence(subject, prompts, one, other)
        assert found["exact_per_decision"] is None
        assert found["per_sample"] >= 0
        assert found["per_sample_low"] >= 0
        assert found["per_sample"] == pytest.approx(exact(prompts, one, other), rel=0.6, abs=1e-9)

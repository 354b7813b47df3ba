"""One optimizer step: AdamW by hand, gradients over blocks, refusals, moments kept."""

from __future__ import annotations

import copy
import math
from dataclasses import replace

import pytest
import torch
from runs import run_of
from stages import numbers_of, stage_of
from torch import nn
from toys import Bandit

from anygrpo.core.rollout import Batch
from anygrpo.errors import ConfigError, TrainingError
from anygrpo.recipe.training import OptimizerConfig
from anygrpo.train import update as module
from anygrpo.train.terms import Tally
from anygrpo.train.update import Demonstrations, Updater


class Scalar(Bandit):
    """Two weights and nothing else."""

    def __init__(self, dtype=torch.float32, value=1.0):
        super().__init__(0)
        self.net = nn.ParameterList([nn.Parameter(torch.full((2,), value, dtype=dtype))])


def updater_of(policy=None, **config):
    return Updater(policy or Scalar(), OptimizerConfig(**{"eps": 1e-3, "grad_clip": None} | config))


def stepped(updater, gradient, rate=0.1, measure=False):
    updater.parameters[0].grad = torch.tensor(gradient)
    return updater.step(rate, measure)


# --- the step


def test_adam_by_hand():
    """First step: m / (1 - b1) = g, v / (1 - b2) = g^2, so w - rate x g / (|g| + eps). Second with g = 0."""
    updater = updater_of(betas=(0.8, 0.9))
    row = stepped(updater, [3.0, -4.0])
    assert row == {"grad_norm/total": 5.0}
    w = [1 - 0.1 * 3 / (3 + 1e-3), 1 + 0.1 * 4 / (4 + 1e-3)]
    assert updater.parameters[0].tolist() == pytest.approx(w, rel=1e-6)
    assert updater.parameters[0].grad is None
    stepped(updater, [0.0, 0.0], rate=0.5)
    m, v = 0.2 * 0.8 * 3 / (1 - 0.64), 0.1 * 0.9 * 9 / (1 - 0.81)
    assert float(updater.parameters[0][0].detach()) == pytest.approx(w[0] - 0.5 * m / (math.sqrt(v) + 1e-3), rel=1e-5)


def test_weight_decay_is_decoupled():
    updater = updater_of(weight_decay=0.5)
    stepped(updater, [0.0, 0.0])
    assert updater.parameters[0].tolist() == pytest.approx([0.95, 0.95])


def test_a_gradient_is_clipped_to_its_norm():
    free, clipped = updater_of(eps=1.0), updater_of(eps=1.0, grad_clip=1.0)
    small = updater_of(eps=1.0, grad_clip=9.0)
    assert stepped(free, [3.0, -4.0]) == stepped(clipped, [3.0, -4.0]) == {"grad_norm/total": 5.0}
    stepped(small, [3.0, -4.0])
    assert clipped.parameters[0].tolist() == pytest.approx([1 - 0.1 * 0.6 / 1.6, 1 + 0.1 * 0.8 / 1.8], rel=1e-5)
    assert torch.equal(small.parameters[0], free.parameters[0])


def test_the_size_of_an_update_is_relative_to_the_weights():
    updater = updater_of(eps=1.0)
    row = stepped(updater, [3.0, -4.0], measure=True)
    moved = math.hypot(0.1 * 3 / 4, 0.1 * 4 / 5)
    assert row["update/relative_norm"] == pytest.approx(moved / math.sqrt(2), rel=1e-5)
    nothing = updater_of(Scalar(value=0.0), eps=1.0)
    assert stepped(nothing, [3.0, 0.0], measure=True)["update/relative_norm"] > 1e20  # of weights that are all 0


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_gradient_that_is_not_finite_is_refused(bad):
    updater = updater_of(weight_decay=0.5)
    row = stepped(updater, [bad, 1.0], measure=True)
    assert not math.isfinite(row["grad_norm/total"])
    assert "update/relative_norm" not in row
    assert updater.parameters[0].tolist() == [1.0, 1.0]
    assert (updater.refused, updater.optimizer.state, updater.parameters[0].grad) == (1, {}, None)
    stepped(updater, [bad, 1.0])
    assert updater.refused == 2


def test_a_step_counts_as_a_change_of_the_weights():
    updater = updater_of()
    before = updater.parameters[0]._version
    stepped(updater, [1.0, 1.0])
    assert updater.parameters[0]._version > before


def test_only_float32_is_trained():
    with pytest.raises(ConfigError, match=r"trainable weights are torch\.bfloat16"):
        updater_of(Scalar(torch.bfloat16))
    policy = Scalar()
    policy.net[0].requires_grad_(False)
    with pytest.raises(ConfigError, match="no trainable weights"):
        updater_of(policy)


def test_moments_come_back():
    one, other = updater_of(), updater_of()
    stepped(one, [3.0, -4.0])
    one.refused = 3
    state = copy.deepcopy(one.state())  # a checkpoint's are other tensors
    assert set(state["moments"][0]) == {"step", "exp_avg", "exp_avg_sq"}
    with torch.no_grad():
        other.parameters[0].copy_(one.parameters[0])
    other.load(state)
    assert other.refused == 3
    for updater in (one, other):
        stepped(updater, [1.0, 1.0])
    assert torch.equal(one.parameters[0], other.parameters[0])
    other.load({"moments": [{}], "refused": 0})
    assert other.refused == 0
    assert other.optimizer.state[other.parameters[0]]


def test_bytes_to_come():
    """Two float32 moments of two weights; with norms of terms a gradient and a sum more. Moments that are there are
    not to come."""
    updater = updater_of()
    assert updater.to_come(False) == 16
    assert updater.to_come(True) == 32
    stepped(updater, [1.0, 1.0])
    assert updater.to_come(False) == 0
    assert updater.to_come(True) == 16


# --- gradients of a batch


class Seen(Bandit):
    """Notes each pass; runs out of memory above `most` rows."""

    def __init__(self, picks=1, most=10**6):
        super().__init__(0, picks=picks)
        self.rows, self.most, self.asked = [], most, set()

    def evaluate(self, samples, times, want=frozenset()):
        self.rows.append(len(samples["arms"]))
        self.asked |= want
        if len(samples["arms"]) > self.most:
            raise RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory")
        return super().evaluate(samples, times, want)


def batch_of(policy, rows=6, seed=1):
    generator = torch.Generator().manual_seed(seed)
    prompts = [{"x": torch.randn(5, generator=generator)} for _ in range(rows)]
    made = policy.sample(prompts, 1, 4)
    samples = {name: x[:, 0] for name, x in made.samples.items()}
    old = made.log_probs[:, 0]
    weights = torch.full_like(old, 1 / old.numel())
    advantages = torch.linspace(-1, 2, rows)[:, None]
    return Batch(samples, old, None, torch.ones_like(old, dtype=torch.bool), advantages, weights, weights.sum(1))


def accumulated(policy, rows=100, measure=True, demonstrations=None, batch=None, **settings):
    stage = stage_of(**settings)
    updater = Updater(policy, OptimizerConfig())
    policy.rows.clear()
    batch = batch_of(policy) if batch is None else batch
    policy.rows.clear()
    tally = updater.accumulate(batch, stage, numbers_of(stage), rows, measure, demonstrations)
    gradient = torch.cat([p.grad.flatten() for p in updater.parameters])
    return gradient, {k: float(v) for k, v in tally.sums.items()}


def by_hand(policy, batch, advantages=None):
    """Of the policy's loss at ratio 1: -sum of weight x advantage x gradient of log p."""
    logs = policy.evaluate(batch.samples, slice(None)).log_probs
    loss = -(batch.weights * (batch.advantages if advantages is None else advantages) * logs).sum()
    return torch.cat([g.flatten() for g in torch.autograd.grad(loss, policy.parameters())])


@pytest.mark.parametrize(("rows", "blocks"), [(100, [6]), (6, [6]), (4, [4, 2]), (1, [1] * 6)])
def test_blocks_add_up_to_the_batch(rows, blocks):
    policy = Seen()
    gradient, sums = accumulated(policy, rows)
    assert policy.rows == blocks
    torch.testing.assert_close(gradient, by_hand(Seen(), batch_of(Seen())))
    assert sums["updates"] == 1.0
    assert sums["grad_norm/policy"] == pytest.approx(float(gradient.norm()), rel=1e-6)
    assert sums["loss/total"] == pytest.approx(sums["loss/policy"])
    assert sums["loss/policy"] == pytest.approx(-float((batch_of(Seen()).advantages / 6).sum()), rel=1e-5)


def test_a_gradient_begins_at_zero():
    policy = Seen()
    for p in policy.parameters():
        p.grad = torch.full_like(p, 9.0)
    torch.testing.assert_close(accumulated(policy)[0], by_hand(Seen(), batch_of(Seen())))


def test_norms_of_terms_are_each_its_own():
    policy = Seen()
    gradient, sums = accumulated(policy, 4, entropy_coef=0.5)
    batch = batch_of(Seen())
    other = Seen()
    pull = by_hand(other, batch)
    entropy = other.evaluate(batch.samples, slice(None), frozenset({"entropy"})).entropy
    push = torch.cat([g.flatten() for g in torch.autograd.grad(-0.5 * entropy.mean(), other.parameters())])
    torch.testing.assert_close(gradient, pull + push)
    assert sums["grad_norm/policy"] == pytest.approx(float(pull.norm()), rel=1e-5)
    assert sums["grad_norm/entropy"] == pytest.approx(float(push.norm()), rel=1e-5)
    assert policy.asked == {"entropy"}


@pytest.mark.parametrize("settings", [{}, {"entropy_coef": 0.5}])
def test_norms_that_nobody_asked_for_are_not_measured(settings):
    _, sums = accumulated(Seen(), measure=False, **settings)
    assert not [name for name in sums if name.startswith("grad_norm/")]


def test_demonstrations_add_their_cross_entropy():
    policy = Seen()
    answers = batch_of(Seen(), 3, seed=2)
    gradient, sums = accumulated(policy, 2, demonstrations=Demonstrations(answers, 0.25))
    assert policy.rows == [2, 2, 2, 2, 1]
    other = Seen()
    pull, teach = by_hand(other, batch_of(other)), 0.25 * by_hand(other, answers, torch.ones(3, 1))
    torch.testing.assert_close(gradient, pull + teach)
    assert sums["grad_norm/policy"] == pytest.approx(float(pull.norm()), rel=1e-5)
    assert sums["grad_norm/supervised"] == pytest.approx(float(teach.norm()), rel=1e-5)
    assert sums["loss/total"] == pytest.approx(sums["loss/policy"] + 0.25 * sums["loss/supervised"], rel=1e-5)


def test_demonstrations_alone_are_the_whole_gradient():
    none = batch_of(Seen()).rows(torch.zeros(0, dtype=torch.int64))
    gradient, sums = accumulated(Seen(), batch=none, demonstrations=Demonstrations(batch_of(Seen(), 3), 2.0))
    assert sums["grad_norm/supervised"] == pytest.approx(float(gradient.norm()), rel=1e-5)
    assert "grad_norm/policy" not in sums


def test_log_probs_of_the_training_pass_may_stand_for_the_samplers():
    policy = Seen()
    batch = batch_of(policy)
    off = replace(batch, old=batch.old - 3.0)
    free, _ = accumulated(Seen(), batch=off, clip_high=99.0)
    assert not torch.allclose(free, by_hand(Seen(), batch))

    class Own(Seen):
        old_from_training = True

    torch.testing.assert_close(accumulated(Own(), batch=off)[0], by_hand(Seen(), batch))


@pytest.mark.parametrize(
    ("most", "passes"), [(3, [6, 3, 3]), (2, [6, 3, 1, 1, 1, 1, 1, 1]), (1, [6, 3, 1, 1, 1, 1, 1, 1])]
)
def test_blocks_are_halved_when_memory_ends(most, passes):
    policy = Seen(most=most)
    gradient, sums = accumulated(policy, 100)
    assert policy.rows == passes
    torch.testing.assert_close(gradient, by_hand(Seen(), batch_of(Seen())))
    assert sums["count"] == 6.0  # what a broken try tallied is forgotten


def test_memory_of_demonstrations_is_halved_too():
    policy = Seen(most=4)
    accumulated(policy, 100, batch=batch_of(Seen(), 2), demonstrations=Demonstrations(batch_of(Seen(), 8), 0.5))
    assert policy.rows == [2, 8, 2, 4, 4]


def test_one_row_that_does_not_fit_ends_the_run():
    with pytest.raises(TrainingError, match=r"out of memory with 1 row\(s\) a block"):
        accumulated(Seen(most=0), 4)


def test_other_errors_are_not_for_memory():
    policy = Seen()
    batch = batch_of(policy)

    def broken(samples, times, want=frozenset()):
        raise RuntimeError("shapes differ")

    policy.evaluate = broken
    with pytest.raises(RuntimeError, match="shapes differ"):
        accumulated(policy, batch=batch)


def test_a_term_that_reaches_no_weight_has_no_norm(monkeypatch):
    monkeypatch.setattr(module, "terms_of", lambda *given: {"a": torch.tensor(2.0), "b": torch.tensor(3.0)})
    updater = Updater(Seen(), OptimizerConfig())
    stage = stage_of()
    tally = updater.accumulate(batch_of(updater.policy), stage, numbers_of(stage), 9, True)
    assert float(tally.sums["loss/total"]) == 5.0
    assert float(tally.sums["grad_norm/a"]) == 0.0
    assert all(p.grad is None for p in updater.parameters)


def test_a_rank_with_fewer_blocks_fills_up_with_passes_of_no_gradient(monkeypatch):
    """So that every rank makes as many collective calls, forward and backward."""
    policy = Seen(picks=4)
    updater = Updater(policy, OptimizerConfig())
    updater.keep_spare(policy.sample([{"x": torch.ones(5)}] * 2, 3, 0))
    assert updater._spare is None  # whole weights need none
    updater.sharded = True
    updater.keep_spare(policy.sample([{"x": torch.ones(5)}] * 2, 3, 0))
    monkeypatch.setattr(module, "max_over_ranks", lambda x: torch.tensor(3))
    passes, block = [], object()
    evaluate = policy.evaluate
    policy.evaluate = lambda samples, times, want: (
        passes.append((len(samples["arms"]), times)) or evaluate(samples, times, want)
    )
    assert list(updater._filled_up([block], frozenset({"entropy"}))) == [block]
    assert passes == [(1, slice(0, 4))] * 2
    assert [float(p.grad.abs().max()) for p in policy.parameters()] == [0.0, 0.0]
    policy.time_chunk = 3
    list(updater._filled_up([block, block], frozenset()))
    assert passes[2:] == [(1, slice(0, 3))]


def test_slices_of_time_add_up_too():
    policy = Seen(picks=4)
    policy.time_chunk = 3
    batch = batch_of(Seen(picks=4))
    gradient, _ = accumulated(policy, batch=batch)
    torch.testing.assert_close(gradient, by_hand(Seen(picks=4), batch))
    assert policy.rows == [6, 6]
    with pytest.raises(ConfigError, match="sequence-level"):
        accumulated(policy, batch=batch, objective="gspo")


def test_a_term_that_reaches_some_weights_alone_is_measured(tmp_path):
    run = run_of(tmp_path / "run")
    run.enter(0)
    weight, _ = run.updater.parameters
    parts = {}
    run.updater._backward({"policy": 2 * weight.sum()}, Tally(), parts)
    run.close()
    assert torch.equal(parts["policy"][0], torch.full_like(weight, 2.0))
    assert parts["policy"][1] is None

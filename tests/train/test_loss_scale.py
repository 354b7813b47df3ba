"""Dynamic loss scaling: small gradients reach the weights, large ones halve the factor, a resume goes on with it."""

from __future__ import annotations

import json

import pytest
import torch
from runs import cut_after, table
from stages import numbers_of, stage_of
from toys import Bandit, BestArm

from anygrpo.core.rollout import Batch
from anygrpo.recipe.load import parse_recipe
from anygrpo.recipe.training import OptimizerConfig
from anygrpo.train.build import new_run, resumed_run
from anygrpo.train.loop import train
from anygrpo.train.loss_scale import LossScale
from anygrpo.train.update import Updater


class _Half(torch.autograd.Function):
    """The identity, whose gradient is a float16's times `size`."""

    @staticmethod
    def forward(ctx, x, size):
        ctx.size = size
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        return (gradient * ctx.size).half().float() / ctx.size, None


class Half(Bandit):
    """Its gradients pass through float16 where they are `size` times as large."""

    scales_loss = True

    def __init__(self, size=1.0, **options):
        super().__init__(0, **options)
        self.size, self.passes = size, 0

    def _log_probs(self, x):
        if torch.is_grad_enabled():
            self.passes += 1
        return _Half.apply(super()._log_probs(x), self.size)


class Plain(Half):
    scales_loss = False


def gradient_of(policy, weight=1.0, measure=False, entropy=0.0):
    """Of a pass over three rows, each with that weight, and the tally."""
    stage = stage_of(entropy_coef=entropy)
    x = torch.randn(3, 5, generator=torch.Generator().manual_seed(1))
    arms = torch.tensor([[0], [1], [2]])
    old = policy._log_probs(x).detach().gather(-1, arms)
    weights = torch.full_like(old, weight)
    advantages = torch.tensor([[1.0], [-2.0], [0.5]])
    batch = Batch(
        {"x": x, "arms": arms}, old, None, torch.ones_like(old, dtype=torch.bool), advantages, weights, weights[:, 0]
    )
    updater = Updater(policy, OptimizerConfig(grad_clip=None))
    policy.passes = 0
    tally = updater.accumulate(batch, stage, numbers_of(stage), 100, measure)
    return torch.cat([p.grad.flatten() for p in updater.parameters]), tally.sums, updater


def test_the_factor_by_hand():
    scale = LossScale(True)
    assert scale.value == 65536.0
    assert [scale.too_large(True, False) for _ in range(5)] == [True, True, True, True, False]
    assert scale.value == 65536.0  # 4096, 256, 16 and 1 did not help: it was no matter of the factor
    assert [scale.too_large(True, False) for _ in range(5)] == [True, True, True, True, False]
    scale = LossScale(True)
    assert [scale.too_large(True, True) for _ in range(500)] == [False] * 500
    assert scale.value == 131072.0
    assert scale.too_large(True, False)
    assert scale.value == 8192.0
    assert not scale.too_large(False, False)  # a loss that is no number is nobody's overflow
    none = LossScale(False)
    assert (none.value, none.too_large(True, False), none.state()) == (1.0, False, {})


def test_it_never_leaves_its_bounds():
    scale = LossScale(True)
    for _ in range(10_000):
        scale.too_large(True, True)
    assert scale.value == 2.0**24
    seen = [scale.value for _ in range(30) if scale.too_large(True, False) or True]
    assert min(seen) == 256.0
    assert scale.value in seen


def test_gradients_that_float16_loses_arrive():
    right = gradient_of(Bandit(0), 1e-9)[0]
    assert float(right.norm()) > 0
    assert float(gradient_of(Plain(), 1e-9)[0].norm()) == 0.0
    found, sums, _ = gradient_of(Half(), 1e-9, measure=True, entropy=1e-4)
    assert float(sums["grad_norm/policy"]) == pytest.approx(float(right.norm()), rel=0.02)
    found = gradient_of(Half(), 1e-9)[0]
    torch.testing.assert_close(found, right, rtol=0.02, atol=1e-12)  # float16's own rounding, no more


def test_a_gradient_that_overflows_is_made_again_with_a_smaller_factor():
    policy = Half(size=100.0)
    found, _, updater = gradient_of(policy)
    torch.testing.assert_close(found, gradient_of(Bandit(0))[0], rtol=2e-3, atol=1e-5)
    assert updater.scale.value == 256.0  # 65536 and 4096 times 100 are beyond 65504
    assert policy.passes == 3
    assert updater.step(1e-3, False)["grad_norm/total"] < 100
    assert updater.refused == 0


def test_what_no_factor_mends_is_refused():
    policy = Half(size=1e9)
    _, _, updater = gradient_of(policy)
    assert policy.passes == 5
    updater.step(1e-3, False)
    assert updater.refused == 1


def test_a_policy_that_needs_none_is_as_it_was():
    plain = gradient_of(Bandit(0))
    assert plain[2].scale.value == 1.0
    assert "scale" not in plain[2].state()


def test_a_resume_goes_on_with_the_factor(tmp_path):
    def new(name):
        recipe = parse_recipe(table(tmp_path / name, training={"steps": 6, "checkpoint_every": 1}))
        return new_run(recipe, Half(size=100.0), BestArm())

    whole, cut = new("whole"), new("cut")
    train(whole)
    cut_after(cut, 2)
    assert cut.updater.scale.value < 65536
    resumed = resumed_run(tmp_path / "cut", policy=Half(size=100.0), task=BestArm())
    assert resumed.updater.state()["scale"] == cut.updater.scale.value
    assert resumed.updater.state()["sound"] >= 1
    train(resumed)
    for a, b in zip(whole.policy.parameters(), resumed.policy.parameters()):
        assert torch.equal(a, b)
    rows = [json.loads(line) for line in (tmp_path / "cut" / "metrics.jsonl").read_text().splitlines()]
    assert [row["loss_scale"] for row in rows if row["step"] >= 0] == [cut.updater.scale.value] * 6

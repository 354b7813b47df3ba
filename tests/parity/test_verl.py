"""verl's advantages, losses, aggregation and KL beside ours, on the same numbers: values and gradients.

Needs verl (`pip install verl`), which is no dependency of ours. The table is docs/parity.md.
"""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from anygrpo.algorithm import advantages, kl, weights
from anygrpo.algorithm.objectives import OBJECTIVES, ClipSettings
from anygrpo.recipe.algorithm import AlgorithmConfig
from anygrpo.recipe.peers import verl as nearest

core = pytest.importorskip("verl.trainer.ppo.core_algos", reason="verl is not installed: pip install verl")
workers = pytest.importorskip("verl.workers.config", reason="verl is not installed: pip install verl")
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

P, G, T = 5, 6, 7


@pytest.fixture(params=range(3))
def drawn(request):
    g = torch.Generator().manual_seed(request.param)
    lengths = torch.randint(1, T + 1, (P * G, 1), generator=g)
    mask = torch.arange(T) < lengths
    old = -torch.rand(P * G, T, generator=g) * 3
    rewards = (torch.rand(P, G, generator=g) * 4).round() / 2
    return SimpleNamespace(
        mask=mask,
        old=old,
        new=(old + 0.4 * torch.randn(P * G, T, generator=g)).double(),
        ref=(old + 0.4 * torch.randn(P * G, T, generator=g)).double(),
        rewards=rewards,
        advantages=torch.randn(P * G, 1, generator=g).double(),
    )


def estimated(d, name):
    settings = nearest(AlgorithmConfig(advantage=name)).settings
    scores = torch.zeros(P * G, T, dtype=torch.float64)
    scores[torch.arange(P * G), d.mask.sum(1) - 1] = d.rewards.flatten().double()
    more = {k: v for k, v in settings.items() if k == "norm_adv_by_std_in_grpo"}
    fn = core.get_adv_estimator_fn(settings["adv_estimator"])
    index = np.repeat(np.arange(P), G)
    config = SimpleNamespace(gamma=1.0, get=lambda key, default=None: more.get(key, default))
    got, _ = fn(token_level_rewards=scores, response_mask=d.mask.double(), index=index, config=config, **more)
    return got


@pytest.mark.parametrize("name", ["zscore", "centred", "leave_one_out", "gpg", "best_gap"])
def test_advantages(drawn, name):
    epsilon = 1e-6 if name in ("zscore", "best_gap") else 0.0
    options = advantages.AdvantageOptions(epsilon=epsilon)
    ours = advantages.compute(name, drawn.rewards, torch.ones(P, G, dtype=torch.bool), options).values
    got = estimated(drawn, name)
    torch.testing.assert_close(got, ours.flatten()[:, None].double() * drawn.mask, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["whitened", "overall"])
def test_advantages_scaled_over_tokens_are_ours_where_lengths_are_equal(drawn, name):
    """Over samples of unequal length verl weighs long ones more: said to differ, and it does."""
    ours = (
        advantages.compute(name, drawn.rewards, torch.ones(P, G, dtype=torch.bool)).values.flatten()[:, None].double()
    )
    uneven = estimated(drawn, name)
    assert float((uneven - ours * drawn.mask).abs().max()) > 1e-3
    drawn.mask = torch.ones_like(drawn.mask)
    even = estimated(drawn, name)[:, :1]
    ratio = float(even.std() / ours.std())  # n T - 1 in place of n - 1 in the variance
    torch.testing.assert_close(even, ours * ratio, rtol=1e-4, atol=1e-5)
    assert ratio == pytest.approx(((P * G * T - 1) / (T * (P * G - 1))) ** 0.5, rel=1e-4)


def actor(**given):
    return workers.ActorConfig(
        strategy="fsdp", rollout_n=G, ppo_micro_batch_size_per_gpu=1, use_dynamic_bsz=False, **given
    )


@pytest.mark.parametrize("reduction", ["token_mean", "sequence_mean", "constant"])
@pytest.mark.parametrize("objective", ["ppo", "gspo", "cispo", "sapo", "reinforce"])
def test_losses_and_aggregation(drawn, objective, reduction):
    if objective == "sapo" and reduction != "sequence_mean":
        pytest.skip("sapo is always a mean over sequences there")
    low, high = (0.05, 0.1) if objective != "cispo" else (1.0, 0.3)
    dual = 1.5 if objective == "ppo" else None
    given = {"objective": objective, "reduction": reduction, "clip_low": low, "clip_high": high, "dual_clip": dual}
    settings = nearest(AlgorithmConfig(**given)).settings
    config = actor(clip_ratio_low=low, clip_ratio_high=high, clip_ratio_c=1.5, tau_pos=1.0, tau_neg=1.05)
    config.global_batch_info.update({"loss_scale_factor": T} if reduction == "constant" else {})
    mine, its = (drawn.new.clone().requires_grad_(True) for _ in range(2))
    old, mask = drawn.old.double(), drawn.mask
    made = OBJECTIVES[objective](mine, old, drawn.advantages, mask, ClipSettings(low, high, dual))
    w = weights.loss_weights(mask, torch.ones(P * G, dtype=torch.bool), reduction, horizon=T).double()
    loss = (w * made.loss).sum()
    other, _ = core.get_policy_loss_fn(settings["loss_mode"])(
        old_log_prob=old, log_prob=its, advantages=drawn.advantages.expand_as(its), response_mask=mask.double(),
        loss_agg_mode=settings["loss_agg_mode"], config=config,
    )  # fmt: skip
    loss.backward()
    other.backward()
    torch.testing.assert_close(loss, other, rtol=1e-5, atol=1e-7)
    torch.testing.assert_close(mine.grad, its.grad, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("kind", ["k1", "k2", "k3"])
def test_kl(drawn, kind):
    """Values are the same; gradients where a rollout's first update is (ratio 1)."""
    settings = nearest(AlgorithmConfig(beta=0.1, kl=kind)).settings
    mine, its = (drawn.new.clone().requires_grad_(True) for _ in range(2))
    ours = kl.estimate(kind, mine, drawn.ref, drawn.new, drawn.mask)
    other = core.kl_penalty(its, drawn.ref, settings["kl_loss_type"]) * drawn.mask
    torch.testing.assert_close(ours.value, other.detach(), rtol=1e-6, atol=1e-9)
    ours.loss.sum().backward()
    other.sum().backward()
    torch.testing.assert_close(mine.grad, its.grad, rtol=1e-6, atol=1e-9)

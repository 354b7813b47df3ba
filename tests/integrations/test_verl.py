"""verl's registries hold our functions, and what they compute is what the algorithm room computes."""

from __future__ import annotations

import importlib
import types

import pytest
import torch

from anygrpo.algorithm import advantages, weights
from anygrpo.algorithm.objectives import OBJECTIVES, ClipSettings
from anygrpo.errors import ConfigError
from anygrpo.integrations import verl


def registries():
    """Registries of verl's form (0.9.1), with its token-mean."""
    core = types.SimpleNamespace(estimators={}, losses={})

    def register_adv_est(name):
        def put(fn):
            if core.estimators.get(name, fn) is not fn:
                raise ValueError(f"{name} has already been registered")
            core.estimators[name] = fn

        return put

    core.register_adv_est = register_adv_est
    core.register_policy_loss = lambda name: lambda fn: core.losses.__setitem__(name, fn)
    core.agg_loss = lambda loss_mat, loss_mask, loss_agg_mode: (loss_mat * loss_mask).sum() / loss_mask.sum()
    return core


REWARDS = torch.tensor([1.0, 0.0, 3.0, 2.0, 0.5])
INDEX = ["b", "a", "b", "a", "b"]
MASK = torch.tensor([[1.0, 1, 0], [1, 0, 0], [1, 1, 1], [1, 1, 0], [1, 0, 0]])


def scores():
    return torch.nn.functional.pad(REWARDS[:, None], (2, 0))


def test_an_advantage_of_unequal_groups_out_of_order():
    core = registries()
    verl.register(core)
    got, returns = core.estimators["anygrpo_zscore"](token_level_rewards=scores(), response_mask=MASK, index=INDEX)
    b = REWARDS[[0, 2, 4]]
    expected = (b - b.mean()) / b.std()
    torch.testing.assert_close(got[[0, 2, 4], 0], expected)
    assert got[1, 0] == pytest.approx(-(0.5**0.5))
    assert torch.equal(got == 0, MASK == 0)
    assert torch.equal(got, returns)


@pytest.mark.parametrize("name", [n for n in verl.OFFERED if n not in ("pass_at_k",)])
def test_every_advantage_equals_ours(name):
    core = registries()
    verl.register(core)
    keep = [1, 3, 0, 2]  # two groups of two
    rewards, index = REWARDS[keep], [INDEX[i] for i in keep]
    got, _ = core.estimators["anygrpo_" + name](
        token_level_rewards=rewards[:, None], response_mask=torch.ones(4, 1), index=index
    )
    ours = advantages.compute(name, rewards.view(2, 2), torch.ones(2, 2, dtype=torch.bool)).values
    torch.testing.assert_close(got.view(2, 2), ours)


def test_options_come_from_the_config():
    core = registries()
    verl.register(core)
    config = {"anygrpo": {"clip": 0.25}}
    got, _ = core.estimators["anygrpo_centred"](
        token_level_rewards=scores(), response_mask=MASK, index=INDEX, config=config
    )
    assert got.abs().max() == pytest.approx(0.25)


@pytest.mark.parametrize("name", ["ppo", "gspo", "cispo", "sapo", "reinforce"])
def test_every_loss_equals_ours(name):
    core = registries()
    verl.register(core)
    torch.manual_seed(0)
    old, new = -torch.rand(5, 3), (-torch.rand(5, 3)).requires_grad_()
    given = torch.randn(5, 3)
    config = types.SimpleNamespace(clip_ratio=0.2, clip_ratio_low=0.1, clip_ratio_high=0.3, clip_ratio_c=3.0)
    loss, metrics = core.losses["anygrpo_" + name](old, new, given, MASK, "token-mean", config)
    settings = ClipSettings(0.1, 0.3, 3.0)
    w = weights.loss_weights(MASK.bool(), torch.ones(5, dtype=torch.bool), "token_mean")
    ours = (w * OBJECTIVES[name](new, old, given, MASK.bool(), settings).loss).sum()
    assert loss.item() == pytest.approx(ours.item(), rel=1e-5)
    loss.backward()
    assert new.grad is not None
    assert metrics["actor/anygrpo_guarded"] == 0


def test_registering_twice_is_harmless():
    core = registries()
    assert verl.register(core) == verl.register(core)


def test_without_verl_the_cure_is_named(monkeypatch):
    monkeypatch.setattr(verl.importlib, "import_module", lambda name: (_ for _ in ()).throw(ImportError(name)))
    with pytest.raises(ConfigError, match="pip install verl"):
        verl.register()


@pytest.mark.slow
def test_the_real_registries_take_them():
    core = pytest.importorskip("verl.trainer.ppo.core_algos")
    names = verl.register()
    assert importlib.import_module("verl.trainer.ppo.core_algos") is core
    assert all(n in core.ADV_ESTIMATOR_REGISTRY or n in core.POLICY_LOSS_REGISTRY for n in names)
    got, _ = core.get_adv_estimator_fn("anygrpo_gpg")(
        token_level_rewards=scores(), response_mask=MASK, index=INDEX, config=None
    )
    theirs, _ = core.get_adv_estimator_fn("gpg")(token_level_rewards=scores(), response_mask=MASK, index=INDEX)
    torch.testing.assert_close(got, theirs)

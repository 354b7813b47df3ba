"""KL estimates: values by hand; gradients against the exact one by summing over every action, so no sampling noise."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.distributions import Categorical, Normal, kl_divergence

from anygrpo.algorithm import (
    ESTIMATORS,
    AdaptiveKL,
    BandKL,
    FixedKL,
    RuleKL,
    categorical_kl,
    estimate,
    exact,
    gaussian_kl,
    update,
)
from anygrpo.errors import ConfigError

INF = math.inf
KINDS = sorted(ESTIMATORS)


def policies(seed: int = 0, actions: int = 5):
    torch.manual_seed(seed)
    logits, ref, old = (torch.randn(actions).double() for _ in range(3))
    return logits.requires_grad_(), ref.log_softmax(-1), old.log_softmax(-1)


def expected_gradient(kind: str, old_is_new: bool, seed: int) -> torch.Tensor:
    """Gradient of E_old[loss], each action as one row weighted by its probability under the behaviour policy."""
    logits, ref, old = policies(seed)
    new = logits.log_softmax(-1)
    behaviour = new.detach() if old_is_new else old
    rows = estimate(kind, new[:, None], ref[:, None], behaviour[:, None], torch.ones(len(ref), 1, dtype=torch.bool))
    (behaviour.exp() * rows.loss[:, 0]).sum().backward()
    return logits.grad


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("old_is_new", [True, False])
@pytest.mark.parametrize("seed", range(3))
def test_the_gradient_is_that_of_the_kl_on_and_off_policy(kind, old_is_new, seed):
    logits, ref, _ = policies(seed)
    new = logits.log_softmax(-1)
    (new.exp() * (new - ref)).sum().backward()
    torch.testing.assert_close(expected_gradient(kind, old_is_new, seed), logits.grad, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("kind", ["k1", "k3"])
def test_unbiased_values(kind):
    logits, ref, old = policies()
    new = logits.log_softmax(-1)
    truth = (new.exp() * (new - ref)).sum().item()
    mask = torch.ones(len(ref), 1, dtype=torch.bool)
    value = estimate(kind, new[:, None], ref[:, None], None, mask).value[:, 0]
    assert (new.exp() * value).sum().item() == pytest.approx(truth, rel=1e-9)
    corrected = estimate(kind, new[:, None], ref[:, None], old[:, None], mask).loss[:, 0]
    assert (old.exp() * corrected).sum().item() == pytest.approx(truth, rel=1e-9)


def test_differentiating_the_values_would_be_wrong():
    """Why `loss` is not `value`: k1's own gradient vanishes in expectation, k3's is that of KL(ref || new)."""
    for kind, forward in [("k1", None), ("k3", True)]:
        logits, ref, _ = policies()
        new = logits.log_softmax(-1)
        (new.detach().exp() * ESTIMATORS[kind](new - ref)).sum().backward()
        naive, logits.grad = logits.grad, None
        if forward is None:
            assert naive.abs().max() < 1e-12
        else:
            (ref.exp() * (ref - logits.log_softmax(-1))).sum().backward()
            torch.testing.assert_close(naive, logits.grad, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(("kind", "expected"), [("k1", -0.5), ("k2", 0.125), ("k3", math.exp(0.5) - 1.5)])
def test_by_hand(kind, expected):
    new = torch.tensor([[-1.0, -1.0]]).requires_grad_()
    ref, old = torch.tensor([[-0.5, 7.0]]), torch.tensor([[-1.0 - math.log(2), 7.0]])
    result = estimate(kind, new, ref, old, torch.tensor([[True, False]]))
    assert result.value[0].tolist() == pytest.approx([expected, 0.0], abs=1e-6)
    assert result.loss[0].tolist() == pytest.approx([2 * expected, 0.0], abs=1e-6)
    assert not result.value.requires_grad
    result.loss.sum().backward()
    assert new.grad[0].tolist() == pytest.approx([2 * -0.5, 0.0], abs=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_policy_has_no_kl_and_no_gradient(kind):
    new = torch.randn(3, 4).requires_grad_()
    result = estimate(kind, new, new.detach(), new.detach(), torch.ones(3, 4, dtype=torch.bool))
    result.loss.sum().backward()
    assert (result.value == 0).all()
    assert (new.grad == 0).all()


def test_k3_does_not_overflow_and_says_where_it_was_guarded():
    new = torch.tensor([[-200.0, -1.0, -1.0]]).requires_grad_()
    result = estimate("k3", new, torch.tensor([[-1.0, -20.0, -21.5]]), None, torch.ones(1, 3, dtype=torch.bool))
    assert result.guarded.tolist() == [[True, False, False]]
    assert result.value[0, 0].item() == pytest.approx(math.exp(20) - 1 - 199, rel=1e-6)
    result.loss.sum().backward()
    assert new.grad[0].tolist() == pytest.approx([-199.0, 19.0, 20.5])


def test_at_the_guard_itself_nothing_is_guarded_and_only_k3_has_an_exponent():
    new, mask = torch.tensor([[-21.0, 0.0]]), torch.ones(1, 2, dtype=torch.bool)
    ref, old = torch.tensor([[-1.0, 0.0]]), torch.tensor([[-21.0, -20.0]])  # d = -20, new / old = exp(20)
    assert not estimate("k3", new, ref, old, mask).guarded.any()
    for kind in ("k1", "k2"):
        assert not estimate(kind, new - 100, ref, None, mask).guarded.any()


def test_a_weight_beyond_the_guard_leaves_the_loss_alone_in_being_counted():
    new = torch.tensor([[0.0, 0.0]]).requires_grad_()
    old = torch.tensor([[-500.0, 0.0]])
    result = estimate("k1", new, torch.tensor([[-1.0, -1.0]]), old, torch.ones(1, 2, dtype=torch.bool))
    result.loss.sum().backward()
    assert result.guarded.tolist() == [[True, False]]
    assert new.grad.tolist() == [[0.0, 1.0]]
    assert result.value.tolist() == [[1.0, 1.0]]


@pytest.mark.parametrize("kind", KINDS)
def test_an_action_the_policy_no_longer_has_adds_nothing(kind):
    new = torch.tensor([[-INF, -1.0]]).requires_grad_()
    x = torch.tensor([[-1.0, -2.0]])
    result = estimate(kind, new, x, x, torch.ones(1, 2, dtype=torch.bool))
    result.loss.sum().backward()
    assert result.loss[0, 0] == new.grad[0, 0] == 0
    assert new.grad[0, 1].item() == pytest.approx(math.e)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("bad", [INF, -INF, math.nan])
def test_masked_places_never_enter(kind, bad):
    new = torch.tensor([[-1.0, bad]]).requires_grad_()
    x = torch.tensor([[-2.0, bad]])
    result = estimate(kind, new, x, x, torch.tensor([[True, False]]))
    result.loss.sum().backward()
    assert result.value[0, 1] == result.loss[0, 1] == new.grad[0, 1] == 0
    assert not result.guarded.any()
    assert torch.isfinite(new.grad).all()


def test_unknown_kind():
    with pytest.raises(ConfigError, match="k1, k2, k3"):
        estimate("exactly", torch.zeros(1, 1), torch.zeros(1, 1), None, torch.ones(1, 1, dtype=torch.bool))


# --- exact forms -----------------------------------------------------------------------------------------------------


def test_exact_keeps_the_gradient_and_the_mask():
    kl = torch.tensor([[0.5, INF]]).requires_grad_()
    result = exact(kl, torch.tensor([[True, False]]))
    result.loss.sum().backward()
    assert result.value.tolist() == [[0.5, 0.0]]
    assert kl.grad.tolist() == [[1.0, 0.0]]
    assert not result.value.requires_grad
    assert not result.guarded.any()


@given(st.floats(-3, 3), st.floats(-3, 2), st.floats(-3, 3), st.floats(-3, 2))
@settings(max_examples=60, deadline=None)
def test_gaussian_kl(m, s, rm, rs):
    m, s, rm, rs = (torch.tensor(x, dtype=torch.float64) for x in (m, s, rm, rs))
    expected = kl_divergence(Normal(m, s.exp()), Normal(rm, rs.exp()))
    torch.testing.assert_close(gaussian_kl(m, s, rm, rs), expected, rtol=1e-7, atol=1e-9)


def test_gaussian_kl_by_hand_and_near_zero():
    zero = torch.zeros(())
    assert gaussian_kl(torch.tensor(3.0), zero, zero, zero).item() == 4.5
    assert gaussian_kl(zero, torch.tensor(math.log(2)), zero, zero).item() == pytest.approx((4 - 1) / 2 - math.log(2))
    small = torch.tensor(1e-4)  # float32: 1 and its neighbours would swallow a KL of 1e-8
    assert gaussian_kl(zero, small, zero, zero).item() == pytest.approx(1e-8, rel=1e-2)


def test_categorical_kl():
    torch.manual_seed(0)
    p, q = torch.randn(3, 6).log_softmax(-1), torch.randn(3, 6).log_softmax(-1)
    expected = kl_divergence(Categorical(logits=p), Categorical(logits=q))
    torch.testing.assert_close(categorical_kl(p, q), expected)
    torch.testing.assert_close(categorical_kl(p.view(3, 1, 6), q.view(3, 1, 6)), expected.view(3, 1))


def test_categorical_kl_with_forbidden_actions():
    half = math.log(0.5)
    p = torch.tensor([[half, half, -INF]]).requires_grad_()
    q = torch.tensor([[math.log(0.25), math.log(0.75), -INF]])
    kl = categorical_kl(p, q)
    kl.sum().backward()
    assert kl.item() == pytest.approx(0.5 * math.log(2) + 0.5 * math.log(2 / 3))
    assert torch.isfinite(p.grad).all()
    assert categorical_kl(p.detach(), torch.tensor([[0.0, -INF, -INF]])).item() == INF


# --- controllers -----------------------------------------------------------------------------------------------------


def test_fixed():
    assert update(FixedKL(0.1), 99.0, 64) == FixedKL(0.1)


@pytest.mark.parametrize(("kl", "factor"), [(0.1, 1.0), (0.11, 1.01), (0.09, 0.99), (9.0, 1.02), (0.0, 0.98)])
def test_proportional(kl, factor):
    state = update(AdaptiveKL(0.5, target=0.1, horizon=1000), kl, samples=100)
    assert state.beta == pytest.approx(0.5 * factor)
    assert (state.target, state.horizon) == (0.1, 1000)


def test_an_update_counts_one_sample_unless_told():
    assert update(AdaptiveKL(1.0, target=1.0, horizon=2.0), 1.1).beta == pytest.approx(1.05)


def test_the_horizon_is_ten_thousand_samples_unless_told():
    assert update(AdaptiveKL(1.0, target=1.0), 2.0, samples=10_000).beta == pytest.approx(1.2)


@pytest.mark.parametrize("samples", [10, 64, 1024, 10**9])
def test_a_step_moves_beta_by_a_fifth_at_most(samples):
    """1 - .2 x 100 / 10 = -1 once set beta to 0, where it stayed."""
    assert update(AdaptiveKL(0.5, target=1.0, horizon=10), 0.0, samples).beta == pytest.approx(0.5 * 0.8)
    assert update(AdaptiveKL(0.5, target=1.0, horizon=10), 9.0, samples).beta == pytest.approx(0.5 * 1.2)


@pytest.mark.parametrize("state", [AdaptiveKL(0.0, target=0.1, horizon=1), BandKL(0.0)])
def test_beta_returns_from_zero(state):
    for _ in range(100):
        state = update(state, 5.0, samples=64)
    assert state.beta == 10.0
    for _ in range(200):
        state = update(state, 0.0, samples=64)
    assert state.beta == 1e-6


def test_limits_of_beta_can_be_set():
    assert update(AdaptiveKL(0.5, 0.1, 1, minimum=0.45), 0.0).beta == 0.45
    assert update(AdaptiveKL(0.5, 0.1, 1, maximum=0.55), 1.0).beta == 0.55
    assert update(BandKL(0.5, minimum=0.4, maximum=0.6), 0.0).beta == 0.4
    assert update(BandKL(0.5, minimum=0.4, maximum=0.6), 1.0).beta == 0.6


def test_a_rule_of_ones_own():
    state = RuleKL(0.5, lambda beta, kl, samples: beta + kl - samples)
    assert update(state, 2.0, 1).beta == 1.5
    assert update(state, 0.0, 64).beta == 1e-6  # never 0: it could not be measured from there
    assert update(state, 99.0, 1).beta == 10.0
    assert update(state, math.nan, 1) == state


@pytest.mark.parametrize(("kl", "beta"), [(0.005, 0.2 / 1.5), (0.01, 0.2), (0.05, 0.2), (0.1, 0.2), (0.2, 0.3)])
def test_band(kl, beta):
    assert update(BandKL(0.2), kl).beta == pytest.approx(beta)


def test_a_band_may_start_at_zero_or_be_a_point():
    assert update(BandKL(0.3, low=0.0, high=0.0), 0.1).beta == pytest.approx(0.45)


def test_band_limits():
    assert update(BandKL(9.0), 1.0).beta == 10.0
    assert update(BandKL(1.1e-6), 0.0).beta == 1e-6


@pytest.mark.parametrize("state", [FixedKL(0.1), AdaptiveKL(0.1, 0.1), BandKL(0.1)])
@pytest.mark.parametrize("kl", [math.nan, INF, -INF])
def test_a_broken_kl_does_not_move_beta(state, kl):
    assert update(state, kl, 1000) == state


@pytest.mark.parametrize(
    "make",
    [
        lambda: AdaptiveKL(1, target=0),
        lambda: AdaptiveKL(1, target=1, horizon=0),
        lambda: BandKL(1, low=0.2, high=0.1),
        lambda: BandKL(1, low=-0.1),
        lambda: BandKL(1, factor=1.0),
        lambda: BandKL(1, minimum=0.0),
        lambda: AdaptiveKL(1, target=1, minimum=2.0, maximum=1.0),
    ],
)
def test_impossible_controllers(make):
    with pytest.raises(ConfigError):
        make()

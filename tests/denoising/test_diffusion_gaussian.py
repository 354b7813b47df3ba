"""Event reductions and KL against numbers worked out by hand, torch.distributions and sampling."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.distributions import Normal, kl_divergence

from anygrpo.denoising.gaussian import REDUCTIONS, dimensions, kl_same_std

EVERYTHING = torch.ones(1, 1, dtype=torch.bool)


def test_log_density_by_hand():
    # z = (1 - 0.5) / 0.5 = 1: -1/2 - log(0.5) - log(2 pi)/2 = -0.5 + 0.693147 - 0.918939
    for name in ("sum", "mean"):
        given = torch.tensor([[1.0]]), torch.tensor([[0.5]]), torch.tensor([0.5])
        out = REDUCTIONS[name].log_prob(*given, EVERYTHING, None)
        assert out.item() == pytest.approx(-0.725791, abs=1e-6)


def test_dimensions_count_what_broadcasts():
    like = torch.zeros(2, 3, 4)
    assert dimensions(EVERYTHING[..., None], like).tolist() == [12, 12]
    frames = torch.tensor([[True, True, False], [True, False, False]])[..., None]
    assert dimensions(frames, like).tolist() == [8, 4]
    assert dimensions(frames.expand_as(like), like).tolist() == [8, 4]


def test_reductions_by_hand():
    # two dimensions, std 1, behaviour mean 0, noise (1, -2), scorer's mean (0.1, 0.3)
    action, noise = torch.tensor([[1.0, -2.0]]), torch.tensor([[1.0, -2.0]])
    mean, std = torch.tensor([[0.1, 0.3]]), torch.tensor([1.0])
    values = {k: r.log_prob(action, mean, std, EVERYTHING, noise).item() for k, r in REDUCTIONS.items()}
    # -(0.9^2 + 2.3^2)/2 - log(2 pi) = -3.05 - 1.837877
    assert values["sum"] == pytest.approx(-4.887877, abs=1e-5)
    assert values["mean"] == pytest.approx(-2.4439385, abs=1e-5)
    # (1 * 0.1 - 2 * 0.3) / sqrt(2)
    assert values["centred"] == pytest.approx(-0.5 / math.sqrt(2), abs=1e-6)
    # -(0.9^2 + 2.3^2) / 2; (1 * 0.1 - 2 * 0.3) / 2
    assert values["squared_error"] == pytest.approx(-3.05, abs=1e-6)
    assert values["guard"] == pytest.approx(-0.25, abs=1e-6)


def test_the_published_guarded_ratio():
    # noise (.5, -1, 1.5, .2), means moved by .01, std .1: the plain mean log-ratio is .03 - .01^2 / (2 .1^2) = .025
    noise, std = torch.tensor([[0.5, -1.0, 1.5, 0.2]]), torch.tensor([0.1])
    action, moved = 0.1 * noise, torch.full((1, 4), 0.01)

    def ratio(name):
        of = lambda mean: REDUCTIONS[name].log_prob(action, mean, std, EVERYTHING, noise)  # noqa: E731
        return of(moved) - of(torch.zeros(1, 4))

    assert ratio("mean").item() == pytest.approx(0.025, abs=1e-6)
    assert ratio("guard").item() == pytest.approx(0.003, abs=1e-7)


@pytest.mark.parametrize("name", sorted(REDUCTIONS))
def test_the_scale_is_that_of_the_gradient(name):
    """Beside the event's own score, at the behaviour policy: what the KL is multiplied by too."""
    action, std = torch.randn(1, 9, generator=torch.Generator().manual_seed(0)), torch.tensor([0.3])
    mean = torch.zeros(1, 9, requires_grad=True)
    noise = (action / 0.3).detach()
    score = torch.autograd.grad(REDUCTIONS["sum"].log_prob(action, mean, std, EVERYTHING, noise).sum(), mean)[0]
    own = torch.autograd.grad(REDUCTIONS[name].log_prob(action, mean, std, EVERYTHING, noise).sum(), mean)[0]
    scale = REDUCTIONS[name].scale(torch.tensor([9.0], dtype=torch.float64), std.double())
    assert torch.allclose(own, score * float(scale), rtol=1e-5)


def test_padding_counts_in_no_reduction():
    valid = torch.tensor([[True, True, False]])
    action, noise = torch.tensor([[1.0, -2.0, 50.0]]), torch.tensor([[1.0, -2.0, 50.0]])
    mean, std = torch.tensor([[0.1, 0.3, 7.0]]), torch.tensor([1.0])
    for reduction in REDUCTIONS.values():
        short = reduction.log_prob(action[:, :2], mean[:, :2], std, EVERYTHING, noise[:, :2])
        assert reduction.log_prob(action, mean, std, valid, noise).item() == pytest.approx(short.item(), abs=1e-6)


@given(st.floats(-3, 3), st.floats(-3, 3), st.floats(0.05, 4))
def test_kl_and_its_gradient_equal_torch_distributions(a, b, s):
    mean, std = torch.tensor([[a, b]], requires_grad=True), torch.tensor([s])
    other = torch.tensor([[0.25, -0.5]])
    ours = kl_same_std(mean, other, std, EVERYTHING)
    theirs = kl_divergence(Normal(mean, std), Normal(other, std)).sum()
    assert ours.item() == pytest.approx(theirs.item(), rel=1e-5, abs=1e-6)
    g1, g2 = torch.autograd.grad(ours.sum(), mean)[0], torch.autograd.grad(theirs, mean)[0]
    assert torch.allclose(g1, g2, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("size", [4, 64, 4096, 65_536])
def test_centred_log_ratio_has_sd_d_at_any_dimension(size):
    d, n = 0.1, 400
    generator = torch.Generator().manual_seed(size)
    noise = torch.randn(n, size, generator=generator)
    delta = torch.randn(size, generator=generator)
    delta = d * delta / delta.square().mean().sqrt()
    log_ratio = REDUCTIONS["centred"].log_prob(noise, delta.expand(n, -1), torch.ones(n), EVERYTHING, noise)
    assert log_ratio.std().item() == pytest.approx(d, rel=0.15)
    assert abs(log_ratio.mean().item()) < 4 * d / math.sqrt(n)


def test_mean_is_shifted_left_and_sum_grows_with_dimension():
    d, n, size = 0.1, 400, 4096
    noise = torch.randn(n, size, generator=torch.Generator().manual_seed(1))
    at = lambda name, shift: REDUCTIONS[name].log_prob(  # noqa: E731
        noise, torch.full((n, size), shift), torch.ones(n), EVERYTHING, noise
    )
    mean = at("mean", d) - at("mean", 0.0)
    summed = at("sum", d) - at("sum", 0.0)
    assert mean.mean().item() == pytest.approx(-(d**2) / 2, rel=0.1)
    assert mean.max().item() < 0 + 4 * d / math.sqrt(size)
    assert summed.std().item() == pytest.approx(d * math.sqrt(size), rel=0.15)


def test_centred_gradient_at_the_behaviour_policy_is_the_score_over_root_d():
    action, std = torch.randn(1, 9, generator=torch.Generator().manual_seed(0)), torch.tensor([0.3])
    mean = torch.zeros(1, 9, requires_grad=True)
    noise = (action / 0.3).detach()
    gradients = {
        k: torch.autograd.grad(REDUCTIONS[k].log_prob(action, mean, std, EVERYTHING, noise).sum(), mean)[0]
        for k in ("sum", "centred")
    }
    assert torch.allclose(gradients["centred"] * 3, gradients["sum"], rtol=1e-5)


def test_clip_defaults_allow_the_same_shift():
    assert REDUCTIONS["mean"].clip(65_536).high == pytest.approx(1e-4, rel=0.03)
    assert REDUCTIONS["centred"].clip(7) == REDUCTIONS["centred"].clip(65_536)

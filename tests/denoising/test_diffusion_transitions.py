"""Every transition against the scheduler's own step, with the same noise."""

import math

import pytest
import torch
from diffusers import DDIMScheduler, DDPMScheduler, FlowMatchEulerDiscreteScheduler

from anygrpo.denoising.transitions import diffusion_transitions, flow_transitions
from anygrpo.errors import ConfigError

PREDICTIONS = ["epsilon", "sample", "v_prediction"]


def ours(table, k, x, out, noise):
    mean, std = table.gaussian(torch.full((x.shape[0],), k), x, out)
    return mean + std.view(-1, 1) * noise


@pytest.fixture
def latents():
    g = torch.Generator().manual_seed(0)
    return [torch.randn(3, 5, generator=g) for _ in range(2)]


@pytest.mark.parametrize("clip_sample", [False, True])
@pytest.mark.parametrize("variance_type", ["fixed_small", "fixed_large"])
@pytest.mark.parametrize("prediction_type", PREDICTIONS)
def test_ddpm_equals_the_schedulers_step(prediction_type, variance_type, clip_sample, latents):
    x, out = latents
    scheduler = DDPMScheduler(
        100, prediction_type=prediction_type, variance_type=variance_type, clip_sample=clip_sample
    )
    table = diffusion_transitions(scheduler, 10, "ddpm")
    for k, t in enumerate(scheduler.timesteps):
        theirs = scheduler.step(out, t, x, generator=torch.Generator().manual_seed(7)).prev_sample
        noise = torch.randn(x.shape, generator=torch.Generator().manual_seed(7))
        assert torch.allclose(ours(table, k, x, out, noise), theirs, atol=2e-5), k
    assert table.stochastic() == 9


@pytest.mark.parametrize("clip_sample", [False, True])
@pytest.mark.parametrize("eta", [0.3, 1.0])
@pytest.mark.parametrize("prediction_type", PREDICTIONS)
def test_ddim_equals_the_schedulers_step(prediction_type, eta, clip_sample, latents):
    x, out = latents
    scheduler = DDIMScheduler(100, prediction_type=prediction_type, clip_sample=clip_sample)
    table = diffusion_transitions(scheduler, 10, "ddim", eta)
    noise = torch.randn(x.shape, generator=torch.Generator().manual_seed(3))
    for k, t in enumerate(scheduler.timesteps):
        theirs = scheduler.step(out, t, x, eta=eta, variance_noise=noise).prev_sample
        assert torch.allclose(ours(table, k, x, out, noise), theirs, atol=2e-5), k
        flat = scheduler.step(out, t, x, eta=0.0).prev_sample
        mean, std = table.gaussian(torch.full((3,), k), x, out, ode=True)
        assert torch.allclose(mean, flat, atol=2e-5)
        assert float(std.max()) == 0


@pytest.mark.parametrize("shift", [1.0, 3.0])
def test_flow_ode_equals_the_schedulers_step(shift, latents):
    x, out = latents
    scheduler = FlowMatchEulerDiscreteScheduler(shift=shift)
    table = flow_transitions(scheduler, 8, "flow_grpo", 0.7)
    for k, t in enumerate(scheduler.timesteps):
        theirs = scheduler.step(out, t, x).prev_sample
        mean, _ = table.gaussian(torch.full((3,), k), x, out, ode=True)
        assert torch.allclose(mean, theirs, atol=1e-5), k


def test_flow_sde_by_the_published_formula(latents):
    x, v = latents
    scheduler = FlowMatchEulerDiscreteScheduler()
    table = flow_transitions(scheduler, 8, "flow_grpo", 0.7)
    levels = scheduler.sigmas.double()
    for k in range(7):
        s, dt = float(levels[k]), float(levels[k + 1] - levels[k])
        sigma = 0.7 * math.sqrt(s / (1 - (float(levels[1]) if k == 0 else s)))
        expected = x * (1 + sigma**2 / (2 * s) * dt) + v * (1 + sigma**2 * (1 - s) / (2 * s)) * dt
        mean, std = table.gaussian(torch.full((3,), k), x, v)
        assert torch.allclose(mean, expected.float(), atol=1e-5)
        assert std[0].item() == pytest.approx(sigma * math.sqrt(-dt), rel=1e-6)
    assert table.noisy.std[-1] == 0
    assert table.stochastic() == 7


def test_dance_grpo_by_the_published_formula(latents):
    x, v = latents
    scheduler = FlowMatchEulerDiscreteScheduler()
    table = flow_transitions(scheduler, 8, "dance_grpo", 0.3)
    s, dt = float(scheduler.sigmas[2]), float(scheduler.sigmas[3] - scheduler.sigmas[2])
    score = -(x - (x - s * v) * (1 - s)) / s**2
    mean, std = table.gaussian(torch.full((3,), 2), x, v)
    assert torch.allclose(mean, x + v * dt - 0.5 * 0.3**2 * score * dt, atol=1e-5)
    assert std[0].item() == pytest.approx(0.3 * math.sqrt(-dt), rel=1e-6)


@pytest.mark.parametrize("name", ["flow_grpo", "dance_grpo"])
def test_flow_sde_keeps_the_marginals(name):
    """Data N(0, 1) in closed form: v = E[noise - x | x_s]; every level's variance must stay (1-s)^2 + s^2."""
    scheduler = FlowMatchEulerDiscreteScheduler()
    table = flow_transitions(scheduler, 200, name, 0.4)
    x = torch.randn(40_000, 1, generator=torch.Generator().manual_seed(0))
    g = torch.Generator().manual_seed(1)
    for k in range(150):
        s = float(scheduler.sigmas[k])
        v = x * (s - (1 - s)) / ((1 - s) ** 2 + s**2)
        x = ours(table, k, x, v, torch.randn(x.shape, generator=g))
    s = float(scheduler.sigmas[150])
    assert x.var().item() == pytest.approx((1 - s) ** 2 + s**2, rel=0.04)


@pytest.mark.parametrize("prediction_type", PREDICTIONS)
def test_the_training_pair_inverts(prediction_type):
    """The clean latent is recovered from (noised, target) by the sampler's own x0 columns."""
    scheduler = DDIMScheduler(20, prediction_type=prediction_type, clip_sample=False)
    table = diffusion_transitions(scheduler, 20, "ddim")
    clean, noise = torch.randn(4, 6), torch.randn(4, 6)
    noised, t, target = table.forward(clean, noise, torch.tensor([0.0, 0.31, 0.61, 0.91]))
    k = 19 - t
    column = lambda c: c[k].view(-1, 1)  # noqa: E731
    assert t.tolist() == [0, 6, 12, 18]
    assert torch.allclose(column(table.noisy.x0_x) * noised + column(table.noisy.x0_out) * target, clean, atol=1e-3)


def test_the_flow_training_pair():
    table = flow_transitions(FlowMatchEulerDiscreteScheduler(shift=3.0), 8, "flow_grpo", 0.7)
    clean, noise = torch.zeros(1, 2), torch.ones(1, 2)
    noised, timestep, target = table.forward(clean, noise, torch.tensor([0.5]))
    assert noised[0, 0].item() == pytest.approx(0.75)  # 3 * 0.5 / (1 + 2 * 0.5)
    assert timestep.item() == pytest.approx(750.0)
    assert torch.equal(target, noise)


@pytest.mark.parametrize(
    ("scheduler", "sampler", "words"),
    [
        (DDIMScheduler(), "ddpm", "DDPMScheduler"),
        (DDPMScheduler(variance_type="learned"), "ddpm", "variance_type"),
        (DDPMScheduler(thresholding=True), "ddpm", "thresholding"),
    ],
)
def test_a_gaussian_that_is_not_known_is_refused(scheduler, sampler, words):
    with pytest.raises(ConfigError, match=words):
        diffusion_transitions(scheduler, 10, sampler)


def test_flow_needs_a_flow_scheduler_and_fixed_levels():
    with pytest.raises(ConfigError, match="FlowMatch"):
        flow_transitions(DDPMScheduler(), 10, "flow_grpo", 0.7)
    with pytest.raises(ConfigError, match="dynamic"):
        flow_transitions(FlowMatchEulerDiscreteScheduler(use_dynamic_shifting=True), 10, "flow_grpo", 0.7)


@pytest.mark.parametrize("spacing", ["trailing", "linspace"])
@pytest.mark.parametrize("prediction_type", ["sample", "v_prediction"])
@pytest.mark.parametrize("sampler", ["ddim", "ddpm"])
def test_betas_rescaled_to_no_signal_are_sampled_as_the_scheduler_does(sampler, prediction_type, spacing, latents):
    """At the first step nothing of the sample is left: alpha is 0, and only noise prediction has no form there."""
    x, out = latents
    kind = {"ddim": DDIMScheduler, "ddpm": DDPMScheduler}[sampler]
    settings = {"rescale_betas_zero_snr": True, "timestep_spacing": spacing, "clip_sample": False}
    scheduler = kind(1000, prediction_type=prediction_type, **settings)
    table = diffusion_transitions(scheduler, 7, sampler, 0.5)
    noise = torch.randn(x.shape, generator=torch.Generator().manual_seed(3))
    more = {"eta": 0.5} if sampler == "ddim" else {}
    for k, t in enumerate(scheduler.timesteps):
        theirs = scheduler.step(out, t, x, **more, generator=torch.Generator().manual_seed(3)).prev_sample
        assert torch.allclose(ours(table, k, x, out, noise), theirs, atol=2e-4), k
    assert int(scheduler.timesteps[0]) == 999
    with pytest.raises(ConfigError, match="nothing of the sample is left"):
        diffusion_transitions(kind(1000, prediction_type="epsilon", **settings), 7, sampler, 0.5)


def test_levels_that_count_upwards_are_refused():
    with pytest.raises(ConfigError, match="invert_sigmas"):
        flow_transitions(FlowMatchEulerDiscreteScheduler(invert_sigmas=True), 4, "flow_grpo", 0.7)

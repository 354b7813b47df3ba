"""The built-in restorers: bands, gates, sizes, what supervision can and cannot train."""

from __future__ import annotations

import pytest
import torch

from anygrpo.core.task import Stored
from anygrpo.gates.restorer.build import build
from anygrpo.gates.restorer.frequency import split_bands
from anygrpo.gates.restorer.heads import STATISTICS, BetaHead, statistics
from anygrpo.gates.restorer.toolbox import TOOLS, gaussian, median3
from anygrpo.gates.settings import RestorerConfig

ALL = slice(None)


def small(**given: object):
    return build(RestorerConfig(**({"width": 4, "device": "cpu"} | given)), 0)  # type: ignore[arg-type]


def prompts(count: int = 2, height: int = 16, width: int = 16) -> list[dict]:
    g = torch.Generator().manual_seed(0)
    return [{"degraded": a, "clean": b} for a, b in torch.rand(count, 2, 3, height, width, generator=g)]


def supervised_gradient(policy) -> None:
    p = prompts()
    rollout = policy.replay(p, Stored([[x["clean"]] for x in p]), seed=0)
    rows = {k: v.flatten(0, 1) for k, v in rollout.samples.items()}
    policy.evaluate(rows, ALL, frozenset({"supervised"})).losses["supervised"].sum().backward()


def test_bands_by_hand() -> None:
    x = torch.arange(16.0)
    wave = lambda cycles: torch.cos(2 * torch.pi * cycles * x / 16)  # noqa: E731
    image = (3 + wave(2)[None] + wave(6)[None]).expand(16, 16)[None, None]
    low, high = split_bands(image, torch.tensor([[0.5, 0.5]]), "hard")  # keeps up to 4 cycles of 16
    torch.testing.assert_close(low[0, 0, 0], 3 + wave(2), atol=1e-5, rtol=0)
    torch.testing.assert_close(high[0, 0, 0], wave(6), atol=1e-5, rtol=0)
    mean_only, _ = split_bands(image, torch.zeros(1, 2), "hard")
    torch.testing.assert_close(mean_only, torch.full_like(image, 3.0))
    everything, _ = split_bands(image, torch.ones(1, 2), "hard")
    torch.testing.assert_close(everything, image)


def test_six_sites_and_any_size() -> None:
    policy = small()
    sites = policy.probe([[3, 13, 18]])
    assert sites == [f"level{i}/{what}" for i in (2, 1, 0) for what in ("rate", "fusion")]
    rollout = policy.sample(prompts(2, 13, 18), 3, seed=0)
    assert rollout.shape == (2, 3, 6)
    assert policy.decode(rollout.samples)[1][2].shape == (3, 13, 18)
    assert rollout.samples["site/level0/fusion"].shape == (2, 3, 2)
    assert small(fusion="channel").sample(prompts(), 1, 0).samples["site/level1/fusion"].shape == (2, 1, 16)


def test_without_skipped_features_only_the_bands_carry_detail() -> None:
    """With both strengths at 0, fine detail reaches the output by the encoder's features, hardly past its strides."""
    left = {}
    for skip in ("features", "bands", "none"):
        policy = small(skip=skip)
        torch.nn.init.normal_(policy.network.out.weight, generator=torch.Generator().manual_seed(0))
        off = policy.rollout_with(prompts(), 1, lambda name, d: 0 * d.mean if "level0/fusion" in name else d.mean)
        noisy = [{**p, "degraded": p["degraded"] + 0.3 * checkerboard()} for p in prompts()]
        other = policy.rollout_with(noisy, 1, lambda name, d: 0 * d.mean if "level0/fusion" in name else d.mean)
        left[skip] = float((off.samples["restored"] - other.samples["restored"]).abs().mean())
    assert left["bands"] < 0.4 * left["features"]
    assert left["none"] < 0.4 * left["bands"]


def checkerboard() -> torch.Tensor:
    return (torch.arange(16)[:, None] + torch.arange(16)) % 2 - 0.5


def test_untrained_it_returns_the_picture() -> None:
    policy = small()
    restored = policy.decode(policy.greedy(prompts()).samples)
    torch.testing.assert_close(restored[1][0], prompts()[1]["degraded"], atol=1e-5, rtol=0)


def test_gates_start_the_same_for_all_pictures_and_bounded() -> None:
    head = BetaHead("g", 4, 2, concentration=10.0)
    images = torch.rand(3, 3, 8, 8)
    torch.testing.assert_close(head(torch.rand(3, 4, 8, 8), statistics(images)), torch.full((3, 2), 0.5))


def test_statistics_tell_degradations_apart() -> None:
    y, x = torch.meshgrid(torch.linspace(0, 1, 32), torch.linspace(0, 1, 32), indexing="ij")
    plain = (0.5 + 0.3 * torch.sin(20 * x) * torch.cos(15 * y)).expand(1, 3, 32, 32)
    noisy = (plain + 0.1 * torch.randn(plain.shape, generator=torch.Generator().manual_seed(0))).clamp(0, 1)
    hazy, dark = 0.5 * plain + 0.45, 0.3 * plain
    plain, noisy, hazy, dark = (statistics(z)[0] for z in (plain, noisy, hazy, dark))
    assert plain.shape == (STATISTICS,)
    assert noisy[4] - plain[4] > 0.5  # fine detail
    assert hazy[2] - plain[2] > 0.3  # the darkest region
    assert dark[0] - plain[0] == pytest.approx(-0.7, abs=0.01)  # brightness .5 -> .15, doubled


def test_a_hard_window_hides_its_rate_from_supervision_a_soft_one_does_not() -> None:
    grads = {}
    for window in ("hard", "soft"):
        policy = small(window=window)
        torch.nn.init.normal_(policy.network.out.weight, generator=torch.Generator().manual_seed(0))
        supervised_gradient(policy)
        rate, fusion = (getattr(policy.network.modulators[0], k).body[2].bias.grad for k in ("rate", "fusion"))
        assert fusion.abs().max() > 0
        grads[window] = rate
    assert grads["hard"] is None
    assert grads["soft"].abs().max() > 0


def test_policy_gradient_reaches_the_rate_of_a_hard_window() -> None:
    policy = small()
    rollout = policy.sample(prompts(), 2, seed=0)
    rows = {k: v.flatten(0, 1) for k, v in rollout.samples.items()}
    policy.evaluate(rows, ALL).log_probs.sum().backward()
    for module in policy.network.modulators:
        assert module.rate.body[2].bias.grad.abs().max() > 0


@pytest.mark.parametrize("features", ["detached", "shared"])
def test_a_policy_gradient_reaches_the_body_only_where_features_are_shared(features: str) -> None:
    policy = small(gate_features=features)
    torch.nn.init.normal_(policy.network.modulators[0].rate.body[2].weight, generator=torch.Generator().manual_seed(0))
    rows = {k: v.flatten(0, 1) for k, v in policy.sample(prompts(), 2, seed=0).samples.items()}
    policy.evaluate(rows, ALL).log_probs.sum().backward()
    assert (policy.network.stem.weight.grad is not None) == (features == "shared")


def test_toolbox_decisions_are_patches_times_rounds() -> None:
    policy = small(network="toolbox", patch=8, steps=2, deterministic="mode")
    rollout = policy.sample(prompts(2, 16, 20), 3, seed=0)
    assert rollout.shape == (2, 3, 2 * 2 * 3)
    one_hot = rollout.samples["site/round0"]
    assert one_hot.shape == (2, 3, 2, 3, len(TOOLS))
    assert torch.equal(one_hot.sum(-1), torch.ones(2, 3, 2, 3))


def test_toolbox_hard_choice_applies_exactly_that_tool() -> None:
    policy = small(network="toolbox", patch=8, steps=1, deterministic="mode")
    blur = list(TOOLS).index("blur_more")
    with torch.no_grad():
        policy.network.choices[0].bias[blur] = 20.0
    p = prompts()
    out = policy.decode(policy.greedy(p).samples)[0][0]
    torch.testing.assert_close(out, gaussian(p[0]["degraded"][None], 1.5)[0].clamp(0, 1))


def test_a_sharper_toolbox_draws_nearer_to_the_same_mode() -> None:
    plain, sharp = (small(network="toolbox", patch=8, steps=1, deterministic="mode", sharpness=s) for s in (1.0, 6.0))
    with torch.no_grad():
        for policy in (plain, sharp):
            policy.network.choices[0].bias.copy_(torch.arange(len(TOOLS)) / len(TOOLS))
    one, other = (policy.greedy(prompts()).samples["site/round0"] for policy in (plain, sharp))
    assert torch.equal(one, other)
    near = [float((p.sample(prompts(), 64, 0).samples["site/round0"] * one).sum(-1).mean()) for p in (plain, sharp)]
    assert near[1] > near[0] + 0.2


def test_the_toolbox_reads_the_statistics_of_the_whole_picture() -> None:
    network = small(network="toolbox", patch=8, steps=1).network
    with torch.no_grad():
        network.choices[0].weight[0, 4 * 4 :] = 1.0  # the first tool's logit is the sum of the statistics
    x = prompts(1, 16, 16)[0]["degraded"][None]
    told = network.logits(x, 0)[0, ..., 0]
    assert torch.allclose(told, statistics(x).sum(), atol=1e-5)


def test_toolbox_supervision_trains_the_soft_mixture() -> None:
    policy = small(network="toolbox", patch=8, steps=1)
    supervised_gradient(policy)
    assert policy.network.choices[0].bias.grad.abs().max() > 0


def test_supervised_rows_of_every_size_have_as_many_decisions_as_samples() -> None:
    policy = small(network="toolbox", patch=8, steps=3)
    for side, patches in ((16, 4), (32, 16), (16, 4)):
        p = prompts(2, side, side)
        rollout = policy.replay(p, Stored([[x["clean"]] for x in p]), seed=0)
        assert rollout.log_probs.shape == policy.sample(p, 1, 0).log_probs.shape == (2, 1, 3 * patches)


def test_one_strong_filter_undoes_a_strong_degradation() -> None:
    x = torch.rand(1, 3, 8, 8, generator=torch.Generator().manual_seed(0)) * 0.9 + 0.1
    torch.testing.assert_close(TOOLS["brighten_more"](x**2), x)
    torch.testing.assert_close(TOOLS["gain_more"](x / 2), x)
    torch.testing.assert_close(TOOLS["unveil_more"](0.6 * x + 0.4), x)


def test_filters_keep_a_constant_and_median_removes_a_dot() -> None:
    flat = torch.full((1, 3, 8, 8), 0.25)
    torch.testing.assert_close(gaussian(flat, 1.5), flat)
    dot = flat.clone()
    dot[0, 0, 4, 4] = 1.0
    torch.testing.assert_close(median3(dot), flat)
    x = torch.rand(2, 3, 7, 9, generator=torch.Generator().manual_seed(0))
    windows = torch.nn.functional.unfold(torch.nn.functional.pad(x, (1,) * 4, mode="replicate"), 3)
    assert torch.equal(median3(x), windows.view(2, 3, 9, 7, 9).median(2).values)


def test_restorer_section_refuses_unknown_words() -> None:
    with pytest.raises(ValueError, match="supervised"):
        RestorerConfig(supervised={"l3": 1.0})  # type: ignore[dict-item]


def test_a_kept_patch_stops_and_later_rounds_are_no_decisions_of_it() -> None:
    policy = small(network="toolbox", patch=8, steps=3, stop=True, deterministic="mode")
    keep = list(TOOLS).index("keep")
    with torch.no_grad():
        for choices in policy.network.choices:
            choices.bias[keep] = 2.0
    rollout = policy.sample(prompts(2, 16, 16), 8, seed=0)
    kept = [rollout.samples[f"site/round{i}"][..., keep].flatten(2) == 1 for i in range(3)]
    masks = rollout.mask.unflatten(2, (3, 4))
    assert bool(masks[:, :, 0].all())
    assert torch.equal(masks[:, :, 1], ~kept[0])
    assert torch.equal(masks[:, :, 2], ~(kept[0] | kept[1]))
    assert 0.2 < float(masks[:, :, 2].float().mean()) < 0.9
    rows = {k: v.flatten(0, 1) for k, v in rollout.samples.items()}
    torch.testing.assert_close(policy.evaluate(rows, ALL).log_probs, rollout.log_probs.flatten(0, 1))
    all_stopped = kept[0].all(2)
    restored = rollout.samples["restored"][all_stopped]
    torch.testing.assert_close(restored, rollout.samples["degraded"][all_stopped])


def test_a_choice_runs_one_expert_and_a_mixture_all() -> None:
    policy = small(network="experts", experts=3, deterministic="mode")
    network = policy.network
    with torch.no_grad():
        for p in network.parameters():
            p.add_(0.05 * torch.randn(p.shape, generator=torch.Generator().manual_seed(p.numel())))
    x = torch.stack([p["degraded"] for p in prompts(4, 13, 18)])
    rollout = policy.sample(prompts(4, 13, 18), 3, seed=1)
    assert rollout.shape == (4, 3, 1)
    chosen = rollout.samples["site/expert"]  # [4, 3, 3] one-hot
    assert len(chosen.flatten(0, 1).unique(dim=0)) > 1
    alone = torch.stack(
        [network.expert(k, torch.nn.functional.pad(x, (0, 2, 0, 3), mode="replicate")) for k in range(3)]
    )
    expected = torch.einsum("pgk,kpchw->pgchw", chosen, alone)[..., :13, :18]
    torch.testing.assert_close(rollout.samples["restored"], expected, atol=1e-5, rtol=0)
    shares = torch.softmax(network.router(statistics(x)), 1)
    torch.testing.assert_close(
        network(x), torch.einsum("pk,kpchw->pchw", shares, alone)[..., :13, :18], atol=1e-5, rtol=0
    )


def test_a_policy_gradient_trains_the_router_and_supervision_the_experts_that_were_drawn() -> None:
    policy = small(network="experts", experts=3, supervised_gates="sampled")
    rows = {k: v.flatten(0, 1) for k, v in policy.sample(prompts(), 2, seed=0).samples.items()}
    policy.evaluate(rows, ALL).log_probs.sum().backward()
    reached = {name.partition(".")[0] for name, p in policy.network.named_parameters() if p.grad is not None}
    assert reached == {"router"}
    policy.network.zero_grad()
    one = prompts()[:1]
    taught = policy.replay(one, Stored([[p["clean"]] for p in one]), seed=0)
    drawn = int(taught.samples["site/expert"][0, 0].argmax())
    rows = {k: v.flatten(0, 1) for k, v in taught.samples.items()}
    policy.evaluate(rows, ALL, frozenset({"supervised"})).losses["supervised"].sum().backward()
    moved = policy.network.own["out_bias"].grad.abs().amax(1) > 0
    assert moved.tolist() == [k == drawn for k in range(3)]
    assert policy.network.router[2].weight.grad is None or not policy.network.router[2].weight.grad.any()
    assert policy.network.common.out.bias.grad.abs().max() > 0

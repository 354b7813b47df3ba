"""Samplers and losses against numbers of their publications, recomputed here in float64."""

import math

import numpy as np
import pytest
import torch
from diffusers import FlowMatchEulerDiscreteScheduler
from torch import nn

from anygrpo.core.packing import pack, unpack
from anygrpo.core.task import Scores, Task
from anygrpo.core.trained import state_of
from anygrpo.core.tree import tree_map
from anygrpo.denoising import averaging, levels
from anygrpo.denoising.build import Parts
from anygrpo.denoising.levels import NFT_STRENGTH
from anygrpo.denoising.policy import DiffusionPolicy
from anygrpo.denoising.settings import DiffusionPolicyConfig
from anygrpo.denoising.step_rows import cps_row, ddim_row, flow_row
from anygrpo.denoising.transitions import Table, flow_transitions
from anygrpo.denoising.window import window_start
from anygrpo.export.evaluating import measured
from anygrpo.export.opened import Opened
from anygrpo.recipe.training import EvaluationConfig
from anygrpo.train.evaluation import evaluate

# one number: level .8 -> .7, x = .3, velocity -.5, unit noise
PUBLISHED = {
    "ode": (lambda: flow_row(0.8, 0.7, 0.0), 0.35, 0.0),
    "flow_grpo": (lambda: flow_row(0.8, 0.7, 0.7 * math.sqrt(0.8 / 0.2)), 0.3255, 0.4427189),
    "dance_grpo": (lambda: flow_row(0.8, 0.7, 0.3), 0.348875, 0.0948683),
    "cps": (lambda: cps_row(0.8, 0.7, 0.8), 0.2532624, 0.6657396),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_step_by_its_published_numbers(name):
    make, mean, std = PUBLISHED[name]
    row = make()
    assert row["w_x"] * 0.3 + row["w_out"] * -0.5 == pytest.approx(mean, abs=5e-8)
    assert row["std"] == pytest.approx(std, abs=5e-8)


def test_ddim_by_its_published_numbers():
    row = ddim_row("epsilon", 0.5, 0.6, 1.0)
    x0 = row["x0_x"] * 0.3 + row["x0_out"] * 0.4
    assert x0 == pytest.approx(0.0242641, abs=5e-8)
    mean = row["w_x0"] * x0 + row.get("w_x", 0) * 0.3 + row["w_out"] * 0.4
    assert mean == pytest.approx(0.2253540, abs=5e-8)
    assert row["std"] == pytest.approx(0.3651484, abs=5e-8)


def test_flow_grpo_at_pure_noise_takes_the_next_level():
    scheduler = FlowMatchEulerDiscreteScheduler()
    table = flow_transitions(scheduler, 10, "flow_grpo", 0.7, {"sigmas": [1 - 0.1 * i for i in range(10)]})
    assert float(table.noisy.std[0]) == pytest.approx(0.7, rel=1e-6)


@pytest.mark.parametrize("level", [0.3, 0.8, 1.0])
def test_cps_has_exactly_the_next_levels_signal_and_noise(level):
    """With the true velocity: signal 1 - s', and kept and fresh noise that make s' together."""
    row = cps_row(0.8, 0.7, level)
    kept = row["w_x"] * 0.8 + row["w_out"]  # of noise 1, signal 0: x = .8, v = 1
    assert row["w_x"] * 0.2 - row["w_out"] == pytest.approx(0.3)  # of signal 1, noise 0: x = .2, v = -1
    assert math.hypot(kept, row["std"]) == pytest.approx(0.7)


class Line(nn.Module):
    """v = a x + b: one number of everything, so that gradients are worked out by hand."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Parameter(torch.tensor(0.3)), nn.Parameter(torch.tensor(-0.2))

    def forward(self, x, timestep, text):
        return self.a * x + self.b + 0 * text[:, :, None, None]


def policy(**given):
    parts = Parts(
        denoiser=Line(),
        scheduler=FlowMatchEulerDiscreteScheduler(),
        shape=(1, 4, 4),
        encode=lambda prompts: {"text": torch.zeros(len(prompts), 1)},
        decode=lambda z, c: list(z),
    )
    config = DiffusionPolicyConfig(function="none.py:none", steps=10, **({"sampler": "flow_grpo"} | given))
    table = flow_transitions(parts.scheduler, 10, config.sampler, config.noise_level)
    return DiffusionPolicy(parts, table, config, 0)


class Means(Task):
    """Two held-out prompts; the reward is a sample's mean."""

    def prompts(self, step, count):
        return self.held_out()

    def held_out(self):
        return [{"prompt": "a", "seed": 1}, {"prompt": "b", "seed": 2}]

    def score(self, prompts, outputs):
        return Scores(torch.tensor([[float(x.mean()) for x in row] for row in outputs]))


def rows(rollout):
    return tree_map(lambda x: x.flatten(0, 1), rollout.samples)


def test_awm_is_the_matching_error_at_the_same_noise():
    p = policy(loss="awm", levels=3, level_weight="t")
    rollout = p.sample(["a", "b"], 2, seed=0)
    assert rollout.shape == (2, 2, 3)
    r = rows(rollout)
    out = p.evaluate(r, slice(0, 3))
    assert torch.equal(out.log_probs, rollout.log_probs.flatten(0, 1))
    x0, noise, s = r["final"][:, None].double(), r["noise"].double(), r["levels"].double()[..., None, None, None]
    assert float(s.min()) >= 0.1 - 1e-6
    v = 0.3 * ((1 - s) * x0 + s * noise) - 0.2
    expected = -s[..., 0, 0, 0] * (v - (noise - x0)).square().mean((2, 3, 4))
    assert torch.allclose(out.log_probs.double(), expected, atol=1e-5)
    assert p.clip.high == 1.0
    assert float(p.evaluate(r, slice(0, 3), frozenset({"kl"})).kl.abs().max()) == 0


@pytest.mark.parametrize(("kind", "wanted"), [
    ("one", [0.25, 4.0, 0.0]),
    ("t", [0.125, 3.0, 0.0]),
    ("t2", [0.0625, 2.25, 0.0]),
    ("huber", [0.5 * (math.sqrt(0.25 + 1e-10) - 1e-5), 0.75 * (math.sqrt(4 + 1e-10) - 1e-5), 0.0]),
    ("ghuber", [0.5 * ((0.25 + 1e-10) ** 0.3 - 1e-3) / 0.3, 0.75 * ((4 + 1e-10) ** 0.3 - 1e-3) / 0.3, 0.0]),
])  # fmt: skip
def test_awms_weights_are_the_published_ones(kind, wanted):
    """Errors .25, 4 and 0 at levels .5, .75 and 1, by hand in float64: (1e-10)^.5 = 1e-5, (1e-10)^.3 = 1e-3."""
    error = torch.tensor([[0.25, 4.0, 0.0]], dtype=torch.float64)
    found = levels.weighted(error, torch.tensor([[0.5, 0.75, 1.0]], dtype=torch.float64), kind, 0.3)
    torch.testing.assert_close(found, torch.tensor([wanted], dtype=torch.float64), atol=1e-14, rtol=1e-12)


def test_a_root_bounds_the_pull_of_a_far_miss_and_is_taken_from_the_recipe():
    p = policy(loss="awm", levels=2, level_weight="ghuber", huber_power=0.3)
    rollout = p.sample(["a"], 2, seed=0)
    r = rows(rollout)
    x0, noise, s = r["final"][:, None].double(), r["noise"].double(), r["levels"].double()[..., None, None, None]
    error = (0.3 * ((1 - s) * x0 + s * noise) - 0.2 - (noise - x0)).square().mean((2, 3, 4))
    expected = -s[..., 0, 0, 0] * ((error + 1e-10) ** 0.3 - 1e-3) / 0.3
    assert torch.allclose(p.evaluate(r, slice(0, 2)).log_probs.double(), expected, atol=1e-5)
    far = torch.tensor([[1.0, 100.0]], dtype=torch.float64, requires_grad=True)
    levels.weighted(far, torch.ones(1, 2), "huber", 0.3).sum().backward()
    assert float(far.grad[0, 1]) == pytest.approx(float(far.grad[0, 0]) / 10, rel=1e-4)  # 1 / (2 sqrt(m))


@pytest.mark.parametrize("beta", [0.1, 1.0])
def test_nft_is_the_published_loss(beta):
    """REINFORCE on its log_prob plus its supervised part has the gradient of r L+ + (1 - r) L-, in float64."""
    p = policy(loss="nft", levels=2, nft_beta=beta)
    rollout = p.sample(["a", "b"], 2, seed=1)
    r = rows(rollout)
    with torch.no_grad():
        p.denoiser.a += 0.05
        p.denoiser.b -= 0.1
    advantages = torch.tensor([1.3, -0.4, -2.0, 5.0], device=p.device)
    out = p.evaluate(r, slice(0, 2), frozenset({"supervised"}))
    ours = (-advantages[:, None] * out.log_probs).mean() + out.losses["supervised"].mean()
    ours.backward()

    a = torch.tensor(0.35, dtype=torch.float64, device=p.device, requires_grad=True)
    b = torch.tensor(-0.3, dtype=torch.float64, device=p.device, requires_grad=True)
    x0, noise, s = r["final"][:, None].double(), r["noise"].double(), r["levels"].double()[..., None, None, None]
    noised = (1 - s) * x0 + s * noise
    v, old = a * noised + b, 0.3 * noised - 0.2
    share = (advantages.double() / 10 + 0.5).clamp(0, 1)[:, None]
    terms = []
    for w in (beta * v + (1 - beta) * old, (1 + beta) * old - beta * v):
        error = noised - s * w - x0
        size = error.detach().abs().mean((2, 3, 4)).clamp(min=1e-5)
        terms.append(error.square().mean((2, 3, 4)) / size)
    theirs = ((share * terms[0] + (1 - share) * terms[1]) / beta * NFT_STRENGTH).mean()
    theirs.backward()
    assert float(ours.detach()) == pytest.approx(float(theirs.detach()), rel=1e-4)
    assert float(p.denoiser.a.grad) == pytest.approx(float(a.grad), rel=1e-3)
    assert float(p.denoiser.b.grad) == pytest.approx(float(b.grad), rel=1e-3)


@pytest.mark.parametrize("reduction", ["mean", "centred", "sum", "squared_error", "guard"])
def test_one_beta_means_one_strength(reduction):
    """The KL's gradient beside the policy term's, at one moved policy, is the same under every reduction."""

    def share(name):
        p = policy(event_reduction=name, window=1, window_starts=(3, 3))
        r = rows(p.sample(["a", "b"], 4, seed=3))
        with torch.no_grad():
            p.denoiser.b += 1e-3
        advantages = torch.tensor([1.0, -1, 1, -1, 1, 1, -1, -1], device=p.device)[:, None]
        sizes = []
        for pick in (lambda e: -(advantages * e.log_probs).mean(), lambda e: e.kl.mean()):
            p.trainable().zero_grad()
            pick(p.evaluate(r, slice(0, 1), frozenset({"kl"}))).backward()
            sizes.append(math.hypot(float(p.denoiser.a.grad), float(p.denoiser.b.grad)))
        return sizes[1] / sizes[0]

    assert share(reduction) == pytest.approx(share("mean"), rel=0.02)


def test_flow_grpos_kl_leaves_the_step_length_out():
    """Published: |mean - reference mean|^2 / (2 g^2), mean over dimensions, where the step's std is g sqrt(dt)."""
    p = policy(event_reduction="mean", kl_unit="flow_grpo")
    r = rows(p.sample(["a"], 2, seed=3))
    with torch.no_grad():
        p.denoiser.b += 0.01
    kl = p.evaluate(r, slice(0, 9), frozenset({"kl"})).kl.cpu()
    s = p.parts.scheduler.sigmas.double()[:10]
    g = 0.7 * (s / (1 - torch.where(s >= 1, s[1], s))).sqrt()
    dt = s[:-1] - s[1:]
    shift = 0.01 * dt * (1 + g[:-1] ** 2 * (1 - s[:-1]) / (2 * s[:-1]))
    assert torch.allclose(kl[0].double(), shift**2 / (2 * g[:-1] ** 2), rtol=1e-3)


def test_step_weights_act_on_gradients_alone():
    def of(kind):
        p = policy(step_weights=kind, event_reduction="guard")
        r = rows(p.sample(["a"], 2, seed=3))
        out, grads = p.evaluate(r, slice(0, 9)), []
        for t in range(9):
            p.trainable().zero_grad()
            out.log_probs[:, t].sum().backward(retain_graph=True)
            grads.append(float(p.denoiser.b.grad))
        return out.log_probs.detach(), torch.tensor(grads), p

    plain, weighted = of("none"), of("inverse_dt")
    assert torch.allclose(plain[0], weighted[0], atol=1e-6)
    steps = 1 / weighted[2].transitions.lengths()[:9]
    assert torch.allclose(weighted[1], plain[1] * (steps / steps.mean()), rtol=1e-3)
    assert of("noise")[1][0].abs() > plain[1][0].abs()  # the first steps have the largest noise


def test_a_window_that_moves_with_the_updates():
    p = policy(window=2, window_starts=(1, 3), window_moves="progressive", window_every=5)
    starts = []
    for version in (0, 4, 5, 10, 15):
        p.version = version
        starts.append(int(p.sample(["a"], 2, seed=version).samples["steps"][0, 0, 0]))
    assert starts == [1, 1, 2, 3, 1]


@pytest.mark.parametrize(
    ("moves", "stride", "every"),
    [("progressive", 2, 4), ("decaying", 1, 5), ("decaying", 3, 25), ("linear", 1, 20), ("linear", 2, 5)],
)
def test_a_window_moves_as_the_published_states_do(moves, stride, every):
    """Against a machine that counts iterations at a place, moves on and rolls back, as MixGRPO's does."""
    given = {"steps": 30, "window": 4, "window_starts": (0, 20), "window_moves": moves, "window_stride": stride}
    config = DiffusionPolicyConfig(function="a.py:b", window_every=every, **given)
    place, count = 0, 0
    for updates in range(700):
        assert window_start(config, updates, 0) == place, updates
        count += 1
        least, way = max(1, every // 4), place / 28
        wanted = {
            "progressive": every,
            "decaying": np.ceil(every * np.exp(-0.1 * max(0, place - 13))),
            "linear": max(least, int(every * (1 - way) + least * way)),
        }[moves]
        if count >= wanted:
            place, count = place + stride, 0
        if place > 20:
            place, count = 0, 0


def test_held_out_samples_are_of_the_averaged_weights():
    p = policy(average=0.5, average_every=2, evaluation="ode")
    first = p.greedy([{"prompt": "a", "seed": 1}]).samples["final"]
    p.version = 1  # the average begins here, at b = -.2
    with torch.no_grad():
        p.denoiser.b.fill_(0.2)
    p.version = 2  # half way
    with p.averaged():
        assert float(p.denoiser.b) == pytest.approx(0.0, abs=1e-7)
    assert float(p.denoiser.b) == pytest.approx(0.2)
    assert not torch.equal(p.greedy([{"prompt": "a", "seed": 1}]).samples["final"], first)


def test_what_is_sampled_to_measure_is_of_the_averaged_weights(tmp_path, monkeypatch):
    """pass@k in training and `evaluate --samples`, as the greedy samples are."""
    p = policy(average=0.5, average_every=1)
    p.version = 1  # the average begins here, at b = -.2
    with torch.no_grad():
        p.denoiser.b.fill_(0.2)
    p.version = 2  # half way
    drawn, sample = [], p.sample

    def watched(*given):
        drawn.append(float(p.denoiser.b))
        return sample(*given)

    monkeypatch.setattr(p, "sample", watched)
    config = EvaluationConfig(prompts=2, pass_k=1, success={"component": "reward", "at_least": 0.0})
    row = evaluate(p, Means(), config, 0)
    assert row["eval/pass_at_1"] in (0.0, 0.5, 1.0)
    found = measured(Opened(p, "it", None), Means(), config, 2, None, tmp_path / "rows.jsonl")
    assert found["samples"]["n"] == 2
    assert drawn == pytest.approx([0.0] * 3, abs=1e-7)  # evaluate, within `measured` too, and its samples
    assert float(p.denoiser.b) == pytest.approx(0.2)


def test_opening_at_a_far_update_follows_nothing(monkeypatch):
    """The average begins where it is opened; steps of it towards itself are none."""
    seen = []
    monkeypatch.setattr(averaging, "state_of", lambda module: seen.append(1) or state_of(module))
    p = policy(average=0.5, average_every=1)
    p.version = 500
    assert len(seen) == 1
    assert torch.equal(p.carried()["average"]["b"], p.denoiser.b.cpu())


def test_a_rank_that_writes_no_checkpoint_carries_no_average(monkeypatch):
    p = policy(average=0.5, average_every=1)
    p.version = 1
    assert p.carried()["average"].keys() == {"a", "b"}
    monkeypatch.setattr(averaging, "is_main", lambda: False)
    assert p.carried() == {"average": {}}


def test_a_linear_window_by_hand():
    """From 8 updates at step 0 to 2 at step 8: 8, 5 (of 8 / 2 + 2 / 2), 2."""
    given = {"steps": 10, "window": 1, "window_starts": (0, 8), "window_moves": "linear", "window_stride": 4}
    config = DiffusionPolicyConfig(function="a.py:b", window_every=8, **given)
    places = [window_start(config, updates, 0) for updates in range(16)]
    assert places == [0] * 8 + [4] * 5 + [8] * 2 + [0]
    longer = config.model_copy(update={"window_least": 6})
    assert [window_start(longer, updates, 0) for updates in range(22)] == [0] * 8 + [4] * 7 + [8] * 6 + [0]


def test_a_checkpoint_holds_the_average():
    """Taken over by another process's policy of the same weights; one without it begins again."""
    p, other = (policy(average=0.5, average_every=1, evaluation="ode") for _ in range(2))
    assert p.carried() == {"average": {}}
    p.version = 1
    with torch.no_grad():
        p.denoiser.b.fill_(0.2)
        other.denoiser.b.fill_(0.2)
    p.version = 2  # half way from -.2 to .2
    tensors = {}
    packed = pack(p.carried(), tensors, "policy")
    other.version = 2
    other.resumed(unpack(packed, tensors))
    with other.averaged():
        assert float(other.denoiser.b) == pytest.approx(0.0, abs=1e-7)
    p.version = other.version = 3
    with p.averaged(), other.averaged():
        assert torch.equal(p.denoiser.b, other.denoiser.b)
        assert float(p.denoiser.b) == pytest.approx(0.1)
    other.resumed({})
    with other.averaged():
        assert float(other.denoiser.b) == pytest.approx(0.1)


def test_what_does_not_go_together_is_refused():
    with pytest.raises(ValueError, match="for flow models"):
        DiffusionPolicyConfig(function="a.py:b", loss="awm", sampler="ddim")
    with pytest.raises(ValueError, match="no window"):
        DiffusionPolicyConfig(function="a.py:b", loss="awm", sampler="cps", window=2)
    with pytest.raises(ValueError, match="without guidance"):
        DiffusionPolicyConfig(function="a.py:b", loss="nft", sampler="cps", guidance=3.0)
    with pytest.raises(ValueError, match="window_least"):
        DiffusionPolicyConfig(function="a.py:b", window=2, window_moves="decaying", window_least=2)
    with pytest.raises(ValueError, match="window_least"):
        DiffusionPolicyConfig(function="a.py:b", window=2, window_moves="linear", window_every=4, window_least=5)
    assert Table.of([{"std": 0.5}]).std.dtype == torch.float32


def test_log_probs_of_both_policies_are_logged():
    """Equal before an update; after it apart by half the mean square shift, in expectation."""
    p = policy(event_reduction="centred", window=1, window_starts=(3, 3))
    info = p.sample(["a"], 2, seed=3).info
    assert info["log_prob/current"] == pytest.approx(info["log_prob/reference"], abs=1e-6)
    r = rows(p.sample(["a"], 2, seed=3))
    std = float(p.transitions.noisy.std[3])
    z = r["noise"][0, 0].double()
    expected = float(-(z**2).mean() / 2) - math.log(std) - 0.5 * math.log(2 * math.pi)
    assert info["log_prob/current"] == pytest.approx(expected, abs=1e-4)
    with torch.no_grad():
        p.denoiser.b += 1.0
    moved = [p.sample(["a"], 2, seed=s).info for s in range(60)]
    d = float(p.transitions.noisy.w_out[3]) / std
    gap = sum(m["log_prob/current"] - m["log_prob/reference"] for m in moved) / 60
    assert gap == pytest.approx(d**2 / 2, rel=0.5)

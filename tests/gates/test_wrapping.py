"""Gates in networks as they stand: the same network at their mean, the same names, right log-probs and gradients."""

from __future__ import annotations

import sys
import types
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.distributions import Beta, Normal

from anygrpo.core import user_code
from anygrpo.core.tree import tree_map
from anygrpo.errors import ConfigError
from anygrpo.gates.build import Gate, StochasticPolicy, build, with_gates
from anygrpo.gates.settings import GateConfig, StochasticConfig
from anygrpo.gates.wrapping import gates_of, without_gates

EXAMPLE = f"{Path(__file__).parents[2]}/examples/adair_shaped.py:make"
ALL = slice(None)


class Plain(nn.Module):
    """No gate of ours: a sigmoid, a softmax, parameters of two forms, a method, a shared layer, a tuple."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Conv2d(3, 3, 3, padding=1)
        self.rate = nn.Sequential(nn.Conv2d(3, 2, 1), nn.Sigmoid())
        self.pick = nn.Sequential(nn.Conv2d(3, 4, 1), nn.Softmax(1))
        self.para1 = nn.Parameter(torch.full((3, 1, 1), 0.5))
        self.alpha = nn.Parameter(torch.tensor(0.7))
        self.shared = nn.Linear(3, 3)
        self.register_buffer("scale", torch.tensor([2.0]))

    def strength(self, y: Tensor) -> Tensor:
        return y.mean((2, 3)).tanh()

    def pair(self, y: Tensor) -> tuple[Tensor, Tensor]:
        return y, y.mean((2, 3))

    def forward(self, x: Tensor) -> Tensor:
        y = self.body(x) * self.para1
        pooled = F.adaptive_avg_pool2d(y, 1)
        rate, pick = self.rate(pooled), self.pick(pooled)
        y = y * rate.sum(1, keepdim=True) + (pick * torch.arange(4.0)[:, None, None]).sum(1, keepdim=True)
        y = y + self.strength(y)[..., None, None] + self.pair(y)[1][..., None, None]
        z = self.shared(self.shared(y.mean((2, 3))))
        return x + self.alpha * y * self.scale + z[..., None, None]


def net() -> Plain:
    torch.manual_seed(0)
    return Plain().eval()


def images(n: int = 3, side: int = 6) -> Tensor:
    return torch.rand(n, 3, side, side, generator=torch.Generator().manual_seed(1))


def prompts(n: int = 3) -> list[dict]:
    return [{"degraded": x, "clean": x} for x in images(n)]


def rows_of(rollout) -> dict:
    return tree_map(lambda x: x.flatten(0, 1), rollout.samples)


GATES = {
    "rate": Gate("rate", "beta", spread=8.0),
    "pick": Gate("pick", "categorical", dim=1),
    "para1": Gate("para1", "normal", spread=0.2),
    "alpha": Gate("alpha", "normal"),
    "scale": Gate("scale", "normal", spread=0.3),
    "strength": Gate("strength", "beta", low=-1.0, high=1.0),
    "pair": Gate("pair", "normal", output=1),
    "rate.0": Gate("rate.0", "normal", name="logits"),
}


@pytest.mark.parametrize("name", GATES)
def test_at_its_mean_the_network_is_the_same_and_drawn_it_is_not(name: str) -> None:
    plain, p = net(), StochasticPolicy(with_gates(net(), GATES[name]))
    expected = plain(images())
    greedy = torch.stack([row[0] for row in p.decode(p.greedy(prompts()).samples)])
    torch.testing.assert_close(greedy, expected, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(p.network(images()), expected, atol=1e-5, rtol=1e-4)
    assert list(p.network.state_dict()) == list(plain.state_dict())
    rollout = p.sample(prompts(), 4, seed=0)
    assert rollout.shape == (3, 4, 1)
    assert list(p.probe([[3, 6, 6]])) == [GATES[name].site]
    assert rollout.samples["restored"].std(1).amax() > 1e-4
    again = p.evaluate(rows_of(rollout), ALL).log_probs
    torch.testing.assert_close(again, rollout.log_probs.flatten(0, 1))
    again.sum().backward() if again.requires_grad else None
    assert (name == "scale") == (not again.requires_grad)  # a buffer learns nothing


@pytest.mark.parametrize("name", ["alpha", "scale", "para1"])
def test_each_row_has_the_parameter_that_it_was_given(name: str) -> None:
    """Each drawn output is that of the plain network whose parameter is set to the drawn value."""
    p = StochasticPolicy(with_gates(net(), GATES[name]))
    rollout = p.sample(prompts(), 2, seed=3)
    values = rollout.samples[f"site/{name}"].flatten(0, 1)
    outputs = rollout.samples["restored"].flatten(0, 1)
    for i, x in enumerate(images().repeat_interleave(2, 0)):
        plain = net()
        with torch.no_grad():
            getattr(plain, name).copy_(values[i])
        torch.testing.assert_close(plain(x[None])[0], outputs[i], atol=1e-5, rtol=1e-4)
    assert torch.equal(p.network.state_dict()[name], net().state_dict()[name])  # it is back in its place


def test_log_probs_by_hand() -> None:
    p = StochasticPolicy(with_gates(net(), GATES["strength"], GATES["alpha"]))
    rollout = p.sample(prompts(1), 1, seed=0)
    seen: list[Tensor] = []
    plain = net()
    with torch.no_grad():
        plain.strength = lambda y: (seen.append(Plain.strength(plain, y)), Plain.strength(plain, y))[1]  # type: ignore
        plain.alpha.copy_(rollout.samples["site/alpha"][0, 0])
        plain(images(1))
    share = (seen[0] + 1) / 2
    sure = torch.maximum(1 / share, 1 / (1 - share)).clamp(min=10.0)
    # [-1, 1] is not undone in the density: values are stored as shares of the range
    value = rollout.samples["site/strength"][0, 0]
    strength = Beta(share * sure, (1 - share) * sure).log_prob(value).sum()
    alpha = Normal(0.7, 0.1).log_prob(rollout.samples["site/alpha"][0, 0])
    assert rollout.log_probs[0, 0].tolist() == pytest.approx([float(alpha), float(strength)], rel=1e-4)


@settings(max_examples=25, deadline=None)
@given(st.floats(0, 1), st.floats(0.5, 100.0))
def test_a_betas_mean_is_what_was_there_and_its_density_is_bounded(share: float, spread: float) -> None:
    from anygrpo.gates.choosing import deterministic
    from anygrpo.gates.sites import recording

    with recording(1, deterministic("mean")) as tape:
        value = Gate("x", "beta", spread=spread)(torch.tensor([[share]]), "x")
    assert float(value) == pytest.approx(share, abs=2e-4)
    made = tape.sites["x"].distribution
    assert min(float(made.concentration0), float(made.concentration1)) > 0.999
    assert bool(made.log_prob(torch.tensor([1e-6])).isfinite())


def test_a_shared_module_is_two_sites_and_element_gates_count_each() -> None:
    p = StochasticPolicy(with_gates(net(), Gate("shared"), Gate("rate", "beta", per="element")))
    assert p.probe([[3, 6, 6]]) == ["rate", "shared", "shared#2"]
    assert p.sample(prompts(), 2, 0).shape == (3, 2, 2 + 1 + 1)


def test_gates_can_be_taken_out_again() -> None:
    network = with_gates(net(), *GATES.values())
    assert [g.at for g in gates_of(network)] == [g.at for g in GATES.values()]
    without_gates(network)
    assert gates_of(network) == ()
    with pytest.raises(ConfigError, match="no sample site"):
        StochasticPolicy(network).sample(prompts(), 2, 0)
    assert torch.equal(network(images()), net()(images()))


def test_a_function_of_a_module_is_a_gate(monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("own_functions")
    module.window = lambda y: y.mean((1, 2, 3)).sigmoid()
    monkeypatch.setitem(sys.modules, "own_functions", module)

    class Uses(Plain):
        def forward(self, x: Tensor) -> Tensor:
            return x * module.window(self.body(x))[:, None, None, None]

    network = with_gates(Uses(), Gate("own_functions:window", "beta"))
    p = StochasticPolicy(network)
    assert p.sample(prompts(), 2, 0).shape == (3, 2, 1)
    without_gates(network)
    assert module.window(images()).shape == (3,)
    with pytest.raises(ConfigError, match="no function 'windo'"):
        with_gates(Uses(), Gate("own_functions:windo"))


WRONG = {
    "nothing of that name": Gate("rat"),
    "did you mean 'rate.0'": Gate("rate.00"),
    r"beta in \[0, 1\], and the network gives": Gate("body", "beta"),
    "does not sum to 1": Gate("rate", "categorical", dim=1),
    "which part": Gate("pair"),
    "submodule, parameter or method": Gate("training"),
}


@pytest.mark.parametrize("why", WRONG)
def test_what_cannot_be_a_gate_is_refused(why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        StochasticPolicy(with_gates(net(), WRONG[why])).sample(prompts(), 2, 0)


def test_a_parameter_that_is_one_for_all_rows_is_refused() -> None:
    p = StochasticPolicy(with_gates(net(), Gate("body.weight")))
    with pytest.raises(ConfigError, match="cannot have a value for each row"):
        p.sample(prompts(), 2, 0)


def test_two_sites_of_one_name_are_refused() -> None:
    with pytest.raises(ConfigError, match="two gates are called"):
        with_gates(net(), Gate("rate"), Gate("pick", name="rate"))


# --- the example -----------------------------------------------------------------------------------------------------


def adair(**given: object) -> StochasticPolicy:
    gates = [GateConfig(at=f"fre{i}.rate_conv", distribution="beta", spread=6.0) for i in (1, 2, 3)]
    given = {"gates": gates, "arguments": {"width": 8}, "multiple": 4} | given
    return build(StochasticConfig(function=EXAMPLE, device="cpu", **given), 0)  # type: ignore[arg-type]


def test_a_recipe_names_gates_of_a_network_that_knows_nothing_of_them() -> None:
    p = adair(gates=[GateConfig(at="fre1.rate_conv", distribution="beta"), GateConfig(at="fre3.para1")])
    assert p.probe([[3, 13, 18]]) == ["fre3.para1", "fre1.rate_conv"]
    pictures = [{"degraded": x, "clean": x} for x in torch.rand(2, 3, 13, 18)]
    rollout = p.sample(pictures, 2, 0)
    assert p.decode(rollout.samples)[0][0].shape == (3, 13, 18)
    plain = user_code.load(EXAMPLE)
    assert list(p.network.state_dict()) == list(plain(width=8).state_dict())


def test_supervision_cannot_reach_the_rates_and_a_policy_gradient_can() -> None:
    p = adair()
    rows = rows_of(p.sample(prompts(2), 2, 0))
    p.evaluate(rows, ALL, frozenset({"supervised"})).losses["supervised"].sum().backward()
    assert p.network.fre1.rate_conv[2].weight.grad is None
    p.evaluate(rows, ALL).log_probs.sum().backward()
    assert p.network.fre1.rate_conv[2].weight.grad.abs().max() > 0


@pytest.mark.parametrize("features", ["detached", "shared"])
def test_a_policy_gradient_reaches_the_body_only_where_features_are_shared(features: str) -> None:
    p = adair(gates=[GateConfig(at="fre1.rate_conv", distribution="beta", features=features)])  # type: ignore[arg-type]
    p.evaluate(rows_of(p.sample(prompts(2), 2, 0)), ALL).log_probs.sum().backward()
    assert p.network.fre1.rate_conv[0].weight.grad.abs().max() > 0
    assert (p.network.patch_embed.weight.grad is not None) == (features == "shared")


@pytest.mark.parametrize(
    ("targets", "count"), [("all-linear", 0), ("all-conv", 47), (["attn"], 12), (["*.qkv", "ffn.0"], 12), ("qkv", 6)]
)
def test_adapters_by_the_names_people_use(targets: object, count: int) -> None:
    given = {"lora": {"rank": 2, "alpha": 4, "targets": targets}}
    if count == 0:
        with pytest.raises(ConfigError, match="no convolution or linear layer"):
            adair(**given)
        return
    p = adair(**given)
    factors = [n for n, x in p.network.named_parameters() if x.requires_grad]
    assert len(factors) == 2 * count
    rollout = p.sample(prompts(2), 2, 0)  # the gates are where they were
    assert rollout.shape == (2, 2, 3)

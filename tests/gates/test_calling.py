"""Calls of a user's network: padded sizes, dicts and lists, half precision, checkpointed parts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import pytest
import torch
from torch import Tensor, nn
from torch.distributions import Bernoulli, Beta, Categorical, Independent, Normal, OneHotCategorical
from torch.utils.checkpoint import checkpoint

from anygrpo.core.tree import tree_map
from anygrpo.errors import ConfigError
from anygrpo.gates.build import StochasticPolicy, checkpointed, gate
from anygrpo.gates.calling import Call
from anygrpo.gates.distributions import in_float32, rounded
from anygrpo.gates.examining import expect_same

ALL = slice(None)


class Named(NamedTuple):
    picture: Tensor
    aux: None


@dataclass
class Fields:
    picture: Tensor


class Halving(nn.Module):
    """Works on multiples of 4 only; its output is an identity times `scale` in size, in the form that is asked for."""

    def __init__(self, form: str = "tensor", scale: int = 1) -> None:
        super().__init__()
        self.a, self.form, self.scale = nn.Parameter(torch.tensor(2.0)), form, scale

    def forward(self, x: Tensor) -> Tensor | dict | list | tuple:
        if x.shape[-1] % 4 or x.shape[-2] % 4:
            raise RuntimeError("The size of tensor a (3) must match the size of tensor b (4)")
        gate("g", Beta(self.a.expand(len(x)), torch.full((len(x),), 2.0)))
        y = x.repeat_interleave(self.scale, 2).repeat_interleave(self.scale, 3)
        return {"tensor": y, "dict": {"out": y, "aux": 0 * y}, "list": [0 * y, y], "tuple": (y, None),
                "nested": {"a": {"b": y}}, "named": Named(y, None), "fields": Fields(y)}[self.form]  # fmt: skip


@pytest.mark.parametrize("size", [(8, 8), (5, 7), (3, 8), (1, 2)])
@pytest.mark.parametrize("scale", [1, 2])
def test_sizes_are_padded_and_cut_again(size: tuple[int, int], scale: int) -> None:
    x = torch.rand(2, 3, *size)
    y = Call(Halving(scale=scale), multiple=4)([x])
    assert torch.equal(y, x.repeat_interleave(scale, 2).repeat_interleave(scale, 3))


def test_a_size_that_a_network_does_not_take_names_the_cure() -> None:
    with pytest.raises(ConfigError, match=r"5 x 7 pixels.*\n.*policy\.multiple = 8"):
        Call(Halving())([torch.rand(1, 3, 5, 7)])


@pytest.mark.parametrize(
    ("form", "output"),
    [
        ("dict", "out"),
        ("list", 1),
        ("list", -1),
        ("tuple", 0),
        ("nested", "a.b"),
        ("named", "picture"),
        ("named", 0),
        ("fields", "picture"),
    ],
)
def test_the_picture_is_taken_out_of_what_is_returned(form: str, output: str | int) -> None:
    x = torch.rand(1, 3, 8, 8)
    assert torch.equal(Call(Halving(form), output=output)([x]), x)


@pytest.mark.parametrize(("form", "output", "why"), [
    ("dict", None, r"a dict of out: \[1, 3, 8, 8\], aux.*\n.*policy\.output"),
    ("list", None, "place from 0 to 1"),
    ("dict", "output", "no 'output'"),
    ("list", 2, "no 2"),
    ("tuple", 1, "NoneType"),
    ("nested", "a.c", r"no 'a\.c'"),
    ("named", "no", "known: aux, picture|known: picture, aux"),
    ("fields", None, r"a Fields of picture: \[1, 3, 8, 8\]"),
])  # fmt: skip
def test_what_is_no_picture_is_named_with_what_there_is(form: str, output: str | int | None, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        Call(Halving(form), output=output)([torch.rand(1, 3, 8, 8)])


def test_super_resolution_learns_from_targets_of_its_own_size() -> None:
    p = StochasticPolicy(Halving(scale=2), multiple=4)
    prompts = [{"degraded": torch.rand(3, 5, 7), "clean": torch.rand(3, 10, 14)} for _ in range(2)]
    rollout = p.sample(prompts, 2, 0)
    rows = tree_map(lambda x: x.flatten(0, 1), rollout.samples)
    loss = p.evaluate(rows, ALL, frozenset({"supervised"})).losses["supervised"]
    expected = (p.decode(rollout.samples)[1][0] - prompts[1]["clean"]).abs().mean()
    assert float(loss[2]) == pytest.approx(float(expected), rel=1e-5)


# --- half precision --------------------------------------------------------------------------------------------------


class Half(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Conv2d(3, 3, 3, padding=1), nn.Linear(3, 2)

    def forward(self, x: Tensor) -> Tensor:
        y = self.body(x)
        a, b = (1 + 20 * self.head(y.mean((2, 3))).exp()).unbind(1)
        return x + gate("g", Beta(a, b))[:, None, None, None] * y


def test_in_bfloat16_the_ratio_is_one_and_densities_are_those_of_float32() -> None:
    torch.manual_seed(0)
    p = StochasticPolicy(Half(), dtype="bfloat16")
    prompts = [{"degraded": x, "clean": x} for x in torch.rand(3, 3, 8, 8)]
    rollout = p.sample(prompts, 4, 0)
    rows = tree_map(lambda x: x.flatten(0, 1), rollout.samples)
    assert torch.equal(p.evaluate(rows, ALL).log_probs.detach(), rollout.log_probs.flatten(0, 1))
    assert rollout.samples["restored"].dtype == torch.float32
    plain = StochasticPolicy(p.network)
    torch.testing.assert_close(
        plain.evaluate(rows, ALL).log_probs, rollout.log_probs.flatten(0, 1), atol=0.1, rtol=0.05
    )
    p.evaluate(rows, ALL).log_probs.sum().backward()
    assert p.network.head.weight.grad.dtype == torch.float32


def test_a_network_whose_weights_are_bfloat16_gets_values_of_its_type() -> None:
    torch.manual_seed(0)
    p = StochasticPolicy(Half().to(torch.bfloat16))
    prompts = [{"degraded": torch.rand(3, 8, 8).bfloat16(), "clean": torch.rand(3, 8, 8)} for _ in range(3)]
    rollout = p.sample(prompts, 4, 0)
    assert rollout.samples["site/g"].dtype == torch.bfloat16
    rows = tree_map(lambda x: x.flatten(0, 1), rollout.samples)
    assert torch.equal(p.evaluate(rows, ALL).log_probs.detach(), rollout.log_probs.flatten(0, 1))


@pytest.mark.parametrize("made", [
    lambda x: Beta(x, 2 * x), lambda x: Normal(x, x), lambda x: Independent(Normal(x, x), 1),
    lambda x: Bernoulli(logits=x), lambda x: Categorical(logits=x), lambda x: OneHotCategorical(logits=x),
])  # fmt: skip
def test_densities_of_half_parameters_are_computed_in_float32(made) -> None:
    x = torch.rand(3, 4) + 0.5
    whole, held = in_float32(made(x.bfloat16()))
    assert held == torch.bfloat16
    expected = made(x.bfloat16().float())
    value = expected.sample()
    # a choice has normalised its logits in bfloat16 before it is asked
    torch.testing.assert_close(whole.log_prob(value), expected.log_prob(value), atol=0.05, rtol=0)
    assert in_float32(made(x))[1] is None


def test_a_beta_stays_off_its_edges_in_half_precision() -> None:
    half = rounded(torch.tensor([0.0, 1e-6, 1 - 1e-6, 1.0]), Beta(torch.ones(4), torch.ones(4)), torch.bfloat16)
    assert 0 < half.min() < half.max() < 1


# --- checkpointed parts ----------------------------------------------------------------------------------------------


class Recomputing(nn.Module):
    """A gate inside or outside of a part whose activations are computed again."""

    def __init__(self, how: str) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.how, self.head, self.body = how, nn.Linear(3, 2), nn.Conv2d(3, 3, 3, padding=1)

    def gated(self, x: Tensor) -> Tensor:
        a, b = (1 + self.head(x.mean((2, 3))).exp()).unbind(1)
        return gate("g", Beta(a, b))[:, None, None, None] * self.body(x).tanh().square()

    def rest(self, x: Tensor, g: Tensor) -> Tensor:
        return g * self.body(x).tanh().square()

    def forward(self, x: Tensor) -> Tensor:
        if self.how in ("plain", "helper"):
            return (self.gated(x) if self.how == "plain" else checkpointed(self.gated, x)).sin()
        x = x.requires_grad_() if torch.is_grad_enabled() else x  # as the blocks before a reentrant part would
        if self.how == "outside":
            a, b = (1 + self.head(x.mean((2, 3))).exp()).unbind(1)
            g = gate("g", Beta(a, b))[:, None, None, None]
            return checkpoint(self.rest, x, g, use_reentrant=False).sin()
        return checkpoint(self.gated, x, use_reentrant=self.how == "reentrant").sin()


def gradients(how: str, supervised_gates: bool = False) -> dict[str, Tensor]:
    p = StochasticPolicy(Recomputing(how))
    prompts = [
        {"degraded": x, "clean": 1 - x} for x in torch.rand(2, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    ]
    rows = tree_map(lambda x: x.flatten(0, 1), p.sample(prompts, 3, 0).samples)
    made = p.evaluate(rows, ALL, frozenset({"supervised"}))
    (made.losses["supervised"].sum() + made.log_probs.sum()).backward()
    return {n: x.grad for n, x in p.network.named_parameters()}


@pytest.mark.parametrize("how", ["helper", "outside"])
def test_a_checkpointed_part_gives_the_gradient_of_a_plain_one(how: str) -> None:
    for name, expected in gradients("plain").items():
        torch.testing.assert_close(gradients(how)[name], expected)


@pytest.mark.parametrize("how", ["reentrant", "not"])
def test_a_gate_inside_of_a_checkpointed_part_is_refused(how: str) -> None:
    with pytest.raises(ConfigError, match=r"'g' lies in a part that is checkpointed.*\n.*checkpointed\(function"):
        gradients(how)


class Crops:
    size = 1

    def prompts(self, step: int, count: int) -> list:
        return [{"degraded": torch.full((3, 8, 8), 0.3)}]


@pytest.mark.parametrize("how", ["reentrant", "not"])
def test_it_is_refused_before_the_stages_that_come_first(how: str) -> None:
    policy = StochasticPolicy(Recomputing(how))
    policy.check_stage("supervised", Crops())
    with pytest.raises(ConfigError, match="lies in a part that is checkpointed"):
        policy.check_stage("grpo", Crops())
    policy.supervised_gates = "best"
    with pytest.raises(ConfigError, match="lies in a part that is checkpointed"):
        policy.check_stage("supervised", Crops())
    StochasticPolicy(Recomputing("helper")).check_stage("grpo", Crops())


@pytest.mark.parametrize("how", ["reentrant", "not"])
def test_at_its_mean_such_a_gate_is_right(how: str) -> None:
    """Supervised rows at the mean: the second run gives the same values by itself."""
    found = {}
    for kind in ("plain", how):
        network = Recomputing(kind)
        p = StochasticPolicy(network)
        prompts = [{"degraded": torch.full((3, 8, 8), 0.3), "clean": torch.zeros(3, 8, 8)}]
        from anygrpo.core.task import Stored

        rows = tree_map(lambda x: x.flatten(0, 1), p.replay(prompts, Stored([[prompts[0]["clean"]]]), 0).samples)
        p.evaluate(rows, ALL, frozenset({"supervised"})).losses["supervised"].sum().backward()
        found[kind] = {n: x.grad for n, x in network.named_parameters()}
    for name, expected in found["plain"].items():
        torch.testing.assert_close(found[how][name], expected)


# --- networks that are not what they seem ---------------------------------------------------------------------------


class Faulty(nn.Module):
    """A gated network with a fault beside the gate."""

    def __init__(self, fault: str) -> None:
        super().__init__()
        self.a, self.fault = nn.Parameter(torch.tensor(2.0)), fault
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        x = x.mul_(0.5) if self.fault == "writes" else x
        g = gate("g", Beta(self.a.expand(len(x)), torch.full((len(x),), 2.0)))
        y = x * g[:, None, None, None]
        return {
            "dropout": lambda: nn.functional.dropout(y, 0.5, True),
            "counts": lambda: y + self.calls,
            "pools": lambda: y.mean(0, keepdim=True).expand_as(y),
            "none": lambda: y,
            "writes": lambda: y,
        }[self.fault]()


class Few:
    size = 2

    def prompts(self, step: int, count: int) -> list[dict]:
        return [{"degraded": torch.rand(3, 8, 8, generator=torch.Generator().manual_seed(i))} for i in range(count)]


@pytest.mark.parametrize("method", ["supervised", "grpo"])
@pytest.mark.parametrize(("fault", "why"), [
    ("dropout", "another output for the same input and gates"),
    ("counts", "another output for the same input and gates"),
    ("pools", "a row another output beside others"),
    ("none", ""),
    ("writes", ""),
])  # fmt: skip
def test_a_network_that_is_random_or_mixes_its_rows_is_refused_before_training(
    method: str, fault: str, why: str
) -> None:
    policy = StochasticPolicy(Faulty(fault))
    if not why:
        policy.check_stage(method, Few())
        return
    with pytest.raises(ConfigError, match=why):
        policy.check_stage(method, Few())


@pytest.mark.parametrize(("apart", "numbers", "refused"), [
    (0.9, 10, False),  # 1%: a hard choice at a tie
    (0.9, 11, True),
    (0.001, 1000, False),  # rounding
    (0.01, 1000, True),
])  # fmt: skip
def test_a_few_numbers_may_turn_by_rounding(apart: float, numbers: int, refused: bool) -> None:
    one = torch.ones(1, 1000)
    other = one.clone()
    other[0, :numbers] -= apart
    cases = (
        (other, one, "a row another output beside others", refused),
        (one, other, "for the same input", apart > 0.005),
    )
    for beside, again, why, wrong in cases:  # the same shapes: no tie turns
        if wrong:
            with pytest.raises(ConfigError, match=why):
                expect_same("Net", beside, one, again)
        else:
            expect_same("Net", beside, one, again)


class Nearest(nn.Module):
    """Its output is rounded to one of two levels; a number at the tie goes by the size of the batch."""

    def __init__(self, ties: int) -> None:
        super().__init__()
        self.a, self.ties = nn.Parameter(torch.tensor(2.0)), ties

    def forward(self, x: Tensor) -> Tensor:
        g = gate("g", Beta(self.a.expand(len(x)), torch.full((len(x),), 2.0)))
        y = x.flatten(1).clone()
        y[:, : self.ties] = 0.5 + 1e-7 * (len(x) - 1.5)
        return (y > 0.5).float().view_as(x) + 0 * g[:, None, None, None]


def test_a_hard_choice_at_a_tie_is_no_mixing_of_rows() -> None:
    StochasticPolicy(Nearest(1)).check_stage("grpo", Few())  # 1 of 192
    with pytest.raises(ConfigError, match="a row another output beside others"):
        StochasticPolicy(Nearest(3)).check_stage("grpo", Few())


def test_a_forward_that_writes_into_its_input_leaves_the_prompts_as_they_were() -> None:
    policy, prompts = StochasticPolicy(Faulty("writes")), Few().prompts(0, 2)
    rollout = policy.sample(prompts, 2, 0)
    assert torch.equal(rollout.samples["degraded"][1, 0], Few().prompts(0, 2)[1]["degraded"])


def test_weights_of_another_type_and_lazy_ones_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"weights of Conv2d are float64.*\n.*network\.float\(\)"):
        Call(nn.Conv2d(3, 3, 1).double())([torch.rand(1, 3, 8, 8)])
    with pytest.raises(ConfigError, match="get their shape in the first call"):
        StochasticPolicy(nn.Sequential(nn.LazyConv2d(3, 3)))


def test_an_output_of_another_size_than_its_target_is_told_with_both() -> None:
    p = StochasticPolicy(Halving())
    prompts = [{"degraded": torch.rand(3, 8, 8), "clean": torch.rand(3, 16, 16)}]
    rows = tree_map(lambda x: x.flatten(0, 1), p.sample(prompts, 2, 0).samples)
    with pytest.raises(ConfigError, match=r"gives \[3, 8, 8\], and the target is \[3, 16, 16\]"):
        p.evaluate(rows, ALL, frozenset({"supervised"}))

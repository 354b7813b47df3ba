"""Gates: values, log-probs, replay, exact KL and entropy, deterministic mode."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn
from torch.distributions import (
    Bernoulli,
    Beta,
    Categorical,
    Gamma,
    Independent,
    Normal,
    OneHotCategorical,
    kl_divergence,
)

from anygrpo.core.task import Stored
from anygrpo.core.thumbnails import of_tensor
from anygrpo.core.tree import tree_map
from anygrpo.errors import ConfigError
from anygrpo.gates.build import StochasticPolicy, gate
from anygrpo.gates.choosing import deterministic, replaying
from anygrpo.gates.distributions import draw, in_support, middle
from anygrpo.gates.sites import recording


class Net(nn.Module):
    """A scalar Beta, a per-channel Normal, a map of choices and a coin, all reading the input."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(3, 9)
        self.drop = nn.Dropout(0.5)
        self.after = lambda: None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.head(self.drop(x.mean((2, 3))))
        strength = gate("strength", Beta(1 + h[:, 0].exp(), 1 + h[:, 1].exp()))
        shift = gate("shift", Independent(Normal(h[:, 2:5], 0.5), 1))
        tool = gate("tool", Categorical(logits=h[:, None, None, 5:8].expand(-1, 2, 2, 3)), per="element")
        coin = gate("coin", Bernoulli(logits=h[:, 8]))
        self.after()
        image = strength[:, None, None, None] * x + shift[:, :, None, None]
        return image + tool.float().mean((1, 2))[:, None, None, None] + coin[:, None, None, None]


def policy(**given: object) -> StochasticPolicy:
    torch.manual_seed(0)
    return StochasticPolicy(Net(), **given)  # type: ignore[arg-type]


def prompts(count: int = 2, size: int = 4) -> list[dict]:
    g = torch.Generator().manual_seed(1)
    images = torch.rand(count, 2, 3, size, size, generator=g)
    return [{"degraded": a, "clean": b} for a, b in images]


def rows_of(rollout) -> dict:
    return tree_map(lambda x: x.flatten(0, 1), rollout.samples)


ALL = slice(None)
T = 1 + 1 + 4 + 1


# --- distributions ---------------------------------------------------------------------------------------------------


def test_mean_and_mode_by_hand() -> None:
    beta = Beta(torch.tensor([2.0, 3.0]), torch.tensor([6.0, 3.0]))
    assert middle(beta).tolist() == [0.25, 0.5]
    assert middle(beta, "mode").tolist() == pytest.approx([1 / 6, 0.5])
    assert middle(Bernoulli(torch.tensor([0.2, 0.5]))).tolist() == pytest.approx([0.2, 0.5])
    assert middle(Bernoulli(torch.tensor([0.2, 0.5])), "mode").tolist() == [0.0, 1.0]
    assert middle(Categorical(torch.tensor([[0.2, 0.5, 0.3]]))).tolist() == [1]
    assert middle(OneHotCategorical(torch.tensor([[0.2, 0.5, 0.3]]))).tolist() == [pytest.approx([0.2, 0.5, 0.3])]


def test_draw_keeps_beta_off_its_edges_and_counts() -> None:
    torch.manual_seed(0)
    value, moved = draw(Beta(torch.full((1000,), 0.01), torch.full((1000,), 0.01)))
    assert 0 < value.min() < value.max() < 1
    assert moved.sum() > 500  # nearly all mass lies within 1e-6 of an edge
    assert draw(Beta(torch.full((1000,), 5.0), torch.full((1000,), 5.0)))[1].sum() == 0


@pytest.mark.parametrize("family", [Categorical, OneHotCategorical])
def test_a_choice_is_drawn_as_torch_draws_it(family: type) -> None:
    chances = family(logits=torch.randn(3, 4, 5, 6, generator=torch.Generator().manual_seed(0)).permute(0, 2, 3, 1))
    torch.manual_seed(0)
    expected = chances.sample()
    torch.manual_seed(0)
    assert torch.equal(draw(chances)[0], expected)


def test_a_soft_choice_is_scored_at_its_mode() -> None:
    chances = OneHotCategorical(torch.tensor([[0.2, 0.5, 0.3], [0.1, 0.1, 0.8]]))
    values = torch.tensor([[0.2, 0.5, 0.3], [1.0, 0.0, 0.0]])
    assert in_support(chances, values).tolist() == [[0.0, 1.0, 0.0], [1.0, 0.0, 0.0]]
    coins = Independent(Bernoulli(torch.tensor([[0.9, 0.2]])), 1)
    assert in_support(coins, torch.tensor([[0.9, 0.0]])).tolist() == [[1.0, 0.0]]


def test_unknown_family_is_refused() -> None:
    with pytest.raises(ConfigError, match="Gamma"):
        gate("g", Gamma(torch.ones(2), torch.ones(2)))


# --- gates -----------------------------------------------------------------------------------------------------------


def test_outside_of_a_policy_the_network_is_its_mean() -> None:
    net, x = Net().eval(), torch.rand(2, 3, 4, 4)
    with recording(2, deterministic("mean")) as tape:
        inside = net(x)
    assert torch.equal(net(x), inside)
    assert torch.equal(net(x), net(x))
    assert list(tape.sites) == ["strength", "shift", "tool", "coin"]


def test_gate_without_row_dimension_is_refused() -> None:
    with recording(4, deterministic("mean")), pytest.raises(ConfigError, match=r"batch shape \[\].*4 rows"):
        gate("g", Beta(torch.tensor(2.0), torch.tensor(2.0)))


def test_one_name_twice_is_refused() -> None:
    with recording(1, deterministic("mean")):
        gate("g", Normal(torch.zeros(1), 1.0))
        with pytest.raises(ConfigError, match="twice"):
            gate("g", Normal(torch.zeros(1), 1.0))


def test_missing_value_names_the_closest() -> None:
    with recording(1, replaying({"strenght": torch.zeros(1)})), pytest.raises(ConfigError, match="strenght"):
        gate("strength", Normal(torch.zeros(1), 1.0))


def test_log_prob_by_hand() -> None:
    values = {"a": torch.tensor([[0.5, 0.25]]), "b": torch.tensor([[1.0, -1.0]])}
    with recording(1, replaying(values)) as tape:
        gate("a", Beta(torch.full((1, 2), 2.0), torch.full((1, 2), 2.0)))  # density 6 x (1 - x)
        gate("b", Normal(torch.zeros(1, 2), 1.0), per="element")
    gauss = -0.5 - 0.5 * math.log(2 * math.pi)
    expected = [math.log(1.5) + math.log(1.125), gauss, gauss]
    assert tape.log_probs()[0].tolist() == pytest.approx(expected, abs=1e-6)


# --- the policy ------------------------------------------------------------------------------------------------------


def test_replay_of_the_same_values_gives_ratio_one() -> None:
    p = policy()
    rollout = p.sample(prompts(), 3, seed=5)
    assert rollout.shape == (2, 3, T)
    again = p.evaluate(rows_of(rollout), ALL).log_probs
    assert torch.equal(again.detach(), rollout.log_probs.flatten(0, 1))
    assert again.requires_grad
    assert not any(x.requires_grad for x in rollout.samples.values())


def test_slices_of_decisions_agree_with_the_whole() -> None:
    p = policy()
    rows = rows_of(p.sample(prompts(), 2, seed=5))
    whole = p.evaluate(rows, ALL, frozenset({"entropy"}))
    part = p.evaluate(rows, slice(2, 5), frozenset({"entropy"}))
    assert torch.equal(whole.log_probs[:, 2:5], part.log_probs)
    assert torch.equal(whole.entropy[:, 2:5], part.entropy)


def test_sampling_is_a_function_of_the_seed_and_leaves_the_global_state() -> None:
    p = policy()
    torch.manual_seed(3)
    expected = torch.rand(1)
    torch.manual_seed(3)
    a, b, c = (p.sample(prompts(), 2, seed=s) for s in (1, 1, 2))
    assert torch.equal(torch.rand(1), expected)
    assert torch.equal(a.samples["site/strength"], b.samples["site/strength"])
    assert not torch.equal(a.samples["site/strength"], c.samples["site/strength"])
    assert a.samples["site/strength"].unique().numel() == 4  # every sample of a group its own


def test_output_depends_on_the_stored_values_alone() -> None:
    p = policy()
    rollout = p.sample(prompts(), 2, seed=5)
    rows = rows_of(rollout)
    output, _ = p.run([rows["degraded"]], replaying({k[5:]: x for k, x in rows.items() if k.startswith("site/")}))
    assert torch.equal(output, rollout.samples["restored"].flatten(0, 1))


def test_greedy_is_the_network_used_plainly() -> None:
    p = policy()
    out = p.decode(p.greedy(prompts()).samples)
    plain = p.network(torch.stack([x["degraded"] for x in prompts()]))
    assert torch.equal(torch.stack([row[0] for row in out]), plain)


def test_entropy_matches_the_families() -> None:
    p = policy()
    rows = rows_of(p.sample(prompts(1), 1, seed=5))
    entropy = p.evaluate(rows, ALL, frozenset({"entropy"})).entropy
    h = p.network.head(rows["degraded"].mean((2, 3)))[0]
    tool = Categorical(logits=h[5:8]).entropy()
    expected = [
        Beta(1 + h[0].exp(), 1 + h[1].exp()).entropy(),
        Normal(h[2:5], 0.5).entropy().sum(),
        *[tool] * 4,
        Bernoulli(logits=h[8]).entropy(),
    ]
    torch.testing.assert_close(entropy[0], torch.stack(expected))


def test_exact_kl_is_zero_at_the_start_and_torchs_after_a_change() -> None:
    p = policy()
    rows = rows_of(p.sample(prompts(1), 1, seed=5))
    want = frozenset({"kl"})
    assert p.evaluate(rows, ALL, want).kl.abs().max() == 0
    before = p.network.head(rows["degraded"].mean((2, 3)))[0].detach()
    with torch.no_grad():
        p.network.head.bias.add_(torch.linspace(-1, 1, 9))
    h = p.network.head(rows["degraded"].mean((2, 3)))[0]
    kl = p.evaluate(rows, ALL, want).kl[0]
    beta = lambda z: Beta(1 + z[0].exp(), 1 + z[1].exp())  # noqa: E731
    assert kl[0].item() == pytest.approx(kl_divergence(beta(h), beta(before)).item(), rel=1e-5)
    assert kl[1].item() == pytest.approx((2 * (h - before)[2:5].square()).sum().item(), rel=1e-4)
    assert (kl > 0).all()
    kl.sum().backward()
    assert p.network.head.bias.grad.abs().max() > 0
    with p.reference():
        inside = p.evaluate(rows, ALL).log_probs
    assert not torch.equal(inside, p.evaluate(rows, ALL).log_probs)
    p.fix_reference()
    assert p.evaluate(rows, ALL, want).kl.abs().max() == 0


def test_policy_gradient_reaches_the_gates_and_no_drawn_value() -> None:
    """grad E[r] by scores equals the derivative of the mean for r = the value itself (Beta, large sample)."""

    class One(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a = nn.Parameter(torch.tensor(2.0))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return gate("v", Beta(self.a.expand(len(x)), torch.full((len(x),), 3.0)))[:, None] + 0 * x

    p = StochasticPolicy(One(), inputs=("x",), target=None, rows_at_once=20000)
    rollout = p.sample([{"x": torch.zeros(1)}], 20000, seed=0)
    value = rollout.samples["site/v"][0]
    scores = p.evaluate(rows_of(rollout), ALL).log_probs[:, 0]
    ((value - value.mean()) * scores).mean().backward()
    assert p.network.a.grad.item() == pytest.approx(3 / 25, rel=0.05)  # d/da a / (a + 3) = 3 / (a + 3)^2


def test_supervised_rows_at_the_mean_train_the_gates_and_sampled_rows_do_not() -> None:
    stored = Stored([[x["clean"]] for x in prompts()])
    want = frozenset({"supervised"})
    gradients = {}
    for gates in ("mean", "sampled"):
        p = policy(supervised_gates=gates)
        rows = rows_of(p.replay(prompts(), stored, seed=0))
        loss = p.evaluate(rows, ALL, want).losses["supervised"]
        assert loss.shape == (2,)
        loss.sum().backward() if loss.requires_grad else None
        gradients[gates] = p.network.head.bias.grad
    assert gradients["mean"][:5].abs().min() > 0
    assert gradients["sampled"] is None  # this network has nothing but its gates


def test_supervised_loss_by_hand_and_consistency() -> None:
    p = policy(supervised={"l1": 2.0, "mse": 1.0})
    rollout = p.sample(prompts(), 2, seed=0)
    rows = rows_of(rollout)
    got = p.evaluate(rows, ALL, frozenset({"supervised", "consistency"})).losses
    gap = rows["restored"] - rows["clean"]
    torch.testing.assert_close(got["supervised"], 2 * gap.abs().mean((1, 2, 3)) + gap.square().mean((1, 2, 3)))
    plain = p.greedy(prompts()).samples["restored"].repeat_interleave(2, 1).flatten(0, 1)
    torch.testing.assert_close(got["consistency"], (rows["restored"] - plain).abs().mean((1, 2, 3)))
    greedy = rows_of(p.greedy(prompts()))
    assert p.evaluate(greedy, ALL, frozenset({"consistency"})).losses["consistency"].max() == 0


class Patches(nn.Module):
    """A coin for every 2 x 2 patch, so that larger pictures have more decisions."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Conv2d(3, 1, 2, stride=2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        coins = gate("coin", Bernoulli(logits=self.head(x)[:, 0]), per="element")
        return x + coins.repeat_interleave(2, 1).repeat_interleave(2, 2)[:, None]


@pytest.mark.parametrize("network", [Net, Patches])
def test_rows_of_several_sizes_are_scored_as_each_alone(network: type[nn.Module]) -> None:
    torch.manual_seed(0)
    p = StochasticPolicy(network())
    mixed = [prompts(1, 4)[0], prompts(1, 6)[0], prompts(1, 4)[0]]
    rollout = p.sample(mixed, 2, seed=0)
    assert [x[1].shape[-1] for x in p.decode(rollout.samples)] == [4, 6, 4]
    single = p.greedy([mixed[1]])
    assert torch.equal(p.decode(p.greedy(mixed).samples)[1][0], p.decode(single.samples)[0][0])
    rows, want = rows_of(rollout), frozenset({"supervised", "entropy", "kl"})
    whole = p.evaluate(rows, ALL, want)
    assert whole.log_probs.shape == (6, rollout.shape[2])
    torch.testing.assert_close(whole.log_probs, rollout.log_probs.flatten(0, 1))
    kept = rollout.mask.flatten(0, 1)
    assert kept.sum(1).tolist() == [T, T, T, T, T, T] if network is Net else [4, 4, 9, 9, 4, 4]
    for i in (0, 2, 5):  # also rows of one size that lie in a larger leaf
        alone = p.evaluate({k: x[i : i + 1] for k, x in rows.items()}, ALL, want)
        torch.testing.assert_close(alone.log_probs[0], whole.log_probs[i])
        torch.testing.assert_close(alone.losses["supervised"][0], whole.losses["supervised"][i])
    some = p.evaluate(rows, slice(1, 3)).log_probs
    torch.testing.assert_close(some, whole.log_probs[:, 1:3])
    whole.log_probs.sum().backward()
    stored = Stored([[x["clean"]] for x in mixed])
    taught = p.evaluate(rows_of(p.replay(mixed, stored, 0)), ALL, frozenset({"supervised"})).losses["supervised"]
    assert taught.shape == (3,)
    plain = p.network(mixed[1]["degraded"][None])
    torch.testing.assert_close(taught[1], (plain - mixed[1]["clean"]).abs().mean())


def test_what_has_stopped_decides_nothing() -> None:
    class Stopping(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a = nn.Parameter(torch.zeros(1))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            coins = Bernoulli(logits=self.a.expand(len(x), 4))
            first = gate("first", coins, per="element")
            return x + gate("second", coins, per="element", active=first > 0).sum(1)[:, None, None, None]

    p = StochasticPolicy(Stopping())
    rollout = p.sample(prompts(), 8, seed=0)
    first, second = rollout.samples["site/first"], rollout.samples["site/second"]
    assert torch.equal(rollout.mask[..., 4:], first > 0)
    assert bool(rollout.mask[..., :4].all())
    assert second[first == 0].unique().tolist() == [1.0]  # the mode of an even coin
    assert rollout.log_probs[~rollout.mask].unique().tolist() == [0.0]
    torch.testing.assert_close(p.evaluate(rows_of(rollout), ALL).log_probs, rollout.log_probs.flatten(0, 1))


def test_a_network_without_a_site_is_refused() -> None:
    class Plain(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(3, 3, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.conv(x)

    with pytest.raises(ConfigError, match="no sample site"):
        StochasticPolicy(Plain()).sample(prompts(), 2, seed=0)


def test_sites_left_out_follow_their_mean_and_are_no_decisions() -> None:
    p = policy(sites=("strength", "to*"))
    rollout = p.sample(prompts(), 2, seed=0)
    assert rollout.shape == (2, 2, 1 + 4)
    assert {k for k in rollout.samples if k.startswith("site/")} == {"site/strength", "site/tool"}
    rows = rows_of(rollout)
    p.evaluate(rows, ALL, frozenset({"supervised"})).losses["supervised"].sum().backward()
    assert p.network.head.bias.grad[2:5].abs().min() > 0  # the shift, at its mean
    with pytest.raises(ConfigError, match="coin, shift, strength, tool"):
        policy(sites=("rate",)).sample(prompts(), 2, seed=0)


def test_scoring_stops_at_the_last_gate_and_changes_no_number() -> None:
    p = policy(supervised={"l1": 1.0})
    ran: list[bool] = []
    p.network.after = lambda: ran.append(True)
    rollout = p.sample(prompts(), 3, seed=0)
    assert ran
    ran.clear()
    alone = p.evaluate(rows_of(rollout), slice(None), frozenset({"kl", "entropy"}))
    assert not ran
    both = p.evaluate(rows_of(rollout), slice(None), frozenset({"kl", "entropy", "supervised"}))
    assert ran
    for name in ("log_probs", "entropy", "kl"):
        torch.testing.assert_close(getattr(alone, name), getattr(both, name), rtol=0, atol=0)
    torch.testing.assert_close(alone.log_probs, rollout.log_probs.flatten(0, 1))


def test_no_target_and_ragged_targets_are_refused() -> None:
    p = policy(target=None)
    with pytest.raises(ConfigError, match="target"):
        p.replay(prompts(), Stored([[torch.zeros(3, 4, 4)]] * 2), seed=0)
    rows = rows_of(p.sample(prompts(), 1, seed=0))
    with pytest.raises(ConfigError, match="lambda_supervised"):
        p.evaluate(rows, ALL, frozenset({"supervised"}))
    with pytest.raises(ConfigError, match="exactly one"):
        policy().replay(prompts(), Stored([[torch.zeros(3, 4, 4)] * 2] * 2), seed=0)


def test_rows_that_lack_the_target_are_refused_for_the_supervised_loss() -> None:
    made = policy(inputs=("degraded",), target="clean")
    rollout = made.sample([{"degraded": p["degraded"]} for p in prompts()], 2, 0)
    with pytest.raises(ConfigError, match="prompts have no target"):
        made.evaluate(rows_of(rollout), ALL, frozenset({"supervised"}))
    assert rollout.samples["at_mean"].dtype == torch.bool


def test_a_prompt_is_shown_by_its_words_and_numbers() -> None:
    made = policy(inputs=("degraded",))
    shown = made.show([{"degraded": torch.ones(3, 2, 2), "file": "a.png", "level": 3}], [[torch.full((3, 2, 2), 0.5)]])
    assert shown == [{"prompt": {"file": "a.png", "level": 3}, "outputs": ["[3, 2, 2], mean 0.5000"]}]


def test_a_picture_is_shown_beside_what_it_was_made_from() -> None:
    made = policy(inputs=("degraded",))
    white, grey = torch.ones(3, 8, 8), torch.full((3, 8, 8), 0.5)
    (shown,) = made.show([{"degraded": white, "file": "a.png"}], [[grey]])
    assert shown["prompt"] == {"file": "a.png"}
    assert (shown["pictures"], shown["outputs"]) == ([of_tensor(white)], [of_tensor(grey)])


def test_the_best_of_several_draws_is_learnt_from() -> None:
    p = policy(supervised_gates="best", best_of=6)
    stored = Stored([[x["clean"]] for x in prompts()])
    taught, drawn = p.replay(prompts(), stored, seed=4), p.sample(prompts(), 6, seed=4)
    away = (drawn.samples["restored"] - drawn.samples["clean"]).abs().mean((2, 3, 4))
    assert taught.shape == (2, 1, T)
    for i, best in enumerate(away.argmin(1).tolist()):
        for name in ("site/strength", "site/tool", "restored"):
            assert torch.equal(taught.samples[name][i, 0], drawn.samples[name][i, best])
        torch.testing.assert_close(taught.log_probs[i, 0], drawn.log_probs[i, best])
    loss = p.evaluate(rows_of(taught), ALL, frozenset({"supervised"})).losses["supervised"]
    torch.testing.assert_close(loss, away.amin(1))


def test_a_rollout_tells_the_mean_and_spread_of_each_gate() -> None:
    p = policy()
    rollout = p.sample(prompts(), 5, seed=0)
    drawn = rollout.samples["site/strength"]
    assert rollout.info["restoration/gate_mean/strength"] == pytest.approx(float(drawn.mean()), rel=1e-5)
    spread = drawn.std(1, correction=0).mean()
    assert rollout.info["restoration/gate_spread/strength"] == pytest.approx(float(spread), rel=1e-5)
    assert "restoration/gate_mean/tool" not in rollout.info  # a number of a tool has no mean

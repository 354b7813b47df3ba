"""The pointer policy: laws of its picks, and one clear error for each kind of bad input."""

from __future__ import annotations

import itertools
import math
from collections import Counter

import pytest
import torch

from anygrpo.core.policy import Policy
from anygrpo.core.task import Stored
from anygrpo.core.tree import tree_map
from anygrpo.errors import ConfigError, DataError
from anygrpo.selection import picks
from anygrpo.selection.build import build
from anygrpo.selection.settings import SelectorConfig

ALL = slice(None)


def config(**changes):
    return SelectorConfig(**({"kind": "selector", "features": 6, "width": 16, "shots": 2} | changes))


def prompt(seed, size=5, **extra):
    g = torch.Generator().manual_seed(seed)
    return {
        "id": f"q{seed}",
        "query": torch.randn(6, generator=g),
        "candidates": torch.randn(size, 6, generator=g),
    } | extra


def rows(rollout):
    p, g, _ = rollout.shape
    return tree_map(lambda x: x.reshape(p * g, *x.shape[2:]), rollout.samples)


VARIANTS = [
    {},
    {"decoder": "none"},
    {"decoder": "gru"},
    {"logits": "additive"},
    {"hidden": 24},
    {"diversity": True},
    {"layers": 3},
    {"set_layers": 1},
    {"logits": "bilinear", "stop": True},
    {"stop": True},
    {"stop": True, "min_shots": 1, "decoder": "none", "temperature": 1.7},
    {"heads": 4, "shots": 3, "decoder": "gru", "logits": "additive", "diversity": True, "stop": True},
]


@pytest.mark.parametrize("changes", VARIANTS, ids=str)
def test_the_probabilities_of_all_selections_sum_to_one(changes):
    policy = build(config(**changes), 0)
    shots, size = policy.config.shots, 4
    lengths = range(policy.config.min_shots, shots + 1) if policy.config.stop else [shots]
    actions = [a for k in lengths for a in itertools.permutations(range(size), k)]
    rollout = policy.replay([prompt(1, size)], Stored([actions]), 0)
    assert rollout.log_probs.sum(-1).exp().sum().item() == pytest.approx(1.0, abs=1e-5)


@pytest.mark.parametrize("changes", VARIANTS, ids=str)
def test_sampling_and_scoring_agree_and_the_frequencies_follow(changes):
    policy = build(config(**changes), 0)
    rollout = policy.sample([prompt(1, 4), prompt(2, 5)], 3000, seed=3)
    again = policy.evaluate(rows(rollout), ALL)
    p, g, t = rollout.shape
    torch.testing.assert_close(again.log_probs.view(p, g, t), rollout.log_probs, atol=1e-5, rtol=0)
    counts = Counter(policy.decode(rollout.samples)[0])
    probability = {
        a: math.exp(x) for a, x in zip(policy.decode(rollout.samples)[0], rollout.log_probs[0].sum(-1).tolist())
    }
    for action, count in counts.items():
        expected = probability[action]
        assert abs(count / 3000 - expected) < 5 * math.sqrt(expected * (1 - expected) / 3000) + 1e-3
    assert isinstance(policy, Policy)


def test_plackett_luce_by_hand():
    logits = torch.log(torch.tensor([[5.0, 3.0, 2.0, 1.0]]))  # the last column is STOP, closed
    chosen = torch.tensor([[1, 0]])
    options = picks.open_columns(torch.ones(1, 3, dtype=torch.bool), chosen, stop=False, min_shots=0)
    log_probs = picks.log_softmax(logits[:, None].expand(1, 2, 4), options)
    first, second = log_probs[0, 0, 1].exp().item(), log_probs[0, 1, 0].exp().item()
    assert (first, second) == pytest.approx((3 / 10, 5 / 7))


def test_gumbel_top_k_is_plackett_luce():
    log_probs = torch.log(torch.tensor([[0.5, 0.3, 0.2]])).expand(20000, 3)
    drawn = picks.gumbel_top_k(log_probs, 2, torch.Generator().manual_seed(0))
    share = ((drawn[:, 0] == 1) & (drawn[:, 1] == 0)).float().mean().item()
    assert share == pytest.approx(0.3 * 0.5 / 0.7, abs=0.012)


@pytest.mark.parametrize(("hidden", "learns"), [(0, False), (32, True)])
def test_a_hidden_layer_matches_what_no_linear_map_can(hidden, learns):
    """The one candidate whose sign x axis (an exclusive or of two features) is the query's."""
    policy = build(config(shots=1, hidden=hidden, decoder="none", features=2), 0)
    corners = torch.tensor([[1.0, 1.0], [-1.0, -1.0], [1.0, -1.0], [-1.0, 1.0]])
    prompts = [
        {"id": f"{i}{j}", "query": corners[i], "candidates": corners[[j, 2 + j]]} for i in range(4) for j in (0, 1)
    ]
    rollout = policy.replay(prompts, Stored([[(i // 2,)] for i in range(4) for _ in (0, 1)]), 0)
    optimizer = torch.optim.Adam(policy.network.parameters(), 0.02)
    for _ in range(150):
        optimizer.zero_grad()
        loss = -policy.evaluate(rows(rollout), ALL).log_probs.mean()
        loss.backward()
        optimizer.step()
    assert (loss.item() < 0.1) == learns


def test_the_order_of_candidates_does_not_matter():
    policy = build(config(shots=3, diversity=True, stop=True), 0)
    one = prompt(4, 6)
    order = torch.tensor([3, 1, 5, 0, 4, 2])
    other = one | {"candidates": one["candidates"][order]}
    place = {int(old): new for new, old in enumerate(order)}
    actions = [(0, 1, 2), (5, 3), ()]
    moved = [tuple(place[i] for i in a) for a in actions]
    a = policy.replay([one], Stored([actions]), 0).log_probs
    b = policy.replay([other], Stored([moved]), 0).log_probs
    torch.testing.assert_close(a, b, atol=1e-5, rtol=0)
    assert policy.decode(policy.greedy([other]).samples)[0][0] == tuple(
        place[i] for i in policy.decode(policy.greedy([one]).samples)[0][0]
    )


def test_padding_and_other_prompts_do_not_matter():
    policy = build(config(stop=True), 0)
    alone = policy.sample([prompt(1, 4)], 8, 0)
    action = policy.decode(alone.samples)
    together = policy.replay([prompt(1, 4), prompt(2, 9)], Stored([action[0], [(0, 1)]]), 0)
    torch.testing.assert_close(together.log_probs[0, :8], alone.log_probs[0], atol=1e-5, rtol=0)
    assert together.valid[1].tolist() == [True] + [False] * 7


def test_excluded_candidates_are_never_picked():
    policy = build(config(shots=3), 0)
    chosen = policy.sample([prompt(1, 5, excluded=[0, 2])], 200, 0).samples["chosen"]
    assert set(chosen.flatten().tolist()) == {1, 3, 4}


def test_entropy_and_kl_are_exact():
    policy = build(config(stop=True, shots=3), 0)
    rollout = policy.sample([prompt(1, 4)], 64, 0)
    same = policy.evaluate(rows(rollout), ALL, frozenset({"entropy", "kl"}))
    assert same.kl.abs().max() < 1e-6
    with torch.no_grad():
        weight = policy.network.decoder.query.weight
        weight.add_(0.3 * torch.randn(16, 16, generator=torch.Generator().manual_seed(1)).to(weight))
    moved = policy.evaluate(rows(rollout), ALL, frozenset({"entropy", "kl"}))
    with policy.reference():
        reference = policy.evaluate(rows(rollout), ALL)
    firsts = [(i,) for i in range(4)] + [()]
    of_first = policy.replay([prompt(1, 4)], Stored([firsts]), 0)
    mine = of_first.log_probs[0, :, 0]
    with policy.reference():
        theirs = policy.evaluate(rows(of_first), ALL).log_probs[:, 0].detach()
    assert moved.kl[0, 0].item() == pytest.approx((mine.exp() * (mine - theirs)).sum().item(), abs=1e-5)
    assert moved.entropy[0, 0].item() == pytest.approx(-(mine.exp() * mine).sum().item(), abs=1e-5)
    torch.testing.assert_close(reference.log_probs, same.log_probs)
    assert moved.kl[0, 0] > 1e-3


def test_the_mask_leaves_out_what_was_forced():
    policy = build(config(stop=True, shots=3), 0)
    rollout = policy.replay([prompt(1, 2)], Stored([[(), (1,), (0, 1)]]), 0)
    assert rollout.mask[0].tolist() == [[True, False, False], [True, True, False], [True, True, False]]
    assert rollout.log_probs[0][~rollout.mask[0]].abs().max() == 0  # the pool of 2 was empty: nothing to decide


def test_beams_find_the_best_and_greedy_is_a_prefix():
    policy = build(config(shots=2, evaluation_shots=4), 0)
    one = prompt(1, 5)
    actions = list(itertools.permutations(range(5), 2))
    scores = policy.replay([one], Stored([actions]), 0).log_probs.sum(-1)[0]
    found, values = policy.beam([one], 20)
    assert [actions[i] for i in scores.argsort(descending=True)] == found[0]
    assert values[0] == pytest.approx(scores.sort(descending=True).values.tolist(), abs=1e-5)
    long = policy.decode(policy.greedy([one]).samples)[0][0]
    short = policy.beam([one], 1)[0][0][0]
    assert len(long) == 4
    assert long[:2] == short


def test_sets_sum_over_their_orders():
    policy = build(config(shots=3, stop=True, decision="set"), 0)
    one = prompt(1, 4)
    sets = [(2, 0, 1), (1, 3), (2,), ()]
    of_sets = policy.replay([one], Stored([sets]), 0)
    by_hand = build(config(shots=3, stop=True), 0)
    for i, chosen in enumerate(sets):
        orders = list(itertools.permutations(chosen))
        total = by_hand.replay([one], Stored([orders]), 0).log_probs.sum(-1).exp().sum().item()
        assert of_sets.log_probs[0, i, 0].exp().item() == pytest.approx(total, rel=1e-4)
    shuffled = policy.replay([one], Stored([[(1, 2, 0), (3, 1), (2,), ()]]), 0)
    torch.testing.assert_close(shuffled.log_probs, of_sets.log_probs)


def test_gradients_reach_what_is_not_frozen_only():
    policy = build(config(freeze=("encoder.*",)), 0)
    rollout = policy.sample([prompt(1)], 4, 0)
    policy.evaluate(rows(rollout), ALL).log_probs.sum().backward()
    grads = {name: p.grad is not None for name, p in policy.network.named_parameters()}
    assert {name for name, has in grads.items() if has} == {n for n in grads if n.startswith("decoder.")}
    with pytest.raises(ConfigError, match="matches no parameter"):
        build(config(freeze=("encodr.*",)), 0)
    with pytest.raises(ConfigError, match="nothing to train"):
        build(config(freeze=("*",)), 0)


def test_dropout_spoils_scoring_only_where_asked_for():
    def gap(**changes):
        policy = build(config(dropout=0.5, **changes), 0)
        rollout = policy.sample([prompt(i) for i in range(8)], 8, 0)
        torch.manual_seed(0)
        log_ratio = policy.evaluate(rows(rollout), ALL).log_probs.view(8, 8, 2) - rollout.log_probs
        return (log_ratio.exp() - 1 - log_ratio).mean().item()

    assert gap() < 1e-8
    assert gap(dropout_in_scoring=True) > 0.05  # a "KL" with no update at all


def test_stale_log_probs_only_where_asked_for():
    stored = Stored([[(0, 1), (2, 3)]], rewards=[[1.0, 0.0]])
    for behaviour, stale in (("current", False), ("first", True)):
        policy = build(config(behaviour=behaviour), 0)
        before = policy.replay([prompt(1)], stored, 0).log_probs
        with torch.no_grad():
            policy.network.decoder.query.weight.mul_(-1)
        after = policy.replay([prompt(1)], stored, 0).log_probs
        assert torch.equal(before, after) is stale


def test_replay_takes_rewards_propensities_and_reports_support():
    policy = build(config(decision="sequence", behaviour="stored"), 0)
    actions = [[(0, 1), (2, 3), (0, 1)]]
    stored = Stored(actions, [[1.0, 0.0, 1.0]], [[-1.0, -2.0, -1.0]], {"correct": [[1.0, 0.0, 1.0]]})
    rollout = policy.replay([prompt(1)], stored, 0)
    assert rollout.log_probs[0, :, 0].tolist() == [-1.0, -2.0, -1.0]
    assert rollout.rewards.tolist() == [[1.0, 0.0, 1.0]]
    mine = policy.evaluate(rows(rollout), ALL).log_probs[:, 0].exp().tolist()
    value = policy.replay([prompt(1)], stored, 0).info
    # the policy's own probabilities, a repeated selection counted once
    own = build(config(decision="sequence"), 0).replay([prompt(1)], stored, 0).info
    assert own["offline/coverage"] == pytest.approx(mine[0] + mine[1], abs=1e-6)
    assert own["offline/value"] == pytest.approx(mine[0] / (mine[0] + mine[1]), abs=1e-5)
    assert own["offline/ess"] == pytest.approx((mine[0] + mine[1]) ** 2 / (mine[0] ** 2 + mine[1] ** 2), abs=1e-4)
    assert value == own
    assert own["offline/regret"] == float(mine[1] > mine[0])
    assert own["offline/ndcg_5"] <= 1.0


def test_importance_weights_are_refused_for_beams():
    policy = build(config(decision="sequence", behaviour="stored"), 0)
    with pytest.raises(ConfigError, match="1 of 2 stored selections have no behaviour log-prob"):
        policy.replay([prompt(1)], Stored([[(0, 1), (2, 3)]], [[1.0, 0.0]], [[-1.0, None]]), 0)


@pytest.mark.parametrize(
    ("action", "message"),
    [
        ((0, 5), "points outside its pool of 5"),
        ((-3, 1), "outside its pool"),
        ((1, 1), "same candidate twice"),
        ((0, 1, 2), "3 picks, the policy makes 2"),
        ((4, 0), "excluded"),
    ],
)
def test_bad_pointers_are_one_clear_error(action, message):
    with pytest.raises(DataError, match=message):
        build(config(), 0).replay([prompt(1, excluded=[4])], Stored([[action]]), 0)


@pytest.mark.parametrize(
    ("bad", "error", "message"),
    [
        (prompt(1, 1), DataError, "2 picks from a pool of 1"),
        (prompt(1, 2, excluded=[0, 1]), DataError, "no candidate may be chosen"),
        (prompt(1) | {"query": torch.full((6,), float("nan"))}, DataError, "query holds NaN"),
        (prompt(1) | {"candidates": torch.full((5, 6), float("inf"))}, DataError, "candidates holds NaN or inf"),
        (prompt(1) | {"query": torch.zeros(3)}, ConfigError, "3 features, the policy takes 6"),
    ],
)
def test_bad_prompts_are_one_clear_error(bad, error, message):
    with pytest.raises(error, match=message):
        build(config(), 0).sample([bad], 2, 0)


def test_a_policy_that_may_stop_takes_small_pools():
    chosen = build(config(stop=True, shots=4), 0).sample([prompt(1, 2)], 16, 0)
    assert (chosen.samples["chosen"][..., 2:] < 0).all()


def test_sampling_is_a_function_of_its_seed():
    policy = build(config(), 0)
    prompts = [prompt(1), prompt(2)]
    assert torch.equal(policy.sample(prompts, 6, 7).samples["chosen"], policy.sample(prompts, 6, 7).samples["chosen"])
    assert not torch.equal(
        policy.sample(prompts, 6, 7).samples["chosen"], policy.sample(prompts, 6, 8).samples["chosen"]
    )


def test_whole_selections_refuse_exact_sums():
    policy = build(config(decision="sequence"), 0)
    rollout = policy.sample([prompt(1)], 2, 0)
    with pytest.raises(ConfigError, match="sums over every selection"):
        policy.evaluate(rows(rollout), ALL, frozenset({"kl"}))


def test_the_reference_stays_until_fixed_anew():
    policy = build(config(), 0)
    rollout = policy.sample([prompt(1)], 4, 0)
    with torch.no_grad():
        policy.network.decoder.query.weight.mul_(-1)
    assert policy.evaluate(rows(rollout), ALL, frozenset({"kl"})).kl.max() > 0
    policy.fix_reference()
    assert policy.evaluate(rows(rollout), ALL, frozenset({"kl"})).kl.max() == 0


# --- options of the network ----------------------------------------------------------------------------------


def test_label_smoothing_by_hand():
    """Two candidates, one pick: (1 - e) CE + e mean(-log p) over both."""
    sharp, smooth = (build(config(shots=1, label_smoothing=e), 0) for e in (0.0, 0.2))
    rollout = sharp.replay([prompt(1, 2)], Stored([[(0,), (1,)]]), 0)
    taken = -sharp.evaluate(rows(rollout), ALL).log_probs[:, 0]
    want = 0.8 * taken + 0.2 * taken.mean()
    found = smooth.evaluate(
        rows(smooth.replay([prompt(1, 2)], Stored([[(0,), (1,)]]), 0)), ALL, frozenset({"supervised"})
    )
    torch.testing.assert_close(found.losses["supervised"], want)


def test_candidates_see_each_other_only_in_a_set_encoder_and_never_their_order():
    one, two = prompt(1, 4), prompt(1, 4)
    two["candidates"] = torch.cat(
        [one["candidates"][:3], torch.randn(1, 6, generator=torch.Generator().manual_seed(9))]
    )
    for layers, differs in ((0, False), (1, True)):
        network = build(config(set_layers=layers, device="cpu"), 0).network
        items = [
            network.encoder(p["query"][None], p["candidates"][None], torch.ones(1, 4).bool())[1][0, :3]
            for p in (one, two)
        ]
        assert (not torch.allclose(*items, atol=1e-5)) == differs
    network = build(config(set_layers=2, device="cpu"), 0).network
    order = torch.tensor([2, 0, 3, 1])
    whole = torch.ones(1, 4).bool()
    straight = network.encoder(one["query"][None], one["candidates"][None], whole)
    shuffled = network.encoder(one["query"][None], one["candidates"][None, order], whole)
    torch.testing.assert_close(straight[1][:, order], shuffled[1], atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(straight[0], shuffled[0], atol=1e-5, rtol=1e-4)


def test_a_bilinear_head_begins_as_a_cosine():
    cosine, bilinear = build(config(), 0), build(config(logits="bilinear"), 0)
    bilinear.network.load_state_dict(cosine.network.state_dict(), strict=False)
    a, b = (p.sample([prompt(1)], 8, seed=0).log_probs for p in (cosine, bilinear))
    torch.testing.assert_close(a, b)


@pytest.mark.parametrize("decision", ["sequence", "set"])
def test_a_whole_selection_is_one_decision(decision):
    policy = build(config(decision=decision, shots=3), 0)
    rollout = policy.sample([prompt(1), prompt(2)], 4, 5)
    assert rollout.shape == (2, 4, 1)
    assert rollout.mask.shape == (2, 4, 1)
    assert bool(rollout.mask.all())
    assert rollout.limit == 1
    each = policy.pick_log_probs(rows(rollout)).sum(-1).view(2, 4)
    if decision == "sequence":
        torch.testing.assert_close(rollout.log_probs[..., 0], each)
    else:  # any order is as good
        assert bool((rollout.log_probs[..., 0] > each).all())


def test_a_supervised_loss_is_the_mean_over_the_decisions():
    policy = build(config(shots=3), 0)
    rollout = policy.sample([prompt(1), prompt(2)], 2, 5)
    found = policy.evaluate(rows(rollout), ALL, frozenset({"supervised"})).losses["supervised"]
    torch.testing.assert_close(found, -rollout.log_probs.flatten(0, 1).mean(-1))


@pytest.mark.parametrize("decision", ["pick", "sequence"])
def test_what_was_sampled_for_one_update_is_not_computed_twice(decision, monkeypatch):
    """With one update a rollout the sampler's graph gives the gradient of the training pass, in picks."""
    free, kept = (build(config(decision=decision), 0) for _ in range(2))
    kept.one_update = True
    a, b = (p.sample([prompt(1), prompt(2)], 3, 5) for p in (free, kept))
    assert torch.equal(a.log_probs, b.log_probs)
    assert not b.log_probs.requires_grad
    gradients = []
    for policy, rollout in ((free, a), (kept, b)):
        made = policy.evaluate(rows(rollout), ALL).log_probs
        (made * torch.arange(1.0, made.numel() + 1).to(made).view(made.shape)).sum().backward()
        gradients.append([p.grad for p in policy.parameters()])
    for x, y in zip(*gradients):
        assert (x is None) == (y is None)
        if x is not None:
            torch.testing.assert_close(x, y, rtol=1e-4, atol=1e-5)


def test_the_recorded_graph_serves_log_probs_alone(monkeypatch):
    policy = build(config(), 0)
    policy.one_update = True
    rollout = policy.sample([prompt(1), prompt(2)], 3, 5)
    entropy = policy.evaluate(rows(rollout), ALL, frozenset({"entropy"})).entropy
    assert entropy.shape == (6, 2)
    rollout = policy.sample([prompt(1), prompt(2)], 3, 5)
    monkeypatch.setattr(policy, "_distributions", lambda samples: pytest.fail("computed a second time"))
    assert policy.evaluate(rows(rollout), ALL).log_probs.shape == (6, 2)


# --- the mode of the network ---------------------------------------------------------------------------------


@pytest.mark.parametrize("decision", ["pick", "sequence"])
def test_dropout_is_on_where_it_is_meant_and_off_elsewhere(decision, monkeypatch):
    """Modes of the network at each pass over a row: scoring, supervised, reference."""
    policy = build(config(dropout=0.5, dropout_in_scoring=True, decision=decision), 0)
    samples = rows(policy.sample([prompt(1), prompt(2)], 2, 5))
    modes, real = [], policy._distributions
    monkeypatch.setattr(policy, "_distributions", lambda s: modes.append(policy.network.training) or real(s))
    policy.network.eval()
    policy.evaluate(samples, ALL)
    assert modes == [True]
    if decision == "pick":
        modes.clear()
        policy.evaluate(samples, ALL, frozenset({"kl"}))
        assert modes == [True, False]  # the reference has none
        assert policy.network.training
    modes.clear()
    found = policy.evaluate(samples, ALL, frozenset({"supervised"}))
    assert modes == [True, True]
    assert not policy.network.training
    assert set(found.losses) == {"supervised"}
    assert policy.evaluate(samples, ALL).losses == {}


def test_a_supervised_pass_has_dropout_though_scoring_has_none():
    policy = build(config(dropout=0.5), 0)
    samples = rows(policy.sample([prompt(1), prompt(2)], 2, 5))
    once, again = (policy.evaluate(samples, ALL, frozenset({"supervised"})).losses["supervised"] for _ in "ab")
    assert not torch.equal(once, again)
    calm = build(config(), 0)
    calm.network.train()
    once, again = (calm.evaluate(samples, ALL, frozenset({"supervised"})).losses["supervised"] for _ in "ab")
    assert torch.equal(once, again)


def test_samples_are_drawn_without_dropout_whatever_went_before():
    policy = build(config(dropout=0.5), 0)
    first = policy.sample([prompt(1)], 8, 5).log_probs
    policy.network.train()
    assert torch.equal(policy.sample([prompt(1)], 8, 5).log_probs, first)


def test_sets_of_four_have_all_their_orders_and_larger_ones_are_refused():
    policy = build(config(shots=4, decoder="none"), 0)
    rollout = policy.sample([prompt(1, 4)], 1, 5)
    assert policy.set_log_probs(rows(rollout)).item() == pytest.approx(0.0, abs=1e-5)  # all four of four: certain
    five = build(config(shots=5, decoder="none"), 0)
    with pytest.raises(ConfigError, match="a set of 5 has too many orders"):
        five.set_log_probs(rows(five.sample([prompt(1)], 1, 5)))


def test_a_rollout_bears_the_version_that_drew_it():
    policy = build(config(), 0)
    policy.version = 7
    assert policy.sample([prompt(1)], 3, 5).version.unique().tolist() == [7]

"""Advantages: constants worked out by hand."""

import itertools
import math
from collections import deque

import numpy as np
import pytest
import torch
from advantage_helpers import adv, close
from hypothesis import given
from hypothesis import strategies as st

from anygrpo.algorithm import (
    ADVANTAGES,
    AdvantageOptions,
    PromptHistory,
    RunningState,
    compute,
    expected_max,
    reward_weights,
)
from anygrpo.errors import AnygrpoError, ConfigError

INF, NAN = math.inf, math.nan
S3 = math.sqrt(3)


@pytest.mark.parametrize(
    ("name", "options", "expected"),
    [
        # rewards 0, 1, 2, 5: mean 2; deviations -2, -1, 0, 3; squares sum to 14
        ("centred", {}, [-2, -1, 0, 3]),
        ("zscore", {}, [x / math.sqrt(14 / 3) for x in (-2, -1, 0, 3)]),
        ("zscore", {"ddof": 0}, [x / math.sqrt(14 / 4) for x in (-2, -1, 0, 3)]),
        ("zscore", {"std_floor": 4.0}, [-0.5, -0.25, 0, 0.75]),
        ("zscore", {"std_floor": 1.0}, [x / math.sqrt(14 / 3) for x in (-2, -1, 0, 3)]),
        ("leave_one_out", {}, [0 - 8 / 3, 1 - 7 / 3, 2 - 6 / 3, 5 - 3 / 3]),
        # stds of the other three: (1,2,5) sqrt(13/3), (0,2,5) sqrt(19/3), (0,1,5) sqrt 7, (0,1,2) 1
        ("leave_one_out_std", {}, [-8 / 3 / math.sqrt(13 / 3), -4 / 3 / math.sqrt(19 / 3), 0, 4]),
        ("rank", {}, [-1, -1 / 3, 1 / 3, 1]),
        ("batch", {}, [x / math.sqrt(14 / 3) for x in (-2, -1, 0, 3)]),
        ("maxrl", {}, [-1, -0.5, 0, 1.5]),
        ("gpg", {}, [x * 4 / 3 for x in (-2, -1, 0, 3)]),
        ("best_gap", {}, [0, 0, 0, 3 / math.sqrt(14 / 3)]),
    ],
)
def test_constants(name, options, expected):
    close(adv(name, [[0.0, 1, 2, 5]], **options).values, [expected])


def test_batch_statistics_over_two_groups():
    # groups (0, 2) and (10, 14): means 1, 12. All rewards: mean 6.5, squares sum 131; centred -1, 1, -2, 2: squares 10.
    r = [[0.0, 2], [10, 14]]
    std = math.sqrt(131 / 3)
    close(adv("batch", r).values, [[-1 / std, 1 / std], [-2 / std, 2 / std]])
    close(
        adv("whitened", r).values, [[x / math.sqrt(10 / 3) for x in (-1, 1)], [x / math.sqrt(10 / 3) for x in (-2, 2)]]
    )
    close(adv("overall", r).values, [[-6.5 / std, -4.5 / std], [3.5 / std, 7.5 / std]])


def test_best_gap_over_two_groups():
    close(adv("best_gap", [[1.0, 0, 0, 0], [0, 3, 3, 6]]).values, [[2, 0, 0, 0], [0, 0, 0, 3 / math.sqrt(6)]])


def test_ties_share_their_rank():
    close(adv("rank", [[0.0, 1, 1, 5]]).values, [[-1, 0, 0, 1]])
    close(adv("rank", [[3.0, 1, 3, 1]]).values, [[2 / 3, -2 / 3, 2 / 3, -2 / 3]])


@pytest.mark.parametrize("n", [2, 5, 9])
def test_rank_std(n):
    values = adv("rank", torch.arange(n).float()[None]).values
    assert values.std(correction=0).item() == pytest.approx(math.sqrt((n + 1) / (3 * (n - 1))), rel=1e-6)


@pytest.mark.parametrize("n", [2, 4, 8, 16])
def test_zscore_bound_is_reached_by_one_success(n):
    rewards = torch.zeros(1, n)
    rewards[0, 0] = 1
    assert adv("zscore", rewards).values.max().item() == pytest.approx((n - 1) / math.sqrt(n), rel=1e-6)


def test_components_are_normalised_apart():
    parts = {"right": torch.tensor([[1.0, 0, 0, 0]]), "short": torch.tensor([[0.0, 0, 100, 100]])}
    z_right, z_short = torch.tensor([[1.5, -0.5, -0.5, -0.5]]), torch.tensor([[-1.0, -1, 1, 1]]) * S3 / 2
    reward = parts["right"] + parts["short"]
    close(adv("components", reward, components=parts).values, z_right + z_short)
    weighted = adv("components", reward, components=parts, component_weights={"short": 0.1}).values
    close(weighted, z_right + 0.1 * z_short)
    summed = (z_right + z_short).double()
    close(adv("gdpo", reward, components=parts).values, (summed / summed.std()).float())


def test_parts_that_cancel_in_the_sum_are_still_spread():
    parts = {"a": torch.tensor([[1.0, 0], [1, 1]]), "b": torch.tensor([[0.0, 1], [2, 2]])}
    total = parts["a"] + parts["b"]
    for name in ("components", "gdpo"):
        result = adv(name, total, components=parts, component_weights={"b": 0.5})
        assert result.constant.tolist() == [False, True]
    assert adv("zscore", total, components=parts).constant.tolist() == [True, True]


def test_a_component_that_is_not_finite_leaves_that_component_alone():
    parts = {"a": torch.tensor([[1.0, 0, NAN]]), "b": torch.tensor([[0.0, 3, 6]])}
    values = adv("components", [[1.0, 3, 6]], components=parts).values
    half = 1 / math.sqrt(2)
    close(values, [[half - 1, -half + 0, 0 + 1]])


def test_a_component_without_weight_plays_no_role():
    parts = {"a": torch.tensor([[1.0, 0, 0, 0], [1, 1, 1, 1]]), "seen": torch.tensor([[NAN, NAN, 5, 9], [1, 2, 3, 4]])}
    z = torch.tensor([[1.5, -0.5, -0.5, -0.5], [0, 0, 0, 0]])
    for name, scale in (("components", 1.0), ("gdpo", 1 / math.sqrt(3 / 7))):
        result = adv(name, parts["a"], components=parts, component_weights={"seen": 0.0})
        close(result.values, z * scale)  # gdpo: eight values, mean 0, sum of squares 3
        assert result.constant.tolist() == [False, True]
    nothing = adv("components", parts["a"], components=parts, component_weights={"seen": 0.0, "a": 0.0})
    assert nothing.constant.all()
    assert not nothing.values.any()


def test_component_weights_by_hand():
    # z of a: [1, -1] / sqrt(2); of b, where only two samples have it: [-1, 1] / sqrt(2). 2 z_a - 3 z_b where both are.
    parts = {"a": torch.tensor([[1.0, 0, 1, 0]]), "b": torch.tensor([[NAN, NAN, 0.0, 4.0]])}
    values = adv("components", parts["a"], components=parts, component_weights={"a": 2.0, "b": -3.0}).values
    z = math.sqrt(3) / 2  # a: mean .5, std sqrt(1 / 3)
    y = 1 / math.sqrt(2)
    close(values, [[2 * z, -2 * z, 2 * z + 3 * y, -2 * z - 3 * y]])


def test_component_errors():
    with pytest.raises(ConfigError, match="components"):
        compute("gdpo", torch.zeros(1, 2), torch.ones(1, 2, dtype=torch.bool))
    with pytest.raises(ConfigError, match="did you mean 'short'"):
        adv("gdpo", [[0.0, 1]], components={"short": torch.zeros(1, 2)}, component_weights={"shrt": 1.0})


def test_clip_and_what_it_touched():
    result = adv("centred", [[0.0, 1, 2, 5]], clip=1.5)
    close(result.values, [[-1.5, -1, 0, 1.5]])
    assert result.clipped.tolist() == [[True, False, False, True]]
    assert not adv("centred", [[0.0, 1, 2, 5]]).clipped.any()
    assert not adv("centred", [[0.0, 1, 2, 5]], clip=3.0).clipped.any()  # 3 is the largest


def test_a_normaliser_gets_float64_with_zeros_at_invalid_places(monkeypatch):
    given = {}
    monkeypatch.setitem(ADVANTAGES, "noted", lambda x, valid, o: given.update(x=x, valid=valid) or x + 1)
    assert adv("noted", [[1.0, INF, 3]], [[True, True, False]]).values.tolist() == [[2, 0, 0]]
    assert given["x"].dtype == torch.float64
    assert given["x"].tolist() == [[1, 0, 0]]
    assert given["valid"].tolist() == [[True, False, False]]


def test_unknown_name_and_shapes():
    with pytest.raises(ConfigError, match="did you mean 'zscore'"):
        adv("z_score", [[0.0, 1]])
    with pytest.raises(AnygrpoError, match=r"\(1, 2\) and valid \(1, 3\)"):
        compute("zscore", torch.zeros(1, 2), torch.ones(1, 3, dtype=torch.bool))
    with pytest.raises(AnygrpoError, match=r"\[P, G\]"):
        compute("zscore", torch.zeros(2), torch.ones(2, dtype=torch.bool))


# --- pass@k ----------------------------------------------------------------------------------------------------------


def test_pass_at_k_by_hand():
    # One success of four, k = 2. Success: 2 (1 - 0) = 2. Failure: a partner passes in 1/3 of the pairs,
    # two others pass in 2/3: 2 (1/3 - 2/3) = -2/3.
    close(adv("pass_at_k", [[1.0, 0, 0, 0]], k=2).values, [[2, -2 / 3, -2 / 3, -2 / 3]])
    # Three successes, k = 2: any two of the others pass, so a success adds 0; a failure's partner passes: 0 too.
    close(adv("pass_at_k", [[1.0, 1, 1, 0]], k=2).values, [[0.0, 0, 0, 0]])


def test_pass_at_1_is_leave_one_out():
    r = [[0.0, 1, 2, 5], [1, 0, 0, 1]]
    close(adv("pass_at_k", r, k=1).values, adv("leave_one_out", r).values)
    by_default = compute("pass_at_k", torch.tensor(r), torch.ones(2, 4, dtype=torch.bool))
    close(by_default.values, adv("leave_one_out", r).values)


def test_pass_at_k_gradient_is_unbiased():
    """Over all outcomes of n = 4 Bernoulli(p) samples, E[mean A_i score_i] = d/dp (1 - (1 - p)^k)."""
    p, n = 0.3, 4
    for k in (1, 2, 3):
        total = 0.0
        for outcome in itertools.product([0.0, 1.0], repeat=n):
            probability = math.prod(p if x else 1 - p for x in outcome)
            a = adv("pass_at_k", [list(outcome)], k=k).values[0].double()
            score = torch.tensor([1 / p if x else -1 / (1 - p) for x in outcome])
            total += probability * (a * score).mean().item()
        assert total == pytest.approx(k * (1 - p) ** (k - 1), rel=1e-5)


def test_pass_at_k_shrinks_with_lost_samples_and_refuses_impossible_k():
    r, valid = [[1.0, 0, 0, 9]], [[True, True, True, False]]
    close(adv("pass_at_k", r, valid, k=3).values, [[2.0, -1, -1, 0]])  # k = 2 of 3: failures 2 (1/2 - 1)
    for k in (0, 4):
        with pytest.raises(ConfigError, match=f"k = {k} and groups of 4"):
            adv("pass_at_k", r, k=k)


@given(st.lists(st.floats(-5, 5), min_size=1, max_size=6), st.data())
def test_expected_max_is_the_mean_over_subsets(values, data):
    k = data.draw(st.integers(1, len(values)))
    brute = np.mean([max(subset) for subset in itertools.combinations(values, k)])
    assert expected_max(sorted(values), k) == pytest.approx(brute, abs=1e-9)


# --- running statistics ----------------------------------------------------------------------------------------------


def test_running_statistics_are_unbiased_from_the_first_batch():
    r = torch.tensor([[1.0, 3], [5, 7]])
    state = RunningState(decay=0.9).updated(r.flatten())
    assert state.mean == pytest.approx(4.0)
    assert state.variance == pytest.approx(5.0)
    assert state.weight == pytest.approx(0.1)
    result = adv("running", r, running=RunningState(decay=0.9))
    close(result.values, (r - 4) / math.sqrt(5))
    assert result.memory == state


def test_running_statistics_by_hand_over_two_batches():
    # decay .5: weights .25 and .5 of .75. Means 0 (variance 1), 6 (variance 4): mean 4; variance (1 + 2 x 4) / 3 +
    # 1/3 x 2/3 x 36 = 3 + 8 = 11.
    state = RunningState(decay=0.5).updated(torch.tensor([-1.0, 1])).updated(torch.tensor([4.0, 8]))
    assert state.mean == pytest.approx(4.0)
    assert state.variance == pytest.approx(11.0)
    assert state.weight == pytest.approx(0.75)


def test_running_keeps_large_offsets_and_empty_batches():
    state = RunningState().updated(torch.tensor([1e7, 1e7 + 2])).updated(torch.tensor([1e7, 1e7 + 2]))
    assert state.variance == pytest.approx(1.0, rel=1e-6)
    assert state.updated(torch.zeros(0)) is state
    assert state.weight == pytest.approx(1 - 0.99**2)
    assert (adv("running", torch.full((2, 3), 0.1)).values == 0).all()


def test_only_running_changes_the_state():
    state = RunningState(2.0, 3.0, 0.5)
    assert adv("zscore", [[0.0, 1]], running=state).memory is state
    assert adv("running", [[0.0, 1]], running=state).memory != state


# --- a prompt's own past ----------------------------------------------------------------------------------------------


def test_history_by_hand():
    """Prompt 7 has 1, 3 from before and earns 5, 7: mean 4, squares 20, so 1 / sqrt(5) and 3 / sqrt(5) with ddof 0.
    Prompt 8 is new: the batch's mean is 4.5 (5, 7, 2, 4), its squares 13."""
    state = PromptHistory({7: (1.0, 3.0)}, size=4)
    given = {"history": state, "prompts": torch.tensor([7, 8]), "history_least": 4, "ddof": 0}
    result = adv("history", [[5.0, 7], [2, 4]], **given)
    std = math.sqrt(13 / 4)
    close(result.values, [[1 / math.sqrt(5), 3 / math.sqrt(5)], [-2.5 / std, -0.5 / std]])
    assert result.memory.rewards == {7: (1.0, 3.0, 5.0, 7.0), 8: (2.0, 4.0)}
    again = adv(
        "history", [[9.0, NAN]], [[True, False]], **given | {"history": result.memory, "prompts": torch.tensor([7])}
    )
    assert again.memory.rewards[7] == (3.0, 5.0, 7.0, 9.0)  # the oldest is gone, the invalid one never came
    close(again.values, [[3 / math.sqrt(5), 0.0]])


@pytest.mark.parametrize("seed", range(5))
def test_history_is_ddpos_tracker(seed):
    """Against a tracker with a deque a prompt, in float64, over steps in which prompts come back and come twice."""
    generator = np.random.default_rng(seed)
    size, least = 6, 5
    known, state = {}, PromptHistory(size=size)
    for _ in range(12):
        prompts = generator.integers(0, 4, size=3)
        rewards = generator.normal(size=(3, 2)) * 10.0 ** generator.integers(-2, 3)
        for key, row in zip(prompts, rewards):
            known.setdefault(int(key), deque(maxlen=size)).extend(row)
        expected = np.empty_like(rewards)
        for i, key in enumerate(prompts):
            past = known[int(key)] if len(known[int(key)]) >= least else rewards
            expected[i] = (rewards[i] - np.mean(past)) / (np.std(past) + 1e-6)
        o = AdvantageOptions(history=state, prompts=torch.tensor(prompts), history_least=least, ddof=0, epsilon=1e-6)
        got = compute("history", torch.tensor(rewards), torch.ones(3, 2, dtype=torch.bool), o)
        torch.testing.assert_close(got.values, torch.tensor(expected).float(), rtol=1e-5, atol=1e-6)
        state = got.memory


def test_a_past_without_spread_gives_nothing():
    """Sixteen times 0.1 and again 0.1: rounding is no difference. A better one is: 0 by hand only for the constant."""
    state = PromptHistory({1: (0.1,) * 16})
    same = adv("history", [[0.1]], history=state, prompts=torch.tensor([1]))
    assert same.values.tolist() == [[0.0]]
    better = adv("history", [[1.0]], history=state, prompts=torch.tensor([1]))
    assert float(better.values) > 3
    with pytest.raises(ConfigError, match="prompts"):
        compute("history", torch.zeros(1, 2), torch.ones(1, 2, dtype=torch.bool))


# --- reward-weighted cross-entropy -----------------------------------------------------------------------------------


def test_reward_weights_by_hand():
    r = torch.tensor([[0.0, math.log(3), 99]])
    valid = torch.tensor([[True, True, False]])
    close(reward_weights(r, valid, 1.0), [[0.5, 1.5, 0]])
    close(reward_weights(r, valid, 0.5), [[0.2, 1.8, 0]])
    close(reward_weights(r, valid, 1.0, top_one=True), [[0, 2, 0]])
    ranked = reward_weights(torch.tensor([[0.0, 1e6, 5]]), torch.ones(1, 3, dtype=torch.bool), 1.0, ranked=True)
    e = [math.exp(-1), math.exp(1), 1.0]
    close(ranked, [[3 * x / sum(e) for x in e]])


def test_reward_weights_are_made_group_by_group():
    rewards = torch.tensor([[0.0, 0, 5], [7, 7 + math.log(3), 5], [1, 2, 3]])
    valid = torch.tensor([[True, True, False], [True, True, False], [False] * 3])
    close(reward_weights(rewards, valid, 1.0), [[1, 1, 0], [0.5, 1.5, 0], [0, 0, 0]])
    close(reward_weights(rewards, valid, 1.0, top_one=True), [[1, 1, 0], [0, 2, 0], [0, 0, 0]])
    close(reward_weights(rewards[:2], valid[:2], 1.0), [[1, 1, 0], [0.5, 1.5, 0]])
    e = math.exp(2)  # ranks -1 and 1; a lost sample has none
    close(reward_weights(rewards, valid, 1.0, ranked=True)[1], [2 / (1 + e), 2 * e / (1 + e), 0])


def test_reward_weights_edges():
    close(
        reward_weights(torch.tensor([[5.0, 5, 1]]), torch.ones(1, 3, dtype=torch.bool), 1.0, top_one=True),
        [[1.5, 1.5, 0]],
    )
    close(reward_weights(torch.tensor([[1e4, -1e4]]), torch.ones(1, 2, dtype=torch.bool), 0.01), [[2.0, 0]])
    close(reward_weights(torch.tensor([[1.0, 2]]), torch.zeros(1, 2, dtype=torch.bool), 1.0), [[0.0, 0]])
    close(reward_weights(torch.tensor([[INF, 2]]), torch.ones(1, 2, dtype=torch.bool), 1.0), [[0.0, 1]])
    with pytest.raises(ConfigError, match="temperature 0"):
        reward_weights(torch.tensor([[1.0]]), torch.ones(1, 1, dtype=torch.bool), 0)

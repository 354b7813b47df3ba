"""Constants worked out by hand, the faults of others, and properties against a NumPy reference."""

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from anygrpo.algorithm import ADVANTAGES, TOLERANCE, RunningState, compute, expected_max, is_constant, reward_weights
from anygrpo.errors import AnygrpoError, ConfigError

INF, NAN = math.inf, math.nan
IN_GROUP = sorted(set(ADVANTAGES) - {"running", "overall"})
"""Normalisers that compare inside the group."""


def adv(name: str, rewards, valid=None, **options):
    r = torch.as_tensor(rewards)
    v = torch.ones_like(r, dtype=torch.bool) if valid is None else torch.as_tensor(valid)
    if name in ("components", "gdpo"):
        options.setdefault("components", {"only": r})
    if name == "pass_at_k":
        options.setdefault("k", 1)
    return compute(name, r, v, **options)


def close(values, expected, atol=2e-6):
    torch.testing.assert_close(values, torch.as_tensor(expected, dtype=torch.float32), rtol=0, atol=atol)


# --- hand-computed ---------------------------------------------------------------------------------------------------

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


def test_a_component_that_is_not_finite_leaves_that_component_alone():
    parts = {"a": torch.tensor([[1.0, 0, NAN]]), "b": torch.tensor([[0.0, 3, 6]])}
    values = adv("components", [[1.0, 3, 6]], components=parts).values
    half = 1 / math.sqrt(2)
    close(values, [[half - 1, -half + 0, 0 + 1]])


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


# --- constant groups, extreme numbers, invalid samples ---------------------------------------------------------------


@pytest.mark.parametrize("name", IN_GROUP)
@pytest.mark.parametrize("value", [0.1, 0.7, 1e7, 1e-6, 0.0, 1 / 3])
@pytest.mark.parametrize("n", [2, 3, 7, 8])
def test_constant_groups_get_exactly_zero(name, value, n):
    result = adv(name, torch.full((3, n), value))
    assert result.constant.all()
    assert (result.values == 0).all()


@pytest.mark.parametrize("name", IN_GROUP)
def test_float32_rounding_is_not_spread(name):
    r = torch.tensor([[0.1 + 0.2, 0.3, 0.3, 0.3]], dtype=torch.float32)
    r[0, 0] = torch.nextafter(r[0, 0], torch.tensor(1.0))
    result = adv(name, r)
    assert result.constant.all()
    assert (result.values == 0).all()


@pytest.mark.parametrize("offset", [0.0, 1e7, -1e7])
def test_large_rewards_are_centred(offset):
    r = torch.tensor([[0.0, 1, 2, 3]]) + offset
    close(adv("zscore", r).values, [[-1.161895, -0.387298, 0.387298, 1.161895]])


@pytest.mark.parametrize("scale", [1e-6, 1e-20, 1e20])
def test_rewards_of_any_scale_keep_their_advantage(scale):
    close(adv("zscore", torch.tensor([[1.0, 0, 0, 0]]) * scale).values, [[1.5, -0.5, -0.5, -0.5]])


def test_tolerance_is_relative_and_can_be_set():
    r = torch.tensor([[1.0, 1.001]])
    valid = torch.ones_like(r, dtype=torch.bool)
    assert not is_constant(r, valid).item()
    assert is_constant(r, valid, 1e-2).item()
    assert not is_constant(r - 1, valid, 1e-2).item()
    assert (adv("zscore", r, tolerance=1e-2).values == 0).all()
    assert 1.2e-7 < TOLERANCE < 3e-7


@pytest.mark.parametrize("name", sorted(set(ADVANTAGES) - {"running", "pass_at_k"}))  # pass_at_k refuses: k < G
def test_a_group_of_one_gets_zero(name):
    result = adv(name, [[1.0]])
    assert result.values.item() == 0
    assert result.constant.item()


@pytest.mark.parametrize("name", sorted(ADVANTAGES))
@pytest.mark.parametrize("bad", [INF, -INF, NAN])
def test_a_non_finite_reward_leaves_the_group(name, bad):
    with_bad = adv(name, [[1.0, bad, 0, 0, 2], [1.0, 0.5, 0, 4, 2]]).values
    marked = adv(name, [[1.0, 77, 0, 0, 2], [1.0, 0.5, 0, 4, 2]], [[True, False, True, True, True], [True] * 5]).values
    close(with_bad, marked)
    assert with_bad[0, 1] == 0
    assert torch.isfinite(with_bad).all()


@pytest.mark.parametrize("name", sorted(ADVANTAGES))
def test_an_invalid_sample_is_as_if_it_were_not_there(name):
    options = {"k": 2} if name == "pass_at_k" else {}
    short = adv(name, [[1.0, 0, 4]], **options)
    long = adv(name, [[1.0, 50, 0, 4]], [[True, False, True, True]], **options)
    close(long.values[:, [0, 2, 3]], short.values)


def test_all_invalid():
    for name in sorted(ADVANTAGES):
        result = adv(name, [[1.0, 2], [NAN, 0]], [[False, False], [True, False]])
        assert (result.values == 0).all()
        assert result.constant.all()


def test_maxrl_refuses_negative_rewards():
    with pytest.raises(ConfigError, match=r"-0\.5"):
        adv("maxrl", [[1.0, -0.5]])


def test_best_gap_of_two_winners_is_zero():
    assert (adv("best_gap", [[2.0, 2, 0]]).values == 0).all()


# --- running statistics ----------------------------------------------------------------------------------------------


def test_running_statistics_are_unbiased_from_the_first_batch():
    r = torch.tensor([[1.0, 3], [5, 7]])
    state = RunningState(decay=0.9).updated(r.flatten())
    assert state.mean == pytest.approx(4.0)
    assert state.variance == pytest.approx(5.0)
    assert state.weight == pytest.approx(0.1)
    result = compute("running", r, torch.ones_like(r, dtype=torch.bool), running=RunningState(decay=0.9))
    close(result.values, (r - 4) / math.sqrt(5))
    assert result.running == state


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
    assert (adv("running", torch.full((2, 3), 0.1)).values == 0).all()


def test_only_running_changes_the_state():
    state = RunningState(2.0, 3.0, 0.5)
    assert adv("zscore", [[0.0, 1]], running=state).running is state
    assert adv("running", [[0.0, 1]], running=state).running != state


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


# --- properties ------------------------------------------------------------------------------------------------------

LEVELS = st.sampled_from([-2.0, -0.5, 0.0, 0.25, 1.0, 3.0])


@st.composite
def groups(draw, levels=LEVELS):
    p, g = draw(st.integers(1, 4)), draw(st.integers(2, 6))
    rewards = draw(st.lists(st.lists(levels, min_size=g, max_size=g), min_size=p, max_size=p))
    valid = draw(
        st.lists(st.lists(st.sampled_from([True, True, False]), min_size=g, max_size=g), min_size=p, max_size=p)
    )
    return np.array(rewards), np.array(valid)


def reference(name: str, rewards: np.ndarray, valid: np.ndarray) -> np.ndarray:
    """Slow and plain: one group at a time, one sample at a time."""
    out = np.zeros(rewards.shape)
    pool = rewards[valid]
    for p, g in zip(*np.nonzero(valid)):
        own = rewards[p][valid[p]]
        others = np.delete(own, list(np.nonzero(valid[p])[0]).index(g))
        if len(own) < 2 or np.ptp(own) == 0:
            continue
        r = rewards[p, g]
        out[p, g] = {
            "centred": r - own.mean(),
            "zscore": (r - own.mean()) / own.std(ddof=1),
            "leave_one_out": r - others.mean(),
            "leave_one_out_std": (r - others.mean()) / (others.std(ddof=1) if np.ptp(others) else 1),
            "rank": ((own < r).sum() + ((own == r).sum() - 1) / 2) * 2 / (len(own) - 1) - 1,
            "batch": (r - own.mean()) / pool.std(ddof=1),
        }[name]
    return out


@settings(max_examples=60, deadline=None)
@given(groups())
def test_against_numpy(data):
    rewards, valid = data
    for name in ("centred", "zscore", "leave_one_out", "leave_one_out_std", "rank", "batch"):
        ours = compute(name, torch.tensor(rewards), torch.tensor(valid)).values
        np.testing.assert_allclose(ours.numpy(), reference(name, rewards, valid), atol=1e-5, err_msg=name)


@settings(max_examples=40, deadline=None)
@given(groups(), st.randoms())
def test_order_of_groups_and_samples_does_not_matter(data, random):
    rewards, valid = torch.tensor(data[0].clip(min=0)), torch.tensor(data[1])
    rows, columns = list(range(rewards.shape[0])), list(range(rewards.shape[1]))
    random.shuffle(rows)
    random.shuffle(columns)
    for name in sorted(set(ADVANTAGES) - {"best_gap"}):
        straight = adv(name, rewards, valid).values
        shuffled = adv(name, rewards[rows][:, columns], valid[rows][:, columns]).values
        torch.testing.assert_close(shuffled, straight[rows][:, columns], rtol=0, atol=1e-5, msg=name)


@settings(max_examples=40, deadline=None)
@given(groups(st.sampled_from([0.0, 1.0])), st.floats(0.01, 100), st.floats(-50, 50))
def test_two_levels_give_the_same_advantages_whatever_the_mode(data, scale, shift):
    """hard, soft, hard + soft: with two levels every reward mode is an affine map of every other."""
    rewards, valid = torch.tensor(data[0]), torch.tensor(data[1])
    for name in ("zscore", "rank"):
        torch.testing.assert_close(
            adv(name, rewards * scale + shift, valid).values, adv(name, rewards, valid).values, rtol=0, atol=1e-4
        )


@settings(max_examples=40, deadline=None)
@given(groups())
def test_zero_sum_and_unit_scale(data):
    rewards, valid = torch.tensor(data[0]), torch.tensor(data[1])
    for name in ("centred", "zscore", "leave_one_out", "rank", "batch"):
        assert adv(name, rewards, valid).values.sum(1).abs().max() < 1e-4
    result = adv("zscore", rewards, valid)
    for row, keep, constant in zip(result.values, valid, result.constant):
        if not constant:
            assert row[keep].std().item() == pytest.approx(1.0, abs=1e-5)

"""Advantages against a plain NumPy reference, and what must not change them."""

import numpy as np
import pytest
import torch
from advantage_helpers import adv
from hypothesis import given, settings
from hypothesis import strategies as st

from anygrpo.algorithm import ADVANTAGES, compute

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
@given(groups())
def test_groups_do_not_touch_each_other(data):
    rewards, valid = torch.tensor(data[0].clip(min=0)), torch.tensor(data[1])
    for name in ("centred", "zscore", "leave_one_out", "leave_one_out_std", "rank", "maxrl", "pass_at_k", "best_gap",
                 "components"):  # fmt: skip
        alone = [adv(name, rewards[p : p + 1], valid[p : p + 1]) for p in range(len(rewards))]
        together = adv(name, rewards, valid)
        torch.testing.assert_close(together.values, torch.cat([a.values for a in alone]), rtol=0, atol=1e-6, msg=name)
        assert together.constant.tolist() == [a.constant.item() for a in alone]


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

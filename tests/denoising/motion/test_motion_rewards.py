"""Each part of the motion reward alone, on tracks made by hand."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from anygrpo.denoising.motion import rewards
from anygrpo.denoising.motion.bank import Window, mean_motion
from anygrpo.denoising.motion.captions import PHRASES, captions, held_out_captions, training_captions
from anygrpo.denoising.motion.measures import diversity, frechet
from anygrpo.denoising.motion.skeleton import INDEX, JOINTS, axis_matrix, forward_kinematics


def body(frames=10, lift=0.0, drift=0.0, knee=0.0):
    """A standing body, its soles at height `lift`, moved `drift` metres a frame."""
    rotations = torch.eye(3).repeat(frames, len(JOINTS), 1, 1)
    rotations[:, INDEX["l_knee"]] = axis_matrix(2, torch.tensor(-knee))
    root = torch.zeros(frames, 3)
    root[:, 0] = drift * torch.arange(frames)
    places = forward_kinematics(rotations, root)
    places[..., 1] += lift - places[..., 1].min()
    return {j: places[:, i] for j, i in INDEX.items()}


def test_skating_by_hand():
    assert rewards.skating(body(), 20.0) == 1.0
    sliding = rewards.skating(body(drift=0.025), 20.0)  # 0.5 m/s with every foot down
    assert sliding == pytest.approx(math.exp(-0.5 / rewards.SLIDE), rel=1e-4)


@settings(deadline=None, max_examples=30)
@given(st.floats(0.0, 2.0), st.floats(0.0, 0.2))
def test_leaving_the_floor_never_earns_more(lift, drift):
    """A body that slides, and the same one held up in the air."""
    total = lambda b: rewards.skating(b, 20.0) + rewards.floating(b, 20.0) + rewards.contact(b, 20.0)  # noqa: E731
    assert total(body(lift=lift, drift=drift)) <= total(body(drift=drift)) + 1e-6
    assert rewards.skating(body(lift=lift, drift=drift), 20.0) <= rewards.skating(body(drift=drift), 20.0) + 1e-5


def test_hanging_in_the_air_by_hand():
    hung = body(lift=0.15)
    assert rewards.floating(hung, 20.0) == pytest.approx(math.exp(-3), rel=1e-4)
    assert rewards.contact(hung, 20.0) == 0.0
    assert rewards.floating(body(lift=0.07), 20.0) == rewards.contact(body(lift=0.07), 20.0) == 1.0


def flight(height, frames=21, gravity=9.81):
    """A body that leaves the floor at frame 5 and lands, thrown up so that it rises to `height`."""
    up = (2 * gravity * height) ** 0.5
    t = (torch.arange(frames) / 20 - 0.25).clamp(min=0)
    y = (up * t - gravity * t**2 / 2).clamp(min=0)
    return {j: p + torch.stack([0 * y, y, 0 * y], 1) for j, p in body(frames).items()}


@pytest.mark.parametrize("height", [0.3, 0.6])
def test_a_jump_is_no_hanging(height):
    assert rewards.contact(flight(height), 20.0) == rewards.floating(flight(height), 20.0) == 1.0
    slow = flight(height, gravity=1.0)  # as on a string
    assert rewards.contact(slow, 20.0) < 0.7
    assert rewards.floating(slow, 20.0) < 0.2


def test_never_on_the_floor_is_no_good_footing():
    falling = {
        j: p + 2 - 4.905 * (torch.arange(10.0)[:, None] / 20) ** 2 * torch.tensor([0.0, 1.0, 0.0])
        for j, p in body().items()
    }
    assert rewards.skating(falling, 20.0) == 0.0


def test_one_standing_foot_is_no_skating():
    places = body()
    for joint in ("l_foot", "l_ankle"):
        places[joint] = places[joint] + torch.arange(10.0)[:, None] * torch.tensor([0.1, 0.0, 0.0])
    assert rewards.skating(places, 20.0) == 1.0


def test_floor_by_hand():
    assert rewards.floor(body()) == 1.0
    assert rewards.floor(body(lift=0.3)) == 1.0
    assert rewards.floor(body(lift=-0.02)) == pytest.approx(math.exp(-1), rel=1e-3)


def test_jerk_by_hand():
    assert rewards.jerk(body(drift=0.1), 20.0) == 1.0
    t = torch.arange(12.0) / 20
    cubic = {"pelvis": torch.stack([(2 * rewards.JERK / 6) * t**3, 0 * t, 0 * t], 1)}
    assert rewards.jerk(cubic, 20.0) == pytest.approx(math.exp(-1), rel=0.02)  # third derivative 2 JERK
    assert rewards.jerk(body(frames=3), 20.0) == 1.0


def test_diversity_by_hand():
    mean = torch.zeros(9, 4)
    assert rewards.diversity(mean[:6], mean, 1.3) == 0.0
    assert rewards.diversity(torch.full((6, 4), 0.65), mean, 1.3) == pytest.approx(0.5)
    longer = torch.cat([torch.full((9, 4), 0.65), torch.full((5, 4), 100.0)])
    assert rewards.diversity(longer, mean, 1.3) == pytest.approx(0.5)  # over the frames both have
    assert rewards.diversity(torch.full((6, 4), -10.0), mean, 1.3) == 1.0


def test_the_mean_motion_by_hand():
    windows = [Window("walk", torch.full((n, 2), x)) for n, x in ((3, 1.0), (3, -1.0), (4, 3.0))]
    mean, spread = mean_motion(windows)
    assert mean.tolist() == [[1.0, 1.0]] * 3 + [[3.0, 3.0]]
    apart = (0.0, 4.0, 3 * 4.0 / 4)  # mean squares; the last is alone in its fourth frame
    assert spread == pytest.approx(math.sqrt(sum(apart) / 3))
    assert mean_motion(windows[:1])[1] == 1.0


def test_limits_by_hand():
    assert rewards.limits(body()) == 1.0
    folded = rewards.limits(body(knee=math.radians(175)))
    assert folded == pytest.approx(1 - 1 / 12)  # one of twelve checks fails in every frame
    stretched = body()
    stretched["l_ankle"] = stretched["l_knee"] + 1.3 * (stretched["l_ankle"] - stretched["l_knee"])
    assert rewards.limits(stretched) == pytest.approx(1 - 1 / 12)


def test_duration():
    assert rewards.duration(30, 40) == rewards.duration(40, 30) == 0.75


@settings(max_examples=30, deadline=None)
@given(st.floats(0, 2), st.floats(-1, 1), st.floats(0, 3))
def test_every_part_lies_between_0_and_1(drift, lift, knee):
    places = body(drift=drift, lift=lift, knee=knee)
    noisy = {j: p + 0.3 * torch.randn(p.shape, generator=torch.Generator().manual_seed(i))
             for i, (j, p) in enumerate(places.items())}  # fmt: skip
    for x in (places, noisy):
        values = (rewards.skating(x, 20.0), rewards.floor(x), rewards.jerk(x, 20.0), rewards.limits(x))
        assert all(0 <= v <= 1 for v in values)


def test_captions_are_split_by_combination():
    for action in PHRASES:
        train, held = training_captions(action), held_out_captions(action)
        assert held
        assert set(train) | set(held) == set(captions(action))
    known = {w for a in PHRASES for c in training_captions(a) for w in c.split()}
    assert {w for a in PHRASES for c in held_out_captions(a) for w in c.split()} <= known
    shared = [c for a in PHRASES for c in held_out_captions(a) if c in training_captions(a)]
    assert not shared


def test_frechet_by_hand():
    g = torch.Generator().manual_seed(0)
    a = torch.randn(4000, 3, generator=g)
    assert frechet(a, a) == pytest.approx(0, abs=1e-9)
    assert frechet(a, a + 2.0) == pytest.approx(12.0, abs=1e-6)
    assert frechet(a, 3 * a) == pytest.approx(
        float(4 * torch.cov(a.T.double()).trace() + 4 * a.double().mean(0).square().sum())
    )


def test_diversity_is_within_captions_only():
    one, two = torch.zeros(5, 2), torch.ones(7, 2)
    assert diversity([("a", one), ("a", two)]) == pytest.approx(1.0)
    assert diversity([("a", one), ("a", one), ("b", two), ("b", two)]) == 0.0
    assert diversity([("a", one)]) == 0.0

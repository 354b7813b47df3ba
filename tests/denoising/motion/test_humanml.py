"""HumanML3D's published convention: numbers worked out by hand, and its recovery written again with quaternions."""

import math

import pytest
import torch

from anygrpo.denoising.motion.clips import default_folder, load_clips
from anygrpo.denoising.motion.features import LAYOUTS, decode
from anygrpo.denoising.motion.features import encode as encode_layout
from anygrpo.denoising.motion.humanml import encode, facing, recover, standing
from anygrpo.denoising.motion.skeleton import INDEX, JOINTS, axis_matrix, forward_kinematics


def published(x, joints=22):
    """The published recovery: a quaternion of half angles about y, its inverse applied to steps and joints; float64."""
    x = x.double()
    a = torch.zeros(len(x), dtype=torch.float64)
    a[1:] = x[:-1, 0].cumsum(0)
    q = torch.stack([a.cos(), 0 * a, a.sin(), 0 * a], -1)

    def inverse(v):
        w, u = q[:, None, :1], -q[:, None, 1:]
        uv = torch.linalg.cross(u.expand_as(v), v)
        return v + 2 * (w * uv + torch.linalg.cross(u.expand_as(v), uv))

    step = torch.zeros(len(x), 1, 3, dtype=torch.float64)
    step[1:, 0, [0, 2]] = x[:-1, 1:3]
    root = inverse(step).cumsum(0)
    around = inverse(x[:, 4 : 1 + 3 * joints].unflatten(1, (joints - 1, 3)))
    around[..., [0, 2]] += root[..., [0, 2]]
    root[:, 0, 1] = x[:, 3]
    return torch.cat([root, around], 1)


def body(frames, turn, speed):
    """A walker whose heading and height change; swinging legs."""
    at = torch.arange(frames)
    angle = turn * at
    rotations = torch.eye(3).repeat(frames, len(JOINTS), 1, 1)
    rotations[:, 0] = axis_matrix(1, angle)
    rotations[:, INDEX["l_hip"]] = axis_matrix(2, 0.4 * torch.sin(0.6 * at))
    rotations[:, INDEX["r_hip"]] = axis_matrix(2, -0.4 * torch.sin(0.6 * at))
    step = speed * torch.stack([angle.cos(), 0 * angle, -angle.sin()], 1)
    root = torch.cat([torch.zeros(1, 3), step[:-1].cumsum(0)]) + torch.tensor([3.0, 0.95, -2.0])
    return forward_kinematics(rotations, root)


def test_the_golden_root():
    x = torch.zeros(3, 263)
    x[:, 0] = torch.tensor([0.1, 0.2, 0.3])
    x[:, 1:3] = torch.tensor([[0.0, 0.05], [0.01, 0.05], [0.0, 0.0]])
    root = recover(x)[:, 0, [0, 2]]
    expected = [[0, 0], [-0.00993347, 0.04900333], [-0.02991223, 0.09591653]]
    for ours, theirs in zip(root.tolist(), expected):
        assert ours == pytest.approx(theirs, abs=1e-7)


@pytest.mark.parametrize(("size", "joints"), [(263, 22), (251, 21)])
def test_recovery_is_the_published_one(size, joints):
    x = torch.randn(120, size, generator=torch.Generator().manual_seed(0)) * 0.1
    assert float((recover(x) - published(x, joints)).abs().max()) < 1e-4
    if size == 263:
        places = decode(x, LAYOUTS["humanml"])
        assert float((torch.stack([places[j] for j in JOINTS], 1) - published(x)).abs().max()) < 1e-4


@pytest.mark.parametrize("turn", [0.0, 0.03, -0.08])
def test_encoding_and_back(turn):
    places = body(80, turn, 0.05)
    x = encode(places)
    assert x.shape == (79, 263)
    whole = standing(places)
    assert float((recover(x) - whole[:-1]).abs().max()) < 1e-4
    assert float(whole[..., 1].min()) == 0
    assert facing(whole, 0.0)[0].item() == pytest.approx(0.0, abs=1e-5)


def test_a_turn_to_the_left_by_hand():
    """Heading that turns by +.03 a frame about y (left, seen from above): the number is -.015, half and negated."""
    x = encode(body(200, 0.03, 0.05))
    assert x[90:110, 0].mean().item() == pytest.approx(-0.015, abs=1e-4)
    assert x[90:110, 2].mean().item() == pytest.approx(0.05, abs=2e-3)  # it walks where it faces: +z in its own frame
    assert x[0, 3].item() == pytest.approx(float(standing(body(200, 0.03, 0.05))[0, 0, 1]))
    hip = x[100, 4 + 3 * (INDEX["l_hip"] - 1) : 4 + 3 * INDEX["l_hip"]]
    assert hip[0].item() == pytest.approx(0.084887, abs=2e-3)  # the left side lies towards +x


def test_contacts_have_no_height_test():
    """Published: a slow foot in the air counts. 4.4 cm a frame is contact, 4.6 is none."""
    for step, touches in ((0.044, 1.0), (0.046, 0.0)):
        places = body(2, 0.0, step)[:1] + step * torch.arange(4)[:, None, None] * torch.tensor([1.0, 0.0, 0.0])
        places[1:, :, 1] += 0.0
        lifted = places + torch.tensor([0.0, 0.5, 0.0])
        lifted[0, INDEX["head"], 1] = 0.0  # something else is the floor
        assert encode(lifted)[1:, 259:].unique().tolist() == [touches]


def test_rotations_do_not_depend_on_the_heading():
    one, two = encode(body(30, 0.0, 0.05)), encode(body(30, 0.0, 0.05) @ axis_matrix(1, torch.tensor(1.1)).T)
    assert torch.allclose(one, two, atol=1e-4)
    assert one[:, 67:193].abs().max() <= 1 + 1e-5


@pytest.mark.skipif(not any(default_folder().glob("*.txt")), reason="captured clips are not fetched")
def test_captured_clips_come_back():
    for clip in load_clips(default_folder(), 20.0):
        x = encode_layout(clip.places, 20.0, LAYOUTS["humanml"])
        assert float((recover(x) - published(x)).abs().max()) < 1e-4, clip.name
        assert float((recover(x) - standing(clip.places)[:-1]).abs().max()) < 1e-3, clip.name
        assert math.isfinite(float(x.sum()))

"""Skeleton, features and clips on bodies posed by hand."""

import json
import math

import pytest
import torch

from anygrpo.denoising.motion import bvh
from anygrpo.denoising.motion.clips import Clip, extended, heading, load_clips, mirrored, read_deepmimic, resample
from anygrpo.denoising.motion.features import LAYOUTS, Scaler, decode, encode, split
from anygrpo.denoising.motion.skeleton import (
    INDEX,
    JOINTS,
    MIRROR,
    OFFSETS,
    axis_matrix,
    between,
    forward_kinematics,
    local_rotations,
    quaternion_matrix,
)
from anygrpo.errors import DataError


def walker(frames=12, turn=0.0, speed=0.05, loops=True):
    """A body that walks along its heading and swings its legs."""
    angle = turn * torch.arange(frames)
    rotations = torch.eye(3).repeat(frames, len(JOINTS), 1, 1)
    rotations[:, 0] = axis_matrix(1, angle)
    swing = 0.4 * torch.sin(2 * math.pi * torch.arange(frames) / (frames - 1))
    rotations[:, INDEX["l_hip"]] = axis_matrix(2, swing)
    rotations[:, INDEX["r_hip"]] = axis_matrix(2, -swing)
    step = speed * torch.stack([angle.cos(), 0 * angle, -angle.sin()], 1)
    root = torch.cat([torch.zeros(1, 3), step[:-1].cumsum(0)]) + torch.tensor([0.0, 0.9, 0.0])
    return Clip("w", "walk", forward_kinematics(rotations, root), 20.0, loops)


def test_the_rest_pose_by_hand():
    places = forward_kinematics(torch.eye(3).expand(1, 22, 3, 3), torch.zeros(1, 3))[0]
    assert places[INDEX["r_ankle"]].tolist() == pytest.approx([0, -0.831416, 0.084887], abs=1e-6)
    assert places[INDEX["l_wrist"]].tolist() == pytest.approx(
        [-0.02405, 0.236151 + 0.2435 - 0.533735, -0.18311], abs=1e-5
    )
    assert OFFSETS[list(MIRROR)].tolist() == (OFFSETS * torch.tensor([1.0, 1.0, -1.0])).tolist()


def test_rotations_by_hand():
    quarter = quaternion_matrix(torch.tensor([math.sqrt(0.5), 0.0, 0.0, math.sqrt(0.5)]))
    assert torch.allclose(quarter, axis_matrix(2, torch.tensor(math.pi / 2)), atol=1e-6)
    assert (quarter @ torch.tensor([1.0, 0, 0])).tolist() == pytest.approx([0, 1, 0], abs=1e-6)
    for b in ([0.0, 1, 0], [-1.0, 0, 0], [1.0, 0, 0]):
        turned = between(torch.tensor([1.0, 0, 0]), torch.tensor(b)) @ torch.tensor([1.0, 0, 0])
        assert turned.tolist() == pytest.approx(b, abs=1e-5)


def test_rotations_from_places_pose_the_body_again():
    clip = walker(turn=0.1)
    again = forward_kinematics(local_rotations(clip.places), clip.places[:, 0])
    assert torch.allclose(again, clip.places, atol=1e-4)


def test_features_and_back():
    layout, clip = LAYOUTS["compact"], walker(turn=0.07)
    features = encode(clip.places, 20.0, layout)
    assert features.shape == (11, 47)
    places = decode(features, layout)
    for joint in ("pelvis", "l_foot", "r_wrist", "neck"):
        assert torch.allclose(places[joint], clip.places[:-1, INDEX[joint]], atol=1e-5), joint
    block = split(features, layout)
    assert block["spin"].mean().item() == pytest.approx(0.07, abs=1e-5)
    assert block["drift"].mean(0).tolist() == pytest.approx([0.05, 0.0], abs=1e-5)
    assert block["height"].mean().item() == pytest.approx(0.9)


def test_features_do_not_depend_on_where_and_whither():
    layout, clip = LAYOUTS["humanml"], walker(turn=0.07)
    moved = clip.places @ axis_matrix(1, torch.tensor(1.3)).T + torch.tensor([3.0, 0.0, -2.0])
    one, two = (split(encode(p, 20.0, layout), layout) for p in (clip.places, moved))
    for name in ("spin", "drift", "places", "speeds", "contacts"):
        assert torch.allclose(one[name], two[name], atol=1e-4), name


def test_contacts_are_low_and_slow_feet():
    still = walker(speed=0.0)
    places = still.places[:1].repeat(4, 1, 1)
    places[..., 1] -= places[..., 1].min()
    down = split(encode(places, 20.0, LAYOUTS["compact"]), LAYOUTS["compact"])["contacts"]
    up = split(encode(places + torch.tensor([0.0, 0.5, 0.0]), 20.0, LAYOUTS["compact"]), LAYOUTS["compact"])["contacts"]
    assert down.min() == 1
    assert up.max() == 0


def test_mirroring_turns_left_into_right_and_twice_is_nothing():
    clip = Clip("t", "turn_left", walker(turn=0.1).places, 20.0, True)
    other = mirrored(clip)
    assert other.action == "turn_right"
    assert torch.allclose(heading(other.places), -heading(clip.places), atol=1e-5)
    assert torch.allclose(mirrored(other).places, clip.places)


def test_a_loop_goes_on_from_where_it_is():
    clip = walker(frames=12, turn=0.1)
    longer = extended(clip, 30)
    assert len(longer.places) == 30
    assert torch.allclose(longer.places[:12], clip.places)
    assert float(longer.places.diff(dim=0)[:, 0].norm(dim=-1).max()) < 0.06
    assert float(heading(longer.places)[-1]) == pytest.approx(2.9 - 0.1 * 0, abs=0.25)
    assert extended(walker(loops=False), 30).places.shape[0] == 12


def test_retiming():
    clip = walker(frames=21)  # one second
    assert len(resample(clip, 10.0).places) == 11
    fast = resample(clip, 20.0, speed=2.0)
    assert len(fast.places) == 11
    assert torch.allclose(fast.places[5], clip.places[10], atol=1e-6)


def test_the_scaler_has_one_std_a_block():
    layout = LAYOUTS["compact"]
    features = encode(walker(40, turn=0.05).places, 20.0, layout)
    scaler = Scaler.fit(features, layout)
    assert torch.allclose(scaler.undo(scaler.apply(features)), features, atol=1e-5)
    assert len(split(scaler.std, layout)["places"].unique()) == 1


BVH = """HIERARCHY
ROOT Hips
{
  OFFSET 1 0 0
  CHANNELS 6 Xposition Yposition Zposition Zrotation Xrotation Yrotation
  JOINT Knee
  {
    OFFSET 0 -2 0
    CHANNELS 3 Zrotation Xrotation Yrotation
    End Site
    {
      OFFSET 0 -1 0
    }
  }
}
MOTION
Frames: 2
Frame Time: .05
0 0 0 0 0 0 0 0 0
0 5 0 90 0 0 0 0 0
"""


def test_a_written_bvh_has_every_joint_in_its_place():
    """Any pose of our body, the twist of the chest too, which shows in the arms alone."""
    torch.manual_seed(0)
    angles = torch.randn(5, 22, 3)
    turns = axis_matrix(2, angles[..., 0]) @ axis_matrix(0, angles[..., 1]) @ axis_matrix(1, angles[..., 2])
    places = forward_kinematics(turns, torch.randn(5, 3))
    nodes, numbers, fps = bvh.parse(bvh.write(places, 20.0))
    back = bvh.positions(nodes, numbers)
    assert fps == pytest.approx(20.0)
    torch.testing.assert_close(torch.stack([back[j] for j in JOINTS], 1), places, atol=1e-4, rtol=0)


def test_bvh_by_hand():
    nodes, numbers, fps = bvh.parse(BVH)
    assert fps == pytest.approx(20.0)
    places = bvh.positions(nodes, numbers)
    assert places["Hips"].tolist() == [[1, 0, 0], [1, 5, 0]]
    assert places["Knee"][0].tolist() == [1, -2, 0]
    assert places["Knee"][1].tolist() == pytest.approx([3, 5, 0], abs=1e-5)  # -y turned 90 degrees about z is +x
    with pytest.raises(DataError, match="HIERARCHY"):
        bvh.parse("nonsense")
    with pytest.raises(DataError, match="channels"):
        bvh.parse(BVH + "1 2 3\n")


def test_retargeting_keeps_directions_and_takes_our_lengths():
    rest = forward_kinematics(torch.eye(3).expand(2, 22, 3, 3), torch.tensor([[0.0, 1, 0], [0.1, 1, 0]]))
    found = {j: rest[:, i] * 50 for j, i in INDEX.items()}
    assert torch.allclose(bvh.retarget(found), rest, atol=1e-5)


def deepmimic(frames=3):
    rest = [0.05, 0.0, 1.0, 0.0] + [1.0, 0, 0, 0] * 4 + [-0.5] + [1.0, 0, 0, 0] * 2 + [0.3] + [1.0, 0, 0, 0]
    return rest + [0.0] + [1.0, 0, 0, 0] * 2 + [0.0]


def test_deepmimic_by_hand(tmp_path):
    file = tmp_path / "humanoid3d_walk.txt"
    assert len(deepmimic()) == 44
    file.write_text(json.dumps({"Loop": "wrap", "Frames": [deepmimic()] * 3}))
    clip = read_deepmimic(file)
    assert (clip.action, clip.loops) == ("walk", True)
    assert clip.fps == pytest.approx(20.0)
    knee, ankle = clip.places[0, INDEX["r_knee"]], clip.places[0, INDEX["r_ankle"]]
    # a hinge angle of -0.5 about z takes the hanging shin back: -y becomes (-sin 0.5, -cos 0.5)
    assert (ankle - knee).tolist() == pytest.approx([-0.40987 * math.sin(0.5), -0.40987 * math.cos(0.5), 0], abs=1e-5)
    wrist, elbow = clip.places[0, INDEX["r_wrist"]], clip.places[0, INDEX["r_elbow"]]
    assert (wrist - elbow)[0].item() == pytest.approx(0.258947 * math.sin(0.3), abs=1e-5)
    assert clip.places[..., 1].min() == 0


def test_broken_or_absent_clips_say_what_to_do(tmp_path):
    with pytest.raises(DataError, match="fetch_motion"):
        load_clips(tmp_path, 20.0)
    file = tmp_path / "humanoid3d_walk.txt"
    file.write_text("{}")
    with pytest.raises(DataError, match="not a motion clip"):
        read_deepmimic(file)
    file.write_text(json.dumps({"Loop": "wrap", "Frames": [[1.0] * 43] * 3}))
    with pytest.raises(DataError, match="44"):
        read_deepmimic(file)

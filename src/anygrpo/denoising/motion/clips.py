"""Motion clips as joint positions: DeepMimic's JSON and CMU's BVH, on one body, at one frame rate."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from anygrpo.denoising.motion import bvh
from anygrpo.denoising.motion.skeleton import INDEX, MIRROR, axis_matrix, forward_kinematics, quaternion_matrix
from anygrpo.errors import DataError
from anygrpo.files import cache_folder, json_value
from anygrpo.spoken import Text

CMU_FOLDER = Path("/usr/share/assimp/models/BVH")

ACTIONS = {
    "humanoid3d_walk": "walk", "0walk_forward": "walk", "turn_left0": "turn_left", "turn_left1": "turn_left",
    "turn_right0": "turn_right", "turn_right1": "turn_right", "humanoid3d_run": "run", "humanoid3d_jump": "jump",
    "humanoid3d_kick": "kick", "humanoid3d_punch": "punch", "humanoid3d_roll": "roll", "humanoid3d_spin": "spin",
    "humanoid3d_cartwheel": "cartwheel", "humanoid3d_backflip": "backflip", "humanoid3d_dance_a": "dance",
    "humanoid3d_dance_b": "dance", "humanoid3d_crawl": "crawl", "humanoid3d_getup_facedown": "get_up",
    "humanoid3d_getup_faceup": "get_up", "humanoid3d_spinkick": "spin_kick",
    "01_01": "playground_jump", "01_03": "playground_climb", "Boxing_Toes": "box",
}  # fmt: skip
"""The action each clip shows, by file name."""

_MIRRORED_ACTION = {"turn_left": "turn_right", "turn_right": "turn_left"}


@dataclass(frozen=True)
class Clip:
    """One recording.

    Attributes:
        name, action: file name and what it shows.
        places: [F, 22, 3] joint positions in metres, y up, the lowest joint of the clip at 0.
        fps: frames a second.
        loops: the end leads into the start.
    """

    name: str
    action: str
    places: Tensor
    fps: float
    loops: bool


def default_folder() -> Path:
    """Where scripts/fetch_motion.py puts the clips: $XDG_CACHE_HOME/anygrpo/motion, or ~/.cache/anygrpo/motion."""
    return cache_folder() / "motion"


def load_clips(folder: Path, fps: float, cmu: bool = False) -> list[Clip]:
    """All clips in `folder`, in the order of their names, and CMU's where asked for.

    Raises:
        DataError: none there, or a malformed file.
    """
    files = sorted(folder.glob("*.txt"))
    if not files:
        raise DataError(
            Text(f"no motion clips in {folder}", f"{folder} 中没有动作片段"),
            "`python scripts/fetch_motion.py`",
        )
    clips = [read_deepmimic(f) for f in files if f.stem in ACTIONS]
    if cmu:
        found = sorted(CMU_FOLDER.glob("*.bvh"))
        if not found:
            raise DataError(
                Text(f"no BVH clips in {CMU_FOLDER}", f"{CMU_FOLDER} 中没有 BVH 片段"),
                Text(
                    "apt-get install assimp-testmodels, or task.cmu = false",
                    "apt-get install assimp-testmodels，或 task.cmu = false",
                ),
            )
        clips += [_read_cmu(f) for f in found if f.stem in ACTIONS]
    return [resample(c, fps) for c in clips]


_SPHERICAL = {"pelvis": 4, "spine3": 8, "neck": 12, "r_hip": 16, "r_ankle": 21, "r_shoulder": 25, "l_hip": 30,
              "l_ankle": 35, "l_shoulder": 39}  # fmt: skip
_HINGE = {"r_knee": 20, "r_elbow": 29, "l_knee": 34, "l_elbow": 43}


def read_deepmimic(file: Path) -> Clip:
    """A clip of 44 numbers a frame: seconds, root place (3), then joints as quaternions (w x y z) or hinge angles.

    Raises:
        DataError: not such a file.
    """
    try:
        data = json_value(file.read_text())
        frames = torch.tensor(data["Frames"], dtype=torch.float32)
        loops = data["Loop"] == "wrap"
    except (ValueError, KeyError, TypeError) as e:
        raise DataError(
            Text(f"{file}: not a motion clip: {e}", f"{file}：不是动作片段：{e}"),
            Text("fetch it again: python scripts/fetch_motion.py", "请重新获取：python scripts/fetch_motion.py"),
        ) from e
    if frames.dim() != 2 or frames.shape[1] != 44 or frames.shape[0] < 2:
        raise DataError(
            Text(
                f"{file}: frames of shape {tuple(frames.shape)}, expected [F, 44]",
                f"{file}：帧的形状为 {tuple(frames.shape)}，应为 [F, 44]",
            )
        )
    rotations = torch.eye(3).repeat(len(frames), len(MIRROR), 1, 1)
    for joint, at in _SPHERICAL.items():
        rotations[:, INDEX[joint]] = quaternion_matrix(frames[:, at : at + 4])
    for joint, at in _HINGE.items():
        rotations[:, INDEX[joint]] = axis_matrix(2, frames[:, at])
    places = forward_kinematics(rotations, frames[:, 1:4])
    return Clip(file.stem, ACTIONS[file.stem], grounded(places), 1.0 / float(frames[:-1, 0].mean()), loops)


def _read_cmu(file: Path) -> Clip:
    places, fps = bvh.read(file)
    return Clip(file.stem, ACTIONS[file.stem], grounded(places), fps, False)


def grounded(places: Tensor) -> Tensor:
    """The clip with its lowest joint at height 0 and its first pelvis over the origin."""
    shift = torch.stack([places[0, 0, 0], places[..., 1].min(), places[0, 0, 2]])
    return places - shift


def resample(clip: Clip, fps: float, speed: float = 1.0) -> Clip:
    """Linear interpolation to `fps`, played `speed` times as fast."""
    seconds = (len(clip.places) - 1) / clip.fps / speed
    count = max(2, int(seconds * fps) + 1)
    at = torch.arange(count) / fps * speed * clip.fps
    low = at.long().clamp(max=len(clip.places) - 2)
    share = (at - low)[:, None, None]
    places = clip.places[low] * (1 - share) + clip.places[low + 1] * share
    return replace(clip, places=places, fps=fps)


def mirrored(clip: Clip) -> Clip:
    """Left and right exchanged; turns change their name."""
    flipped = clip.places[:, list(MIRROR)] * torch.tensor([1.0, 1.0, -1.0])
    action = _MIRRORED_ACTION.get(clip.action, clip.action)
    return replace(clip, name=clip.name + "~", action=action, places=flipped)


def heading(places: Tensor) -> Tensor:
    """Angle [F] of the body's forward direction about the vertical, unwrapped; 0 is +x, positive towards -z.

    Where the hips are nearly vertical (a cartwheel), the last clear direction is kept.
    """
    right = places[:, INDEX["r_hip"]] - places[:, INDEX["l_hip"]]
    right = right + places[:, INDEX["r_shoulder"]] - places[:, INDEX["l_shoulder"]]
    flat = right[:, [0, 2]].norm(dim=-1)
    angle = torch.atan2(right[:, 0], right[:, 2])
    clear = flat > 0.3 * right.norm(dim=-1)
    last = torch.where(clear, torch.arange(len(angle)), 0).cummax(0).values
    angle = angle[last]
    step = torch.remainder(angle.diff() + torch.pi, 2 * torch.pi) - torch.pi
    return torch.cat([angle[:1], angle[:1] + step.cumsum(0)])


def extended(clip: Clip, frames: int) -> Clip:
    """A looping clip repeated until it has `frames`: each round goes on from the last place and heading."""
    if not clip.loops or len(clip.places) >= frames:
        return clip
    places = once = clip.places
    whole = heading(once)
    while len(places) < frames:
        turn = axis_matrix(1, heading(places[-len(once) :])[-1] - whole[0])
        moved = (once - once[0, 0]) @ turn.T
        start = places[-1, 0] * torch.tensor([1.0, 0.0, 1.0]) + once[0, 0] * torch.tensor([0.0, 1.0, 0.0])
        places = torch.cat([places, (moved + start)[1:]])
    return replace(clip, places=places[:frames])

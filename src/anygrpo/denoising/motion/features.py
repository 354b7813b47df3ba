"""A motion as numbers a frame, and back: HumanML3D's published 263 (`humanml`), or a compact layout of our own (47):

root      heading change, forward and sideways speed of the pelvis in its own frame (per frame), pelvis height   4
places    joints relative to the pelvis's ground point, turned to face +x                             3 a joint
contacts  ankle and toe of each side on the ground (0 or 1)                                                       4
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from anygrpo.denoising.motion import humanml
from anygrpo.denoising.motion.clips import heading
from anygrpo.denoising.motion.skeleton import INDEX, JOINTS, axis_matrix

FEET = ("l_ankle", "l_foot", "r_ankle", "r_foot")
CONTACT_HEIGHT = {"l_ankle": 0.12, "r_ankle": 0.12, "l_foot": 0.08, "r_foot": 0.08}
CONTACT_SPEED = 0.4
"""A foot joint touches the ground below this height (m) and speed (m/s)."""

_COMPACT = ("l_hip", "r_hip", "l_knee", "r_knee", "l_ankle", "r_ankle", "l_foot", "r_foot", "neck", "l_elbow",
            "r_elbow", "l_wrist", "r_wrist")  # fmt: skip
_COMPACT_BONES = (("pelvis", "l_hip"), ("l_hip", "l_knee"), ("l_knee", "l_ankle"), ("l_ankle", "l_foot"),
                  ("pelvis", "r_hip"), ("r_hip", "r_knee"), ("r_knee", "r_ankle"), ("r_ankle", "r_foot"),
                  ("pelvis", "neck"), ("neck", "l_elbow"), ("l_elbow", "l_wrist"), ("neck", "r_elbow"),
                  ("r_elbow", "r_wrist"))  # fmt: skip


@dataclass(frozen=True)
class Layout:
    """Which numbers a frame has.

    Attributes:
        joints: the joints kept besides the pelvis.
        full: HumanML3D's published convention, with rotations and speeds.
        bones: pairs of joints to draw.
    """

    joints: tuple[str, ...]
    full: bool
    bones: tuple[tuple[str, str], ...]

    @property
    def blocks(self) -> dict[str, int]:
        """Sizes of the blocks, in order."""
        n = len(self.joints)
        middle = {"turns": 6 * n, "speeds": 3 * (n + 1)} if self.full else {}
        return {"spin": 1, "drift": 2, "height": 1, "places": 3 * n, **middle, "contacts": 4}

    @property
    def size(self) -> int:
        return sum(self.blocks.values())


def _parent_bones() -> tuple[tuple[str, str], ...]:
    from anygrpo.denoising.motion.skeleton import PARENTS

    return tuple((JOINTS[PARENTS[j]], JOINTS[j]) for j in range(1, len(JOINTS)))


LAYOUTS = {
    "humanml": Layout(JOINTS[1:], True, _parent_bones()),
    "compact": Layout(_COMPACT, False, _COMPACT_BONES),
}


def _turned(x: Tensor, angle: Tensor) -> Tensor:
    """Vectors [F, J, 3] turned by `angle` [F] about the vertical."""
    return x @ axis_matrix(1, angle).transpose(-1, -2)


def encode(places: Tensor, fps: float, layout: Layout) -> Tensor:
    """Features [F - 1, size] of joint positions [F, 22, 3]; the last frame only gives the last speeds."""
    if layout.full:
        return humanml.encode(places)
    angle = heading(places)
    face, now, step = angle[:-1], places[:-1], places.diff(dim=0)
    ground = now[:, :1] * torch.tensor([1.0, 0.0, 1.0])
    kept = [INDEX[j] for j in layout.joints]
    drift = _turned(step[:, :1], -face)[:, 0]
    parts = [angle.diff()[:, None], drift[:, [0, 2]], now[:, 0, 1:2], _turned(now - ground, -face)[:, kept].flatten(1)]
    speed = step.norm(dim=-1) * fps
    touch = [(now[:, INDEX[j], 1] < CONTACT_HEIGHT[j]) & (speed[:, INDEX[j]] < CONTACT_SPEED) for j in FEET]
    return torch.cat([*parts, torch.stack(touch, 1).float()], 1)


def split(features: Tensor, layout: Layout) -> dict[str, Tensor]:
    """The blocks of features [..., size] by name."""
    return dict(zip(layout.blocks, features.split(list(layout.blocks.values()), -1)))


def decode(features: Tensor, layout: Layout) -> dict[str, Tensor]:
    """World positions [F, 3] by joint name (pelvis and the layout's joints), starting over the origin; facing +x in the
    compact layout, +z in the published one."""
    if layout.full:
        places = humanml.recover(features)
        return {"pelvis": places[:, 0], **{j: places[:, i] for i, j in enumerate(layout.joints, 1)}}
    block = split(features, layout)
    angle = torch.cat([torch.zeros(1), block["spin"][:-1, 0].cumsum(0)])
    drift = torch.stack([block["drift"][:, 0], torch.zeros(len(angle)), block["drift"][:, 1]], -1)
    step = _turned(drift[:, None], angle)[:, 0]
    ground = torch.cat([torch.zeros(1, 3), step[:-1].cumsum(0)])
    places = _turned(block["places"].unflatten(-1, (-1, 3)), angle) + ground[:, None]
    pelvis = ground + torch.cat([torch.zeros_like(drift[:, :1]), block["height"], torch.zeros_like(drift[:, :1])], -1)
    return {"pelvis": pelvis, **{j: places[:, i] for i, j in enumerate(layout.joints)}}


@dataclass(frozen=True)
class Scaler:
    """Standardisation: one mean a number, one std a block (as HumanML3D does, so that small numbers stay small).

    Attributes:
        mean, std: [size].
    """

    mean: Tensor
    std: Tensor

    @staticmethod
    def fit(features: Tensor, layout: Layout) -> Scaler:
        """From frames [N, size]."""
        each = features.std(0)
        std = torch.cat([b.mean().clamp(min=1e-3).expand(len(b)) for b in split(each, layout).values()])
        return Scaler(features.mean(0), std)

    def apply(self, features: Tensor) -> Tensor:
        return (features - self.mean) / self.std

    def undo(self, standard: Tensor) -> Tensor:
        return standard * self.std + self.mean

"""A body of 22 joints in the order of SMPL and HumanML3D, with the bone lengths of DeepMimic's humanoid (metres, y up).

Rest pose: facing +x, right +z, arms hanging. Joints that DeepMimic's 13-joint body lacks (spine, collars, head, feet)
sit at fixed places of the segment that carries them.
"""

from __future__ import annotations

import torch
from torch import Tensor

JOINTS = (
    "pelvis", "l_hip", "r_hip", "spine1", "l_knee", "r_knee", "spine2", "l_ankle", "r_ankle", "spine3", "l_foot",
    "r_foot", "neck", "l_collar", "r_collar", "head", "l_shoulder", "r_shoulder", "l_elbow", "r_elbow", "l_wrist",
    "r_wrist",
)  # fmt: skip
PARENTS = (-1, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 9, 9, 12, 13, 14, 16, 17, 18, 19)
INDEX = {name: i for i, name in enumerate(JOINTS)}
MIRROR = tuple(INDEX[{"l": "r", "r": "l"}[n[0]] + n[1:]] if n[1] == "_" else INDEX[n] for n in JOINTS)

_OFFSETS = {
    "pelvis": (0.0, 0.0, 0.0),
    "spine1": (0.0, 0.078717, 0.0),
    "spine2": (0.0, 0.078717, 0.0),
    "spine3": (0.0, 0.078717, 0.0),
    "neck": (0.0, 0.223894, 0.0),
    "head": (0.0, 0.175, 0.0),
    "hip": (0.0, 0.0, 0.084887),
    "knee": (0.0, -0.421546, 0.0),
    "ankle": (0.0, -0.40987, 0.0),
    "foot": (0.13, -0.03, 0.0),
    "collar": (-0.012, 0.2, 0.06),
    "shoulder": (-0.01205, 0.0435, 0.12311),
    "elbow": (0.0, -0.274788, 0.0),
    "wrist": (0.0, -0.258947, 0.0),
}


def _offset(joint: str) -> tuple[float, float, float]:
    x, y, z = _OFFSETS[joint] if joint in _OFFSETS else _OFFSETS[joint[2:]]
    return (x, y, -z) if joint.startswith("l_") else (x, y, z)


OFFSETS = torch.tensor([_offset(j) for j in JOINTS])
"""[22, 3] each joint's place in its parent's frame at rest."""


def quaternion_matrix(q: Tensor) -> Tensor:
    """Rotation matrices [..., 3, 3] of quaternions [..., 4] in the order w, x, y, z (normalised here)."""
    w, x, y, z = (q / q.norm(dim=-1, keepdim=True)).unbind(-1)
    rows = [
        1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y),
        2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x),
        2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y),
    ]  # fmt: skip
    return torch.stack(rows, -1).unflatten(-1, (3, 3))


def axis_matrix(axis: int, angle: Tensor) -> Tensor:
    """Rotation by `angle` [...] (radians) about x, y or z (0, 1, 2): [..., 3, 3]."""
    c, s, zero, one = angle.cos(), angle.sin(), torch.zeros_like(angle), torch.ones_like(angle)
    rows = {
        0: (one, zero, zero, zero, c, -s, zero, s, c),
        1: (c, zero, s, zero, one, zero, -s, zero, c),
        2: (c, -s, zero, s, c, zero, zero, zero, one),
    }[axis]
    return torch.stack(rows, -1).unflatten(-1, (3, 3))


def forward_kinematics(rotations: Tensor, root: Tensor) -> Tensor:
    """Joint positions [F, 22, 3] from local rotations [F, 22, 3, 3] and the pelvis's place [F, 3]."""
    world, places = [rotations[:, 0]], [root]
    for j in range(1, len(JOINTS)):
        parent = PARENTS[j]
        places.append(places[parent] + world[parent] @ OFFSETS[j])
        world.append(world[parent] @ rotations[:, j])
    return torch.stack(places, 1)


def between(a: Tensor, b: Tensor) -> Tensor:
    """The smallest rotations [..., 3, 3] that turn directions a [..., 3] into b [..., 3]."""
    a, b = (v / v.norm(dim=-1, keepdim=True).clamp(min=1e-8) for v in (a, b))
    real = 1 + (a * b).sum(-1, keepdim=True)
    opposite = real < 1e-6
    spare = torch.stack([-a[..., 1], a[..., 0], torch.zeros_like(a[..., 0])], -1) + 1e-6
    axis = torch.where(opposite, spare, torch.cross(a, b, dim=-1))
    return quaternion_matrix(torch.cat([torch.where(opposite, torch.zeros_like(real), real), axis], -1))


def fitted(rest: Tensor, bones: Tensor) -> Tensor:
    """Rotations [F, 3, 3] that lay the bones `rest` [C, 3] nearest to `bones` [F, C, 3]: least squares, Kabsch 1976."""
    u, _, v = torch.linalg.svd(rest.T @ bones)
    flip = torch.ones(len(bones), 3)
    flip[:, 2] = torch.det(u @ v)
    return (v.transpose(-1, -2) * flip[:, None]) @ u.transpose(-1, -2)


def local_rotations(places: Tensor, whole: bool = False) -> Tensor:
    """Local rotations [F, 22, 3, 3] that pose the rest body along the bones of `places` [F, 22, 3].

    The pelvis takes the frame of hips and spine; every other joint the smallest rotation, in its parent's frame, that
    lays its first bone where it is (positions leave the twist about a bone open). Joints without a child stay at rest.

    Args:
        whole: joints with several children (the chest) lay all of their bones, in the least-squares sense: the twist
            of the upper body, which one bone does not show. False is HumanML3D's convention.
    """
    frames = places.shape[0]
    right = places[:, INDEX["r_hip"]] - places[:, INDEX["l_hip"]]
    up = places[:, INDEX["spine1"]] - places[:, 0]
    z = right / right.norm(dim=-1, keepdim=True).clamp(min=1e-8)
    x = torch.cross(up, z, dim=-1)
    x = x / x.norm(dim=-1, keepdim=True).clamp(min=1e-8)
    world = [torch.stack([x, torch.cross(z, x, dim=-1), z], -1)]
    local = [world[0]]
    for j in range(1, len(JOINTS)):
        children = [c for c in range(len(JOINTS)) if PARENTS[c] == j]
        base = world[PARENTS[j]]
        turn = torch.eye(3).expand(frames, 3, 3)
        if whole and len(children) > 1:
            bones = (places[:, children] - places[:, j : j + 1]) @ base
            turn = fitted(OFFSETS[children], bones)
        elif children:
            bone = (base.transpose(-1, -2) @ (places[:, children[0]] - places[:, j])[..., None])[..., 0]
            turn = between(OFFSETS[children[0]].expand_as(bone), bone)
        local.append(turn)
        world.append(base @ turn)
    return torch.stack(local, 1)

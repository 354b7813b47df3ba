"""HumanML3D's 263 numbers a frame (and KIT-ML's 251) in their published convention, and joints from them.

    0        half the turn about y, negated: arcsin of the y part of q[t+1] q[t]^-1, where q[t] takes the facing to +z
    1, 2     root step x, z, turned by q[t+1]; per frame, not per second
    3        root height
    4 ..     the other joints: x and z from the root, y from the floor, turned by q[t]                 3 a joint
    then     local rotations, first two columns one after the other                                    6 a joint
    then     steps of all joints, root included, turned by q[t]                                        3 a joint
    last 4   left ankle and toe, right ankle and toe: 1 where a step's square is below .002 m^2 (no height test)

T joint frames give T - 1 feature frames. Source: Guo et al., "Generating Diverse and Natural 3D Human Motions from
Text" (CVPR 2022). The rotations are the smallest ones that lay our body along the joints: bones' twists are open in
positions, so this block is of the published form but not the published inverse kinematics'. Decoding never reads it.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn.functional import pad

from anygrpo.denoising.motion.skeleton import INDEX, axis_matrix, local_rotations

CONTACT = 0.002
"""Square of a foot joint's step (m^2 a frame) below which it is called a contact."""
SMOOTHING = 20.0
"""Sigma (frames) of the Gaussian that smooths the facing direction."""
FEET = ("l_ankle", "l_foot", "r_ankle", "r_foot")


def facing(places: Tensor, smoothing: float = SMOOTHING) -> Tensor:
    """Angle [F] of the body's front about y, unwrapped; 0 is +z, positive towards +x. Front = up x across, where across
    goes from the left hip and shoulder to the right ones."""
    across = places[:, INDEX["r_hip"]] - places[:, INDEX["l_hip"]]
    across = across + places[:, INDEX["r_shoulder"]] - places[:, INDEX["l_shoulder"]]
    front = torch.stack([across[:, 2], -across[:, 0]], -1)  # x and z of (0, 1, 0) x across
    front = front / across.norm(dim=-1, keepdim=True).clamp(min=1e-8)
    if smoothing:
        front = _smooth(front, smoothing)
    angle = torch.atan2(front[:, 0], front[:, 1])
    step = torch.remainder(angle.diff() + math.pi, 2 * math.pi) - math.pi
    return torch.cat([angle[:1], angle[:1] + step.cumsum(0)])


def _smooth(x: Tensor, sigma: float) -> Tensor:
    """Gaussian over time [F, n], cut at four sigma, with the ends repeated."""
    radius = int(4 * sigma + 0.5)
    kernel = torch.exp(-0.5 * (torch.arange(-radius, radius + 1, dtype=torch.float64) / sigma) ** 2)
    kernel = (kernel / kernel.sum()).to(x.dtype)
    longer = torch.cat([x[:1].expand(radius, -1), x, x[-1:].expand(radius, -1)])
    return torch.nn.functional.conv1d(longer.T[:, None], kernel[None, None])[:, 0].T


def _turned(x: Tensor, angle: Tensor) -> Tensor:
    """Vectors [F, J, 3] turned by `angle` [F] about y."""
    return x @ axis_matrix(1, angle).transpose(-1, -2)


def standing(places: Tensor) -> Tensor:
    """[F, J, 3] as published clips lie: lowest point on the floor, first root over the origin, first facing +z."""
    shift = torch.stack([places[0, 0, 0], places[..., 1].min(), places[0, 0, 2]])
    return _turned(places - shift, -facing(places, 0.0)[:1].expand(len(places)))


def encode(places: Tensor) -> Tensor:
    """[F - 1, 263] of joints [F, 22, 3] (metres, y up, 20 frames a second), after `standing`."""
    places = standing(places)
    angle = facing(places)
    angle = torch.cat([torch.zeros(1), angle[1:]])  # q[0] is set to the identity
    now, step = places[:-1], places.diff(dim=0)
    turn = torch.remainder(angle.diff() + math.pi, 2 * math.pi) - math.pi
    root = _turned(step[:, :1], -angle[1:])[:, 0, [0, 2]]
    ground = now[:, :1] * torch.tensor([1.0, 0.0, 1.0])
    around = _turned(now - ground, -angle[:-1])[:, 1:]
    to_front = axis_matrix(1, torch.tensor(-math.pi / 2))  # our rest pose faces +x, the published one +z
    turns = (to_front @ local_rotations(now)[:, 1:] @ to_front.T)[..., :2].transpose(-1, -2)
    speeds = _turned(step, -angle[:-1])
    touch = torch.stack([step[:, INDEX[j]].square().sum(-1) < CONTACT for j in FEET], 1).float()
    parts = [-turn[:, None] / 2, root, now[:, 0, 1:2], around.flatten(1), turns.flatten(1), speeds.flatten(1), touch]
    return torch.cat(parts, 1)


def recover(features: Tensor) -> Tensor:
    """Joints [F, J, 3] of de-normalised features [F, 12 J - 1] (263: 22 joints, 251: 21), as published.

    Numbers 0 to 2 of a frame act on the next one; the last frame's are not used.
    """
    joints = (features.shape[-1] + 1) // 12
    half = pad(features[:-1, 0].cumsum(0), (1, 0))
    angle = -2 * half
    step = torch.zeros(len(features), 1, 3, dtype=features.dtype)
    step[1:, 0, 0], step[1:, 0, 2] = features[:-1, 1], features[:-1, 2]
    root = _turned(step, angle).cumsum(0)
    around = _turned(features[:, 4 : 4 + 3 * (joints - 1)].unflatten(1, (joints - 1, 3)), angle) + root
    pelvis = torch.stack([root[:, 0, 0], features[:, 3], root[:, 0, 2]], -1)
    return torch.cat([pelvis[:, None], around], 1)

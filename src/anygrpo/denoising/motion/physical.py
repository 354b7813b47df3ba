"""Physical measures of motions as published, per clip. Joints [F, J, 3] in metres, y up, the floor at 0.

The floor of published clips is their own lowest point, and captured clips skate and float too: give the data's own
value beside a policy's, and distrust what falls below it.
"""

from __future__ import annotations

import torch
from torch import Tensor

from anygrpo.denoising.motion.skeleton import INDEX

LOW = 0.05
FAST = 0.50
TOES = (INDEX["l_foot"], INDEX["r_foot"])
TOLERANCE, TOUCH = 0.005, 0.025


def skating_ratio(joints: Tensor, fps: float, feet: tuple[int, ...] = TOES) -> float:
    """Share of the F - 1 steps in which a foot slides: below LOW (m) in both frames, and faster over the ground than
    FAST (m/s), at once and in the mean of five frames (GMD, ICCV 2023)."""
    foot = joints[:, list(feet)]
    speed = foot.diff(dim=0)[..., [0, 2]].norm(dim=-1) * fps
    padded = torch.nn.functional.pad(speed.T[None], (2, 2), mode="replicate")[0] if len(speed) > 0 else speed.T
    mean = padded.unfold(-1, 5, 1).mean(-1).T
    low = (foot[:-1, :, 1] < LOW) & (foot[1:, :, 1] < LOW)
    return float((low & (speed > FAST) & (mean > FAST)).any(1).float().mean())


def floating(joints: Tensor) -> float:
    """Mean height (mm) of the lowest joint above the floor, beyond TOLERANCE: PhysDiff's, on joints."""
    return float((joints[..., 1].amin(1) - TOLERANCE).clamp(min=0).mean()) * 1000


def penetration(joints: Tensor) -> float:
    """Mean depth (mm) of the lowest joint below the floor, beyond TOLERANCE (as PhysDiff's, on joints)."""
    return float((-joints[..., 1].amin(1) - TOLERANCE).clamp(min=0).mean()) * 1000


def sliding(joints: Tensor, feet: tuple[int, ...] = TOES) -> float:
    """Mean way over the ground (mm) of feet that touch it in two frames in a row: PhysDiff's, on joints, which lie
    inside the body and touch below TOUCH."""
    foot = joints[:, list(feet)]
    touch = foot[..., 1] < TOUCH
    both = touch[:-1] & touch[1:]
    way = foot.diff(dim=0)[..., [0, 2]].norm(dim=-1)
    return float(way[both].mean()) * 1000 if bool(both.any()) else 0.0


def jitter(joints: Tensor, fps: float) -> float:
    """Mean norm of the third difference times fps^3, m/s^3, over joints and frames. Under four frames: 0."""
    return float((joints.diff(n=3, dim=0) * fps**3).norm(dim=-1).mean()) if len(joints) >= 4 else 0.0


def physical(joints: Tensor, fps: float) -> dict[str, float]:
    """All of them, by name."""
    return {
        "skating_ratio": skating_ratio(joints, fps),
        "sliding_mm": sliding(joints),
        "floating_mm": floating(joints),
        "penetration_mm": penetration(joints),
        "jitter": jitter(joints, fps),
    }

"""Parts of the reward that need no learned judge, each in [0, 1]; 1 is what captured motion does. All but `diversity`
take world positions {joint: [F, 3]} (metres, y up, floor at 0)."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from anygrpo.denoising.motion.features import CONTACT_HEIGHT, FEET
from anygrpo.denoising.motion.skeleton import INDEX, OFFSETS, PARENTS

Places = dict[str, Tensor]

SLIDE = 0.5
"""Mean sliding speed (m/s) of the supporting foot at which the skating score is 1/e."""
DEPTH = 0.02
"""Mean depth (m) of the lowest joint under the floor at which the floor score is 1/e."""
JERK = 1200.0
"""Root mean square jerk (m/s^3) over joints that captured motion reaches (its most acrobatic clips)."""
STRETCH = 0.1
"""Relative change of a limb's length that is tolerated."""
BENT = math.radians(165)
"""Largest flexion of knees and elbows."""

_LIMBS = (("hip", "knee", "ankle"), ("shoulder", "elbow", "wrist"))


def skating(places: Places, fps: float) -> float:
    """exp(-v / SLIDE), v the mean horizontal speed of the supporting point: the slowest foot joint that is near the
    ground in two frames in a row (a foot that swings past the other is no skating). No support at all: 1."""
    speeds = []
    for joint in FEET:
        p = places[joint]
        low = (p[:-1, 1] < CONTACT_HEIGHT[joint]) & (p[1:, 1] < CONTACT_HEIGHT[joint])
        speeds.append(torch.where(low, p.diff(dim=0)[:, [0, 2]].norm(dim=-1) * fps, torch.inf))
    slowest = torch.stack(speeds).amin(0)
    supported = slowest[torch.isfinite(slowest)]
    return math.exp(-float(supported.mean()) / SLIDE) if len(supported) else 1.0


def floor(places: Places) -> float:
    """exp(-d / DEPTH), d the mean over frames of how far the lowest joint is under the floor."""
    lowest = torch.stack([p[:, 1] for p in places.values()]).amin(0)
    return math.exp(-float((-lowest).clamp(min=0).mean()) / DEPTH)


def jerk(places: Places, fps: float) -> float:
    """exp(-(j / JERK - 1)) for a root mean square jerk j above JERK, else 1. Shorter than four frames: 1."""
    p = torch.stack(list(places.values()))
    if p.shape[1] < 4:
        return 1.0
    third = p.diff(n=3, dim=1) * fps**3
    size = float(third.square().sum(-1).mean().sqrt())
    return math.exp(-max(0.0, size / JERK - 1))


def diversity(motion: Tensor, mean: Tensor, spread: float) -> float:
    """min(1, d / spread), d the root mean square difference of a motion [F, N] (standardised features) to its action's
    mean motion [L, N] over the frames both have, spread that of captured motions.

    Motions of one caption are far apart if each is far from their mean. To compare those of a group, which may share
    their start, would pay for reacting to the sampler's noise instead."""
    n = min(len(motion), len(mean))
    return min(1.0, float((motion[:n] - mean[:n]).square().mean().sqrt()) / spread)


def limits(places: Places) -> float:
    """Share of limb checks that hold: bone lengths within STRETCH of the body's, knees and elbows bent below BENT.

    Joints that a layout leaves out are not checked.
    """
    checks = []
    for side in "lr":
        for names in _LIMBS:
            a, b, c = (places.get(f"{side}_{n}") for n in names)
            if b is not None and c is not None:
                checks.append(_kept_length(f"{side}_{names[2]}", b, c))
            if a is not None and b is not None and c is not None:
                checks += [_kept_length(f"{side}_{names[1]}", a, b), _flexion(a, b, c) < BENT]
    return float(torch.stack(checks).float().mean())


def _kept_length(child: str, a: Tensor, b: Tensor) -> Tensor:
    ours = float(OFFSETS[INDEX[child]].norm())
    return ((a - b).norm(dim=-1) / ours - 1).abs() < STRETCH


def _flexion(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    """Angle [F] between the two bones' directions: 0 is a straight limb."""
    u, v = b - a, c - b
    cosine = (u * v).sum(-1) / (u.norm(dim=-1) * v.norm(dim=-1)).clamp(min=1e-8)
    return cosine.clamp(-1, 1).arccos()


def duration(frames: int, wanted: int) -> float:
    """min / max of the two lengths."""
    return min(frames, wanted) / max(frames, wanted)


assert all(PARENTS[INDEX[f"l_{c}"]] == INDEX[f"l_{p}"] for _, p, c in _LIMBS)

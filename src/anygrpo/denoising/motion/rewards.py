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
NEAR = 0.08
"""Height (m) of the lowest joint up to which it touches the floor."""
HOVER = 0.05
"""Mean height (m) of an unsupported body at which the floating score is 1/e."""
GRAVITY = 9.81
STRETCH = 0.1
"""Relative change of a limb's length that is tolerated."""
BENT = math.radians(165)
"""Largest flexion of knees and elbows."""

_LIMBS = (("hip", "knee", "ankle"), ("shoulder", "elbow", "wrist"))


def _lowest(places: Places) -> Tensor:
    """[F] height of the lowest joint."""
    return torch.stack([p[:, 1] for p in places.values()]).amin(0)


def unsupported(places: Places, fps: float) -> Tensor:
    """[F] bool: nothing is near the floor (NEAR), and the body does not fall freely either.

    A jump is a stretch of frames in the air whose mean vertical acceleration (of all joints' mean, between the steps at
    its two ends) is at least half of gravity's; a body that is held up in the air has none.
    """
    air = _lowest(places) > NEAR
    height = torch.stack([p[:, 1] for p in places.values()]).mean(0)
    out = air.clone()
    edges = torch.nn.functional.pad(air.int(), (1, 1)).diff()
    for start, end in zip((edges == 1).nonzero()[:, 0].tolist(), (edges == -1).nonzero()[:, 0].tolist()):
        first, last = max(start - 1, 0), min(end, len(air) - 1)  # with the frame of support at each end
        steps = last - first
        if steps < 2:
            out[start:end] = end - start == len(air)  # too short to tell: of a longer motion it is let pass
            continue
        change = (height[last] - height[last - 1]) - (height[first + 1] - height[first])
        out[start:end] = bool(change * fps**2 / (steps - 1) > -GRAVITY / 2)
    return out


def skating(places: Places, fps: float) -> float:
    """exp(-v / SLIDE), v the mean horizontal speed of the supporting point: the slowest foot joint that is near the
    ground in two frames in a row (a foot that swings past the other is no skating); of frames in which the body hangs
    in the air (`unsupported`), the slowest foot joint at any height: lifting a body off its feet earns nothing. Frames
    on other joints, and free flight, don't count; if no frame does: 1 where something supports the body, else 0."""
    speeds, every = [], []
    for joint in FEET:
        p = places[joint]
        low = (p[:-1, 1] < CONTACT_HEIGHT[joint]) & (p[1:, 1] < CONTACT_HEIGHT[joint])
        speed = p.diff(dim=0)[:, [0, 2]].norm(dim=-1) * fps
        speeds.append(torch.where(low, speed, torch.inf))
        every.append(speed)
    slowest = torch.stack(speeds).amin(0)
    hanging = unsupported(places, fps)
    slowest = torch.where(hanging[1:] & torch.isinf(slowest), torch.stack(every).amin(0), slowest)
    counted = slowest[torch.isfinite(slowest)]
    if len(counted):
        return math.exp(-float(counted.mean()) / SLIDE)
    return float(bool((_lowest(places) <= NEAR).any()))


def floating(places: Places, fps: float) -> float:
    """exp(-h / HOVER), h the mean over frames of how far the lowest joint of an unsupported body is above the floor."""
    height = torch.where(unsupported(places, fps), _lowest(places), 0.0)
    return math.exp(-float(height.mean()) / HOVER)


def contact(places: Places, fps: float) -> float:
    """Share of frames in which something is near the floor or the body is in free flight."""
    return 1 - float(unsupported(places, fps).float().mean())


def floor(places: Places) -> float:
    """exp(-d / DEPTH), d the mean over frames of how far the lowest joint is under the floor."""
    return math.exp(-float((-_lowest(places)).clamp(min=0).mean()) / DEPTH)


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

"""Training material: windows of clips, mirrored and re-timed, as standardised features with captions."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from anygrpo.denoising.motion.clips import Clip, extended, mirrored, resample
from anygrpo.denoising.motion.features import Layout, Scaler, encode
from anygrpo.errors import DataError
from anygrpo.spoken import Text

REWARD_SPEEDS = (0.8, 0.9, 1.0, 1.1, 1.2)
JUDGE_SPEEDS = (0.85, 0.95, 1.05, 1.15)
"""Re-timings of the windows that the policy and the reward's matcher learn from, and of those that are kept for the
judge of held-out samples: no window is in both."""
STARTS = 4
"""Windows of a clip, evenly spaced; a looping clip goes round from each start."""


@dataclass(frozen=True)
class Window:
    """A stretch of motion.

    Attributes:
        action: what it shows.
        features: [length, size] standardised.
    """

    action: str
    features: Tensor


@dataclass(frozen=True)
class Bank:
    """Windows by action, and the scaler they share.

    Attributes:
        windows: action -> windows, in a fixed order.
    """

    windows: dict[str, list[Window]]
    scaler: Scaler

    @property
    def actions(self) -> list[str]:
        return sorted(self.windows)


def windows_of(
    clip: Clip, speeds: tuple[float, ...], frames: int, fps: float, layout: Layout
) -> list[tuple[str, Tensor]]:
    """(action, raw features [<= frames, size]) of a clip at each speed, mirrored too, from each start."""
    out = []
    for speed in speeds:
        once = resample(clip, fps, speed)
        for version in (once, mirrored(once)):
            whole = encode(extended(version, frames + 1 + len(once.places)).places, fps, layout)
            out += [(version.action, whole[s : s + frames]) for s in _starts(version, len(whole), frames)]
    return out


def _starts(clip: Clip, available: int, frames: int) -> list[int]:
    """First frames of at most STARTS windows: round the loop, or spread over a clip that ends."""
    room = len(clip.places) if clip.loops else available - frames + 1
    return list(range(0, max(1, room), max(1, room // STARTS)))[:STARTS]


def build_bank(
    clips: list[Clip], speeds: tuple[float, ...], frames: int, fps: float, layout: Layout, scaler: Scaler | None = None
) -> Bank:
    """All windows of all clips; the scaler is fitted to them where none is given."""
    raw = [w for clip in clips for w in windows_of(clip, speeds, frames, fps, layout)]
    scaler = scaler or Scaler.fit(torch.cat([f for _, f in raw]), layout)
    windows: dict[str, list[Window]] = {}
    for action, features in raw:
        windows.setdefault(action, []).append(Window(action, scaler.apply(features)))
    return Bank(windows, scaler)


def split_clips(clips: list[Clip]) -> tuple[list[Clip], list[Clip]]:
    """(shown, judged): of each action with several clips the last by name is the judge's alone.

    Raises:
        DataError: no action has two clips.
    """
    names: dict[str, list[str]] = {}
    for clip in clips:
        names.setdefault(clip.action, []).append(clip.name)
    last = {max(found) for found in names.values() if len(found) > 1}
    if not last:
        raise DataError(
            Text(
                "no action has two clips: none can be left to the judge", "没有一个动作有两个片段：无法给评判者单独留出"
            ),
            'task.judge = "speeds"',
        )
    return [c for c in clips if c.name not in last], [c for c in clips if c.name in last]


def mean_motion(windows: list[Window]) -> tuple[Tensor, float]:
    """Mean of an action's windows, frame by frame [L, size], and their root mean square distance to it (1 where all are
    one)."""
    longest = max(len(w.features) for w in windows)
    total, count = windows[0].features.new_zeros(longest, windows[0].features.shape[1]), torch.zeros(longest, 1)
    for w in windows:
        total[: len(w.features)] += w.features
        count[: len(w.features)] += 1
    mean = total / count
    apart = [(w.features - mean[: len(w.features)]).square().mean() for w in windows]
    return mean, float(torch.stack(apart).mean().sqrt()) or 1.0

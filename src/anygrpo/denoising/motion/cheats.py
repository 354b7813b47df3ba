"""What a motion reward pays for motions that only seem to move well, beside the captured ones they are made from."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

LIFT = 0.1
"""Metres that `hover` is off the floor."""
GLIDE = 0.05
"""Metres a frame that `glide` goes forward."""
_PROMPTS = 16


def _hover(raw: Tensor, others: list[Tensor], joints: int) -> Tensor:
    """The whole body higher: root height, and the height of every joint."""
    out = raw.clone()
    out[:, 3] += LIFT
    out[:, 5 : 4 + 3 * joints : 3] += LIFT
    return out


def _freeze(raw: Tensor, others: list[Tensor], joints: int) -> Tensor:
    """The first frame for ever, without a step or a turn."""
    out = raw[:1].repeat(len(raw), 1)
    out[:, :3] = 0
    _speeds(out, joints)[:] = 0
    _contacts(out, joints)[:] = 1
    return out


def _glide(raw: Tensor, others: list[Tensor], joints: int) -> Tensor:
    """The first frame, moved over the floor."""
    out = _freeze(raw, others, joints)
    along = int(raw[:, 2].abs().mean() > raw[:, 1].abs().mean())
    out[:, 1 + along] = GLIDE
    _speeds(out, joints)[:, 2 * along :: 3] = GLIDE
    return out


def _copy(raw: Tensor, others: list[Tensor], joints: int) -> Tensor:
    """One motion for every caption."""
    return others[0][torch.arange(len(raw)).clamp(max=len(others[0]) - 1)]


def _noise(raw: Tensor, others: list[Tensor], joints: int) -> Tensor:
    """Each number shaken by half its own standard deviation."""
    g = torch.Generator().manual_seed(0)
    return raw + 0.5 * raw.std(0) * torch.randn(raw.shape, generator=g)


def _stretch(raw: Tensor, others: list[Tensor], joints: int) -> Tensor:
    """Half as fast."""
    at = torch.arange(len(raw)) / 2
    low = at.long()
    share = (at - low)[:, None]
    out = raw[low] * (1 - share) + raw[(low + 1).clamp(max=len(raw) - 1)] * share
    out[:, :3] /= 2
    _speeds(out, joints).div_(2)
    return out


def _speeds(raw: Tensor, joints: int) -> Tensor:
    """The joints' steps (a view) of the published layout, which rewards of features may read; none in ours."""
    start = 4 + 9 * joints
    return raw[:, start : start + 3 * (joints + 1)] if raw.shape[1] == 12 * joints + 11 else raw[:, :0]


def _contacts(raw: Tensor, joints: int) -> Tensor:
    """The four contacts (a view) of the published layout."""
    return raw[:, -4:] if raw.shape[1] == 12 * joints + 11 else raw[:, :0]


CHEATS: dict[str, Callable[[Tensor, list[Tensor], int], Tensor]] = {
    "hover": _hover, "freeze": _freeze, "glide": _glide, "copy": _copy, "noise": _noise, "stretch": _stretch,
}  # fmt: skip


def cheats(subject: Any) -> list[dict[str, Any]]:
    """A row a cheat: {"cheat", "paid", "honest", "difference", "error"}: mean rewards of it and of the captured motions
    of the same prompts, the mean difference and its standard error. No row where the task has no motions.
    """
    task = subject.task
    scaler = getattr(task, "scaler", None) or getattr(getattr(task, "bank", None), "scaler", None)
    if scaler is None:
        return []
    prompts = task.prompts(0, _PROMPTS)
    real = [row[0] for row in task.stored(prompts).actions]
    raw = [scaler.undo(m) for m in real]
    joints = _joints(raw[0].shape[1])
    honest = _rewards(task, prompts, real)
    out = []
    for name, change in CHEATS.items():
        paid = _rewards(task, prompts, [scaler.apply(change(m, raw, joints)) for m in raw])
        gap = paid - honest
        gap = gap[torch.isfinite(gap)]
        row = {"cheat": name, "paid": float(paid.nanmean()), "honest": float(honest.nanmean())}
        error = float(gap.std(correction=1)) / max(len(gap), 1) ** 0.5 if len(gap) > 1 else float("nan")
        out.append(row | {"difference": float(gap.mean()), "error": error})
    return out


def _joints(size: int) -> int:
    """Joints besides the pelvis of a layout with `size` numbers a frame (263, 251: 12 J - 1 with J; ours: 8 + 3 n)."""
    return (size + 1) // 12 - 1 if (size + 1) % 12 == 0 and size > 200 else (size - 8) // 3


def _rewards(task: Any, prompts: list[Any], motions: list[Tensor]) -> Tensor:
    scores = task.score(prompts, [[m] for m in motions])
    rewards = scores.rewards[:, 0].double().clone()
    if scores.valid is not None:
        rewards[~scores.valid[:, 0]] = torch.nan
    return rewards

"""Rows of one step that differ in size: cut to their own, scored with their like, and put together again.

A rollout pads every leaf at its end to its largest row. What a row's own sizes are lies beside it in the leaves "shape"
(of the first input) and "shape/KEY" (of the others); "columns" is the rollout's number of decisions.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from anygrpo.core.rollout import Evaluation, Rollout
from anygrpo.gates.joining import padded

SHAPE = "shape"
COLUMNS = "columns"


def shape_leaves(keys: list[str], leaves: dict[str, Tensor]) -> dict[str, Tensor]:
    """The leaves that tell each row's sizes; `leaves` [n, ...] by key, the first input first."""
    told = {}
    for i, key in enumerate(keys):
        x = leaves[key]
        told[SHAPE if i == 0 else f"{SHAPE}/{key}"] = torch.tensor([x.shape[1:]], device=x.device).expand(len(x), -1)
    return told


def unsampled(prompts: list[Any], keys: list[str], widths: list[int], device: torch.device) -> Rollout:
    """Supervised rows [P, 1] whose gates will follow the mean: log-probs are 0, and no one reads them.

    Args:
        keys: of the tensors that rows take from prompts.
        widths: decisions of each.
    """
    leaves = {k: padded([p[k][None, None] for p in prompts]).to(device) for k in keys}
    for i, k in enumerate(keys):
        told = torch.tensor([[p[k].shape] for p in prompts], device=device)
        leaves[SHAPE if i == 0 else f"{SHAPE}/{k}"] = told
    leaves["at_mean"] = torch.ones(len(prompts), 1, dtype=torch.bool, device=device)
    count = torch.tensor(widths, device=device)[:, None, None]
    mask = torch.arange(max(widths), device=device) < count
    leaves[COLUMNS] = torch.full((len(prompts), 1), mask.shape[-1], device=device)
    return Rollout.of(leaves, torch.zeros(mask.shape, device=device), mask)


Rows = Tensor | None
"""Places in a step; None: all of them, in order."""


def by_size(samples: Any, keys: list[str]) -> tuple[int, list[tuple[Rows, Any]]]:
    """The rollout's number of decisions, and of each size its rows and their samples, `keys` cut to it."""
    names = {key: SHAPE if i == 0 else f"{SHAPE}/{key}" for i, key in enumerate(keys)}
    names = {key: name for key, name in names.items() if key in samples and name in samples}
    told = torch.cat([samples[name] for name in names.values()], 1)
    alike = (told == told[:1]).all()
    same, columns, *first = torch.cat([alike[None].long(), samples[COLUMNS].amax()[None], told[0]]).tolist()
    if same:
        return columns, [(None, _cut(samples, names, first))]
    parts: list[tuple[Rows, Any]] = []
    for size in told.unique(dim=0):
        rows = (told == size).all(1).nonzero()[:, 0]
        parts.append((rows, _cut({k: x[rows] for k, x in samples.items()}, names, size.tolist())))
    return columns, parts


def _cut(samples: Any, names: dict[str, str], sizes: list[int]) -> Any:
    """Rows of one size, their leaves without padding; `sizes` one after another in the order of `names`."""
    out, at = dict(samples), 0
    for key, name in names.items():
        shape = sizes[at : at + samples[name].shape[1]]
        at += len(shape)
        if list(samples[key].shape[1:]) != shape:
            out[key] = samples[key][(slice(None), *(slice(0, k) for k in shape))]
    return out


def widened(made: Evaluation, columns: int) -> Evaluation:
    """With as many decisions as the rollout has; those that a smaller row lacks are 0 (and masked)."""
    lacking = columns - made.log_probs.shape[1]
    if lacking <= 0:
        return made
    wide = lambda x: None if x is None else torch.nn.functional.pad(x, (0, lacking))  # noqa: E731
    return Evaluation(
        torch.nn.functional.pad(made.log_probs, (0, lacking)), wide(made.entropy), wide(made.kl), made.losses
    )


def together(parts: list[tuple[Rows, Evaluation]]) -> Evaluation:
    """Evaluations of some rows each, as one of all rows in order."""
    first = parts[0][1]
    places = [rows for rows, _ in parts if rows is not None]
    if not places:
        return first
    order = torch.cat(places).argsort()
    cat = lambda xs: torch.cat(xs)[order]  # noqa: E731
    named: dict[str, Any] = {
        name: None if getattr(first, name) is None else cat([getattr(one, name) for _, one in parts])
        for name in ("log_probs", "entropy", "kl")
    }
    return Evaluation(**named, losses={k: cat([one.losses[k] for _, one in parts]) for k in first.losses})


def evaluation(made: dict[str, Tensor], times: slice) -> Evaluation:
    """Of passes' results by name: "log_probs", "entropy" and "kl" [n, T], the others losses [n]."""
    of_decisions = {name: made[name][:, times] for name in ("log_probs", "entropy", "kl") if name in made}
    return Evaluation(**of_decisions, losses={k: x for k, x in made.items() if k not in of_decisions})

"""Prompts of a selector as tensors, checked: one clear error for each way they can be wrong.

A prompt is a dict: "id", "query" [d], "candidates" [M, d], and optionally "ids" (M global ids), "excluded" (positions
that may not be picked, such as the query itself), and whatever its task needs.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from anygrpo.errors import ConfigError, DataError
from anygrpo.policies.selector.picks import NOTHING, STOP


@dataclass(frozen=True)
class Pools:
    """P prompts, padded to the largest pool.

    Attributes:
        query: [P, d]; candidates: [P, M, d]; choosable: [P, M] bool.
        key: [P] int64: hash of the features, equal for equal prompts and for no others.
    """

    query: Tensor
    candidates: Tensor
    choosable: Tensor
    key: Tensor

    def to(self, device: torch.device) -> Pools:
        return Pools(*(x.to(device) for x in (self.query, self.candidates, self.choosable, self.key)))


def pools(prompts: list[dict[str, Any]], features: int, needed: int) -> Pools:
    """Check and pad.

    Args:
        features: the d that the network was built for.
        needed: smallest number of choosable candidates (the picks, or 1 where the policy may stop).

    Raises:
        ConfigError: features of another size.
        DataError: NaN, an empty or wholly excluded pool, a pool smaller than `needed`.
    """
    size = max(len(p["candidates"]) for p in prompts)
    query = torch.stack([_checked(p, "query", features) for p in prompts])
    candidates = torch.zeros(len(prompts), size, features)
    choosable = torch.zeros(len(prompts), size, dtype=torch.bool)
    keys = []
    for i, prompt in enumerate(prompts):
        items = _checked(prompt, "candidates", features)
        candidates[i, : len(items)] = items
        choosable[i, : len(items)] = True
        choosable[i, list(prompt.get("excluded", ()))] = False
        _enough(prompt, int(choosable[i].sum()), needed)
        keys.append(_key(query[i], items, choosable[i, : len(items)]))
    return Pools(query, candidates, choosable, torch.tensor(keys))


def _checked(prompt: dict[str, Any], name: str, features: int) -> Tensor:
    x = torch.as_tensor(prompt[name], dtype=torch.float32)
    if x.shape[-1] != features:
        raise ConfigError(
            f"query {prompt.get('id')!r}: {name} has {x.shape[-1]} features, the policy takes {features}",
            f"set policy.features to {x.shape[-1]}",
        )
    if not torch.isfinite(x).all():
        raise DataError(f"query {prompt.get('id')!r}: {name} holds NaN or infinite embeddings")
    return x


def _enough(prompt: dict[str, Any], count: int, needed: int) -> None:
    if count == 0:
        raise DataError(f"query {prompt.get('id')!r}: no candidate may be chosen (empty pool, or all excluded)")
    if count < needed:
        raise DataError(
            f"query {prompt.get('id')!r}: {needed} picks from a pool of {count}",
            "set policy.shots lower, or policy.stop = true so that fewer can be picked",
        )


def _key(*tensors: Tensor) -> int:
    digest = hashlib.blake2b(digest_size=8)
    for x in tensors:
        digest.update(x.contiguous().numpy().tobytes())
    return int.from_bytes(digest.digest(), "little", signed=True)


def picks_of(prompt: dict[str, Any], action: Any, shots: int, stop: bool) -> list[int]:
    """A stored selection as `shots` picks, ended by STOP (where the policy can stop) and NOTHING.

    Raises:
        DataError: a pointer outside its pool, excluded, or given twice; more picks than `shots`.
    """
    size, excluded = len(prompt["candidates"]), set(prompt.get("excluded", ()))
    where = f"query {prompt.get('id')!r}: selection {tuple(action)}"
    if len(action) > shots:
        raise DataError(f"{where} has {len(action)} picks, the policy makes {shots}", "set policy.shots higher")
    for pick in action:
        if not 0 <= pick < size:
            raise DataError(f"{where} points outside its pool of {size}", "pointers are positions in the pool, from 0")
        if pick in excluded:
            raise DataError(f"{where} holds {pick}, which is excluded from this pool")
    if len(set(action)) < len(action):
        raise DataError(f"{where} picks the same candidate twice")
    tail = [NOTHING] * (shots - len(action))
    if tail and stop:
        tail[0] = STOP
    return [*map(int, action), *tail]

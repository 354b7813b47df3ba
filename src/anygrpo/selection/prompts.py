"""Prompts of a selector as tensors, checked: one clear error for each way they can be wrong.

A prompt is a dict: "id", "query" [d], "candidates" [M, d], and optionally "ids" (M global ids), "excluded" (positions
that may not be picked, such as the query itself), and whatever its task needs.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from anygrpo.core.tree import Shared
from anygrpo.errors import ConfigError, DataError
from anygrpo.selection.picks import NOTHING, STOP
from anygrpo.spoken import Text


@dataclass(frozen=True)
class Pools:
    """P prompts, padded to the largest pool.

    Attributes:
        query: [P, d]; candidates: [P, M, d], a pool that all share held once (a view with stride 0);
        choosable: [P, M] bool.
    """

    query: Tensor
    candidates: Tensor
    choosable: Tensor

    @staticmethod
    def of(values: dict[str, Tensor], device: torch.device) -> Pools:
        """Those of a `Shared` leaf of samples, where the network computes."""
        return Pools(**{name: _held_once(x, lambda y: y.to(device)) for name, x in values.items()})

    def to(self, device: torch.device) -> Pools:
        return Pools.of(vars(self), device)

    def rows(self, index: Tensor) -> Pools:
        """The prompts at `index` [u], in that order."""
        if is_range(index, len(self.query)):
            return self
        return Pools(**{name: _held_once(x, lambda y: y[index], len(index)) for name, x in vars(self).items()})


def _held_once(x: Tensor, fn: Callable[[Tensor], Tensor], count: int | None = None) -> Tensor:
    """`fn` of x [P, ...]; of a view that repeats one entry that entry alone, repeated `count` times (as before)."""
    if x.dim() < 3 or x.stride(0) or len(x) == 1:
        return fn(x)
    one = x[:1] if count is not None else fn(x[:1])
    return one.expand(len(x) if count is None else count, *x.shape[1:])


def is_range(index: Tensor, size: int) -> bool:
    """Whether `index` is 0, 1, ..., size - 1: everything, in order."""
    return torch.equal(index, torch.arange(size, device=index.device))


def choosable_by(prompt: Shared) -> Tensor:
    """[n, M] bool: what each row of samples could pick first."""
    return prompt.values["choosable"].to(prompt.index.device)[prompt.index]


def pools(prompts: list[dict[str, Any]], features: int, needed: int) -> Pools:
    """Check and pad.

    Args:
        features: the d that the network was built for.
        needed: smallest number of choosable candidates (the picks, or 1 where the policy may stop).

    Raises:
        ConfigError: features of another size.
        DataError: NaN, an empty or wholly excluded pool, a pool smaller than `needed`.
    """
    own = [_sized(p, "candidates", features) for p in prompts]
    query = torch.stack([_sized(p, "query", features) for p in prompts])
    one = len(own) > 1 and all(items is own[0] or items.is_set_to(own[0]) for items in own)
    candidates = own[0][None].expand(len(own), -1, -1) if one else pad_sequence(own, batch_first=True)
    choosable = pad_sequence([torch.ones(len(items), dtype=torch.bool) for items in own], batch_first=True)
    for i, prompt in enumerate(prompts):
        choosable[i, list(prompt.get("excluded", ()))] = False
    _finite(prompts, "query", query)
    _finite(prompts, "candidates", candidates[:1] if one else candidates)
    for prompt, count in zip(prompts, choosable.sum(1).tolist()):
        _enough(prompt, count, needed)
    return Pools(query, candidates, choosable)


def _sized(prompt: dict[str, Any], name: str, features: int) -> Tensor:
    x = torch.as_tensor(prompt[name], dtype=torch.float32)
    if x.shape[-1] != features:
        raise ConfigError(
            Text(
                f"query {prompt.get('id')!r}: {name} has {x.shape[-1]} features, the policy takes {features}",
                f"查询 {prompt.get('id')!r}：{name} 有 {x.shape[-1]} 个特征，策略需要 {features} 个",
            ),
            Text(f"set policy.features to {x.shape[-1]}", f"请把 policy.features 设为 {x.shape[-1]}"),
        )
    return x


def _finite(prompts: list[dict[str, Any]], name: str, x: Tensor) -> None:
    if torch.isfinite(x.sum()):  # a sum is finite only if all its terms are
        return
    bad = ~torch.isfinite(x.flatten(1)).all(1)
    if bad.any():
        where = prompts[int(bad.nonzero()[0])].get("id")
        raise DataError(
            Text(
                f"query {where!r}: {name} holds NaN or infinite embeddings",
                f"查询 {where!r}：{name} 的嵌入中有 NaN 或无穷",
            )
        )


def _enough(prompt: dict[str, Any], count: int, needed: int) -> None:
    if count == 0:
        raise DataError(
            Text(
                f"query {prompt.get('id')!r}: no candidate may be chosen (empty pool, or all excluded)",
                f"查询 {prompt.get('id')!r}：没有可选的候选（候选池为空，或全被排除）",
            )
        )
    if count < needed:
        raise DataError(
            Text(
                f"query {prompt.get('id')!r}: {needed} picks from a pool of {count}",
                f"查询 {prompt.get('id')!r}：要从 {count} 个候选中选 {needed} 个",
            ),
            Text(
                "set policy.shots lower, or policy.stop = true so that fewer can be picked",
                "请减小 policy.shots，或设 policy.stop = true 以便少选",
            ),
        )


def content_key(prompt: dict[str, Any]) -> int:
    """64 bits, equal for prompts with equal features and exclusions, and for no others."""
    digest = hashlib.sha256(repr(sorted(prompt.get("excluded", ()))).encode())
    for name in ("query", "candidates"):
        digest.update(torch.as_tensor(prompt[name], dtype=torch.float32).cpu().contiguous().numpy().data)
    return int.from_bytes(digest.digest()[:8], "little")


def picks_of(prompt: dict[str, Any], action: Any, shots: int, stop: bool) -> list[int]:
    """A stored selection as `shots` picks, ended by STOP (where the policy can stop) and NOTHING.

    Raises:
        DataError: a pointer outside its pool, excluded, or given twice; more picks than `shots`.
    """
    size, excluded = len(prompt["candidates"]), set(prompt.get("excluded", ()))
    where = f"query {prompt.get('id')!r}: selection {tuple(action)}"
    if len(action) > shots:
        raise DataError(
            Text(
                f"{where} has {len(action)} picks, the policy makes {shots}",
                f"{where} 选了 {len(action)} 个，策略选 {shots} 个",
            ),
            Text("set policy.shots higher", "请增大 policy.shots"),
        )
    for pick in action:
        if not 0 <= pick < size:
            raise DataError(
                Text(f"{where} points outside its pool of {size}", f"{where} 指到大小为 {size} 的候选池之外"),
                Text("pointers are positions in the pool, from 0", "指针是候选池中的位置，从 0 起"),
            )
        if pick in excluded:
            raise DataError(
                Text(
                    f"{where} holds {pick}, which is excluded from this pool",
                    f"{where} 中有 {pick}，它被排除在这个候选池之外",
                )
            )
    if len(set(action)) < len(action):
        raise DataError(Text(f"{where} picks the same candidate twice", f"{where} 两次选了同一个候选"))
    tail = [NOTHING] * (shots - len(action))
    if tail and stop:
        tail[0] = STOP
    return [*map(int, action), *tail]

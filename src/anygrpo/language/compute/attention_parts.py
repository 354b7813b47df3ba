"""Fused attention with its log-normaliser, forward and backward, on each kind of device.

torch's public attention hides the normaliser that joining two parts needs, so the operators beneath it are called.
All take [B, n, D] (heads are part of B) and return [B, n, D] and [B, n].
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import torch
from torch import Tensor

_aten = torch.ops.aten


class Kernel(Protocol):
    """One implementation of attention."""

    def lse_dtype(self, q: Tensor) -> torch.dtype: ...

    def lanes(self, heads: int, key_heads: int) -> int:
        """In how many independent parts attention of many queries to few keys is best computed."""
        ...

    def forward(self, q: Tensor, k: Tensor, v: Tensor, causal: bool, scale: float) -> tuple[Tensor, Tensor]: ...

    def backward(
        self, g: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, causal: bool, scale: float
    ) -> tuple[Tensor, Tensor, Tensor]: ...


class CpuFlash:
    """The CPU's flash attention: float32, float64, bfloat16, float16.

    Its backward in half precision takes up to 18 times as long as in float32 where keys are few (72 rows of 12: 4.3 and
    .24 ms), so it then runs in float32.
    """

    FEW = 256
    """Keys; with 512 of them half precision is the faster one."""

    def lanes(self, heads: int, key_heads: int) -> int:
        return key_heads  # keys are read once for all query heads that share them

    def lse_dtype(self, q: Tensor) -> torch.dtype:
        return torch.float64 if q.dtype == torch.float64 else torch.float32

    def forward(self, q: Tensor, k: Tensor, v: Tensor, causal: bool, scale: float) -> tuple[Tensor, Tensor]:
        out, lse = _aten._scaled_dot_product_flash_attention_for_cpu(
            q[:, None], k[:, None], v[:, None], 0.0, causal, scale=scale
        )
        return out[:, 0], lse[:, 0]

    def backward(
        self, g: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, causal: bool, scale: float
    ) -> tuple[Tensor, Tensor, Tensor]:
        given = (g, q, k, v, out)
        if q.dtype in (torch.bfloat16, torch.float16) and k.shape[1] < self.FEW:
            given = tuple(x.float() for x in given)
        made = _aten._scaled_dot_product_flash_attention_for_cpu_backward(
            *(x[:, None] for x in given), lse[:, None].contiguous(), 0.0, causal, scale=scale
        )
        dq, dk, dv = (x[:, 0].to(q.dtype) for x in made)
        return dq, dk, dv


class CudaFlash:
    """Flash attention on a GPU: bfloat16 and float16, head sizes that are multiples of 8 up to 256."""

    def lanes(self, heads: int, key_heads: int) -> int:
        return heads  # the backward runs a block for each lane and 128 keys: few lanes leave the GPU idle

    def lse_dtype(self, q: Tensor) -> torch.dtype:
        return torch.float32

    def forward(self, q: Tensor, k: Tensor, v: Tensor, causal: bool, scale: float) -> tuple[Tensor, Tensor]:
        out, lse, *_ = _aten._scaled_dot_product_flash_attention(
            q[:, None], k[:, None], v[:, None], 0.0, causal, False, scale=scale
        )
        return out[:, 0], lse[:, 0]

    def backward(
        self, g: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, causal: bool, scale: float
    ) -> tuple[Tensor, Tensor, Tensor]:
        seed = torch.zeros(2, dtype=torch.uint64, device=q.device)
        unused = torch.zeros((), dtype=torch.uint64, device=q.device)
        dq, dk, dv = _aten._scaled_dot_product_flash_attention_backward(
            *(x[:, None].contiguous() for x in (g, q, k, v, out)),
            lse[:, None].contiguous(),
            None,
            None,
            q.shape[1],
            k.shape[1],
            0.0,
            causal,
            seed,
            unused,
            scale=scale,
        )
        return dq[:, 0], dk[:, 0], dv[:, 0]


HELD = 2**26
"""Scores that the written formula holds at once: 256 MiB in float32."""


class Written:
    """The formula itself, for types and devices without a fused kernel.

    Args:
        held: scores [B, some of n, m] held at once, at least those of one query; some three tensors of them live.
    """

    def __init__(self, held: int = HELD) -> None:
        self.held = held

    def lanes(self, heads: int, key_heads: int) -> int:
        return key_heads

    def lse_dtype(self, q: Tensor) -> torch.dtype:
        return torch.float64 if q.dtype == torch.float64 else torch.float32

    def _parts(self, q: Tensor, k: Tensor, causal: bool) -> Iterator[tuple[slice, slice]]:
        """(some of the queries, the keys that they may see)."""
        n, m = q.shape[1], k.shape[1]
        size = max(self.held // max(len(q) * m, 1), 1)
        for start in range(0, n, size):
            end = min(start + size, n)
            yield slice(start, end), slice(0, min(end, m) if causal else m)

    def _scores(self, q: Tensor, k: Tensor, causal: bool, scale: float, first: int) -> Tensor:
        """[B, n, m] of queries of which the first is number `first` of its sequence."""
        s = (q @ k.transpose(1, 2)).to(self.lse_dtype(q)) * scale
        if causal:
            past = torch.ones(s.shape[1:], dtype=torch.bool, device=s.device).tril(first)
            s = s.masked_fill(~past, float("-inf"))
        return s

    def forward(self, q: Tensor, k: Tensor, v: Tensor, causal: bool, scale: float) -> tuple[Tensor, Tensor]:
        out, lse = v.new_empty(*q.shape[:2], v.shape[2]), q.new_empty(q.shape[:2], dtype=self.lse_dtype(q))
        for at, seen in self._parts(q, k, causal):
            s = self._scores(q[:, at], k[:, seen], causal, scale, at.start)
            lse[:, at] = s.logsumexp(-1)
            out[:, at] = (s - lse[:, at, None]).exp().to(v.dtype) @ v[:, seen]
        return out, lse

    def backward(
        self, g: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, causal: bool, scale: float
    ) -> tuple[Tensor, Tensor, Tensor]:
        wide = self.lse_dtype(q)  # sums over parts
        dq, dk, dv = torch.empty_like(q), torch.zeros_like(k, dtype=wide), torch.zeros_like(v, dtype=wide)
        for at, seen in self._parts(q, k, causal):
            here, there, gg = q[:, at], k[:, seen], g[:, at]
            p = (self._scores(here, there, causal, scale, at.start) - lse[:, at, None]).exp()
            dp = (gg @ v[:, seen].transpose(1, 2)).to(p.dtype) - (gg * out[:, at]).sum(-1, keepdim=True)
            ds = (p * dp * scale).to(q.dtype)
            dq[:, at] = ds @ there
            dk[:, seen] += ds.transpose(1, 2) @ here
            dv[:, seen] += p.to(g.dtype).transpose(1, 2) @ gg
        return dq, dk.to(k.dtype), dv.to(v.dtype)


_CPU, _CUDA, _WRITTEN = CpuFlash(), CudaFlash(), Written()


def kernel_for(q: Tensor) -> Kernel:
    """The fastest implementation for this tensor."""
    if q.device.type == "cpu":
        return _CPU
    half = q.dtype in (torch.bfloat16, torch.float16)
    fits = q.shape[-1] % 8 == 0 and q.shape[-1] <= 256
    return _CUDA if q.device.type == "cuda" and half and fits else _WRITTEN

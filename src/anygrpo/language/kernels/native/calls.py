"""The compiled kernels as functions of tensors. Callers have asked `library.usable`; shapes are theirs to keep."""

from __future__ import annotations

import ctypes
from typing import Any

import torch
from torch import Tensor

from anygrpo.language.kernels.native.library import TYPES, library

WIDE = 32
"""Columns that kernels compute together, as in common.h."""


def call(name: str, *arguments: Any, kind: torch.dtype | None = None) -> None:
    """Run a kernel, with the number of threads that torch uses.

    Args:
        arguments: tensors (contiguous, unless strides are among the arguments), numbers, structures; of the same types
            at every call.
        kind: type of the tensors, for kernels that come in two.
    """
    name = name if kind is None else f"{name}_{TYPES[kind]}"
    kernel = _KERNELS.get(name) or _declared(name, arguments)
    kernel(*[x.data_ptr() if isinstance(x, Tensor) else x for x in arguments], torch.get_num_threads())


_KERNELS: dict[str, Any] = {}


def _declared(name: str, arguments: tuple[Any, ...]) -> Any:
    kinds = {int: ctypes.c_long, float: ctypes.c_float, _Decode: ctypes.POINTER(_Decode)}
    kernel = _KERNELS[name] = getattr(library(), name)
    kernel.argtypes = [kinds.get(type(x), ctypes.c_void_p) for x in arguments] + [ctypes.c_int]
    kernel.restype = None
    return kernel


def thin(x: Tensor, weight: Tensor) -> Tensor:
    """x [..., K] @ weight [N, K] transposed, both float32, for few rows."""
    flat = x.reshape(-1, x.shape[-1]).contiguous()
    out = x.new_empty(*x.shape[:-1], len(weight))
    call("thin", flat, weight, out, *flat.shape, len(weight))
    return out


def norm(x: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """weight * round(x / rms(x)) and 1 / rms [N], float32, of x [..., D]."""
    out, scale = torch.empty_like(x), torch.empty(x.shape[:-1], dtype=torch.float32)
    call("norm", x, weight, out, scale, eps, scale.numel(), x.shape[-1], kind=x.dtype)
    return out, scale


def norm_grad(g: Tensor, x: Tensor, weight: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
    """Gradients of `norm`'s x, and of its weight in float32, from that of its first result."""
    dx, parts = torch.empty_like(x), torch.empty(torch.get_num_threads(), x.shape[-1])
    call("norm_grad", g, x, weight, scale, dx, parts, scale.numel(), x.shape[-1], kind=x.dtype)
    return dx, parts.sum(0)


def gate(a: Tensor, b: Tensor) -> Tensor:
    """silu(a) * b."""
    out = torch.empty_like(a)
    call("gate", a, b, out, a.numel(), kind=a.dtype)
    return out


def gate_grad(g: Tensor, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """(silu(a) * b, gradients of a and b) from the gradient g of the first, which is overwritten."""
    out, db = torch.empty_like(a), torch.empty_like(b)
    call("gate_grad", g, a, b, out, db, a.numel(), kind=a.dtype)
    return out, g, db


def rotate(x: Tensor, cos: Tensor, sin: Tensor, back: bool) -> Tensor:
    """x [1, H, N, D] turned by cos, sin [1, N, D]; in memory a token's heads lie side by side."""
    _, heads, tokens, size = x.shape
    out = x.new_empty(1, tokens, heads, size)
    call("rotate", x, x.stride(1), x.stride(2), cos, sin, out, heads, tokens, size, int(back), kind=x.dtype)
    return out.transpose(1, 2)


def spans(z: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """Largest entry and sum of exp(z - it) of each span of `size` words: [n, V / size] each, of float32 z [n, V]."""
    peak, mass = (z.new_empty(len(z), z.shape[1] // size) for _ in range(2))
    call("spans", z, peak, mass, *peak.shape, size)
    return peak, mass


def normalise(z: Tensor, targets: Tensor, factor: float) -> tuple[Tensor, Tensor, Tensor]:
    """(log-probs of targets, sums, entropies), [n] float32 each; logits z [n, V] become their exponentials."""
    lp, total, entropy = (torch.empty(len(z), dtype=torch.float32) for _ in range(3))
    call("normalise", z, targets.contiguous(), lp, total, entropy, factor, *z.shape, kind=z.dtype)
    return lp, total, entropy


def grad_logits(p: Tensor, total: Tensor, g: Tensor, chain: float) -> Tensor:
    """-chain * g * p / total [n, V]."""
    out = torch.empty_like(p)
    call("grad_logits", p, total.contiguous(), g.float().contiguous(), out, chain, *p.shape, kind=p.dtype)
    return out


def attend(
    q: Tensor, key: Tensor, value: Tensor, prompts: Any, own_k: Tensor, own_v: Tensor, place: int, scale: float
) -> Tensor:
    """[1, R, H, D]: attention of a decode step, as `fused.decoding.attend` states it."""
    q, key, value = (x.transpose(1, 2).contiguous() for x in (q, key, value))
    (heads, size), keys = q.shape[2:], key.shape[2]
    out = torch.empty_like(q)
    step = _Decode(
        *(x.data_ptr() for x in (prompts.lengths, prompts.first, prompts.count)),
        *(len(prompts.lengths), keys, heads // keys, size, prompts.k.shape[2], own_k.shape[2], place), scale,
    )  # fmt: skip
    call("attend", q, key, value, prompts.k, prompts.v, own_k, own_v, out, step, kind=q.dtype)
    return out


class _Decode(ctypes.Structure):
    """`Decode` of tokens.cpp."""

    _fields_ = [(name, ctypes.c_void_p) for name in ("lengths", "first", "count")] + [
        *((name, ctypes.c_long) for name in ("prompts", "keys", "queries", "size", "longest", "width", "place")),
        ("scale", ctypes.c_float),
    ]

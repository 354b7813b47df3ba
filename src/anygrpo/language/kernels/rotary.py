"""Rotary position embedding of queries and keys in one launch (on a CPU two passes), where the library launches ten."""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from anygrpo.language.kernels.native import calls, library
from anygrpo.language.kernels.trial import agrees, usable

NAME = "apply_rotary_pos_emb"
"""What the attention modules of transformers call."""

Rotary = Callable[..., tuple[Tensor, Tensor]]


def fuse_rotary(model: nn.Module) -> int:
    """Give every attention module that calls `NAME` a forward in which that name is the kernel's. Returns how many.

    The library's function stays as it is: each module gets its own copy of its forward, with another namespace.
    """
    count = 0
    for module in model.modules():
        forward = inspect.unwrap(type(module).forward)
        original = getattr(forward, "__globals__", {}).get(NAME)
        if original is None or NAME not in forward.__code__.co_names:
            continue
        names = {**forward.__globals__, NAME: fused_for(original)}
        own = types.FunctionType(forward.__code__, names, forward.__name__, forward.__defaults__, forward.__closure__)
        own.__kwdefaults__ = forward.__kwdefaults__
        module.forward = types.MethodType(own, module)
        count += 1
    return count


@functools.cache
def fused_for(original: Rotary) -> Rotary:
    """`original` with the same arguments, by the kernel where it fits and gives the same."""

    def apply(*given: Any, **named: Any) -> Any:
        usual = not named and len(given) == 4 and all(isinstance(x, Tensor) for x in given)
        if usual and usable(given[0]) and _fits(*given) and _works(original, *given[:3]):
            return rotate(*given)
        return original(*given, **named)

    return apply


def rotate(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
    """q [1, H, N, D] and k [1, KV, N, D] turned by cos, sin [1, N, D]; the halves of D are the pairs.

    Results have the same shapes; in memory a token's heads lie side by side.
    """
    return _Rotate.apply(q, k, cos, sin) if torch.is_grad_enabled() else _launch(q, k, cos, sin, back=False)


class _Rotate(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(cos, sin)
        return _launch(q, k, cos, sin, back=False)

    @staticmethod
    def backward(ctx: Any, dq: Tensor, dk: Tensor) -> tuple[Tensor, Tensor, None, None]:  # type: ignore[override]
        return *_launch(dq, dk, *ctx.saved_tensors, back=True), None, None


def _launch(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, back: bool) -> tuple[Tensor, Tensor]:
    q, k = (x if x.stride(-1) == 1 else x.contiguous() for x in (q, k))
    if library.usable(q):
        cos, sin = cos.contiguous(), sin.contiguous()
        return calls.rotate(q, cos, sin, back), calls.rotate(k, cos, sin, back)
    from anygrpo.language.kernels.triton import pointwise as kernels

    (_, heads, tokens, size), key_heads = q.shape, k.shape[1]
    made = [x.new_empty(1, tokens, x.shape[1], size) for x in (q, k)]
    lanes, half = kernels.power_of_two(max(heads, key_heads)), size // 2
    kernels.rotate[(tokens, 2)](  # type: ignore[index]
        q, k, *made, cos.contiguous(), sin.contiguous(), q.stride(1), q.stride(2), k.stride(1), k.stride(2), heads,
        key_heads, HALF=half, LANES=lanes, WIDTH=kernels.power_of_two(half), BACK=back,
    )  # fmt: skip
    return made[0].transpose(1, 2), made[1].transpose(1, 2)


def _fits(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> bool:
    shapes = q.dim() == k.dim() == 4 and k.shape[::2] == q.shape[::2] and k.shape[3] == q.shape[3]
    if not shapes or not cos.shape == sin.shape == (1, q.shape[2], q.shape[3]) or q.shape[3] % 2 or len(q) != 1:
        return False
    return max(q.shape[1], k.shape[1]) <= 128 if q.is_cuda else q.dtype == k.dtype == cos.dtype == sin.dtype


def _works(original: Rotary, q: Tensor, k: Tensor, cos: Tensor) -> bool:
    return _tried(original, q.device, q.dtype, cos.dtype, q.shape[1], k.shape[1], q.shape[3])


@functools.cache
def _tried(
    original: Rotary,
    device: torch.device,
    dtype: torch.dtype,
    table: torch.dtype,
    heads: int,
    key_heads: int,
    size: int,
) -> bool:
    """Values and gradients of a made-up call, beside the library's in float32 and by its formula."""
    generator = torch.Generator().manual_seed(0)
    make = lambda *shape: torch.randn(*shape, generator=generator).to(device)  # noqa: E731
    given = [make(1, heads, 5, size).to(dtype), make(1, key_heads, 5, size).to(dtype)]
    cos, sin = make(1, 5, size).to(table), make(1, 5, size).to(table)

    def results(function: Rotary, kind: torch.dtype) -> list[Tensor]:
        with torch.enable_grad():
            inputs = [x.to(kind).requires_grad_() for x in given]
            made = function(*inputs, cos.to(kind), sin.to(kind))
            back = torch.autograd.grad([x.square().sum() for x in made], inputs)
        return [x.detach().to(dtype) for x in (*made, *back)]

    # The library rounds after each product; its own result in float32 is what both approach.
    return agrees("rotary embedding", lambda: results(rotate, dtype), lambda: results(original, torch.float32))

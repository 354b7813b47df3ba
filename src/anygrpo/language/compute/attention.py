"""Attention over a packed sequence whose groups share their prompt, exact in value and gradient.

A completion token attends to the group's prompt (one matrix product for all rows of the group) and to its own row's
past; the two softmaxes are joined by their log-normalisers. An opening that all prompts share is one more such part.
The backward of each part uses the *joined* output and normaliser, which makes each part's gradient exact (as in ring
attention), so the fused kernels of torch serve both ways and no attention matrix is ever stored.
"""

# pyright: reportCallIssue=false, reportIncompatibleMethodOverride=false

from __future__ import annotations

import functools
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from anygrpo.language.compute.attention_parts import Kernel, kernel_for
from anygrpo.language.compute.layout import Layout, Segment, pack
from anygrpo.language.compute.varlen import fits, varlen_attention

log = logging.getLogger("anygrpo")

NAME = "anygrpo"
"""Name under which the attention is known to transformers."""


def _interface(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **kwargs: Any
) -> tuple[Tensor, None]:
    """What transformers calls in place of its own attention. Without a layout it is the library's SDPA."""
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    layout = kwargs.pop("layout", None)
    if _watched is not None:
        _note(kwargs)
    # A vision tower, which is given the text's arguments too, looks at its pictures whole.
    if layout is None or getattr(module, "is_causal", True) is False:
        return ALL_ATTENTION_FUNCTIONS["sdpa"](module, query, key, value, attention_mask, **kwargs)
    scaling = kwargs.get("scaling") or query.shape[-1] ** -0.5
    narrower = query.shape[-1] - value.shape[-1]
    if query.shape[-1] != key.shape[-1] or narrower < 0 or key.shape[:3] != value.shape[:3] or len(query) != 1:
        raise ValueError(f"queries {tuple(query.shape)}, keys {tuple(key.shape)}, values {tuple(value.shape)}")
    if narrower:  # kernels know one size of a head: values of zeros add nothing
        value = nn.functional.pad(value, (0, narrower))
    out = layout.attend(module, query, key, value, scaling)
    return out[..., : out.shape[-1] - narrower] if narrower else out, None


_watched: dict[str, Any] | None = None


@contextmanager
def watching() -> Iterator[dict[str, Any]]:
    """Collects the arguments with which a model calls its attention; of several sliding windows, the smallest."""
    global _watched
    _watched = {}
    try:
        yield _watched
    finally:
        _watched = None


def _note(kwargs: dict[str, Any]) -> None:
    assert _watched is not None
    for name, value in kwargs.items():
        if name == "sliding_window" and value is not None and _watched.get(name) is not None:
            value = min(value, _watched[name])
        if value is not None:
            _watched[name] = value


def install(model: nn.Module) -> None:
    """Make the model call `_interface`; a pass without a layout is unchanged."""
    from transformers import AttentionInterface
    from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, AttentionMaskInterface

    AttentionInterface.register(NAME, _interface)
    AttentionMaskInterface.register(NAME, ALL_MASK_ATTENTION_FUNCTIONS["sdpa"])
    config: Any = model.config
    config._attn_implementation = NAME


class Packed:
    """The layout argument of a training pass or prefill. `keep` also stores the prompts' keys and values."""

    def __init__(self, layout: Layout, keep: bool = False) -> None:
        self.layout, self.kept = layout, ([] if keep else None)

    def attend(self, module: nn.Module, query: Tensor, key: Tensor, value: Tensor, scaling: float) -> Tensor:
        """query [1, H, N, D], key and value [1, KV, N, D] -> [1, N, H, D]."""
        if self.kept is not None:
            if getattr(module, "layer_idx", None) != len(self.kept):
                raise ValueError(f"layer {getattr(module, 'layer_idx', None)} attends as number {len(self.kept)}")
            self.kept.append((key[0], value[0]))
        if fits(query) and _varlen_works(query.device, query.dtype, query.shape[1], key.shape[1], query.shape[3]):
            q, k, v = (x[0].transpose(0, 1) for x in (query, key, value))
            return varlen_attention(q, k, v, self.layout, scaling)[None]
        return shared_attention(query[0], key[0], value[0], self.layout, scaling).transpose(0, 1)[None]


def shared_attention(q: Tensor, k: Tensor, v: Tensor, layout: Layout, scale: float) -> Tensor:
    """[H, N, D] from q [H, N, D] and k, v [KV, N, D], H a multiple of KV."""
    return _SharedAttention.apply(q, k, v, layout, scale)


@functools.cache
def _varlen_works(device: torch.device, dtype: torch.dtype, heads: int, key_heads: int, size: int) -> bool:
    """Whether variable-length attention gives on this device what `shared_attention` gives, gradients included."""
    generator = torch.Generator().manual_seed(0)
    layout = pack([7, 5], [[4, 2], [3]], device, opening=2)
    make = lambda n: torch.randn(n, layout.tokens, size, generator=generator).to(device, dtype).requires_grad_()  # noqa: E731
    given = (make(heads), make(key_heads), make(key_heads))
    turned = lambda x: x.transpose(0, 1)  # noqa: E731
    try:
        with torch.enable_grad():
            ours = turned(varlen_attention(*map(turned, given), layout, size**-0.5))
            theirs = shared_attention(*given, layout, size**-0.5)
            pairs = [(ours, theirs), *zip(*(torch.autograd.grad(out.sum(), given) for out in (ours, theirs)))]
        far = max(float(((a - b).abs().max() / b.abs().max().clamp(min=1.0)).detach()) for a, b in pairs)
        problem = "" if far < 4e-2 else f"its trial differs by {far:.1e}"
    except RuntimeError as error:
        problem = str(error).splitlines()[0][:200]
    if problem:
        log.warning("variable-length attention is not used on %s: %s", device, problem)
    return not problem


class _SharedAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, layout: Layout, scale: float) -> Tensor:
        kernel = kernel_for(q)
        out, lse = torch.empty_like(q), q.new_empty(q.shape[:2], dtype=kernel.lse_dtype(q))
        for s in layout.segments:
            _prompt_part(kernel, q, k, v, s, scale, out, lse)
        _own_part(kernel, q, k, v, layout, scale, out, lse)
        for s in layout.segments:
            if s.end > s.first:
                _join_prefix(kernel, q, k, v, s, scale, out, lse)
        if layout.opening:
            _prompt_part(kernel, q, k, v, _opening(layout), scale, out, lse)
            _join_prefix(kernel, q, k, v, _opening(layout), scale, out, lse)
        ctx.save_for_backward(q, k, v, out, lse)
        ctx.layout, ctx.scale, ctx.kernel = layout, scale, kernel
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None]:
        q, k, v, out, lse = ctx.saved_tensors
        layout, scale, kernel = ctx.layout, ctx.scale, ctx.kernel
        grad = grad.contiguous()
        dq, dk, dv = torch.zeros_like(q), torch.zeros_like(k), torch.zeros_like(v)
        for s in layout.segments:
            _prompt_grad(kernel, grad, q, k, v, out, lse, s, scale, (dq, dk, dv))
            if s.end > s.first:
                _prefix_grad(kernel, grad, q, k, v, out, lse, s, scale, (dq, dk, dv))
        if layout.opening:
            _prompt_grad(kernel, grad, q, k, v, out, lse, _opening(layout), scale, (dq, dk, dv))
            _prefix_grad(kernel, grad, q, k, v, out, lse, _opening(layout), scale, (dq, dk, dv))
        _own_grad(kernel, grad, q, k, v, out, lse, layout, scale, (dq, dk, dv))
        return dq, dk, dv, None, None


def _opening(layout: Layout) -> Segment:
    """What all prompts begin with, as a group whose rows are all that follows."""
    return Segment(0, layout.opening, layout.opening, layout.tokens)


def _widen(x: Tensor, heads: int) -> Tensor:
    """[KV, ...] -> [H, ...]: each key head beside the query heads that read it."""
    return x if x.shape[0] == heads else x.repeat_interleave(heads // x.shape[0], 0)


def _narrow(grad: Tensor, heads: int) -> Tensor:
    """The gradient of `_widen`: [H, ...] -> [KV, ...]."""
    return grad if grad.shape[0] == heads else grad.view(heads, -1, *grad.shape[1:]).sum(1)


def _prompt_part(kernel: Kernel, q, k, v, s, scale, out, lse) -> None:
    """The prompt attends to itself, causally."""
    here = slice(s.start, s.middle)
    kk, vv = _widen(k[:, here], len(q)), _widen(v[:, here], len(q))
    out[:, here], lse[:, here] = kernel.forward(q[:, here], kk, vv, True, scale)


def _prompt_grad(kernel: Kernel, grad, q, k, v, out, lse, s, scale, into) -> None:
    here = slice(s.start, s.middle)
    kk, vv = _widen(k[:, here], len(q)), _widen(v[:, here], len(q))
    dq, dk, dv = kernel.backward(grad[:, here], q[:, here], kk, vv, out[:, here], lse[:, here], True, scale)
    into[0][:, here] += dq
    into[1][:, here] += _narrow(dk, len(k))
    into[2][:, here] += _narrow(dv, len(k))


def _fold(x: Tensor, heads: int) -> Tensor:
    """[H, n, ...] -> [heads, (H / heads) n, ...]: with heads = KV, the query heads of one key head lie side by side."""
    return x.reshape(heads, -1, *x.shape[2:])


def _join_prefix(kernel: Kernel, q, k, v, s, scale, out, lse) -> None:
    """All completion tokens of the group attend to its prompt; joined with what their own rows gave."""
    rows, prompt, lanes = slice(s.first, s.end), slice(s.start, s.middle), kernel.lanes(len(q), len(k))
    kk, vv = _widen(k[:, prompt], lanes), _widen(v[:, prompt], lanes)
    o, l = kernel.forward(_fold(q[:, rows], lanes), kk, vv, False, scale)  # noqa: E741
    o, l = o.reshape(q[:, rows].shape), l.reshape(lse[:, rows].shape)  # noqa: E741
    both = torch.logaddexp(l, lse[:, rows])
    own = (lse[:, rows] - both).exp()[..., None]
    out[:, rows] = (out[:, rows] * own + o * (l - both).exp()[..., None]).to(out.dtype)
    lse[:, rows] = both


def _prefix_grad(kernel: Kernel, grad, q, k, v, out, lse, s, scale, into) -> None:
    rows, prompt, lanes = slice(s.first, s.end), slice(s.start, s.middle), kernel.lanes(len(q), len(k))
    kk, vv = _widen(k[:, prompt], lanes), _widen(v[:, prompt], lanes)
    g, qq, o, l = (_fold(x[:, rows], lanes) for x in (grad, q, out, lse))  # noqa: E741
    dq, dk, dv = kernel.backward(g, qq, kk, vv, o, l, False, scale)
    into[0][:, rows] += dq.reshape(q[:, rows].shape)
    into[1][:, prompt] += _narrow(dk, len(k))
    into[2][:, prompt] += _narrow(dv, len(k))


def _rows(x: Tensor, layout: Layout) -> Tensor:
    """[H, N, ...] -> [R * H, W, ...]: completion tokens row by row. Padding holds token 0 and comes after every real
    token, which a causal attention never looks at."""
    taken = x[:, layout.places.reshape(-1)].view(x.shape[0], layout.rows, layout.width, *x.shape[2:])
    return taken.transpose(0, 1).reshape(-1, layout.width, *x.shape[2:])


def _scatter(rows: Tensor, layout: Layout, into: Tensor, add: bool) -> None:
    """The inverse of `_rows`, into [H, N, ...]; padding is dropped."""
    x = rows.view(layout.rows, -1, layout.width, *rows.shape[2:]).transpose(0, 1)
    x, places = x.reshape(x.shape[0], -1, *x.shape[3:]), layout.places.reshape(-1)
    if layout.real is not None:
        x, places = x.index_select(1, layout.real), places[layout.real]
    if add:
        into.index_add_(1, places, x.to(into.dtype))
    else:
        into.index_copy_(1, places, x.to(into.dtype))


def _own_part(kernel: Kernel, q, k, v, layout: Layout, scale, out, lse) -> None:
    """Each row's completion attends to itself, causally."""
    if layout.rows * layout.width == 0:
        return
    heads = len(q)
    o, l = kernel.forward(  # noqa: E741
        _rows(q, layout), _rows(_widen(k, heads), layout), _rows(_widen(v, heads), layout), True, scale
    )
    _scatter(o, layout, out, add=False)
    _scatter(l, layout, lse, add=False)


def _own_grad(kernel: Kernel, grad, q, k, v, out, lse, layout: Layout, scale, into) -> None:
    if layout.rows * layout.width == 0:
        return
    heads = len(q)
    g, l = _rows(grad, layout), _rows(lse, layout)  # noqa: E741
    if layout.real is not None:
        # Padding: no gradient comes in, and with lse = inf its probabilities are 0.
        outside = ~layout.inside.repeat_interleave(heads, 0)
        g, l = g.masked_fill(outside[..., None], 0.0), l.masked_fill(outside, float("inf"))  # noqa: E741
    kk, vv = _rows(_widen(k, heads), layout), _rows(_widen(v, heads), layout)
    dq, dk, dv = kernel.backward(g, _rows(q, layout), kk, vv, _rows(out, layout), l, True, scale)
    _scatter(dq, layout, into[0], add=True)
    for d, total in ((dk, into[1]), (dv, into[2])):
        wide = d.view(layout.rows, len(k), -1, layout.width, d.shape[-1]).sum(2)
        _scatter(wide.reshape(-1, layout.width, d.shape[-1]), layout, total, add=True)

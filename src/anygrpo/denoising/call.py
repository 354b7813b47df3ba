"""One call of the library's model, as the training pass makes it: what an export is compared by."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from anygrpo.core.device import exactly
from anygrpo.denoising.denoiser import model_of

if TYPE_CHECKING:
    from anygrpo.denoising.policy import DiffusionPolicy


@torch.no_grad()
def record_call(policy: DiffusionPolicy) -> dict[str, Tensor]:
    """Arguments and output of one call of the library's model, by name ("a/b": b in a dict a), made by the training
    pass itself: a random latent, half-way, under a prompt of the policy's kind, guidance and all."""
    model, seen = model_of(policy.denoiser), {}

    def note(_: nn.Module, args: tuple[Any, ...], given: dict[str, Any], out: Any) -> None:
        flat = {f"{k}/{n}": v for k, d in given.items() if isinstance(d, dict) for n, v in d.items()}
        flat |= {k: v for k, v in given.items() if isinstance(v, Tensor)}
        flat |= dict(zip(("x", "timestep"), args))
        seen.update(flat | {"output": out[0] if isinstance(out, tuple) else out})

    handle = model.register_forward_hook(note, with_kwargs=True)
    try:
        prompt = {"prompt": "a photo of a cat", "caption": _known_caption(policy), "length": policy.parts.shape[0]}
        condition = policy.condition_rows([prompt], 1)
        x = torch.randn(1, *policy.parts.shape, generator=torch.Generator().manual_seed(0)).to(policy.device)
        with policy.mode(), exactly():
            policy.predict(x, torch.full((1,), len(policy.transitions) // 2, device=policy.device), condition)
    finally:
        handle.remove()
    return {k: v.detach().cpu().contiguous().clone() for k, v in seen.items()}


def _known_caption(policy: DiffusionPolicy) -> str:
    """A caption that the policy's text vectors have: those of a file are only of its own."""
    text = getattr(policy.config, "text", None)
    if text is None or not Path(text).is_file():
        return "a person walks"
    from anygrpo.denoising.motion.mdm_policy import vectors

    return next(iter(vectors(Path(text))))

"""Can a model take the shared-prompt path? Found out by trying it, not by a list of names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from anygrpo.errors import ConfigError
from anygrpo.language.compute import attention
from anygrpo.language.compute.attention import Packed
from anygrpo.language.compute.bodies import body_of
from anygrpo.language.compute.cache import Step
from anygrpo.language.compute.layout import pack
from anygrpo.language.compute.passes import forward, prefill
from anygrpo.spoken import Text

PLAIN = "attention = plain"

UNKNOWN = ("softcap", "s_aux", "alibi")
"""Arguments with which a model asks its attention for more than softmax(q k) v."""

TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-4, torch.bfloat16: 6e-2, torch.float16: 1e-2}
"""Largest difference of hidden states, relative to their largest entry. A model that mixes tokens in another way than
attention, or places them by another rule than position ids, is off by its whole size."""


@dataclass(frozen=True)
class Ability:
    """Attributes:
    shared: the path may be used.
    limit: for sequences up to this many tokens (sliding windows), None: any.
    reason: why not, or why only so far.
    """

    shared: bool
    limit: int | None = None
    reason: str = ""

    def fits(self, tokens: int) -> bool:
        return self.shared and (self.limit is None or tokens <= self.limit)


def ability(model: nn.Module, wanted: str, tokens: Tensor | None = None) -> Ability:
    """What the model can take; installs our attention in it where it helps.

    Args:
        wanted: "auto", "plain" or "shared".
        tokens: nine ids or more to try it on; made up where not given.

    Raises:
        ConfigError: "shared" is demanded of a model that cannot.
    """
    if wanted == "plain":
        return Ability(False, reason=PLAIN)
    found = _try(model, tokens)
    if not found.shared and wanted == "shared":
        raise ConfigError(
            Text(f'attention = "shared": {found.reason}', f'attention = "shared"：{found.reason}'),
            Text('set attention = "auto" or "plain"', '请设 attention = "auto" 或 "plain"'),
        )
    return found


def _try(model: nn.Module, tokens: Tensor | None) -> Ability:
    config: Any = model.config
    before = config._attn_implementation
    try:
        attention.install(model)
        with attention.watching() as seen, torch.no_grad():
            error = _difference(model, tokens)
    except Exception as problem:
        config._attn_implementation = before
        return Ability(
            False, reason=f"prompts are not shared, since a trial failed: {type(problem).__name__}: {problem}"
        )
    asked = sorted(name for name in UNKNOWN if seen.get(name) is not None)
    tolerance = TOLERANCE[next(model.parameters()).dtype]
    if asked or error > tolerance:
        config._attn_implementation = before
        why = f"its attention uses {asked[0]}" if asked else f"a trial differs by {error:.1e} (allowed {tolerance:.0e})"
        return Ability(False, reason=f"prompts are not shared, since {why}")
    window = seen.get("sliding_window")
    reason = f"prompts are shared up to {window} tokens, its sliding window; plain passes beyond" if window else ""
    return Ability(True, window, reason)


def _difference(model: nn.Module, tokens: Tensor | None) -> float:
    """Largest difference of hidden states between packed, decoded and plain passes over a made-up group."""
    device = next(model.parameters()).device
    config: Any = model.config
    size = config.get_text_config().vocab_size
    ids = torch.randint(0, size, (9,), generator=torch.Generator().manual_seed(0)).to(device)
    ids = ids if tokens is None else tokens[:9]
    prompt, rows = ids[:4], [ids[4:7], ids[7:9]]
    packed = pack([4], [[3, 2]], device, opening=2)
    ours = forward(model, ids, packed.positions, Packed(packed))
    decoded = _decoded(model, prompt, torch.stack([ids[4], ids[7]]))
    worst, scale, at = 0.0, 0.0, 4
    for i, row in enumerate(rows):
        whole = _plain(model, torch.cat([prompt, row]))
        parts = [(whole[:4], ours[:4]), (whole[4:], ours[at : at + len(row)]), (whole[4], decoded[i])]
        worst = max([worst, *((a - b).abs().max().item() for a, b in parts)])
        scale, at = max(scale, whole.abs().max().item()), at + len(row)
    return worst / scale if worst == worst else float("inf")


def _plain(model: nn.Module, ids: Tensor) -> Tensor:
    positions = torch.arange(len(ids), device=ids.device)[None]
    out = body_of(model)(input_ids=ids[None], position_ids=positions, use_cache=False)
    return out.last_hidden_state[0]


def _decoded(model: nn.Module, prompt: Tensor, tokens: Tensor) -> Tensor:
    """States [2, H] of one decode step of two rows."""
    cache, _ = prefill(model, [prompt.tolist()], [2], width=1)
    return forward(model, tokens, torch.full((2,), len(prompt), device=prompt.device), Step(cache, 0))

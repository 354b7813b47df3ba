"""An MDM-style transformer (arXiv 2209.14916): one token a frame, one for noise level and captions; predicts the clean
motion. Linear layers are separate modules, so that LoRA reaches queries, keys, values, outputs and feed-forward."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, scaled_dot_product_attention
from torch.utils.checkpoint import checkpoint

from anygrpo.denoising.motion.settings import MotionPolicyConfig


def sinusoid(position: Tensor, width: int) -> Tensor:
    """Sines and cosines of positions [...] at geometric frequencies: [..., width]."""
    frequency = torch.exp(torch.arange(width // 2, device=position.device) * (-math.log(10_000.0) / (width // 2)))
    angle = position.float()[..., None] * frequency
    return torch.cat([angle.sin(), angle.cos()], -1)


class Layer(nn.Module):
    """Pre-norm attention and feed-forward."""

    def __init__(self, width: int, heads: int, dropout: float):
        super().__init__()
        self.heads = heads
        self.norm_attention, self.norm_feedforward = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.out = nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        self.drop = nn.Dropout(dropout)

    def forward(self, x: Tensor, attend: Tensor) -> Tensor:
        """x [n, L, width]; attend [n, 1, 1, L] bool."""
        h = self.norm_attention(x)
        q, k, v = (f(h).unflatten(-1, (self.heads, -1)).transpose(1, 2) for f in (self.query, self.key, self.value))
        mixed = scaled_dot_product_attention(q, k, v, attn_mask=attend).transpose(1, 2).flatten(2)
        x = x + self.drop(self.out(mixed))
        return x + self.drop(self.down(self.drop(gelu(self.up(self.norm_feedforward(x))))))


class MotionDenoiser(nn.Module):
    """`denoiser(x [n, L, F], timestep [n], text, segment, frames, dropped) -> clean motion [n, L, F]`.

    Args:
        text_width: of a sentence vector (`text` is [n, K, text_width]); 0: `text` holds word ids [n, K, W], embedded
            and mixed here by a learned bag of words.
        vocabulary: number of word buckets; bucket 0 is padding.
    """

    def __init__(self, config: MotionPolicyConfig, text_width: int, vocabulary: int):
        super().__init__()
        width = config.width
        self.width, self.condition_dropout, self.checkpointing = width, config.condition_dropout, False
        self.read, self.write = nn.Linear(config.features, width), nn.Linear(width, config.features)
        self.level = nn.Sequential(nn.Linear(width, width), nn.SiLU(), nn.Linear(width, width))
        self.words = nn.Embedding(vocabulary, width, padding_idx=0) if text_width == 0 else None
        self.caption = nn.Sequential(nn.Linear(text_width or width, width), nn.SiLU(), nn.Linear(width, width))
        self.nothing = nn.Parameter(torch.randn(width) * 0.02)
        self.layers = nn.ModuleList(Layer(width, config.heads, config.dropout) for _ in range(config.layers))
        self.norm, self.drop = nn.LayerNorm(width), nn.Dropout(config.dropout)

    def enable_gradient_checkpointing(self) -> None:
        self.checkpointing = True

    def forward(
        self, x: Tensor, timestep: Tensor, text: Tensor, segment: Tensor, frames: Tensor, dropped: Tensor
    ) -> Tensor:
        """Args:
        x: [n, L, F] noised, standardised features.
        text: [n, K, W] word ids or [n, K, E] sentence vectors.
        segment: [n, L] which of the K captions each frame follows.
        frames: [n, L] bool: real frames. Padding is not attended to.
        dropped: [n] bool: without captions. In training mode a further share is dropped at random.
        """
        x = x.to(self.read.weight.dtype)
        captions = self._captions(text, dropped)
        per_frame = captions.gather(1, segment[..., None].expand(-1, -1, self.width))
        position = sinusoid(torch.arange(x.shape[1], device=x.device), self.width).to(x.dtype)
        level = self.level(sinusoid(timestep, self.width).to(x.dtype))
        first = (level + captions.mean(1))[:, None]
        h = self.drop(torch.cat([first, self.read(x) + per_frame + level[:, None] + position], 1))
        attend = torch.cat([torch.ones_like(frames[:, :1]), frames], 1)[:, None, None]
        for layer in self.layers:
            again = self.checkpointing and torch.is_grad_enabled()
            h = checkpoint(layer, h, attend, use_reentrant=False) if again else layer(h, attend)
        return self.write(self.norm(h))[:, 1:]

    def _captions(self, text: Tensor, dropped: Tensor) -> Tensor:
        """[n, K, width]: encoded captions, or the learned vector of no caption."""
        if self.words is not None:
            known = (text > 0).sum(-1, keepdim=True).clamp(min=1)
            vectors = self.words(text).sum(-2) / known.to(self.words.weight.dtype).sqrt()
        else:
            vectors = text.to(self.nothing.dtype)
        if self.training and self.condition_dropout > 0:
            dropped = dropped | (torch.rand(dropped.shape, device=dropped.device) < self.condition_dropout)
        return torch.where(dropped[:, None, None], self.nothing, self.caption(vectors))

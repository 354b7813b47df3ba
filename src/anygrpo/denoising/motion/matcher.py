"""A small contrastive encoder of motions and captions, trained here: the learned part of the reward, and its judge."""

from __future__ import annotations

import zlib
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, gelu, normalize, pad

from anygrpo.denoising.motion.bank import Bank
from anygrpo.denoising.motion.captions import PHRASES, SUBJECTS
from anygrpo.denoising.motion.clips import default_folder

WIDTH = 64
EMBEDDING = 16
"""Small on purpose: the Frechet distance between embeddings needs a covariance from about a hundred samples."""
TEMPERATURE = 0.1
VERSION = 1
"""Raise when training changes: what the cache holds is then another matcher."""
_BATCH = 64


def vocabulary() -> dict[str, int]:
    """word -> index from 1; 0 is padding."""
    words = {w for text in (*SUBJECTS, *(p for ps in PHRASES.values() for p in ps)) for w in text.split()}
    return {w: i for i, w in enumerate(sorted(words), 1)}


class Matcher(nn.Module):
    """Embeds motions (two convolutions, mean and max over time) and captions (a bag of words) on one sphere.

    Args:
        features: numbers a frame.
        stride: frames a step of the first convolution.
    """

    def __init__(self, features: int, stride: int = 2):
        super().__init__()
        self.index = vocabulary()
        self.first = nn.Conv1d(features, WIDTH, 5, stride=stride, padding=2)
        self.second = nn.Conv1d(WIDTH, WIDTH, 5, padding=2)
        self.motion_head = nn.Sequential(nn.Linear(2 * WIDTH, WIDTH), nn.GELU(), nn.Linear(WIDTH, EMBEDDING))
        self.words = nn.EmbeddingBag(len(self.index) + 1, WIDTH, mode="mean", padding_idx=0)
        self.text_head = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.Linear(WIDTH, EMBEDDING))
        self.stride = stride

    def embed_motions(self, motions: list[Tensor]) -> Tensor:
        """[n, EMBEDDING] of standardised motions, each [length, features]; padding does not count."""
        longest = max(len(m) for m in motions)
        x = torch.stack([pad(m, (0, 0, 0, longest - len(m))) for m in motions]).transpose(1, 2)
        real = torch.tensor([[i < len(m) for i in range(0, longest, self.stride)] for m in motions])[:, None]
        h = gelu(self.first(x)) * real
        h = gelu(self.second(h)) * real
        mean = h.sum(-1) / real.sum(-1)
        top = h.masked_fill(~real, -torch.inf).amax(-1)
        return normalize(self.motion_head(torch.cat([mean, top], 1)), dim=-1)

    def embed_captions(self, texts: list[str]) -> Tensor:
        """[n, EMBEDDING]; unknown words are left out."""
        rows = [[self.index.get(w, 0) for w in t.lower().split()] or [0] for t in texts]
        longest = max(map(len, rows))
        ids = torch.tensor([r + [0] * (longest - len(r)) for r in rows])
        return normalize(self.text_head(self.words(ids)), dim=-1)

    @torch.no_grad()
    def score(self, texts: list[str], motions: list[Tensor]) -> Tensor:
        """[n] in [0, 1]: (1 + cosine) / 2 of each caption and its motion."""
        return (1 + (self.embed_captions(texts) * self.embed_motions(motions)).sum(-1)) / 2


def train_matcher(bank: Bank, steps: int, seed: int, captions: Callable[[str], list[str]]) -> Matcher:
    """Contrastive training (symmetric cross-entropy over a batch; pairs of one action are no negatives of each other).

    Args:
        captions: of an action, those that are learned.
    """
    generator = torch.Generator().manual_seed(seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        matcher = Matcher(len(bank.scaler.mean))
    optimizer = torch.optim.AdamW(matcher.parameters(), 3e-3, weight_decay=1e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    pick = lambda items: items[int(torch.randint(len(items), (1,), generator=generator))]  # noqa: E731
    texts = {a: captions(a) for a in bank.actions}
    for _ in range(steps):
        actions = [pick(bank.actions) for _ in range(_BATCH)]
        motions = [_varied(pick(bank.windows[a]).features, generator) for a in actions]
        m, c = matcher.embed_motions(motions), matcher.embed_captions([pick(texts[a]) for a in actions])
        label = torch.tensor([bank.actions.index(a) for a in actions])
        same = (label[:, None] == label) & ~torch.eye(_BATCH, dtype=torch.bool)
        logits = (m @ c.T / TEMPERATURE).masked_fill(same, -torch.inf)
        target = torch.arange(_BATCH)
        loss = cross_entropy(logits, target) + cross_entropy(logits.T, target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    return matcher.eval().requires_grad_(False)


def cached_matcher(bank: Bank, steps: int, seed: int, captions: Callable[[str], list[str]]) -> Matcher:
    """`train_matcher`, or its result from an earlier call with the same windows, captions and arguments."""
    said = [c for a in bank.actions for c in captions(a)]
    content = repr((VERSION, WIDTH, EMBEDDING, steps, seed, said)).encode()
    for action in bank.actions:
        content += torch.stack([w.features.double().sum() for w in bank.windows[action]]).numpy().tobytes()
    file = default_folder() / "matchers" / f"{zlib.crc32(content):08x}.pt"
    if file.is_file():
        matcher = Matcher(len(bank.scaler.mean))
        matcher.load_state_dict(torch.load(file, weights_only=True))
        return matcher.eval().requires_grad_(False)
    matcher = train_matcher(bank, steps, seed, captions)
    file.parent.mkdir(parents=True, exist_ok=True)
    part = file.with_suffix(f".{id(matcher)}")
    torch.save(matcher.state_dict(), part)
    part.replace(file)
    return matcher


def _varied(motion: Tensor, generator: torch.Generator) -> Tensor:
    """A random stretch of at least half of the motion, with a little noise."""
    length = len(motion)
    keep = int(torch.randint(max(8, length // 2), length + 1, (1,), generator=generator)) if length > 8 else length
    start = int(torch.randint(length - keep + 1, (1,), generator=generator))
    part = motion[start : start + keep]
    return part + 0.1 * torch.randn(part.shape, generator=generator)

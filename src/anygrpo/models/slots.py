"""A frozen language model that fills an answer of several words, each from a closed list; answers are kept on disk."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from anygrpo.errors import DataError
from anygrpo.models import loading
from anygrpo.models.classifier import AnswerCache
from anygrpo.spoken import Text


class FrozenSlots:
    """Probabilities of the true word at each place of an answer, normalised over that place's words.

    Args:
        model: a name for `anygrpo.models.loading`. slots: words for each place; of each the first token counts.
        batch: prompts a forward pass.

    Attributes:
        asked, computed: prompts asked for, and those that were not in the cache.
    """

    def __init__(self, model: str, slots: tuple[tuple[str, ...], ...], dtype: str, batch: int, cache: Path) -> None:
        self.name, self.slots, self.dtype, self.batch = model, slots, dtype, batch
        self.cache = AnswerCache(cache)
        self.asked = self.computed = 0
        self._loaded: tuple[Any, Any, list[Tensor]] | None = None

    def fill(self, prompts: list[str], answers: list[tuple[str, ...]]) -> tuple[Tensor, Tensor]:
        """[n] whether every place's likeliest word is the true one (given the true ones before it), and [n] the product
        of the true words' probabilities."""
        keys = [self._key(p, a) for p, a in zip(prompts, answers)]
        known = self.cache.get(sorted(set(keys)))
        missing = {key: (p, a) for key, p, a in zip(keys, prompts, answers) if key not in known}
        self.asked, self.computed = self.asked + len(prompts), self.computed + len(missing)
        order = sorted(missing, key=lambda key: len(missing[key][0]))
        for a in range(0, len(order), self.batch):
            part = order[a : a + self.batch]
            fresh = dict(zip(part, self._forward([missing[key] for key in part])))
            self.cache.put(fresh)
            known |= fresh
        found = torch.tensor([known[key] for key in keys])
        return found[:, 0], found[:, 1]

    def close(self) -> None:
        self.cache.close()

    def _key(self, prompt: str, answer: tuple[str, ...]) -> str:
        identity = f"{self.name}|{self.dtype}|{self.slots}|{answer}\0{prompt}"
        return hashlib.blake2b(identity.encode(), digest_size=16).hexdigest()

    @torch.inference_mode()
    def _forward(self, asked: list[tuple[str, tuple[str, ...]]]) -> list[list[float]]:
        model, tokenizer, slots = self._load()
        ids = [self._ids(tokenizer, prompt) for prompt, _ in asked]
        given = [row + [int(t) for t in self._words(answer)[:-1]] for row, (_, answer) in zip(ids, asked)]
        longest = max(map(len, given))
        inputs = torch.tensor([[0] * (longest - len(row)) + row for row in given])
        mask = torch.tensor([[0] * (longest - len(row)) + [1] * len(row) for row in given])
        positions = (mask.cumsum(-1) - 1).clamp_min(0)
        device = next(model.parameters()).device
        logits = model(
            inputs.to(device),
            attention_mask=mask.to(device),
            position_ids=positions.to(device),
            logits_to_keep=len(slots),
            use_cache=False,
        ).logits[:, -len(slots) :]
        right, probability = torch.ones(len(asked)), torch.ones(len(asked))
        for place, tokens in enumerate(slots):
            log_probs = logits[:, place, tokens.to(device)].float().log_softmax(-1).cpu()
            truth = torch.tensor([self.slots[place].index(answer[place]) for _, answer in asked])
            right *= (log_probs.argmax(-1) == truth).float()
            probability *= log_probs.gather(-1, truth[:, None])[:, 0].exp()
        return torch.stack([right, probability], 1).tolist()

    def _ids(self, tokenizer: Any, text: str) -> list[int]:
        return tokenizer(text, add_special_tokens=False)["input_ids"]

    def _words(self, answer: tuple[str, ...]) -> list[int]:
        slots = self._load()[2]
        return [int(tokens[words.index(word)]) for tokens, words, word in zip(slots, self.slots, answer)]

    def _load(self) -> tuple[Any, Any, list[Tensor]]:
        """Model, tokenizer, and the first token of each place's words."""
        if self._loaded is None:
            device = "cuda" if torch.cuda.is_available() else "cpu"
            loaded = loading.load(self.name, getattr(torch, self.dtype), device)
            slots = [[self._ids(loaded.tokenizer, f" {word}")[0] for word in words] for words in self.slots]
            for words, tokens in zip(self.slots, slots):
                if len(set(tokens)) < len(tokens):
                    raise DataError(
                        Text(f"words {words} begin with the same token", f"词 {words} 的第一个 token 相同"),
                        Text("use words that differ at once", "请用第一个 token 就不同的词"),
                    )
            self._loaded = loaded.model, loaded.tokenizer, [torch.tensor(tokens) for tokens in slots]
        return self._loaded

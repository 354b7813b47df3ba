"""A tiny random Llama as a recipe's policy, and a task for it: as many even-numbered words as possible."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch

from anygrpo.core.task import Scores, Stored, Task
from anygrpo.language import build as causal_lm
from anygrpo.language.settings import CausalLMConfig

sys.path.insert(0, str(Path(__file__).parents[1] / "language"))


def policy(seed: int, **options: Any) -> causal_lm.CausalLM:
    import tiny

    settings = {"train": "all", "max_new_tokens": 6, "dtype": "float32", "device": "cpu", "threads": 1} | options
    config = CausalLMConfig(kind="causal_lm", model="memory", **settings)
    return causal_lm.from_model(tiny.model("llama", scale=4.0), tiny.tokenizer(), config, seed=seed)


class Even(Task):
    def __init__(self, seed: int = 0) -> None:
        self.seed = seed

    def prompts(self, step: int, count: int) -> list[Any]:
        generator = torch.Generator().manual_seed(self.seed * 7919 + step)
        draw = lambda n: torch.randint(0, 60, (n,), generator=generator).tolist()  # noqa: E731
        return [{"prompt": " ".join(f"w{i}" for i in draw(2 + step % 3 + c))} for c in range(count)]

    def held_out(self) -> list[Any]:
        return self.prompts(10**6, 5)

    def score(self, prompts: list[Any], outputs: list[list[Any]]) -> Scores:
        words = [[[w for w in text.split() if w[1:].isdigit()] for text in row] for row in outputs]
        even = [[sum(int(w[1:]) % 2 == 0 for w in ws) / max(len(ws), 1) for ws in row] for row in words]
        return Scores(torch.tensor(even))


class Taught(Even):
    """Even words, with one gold answer of even words; prompts of 3 or 6 words have none."""

    def stored(self, prompts: list[Any]) -> Stored:
        return Stored([["w2 w4 w6"] if len(p["prompt"].split()) % 3 else [] for p in prompts])


class Parts(Even):
    """Even words in two parts: how many are even, and how few they are."""

    def score(self, prompts: list[Any], outputs: list[list[Any]]) -> Scores:
        even = super().score(prompts, outputs).rewards
        short = torch.tensor([[1 / (1 + len(text.split())) for text in row] for row in outputs])
        return Scores(even + short, {"even": even, "short": short})

"""Choosing labelled examples to put before a query, for a frozen language model that classifies it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from anygrpo.core.task import Stored, epoch_indices
from anygrpo.errors import DataError
from anygrpo.files import cache_folder, json_value, lines_of
from anygrpo.models.classifier import Example, FrozenClassifier
from anygrpo.models.embedding import embed
from anygrpo.selection.rewards import reward
from anygrpo.selection.scorers.scorer import Shown
from anygrpo.selection.scorers.template import Template
from anygrpo.selection.settings import DemonstrationsConfig
from anygrpo.selection.task import Prompt, Selection, SelectionTask, nearest
from anygrpo.spoken import Text


class Demonstrations(SelectionTask):
    """Prompts: "id" (split and number), "query" [d], "candidates" [M, d], "ids", "text", "label".

    Pool, training, validation and test texts are disjoint, balanced over labels, and fixed by `split_seed`.
    """

    def __init__(self, config: DemonstrationsConfig, seed: int) -> None:
        self.config, self.seed = config, seed
        self.shots, self.reward, self.size = config.shots, config.reward, config.queries
        self.reward_shots = config.reward_shots
        sizes = {
            "pool": config.pool,
            "train": config.queries,
            "validation": config.held_out_validation,
            "test": config.held_out_test,
        }
        self.texts = _split(read_examples(config.path, config.labels), config, sizes)
        self._embedded: dict[str, Tensor] = {}
        given = (config.template, config.instruction, config.labels)
        self._template = None if config.template is None else Template(*given)
        cache = Path(config.cache) if config.cache else cache_folder() / "answers.sqlite"
        self.frozen = FrozenClassifier(
            config.model, config.labels, config.instruction, config.dtype, config.batch_size, cache
        )

    def prompts(self, step: int, count: int) -> list[Prompt]:
        return [self.prompt(f"train-{i}") for i in epoch_indices(self.size, step, count, self.seed)]

    def held_out(self) -> list[Prompt]:
        """The validation or test queries, as `held_out_split` says."""
        return [
            self.prompt(f"{self.config.held_out_split}-{i}") for i in range(len(self.texts[self.config.held_out_split]))
        ]

    def prompt(self, name: str) -> Prompt:
        """The query called `name` ("train-3", "validation-3", "test-3")."""
        split, number = name.split("-")
        text, label = self.texts[split][int(number)]
        return {
            "id": name,
            "query": self._embeddings(split)[int(number)],
            "candidates": self._embeddings("pool"),
            "ids": [f"pool-{i}" for i in range(len(self.texts["pool"]))],
            "text": text,
            "label": self.config.labels.index(label),
        }

    def judge(self, prompts: list[Prompt], selections: list[list[Selection]]) -> dict[str, Tensor]:
        pool = self.texts["pool"]
        texts = [
            self._shown([pool[i] for i in selection], prompt["text"])
            for prompt, row in zip(prompts, selections)
            for selection in row
        ]
        p, g = len(prompts), len(selections[0])
        log_probs = self.frozen.label_log_probs(texts).view(p, g, -1)
        labels = torch.tensor([prompt["label"] for prompt in prompts])
        truth = log_probs.gather(-1, labels[:, None, None].expand(p, g, 1))[..., 0].exp()
        correct = (log_probs.argmax(-1) == labels[:, None]).float()
        relevance = torch.tensor([[_relevance(x, s) for s in row] for x, row in zip(prompts, selections)])
        return {"correct": correct, "accuracy_score": correct.clone(), "gt_prob": truth, "relevance": relevance}

    def _shown(self, demonstrations: list[Example], text: str) -> tuple[str, str]:
        """What the model reads: shared part and the query's own; of a template all is the query's own."""
        if self._template is None:
            return self.frozen.prompt(demonstrations, text)
        rows = tuple({"text": t, "label": label} for t, label in demonstrations)
        return "", self._template.render(Shown({"text": text}, rows))[0]

    def stored(self, prompts: list[Prompt]) -> Stored:
        """One demonstration list a query: its nearest neighbours, nearest last (next to the query)."""
        actions: list[list[Any]] = [[nearest(p, self.shots)[::-1]] for p in prompts]
        parts = self.judge(prompts, actions)
        ragged = {name: part.tolist() for name, part in parts.items()}
        return Stored(actions, reward(parts, self.reward).tolist(), None, ragged)

    def close(self) -> None:
        self.frozen.cache.close()

    def _embeddings(self, split: str) -> Tensor:
        if split not in self._embedded:
            self._embedded[split] = embed([text for text, _ in self.texts[split]], self.config.embedding)
        return self._embedded[split]


def read_examples(data: str, labels: tuple[str, ...]) -> list[Example]:
    """Texts and labels from a JSONL file, or from the cache folder of scripts/fetch_sentiment.py.

    Raises:
        DataError: no such file, a row without text or label, a label not in `labels`.
    """
    path = Path(data)
    if not data.endswith(".jsonl"):
        path = cache_folder() / "sentiment" / f"{data}.jsonl"
    if not path.is_file():
        fetched = path.parent.name == "sentiment"
        cure = "`python scripts/fetch_sentiment.py`" if fetched else Text("check task.path", "请检查 task.path")
        raise DataError(Text(f"no examples at {path}", f"{path} 处没有示例"), cure)
    examples = []
    for number, line in enumerate(lines_of(path.read_text(encoding="utf-8")), 1):
        try:
            row = json_value(line)
            text, label = row["text"], row["label"]
        except (ValueError, KeyError, TypeError):
            raise DataError(
                Text(
                    f'{path}:{number} is not an object with "text" and "label"',
                    f"{path}:{number} 不是含 “text” 和 “label” 的对象",
                )
            ) from None
        if label not in labels:
            raise DataError(
                Text(
                    f"{path}:{number} has label {label!r}, task.labels are {list(labels)}",
                    f"{path}:{number} 的标签为 {label!r}，而 task.labels 为 {list(labels)}",
                )
            )
        examples.append((text, label))
    return examples


def _split(examples: list[Example], config: DemonstrationsConfig, sizes: dict[str, int]) -> dict[str, list[Example]]:
    """Disjoint splits, each with labels as even as its size allows, in the labels' rotation."""
    generator = torch.Generator().manual_seed(config.split_seed)
    order = torch.randperm(len(examples), generator=generator).tolist()
    by_label = {label: [examples[i] for i in order if examples[i][1] == label] for label in config.labels}
    out: dict[str, list[Example]] = {}
    for name, size in sizes.items():
        words = [config.labels[i % len(config.labels)] for i in range(size)]
        for label in config.labels:
            if words.count(label) > len(by_label[label]):
                raise DataError(
                    Text(
                        f"{config.path}: {sum(sizes.values())} texts asked for, but {label!r} runs out in {name}",
                        f"{config.path}：需要 {sum(sizes.values())} 段文本，但 {name} 中的 {label!r} 不够",
                    ),
                    Text("ask for fewer queries", "请减少查询数"),
                )
        out[name] = [by_label[word].pop() for word in words]
    return out


def _relevance(prompt: Prompt, selection: Selection) -> float:
    """Mean cosine of the chosen examples to the query, in [0, 1]; 0 for none."""
    if not selection:
        return 0.0
    chosen = prompt["candidates"][list(selection)]
    return float(torch.cosine_similarity(chosen, prompt["query"][None]).mean().clamp(0, 1))

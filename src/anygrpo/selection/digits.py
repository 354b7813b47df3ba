"""digits-VQA: demonstrations for questions about handwritten digits, judged by a frozen kernel learner.

A query is a digit image (sklearn's) with a question about the digit, its parity or its size, in one of four wordings.
The learner answers by a kernel average over the chosen demonstrations alone (Nadaraya and Watson, 1964), so that a
selection is good if and only if it holds the same kind of question about a similar enough picture with the same answer.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from anygrpo.core.task import Stored, epoch_indices
from anygrpo.models.embedding import embed
from anygrpo.selection.rewards import reward
from anygrpo.selection.settings import DigitsVQAConfig
from anygrpo.selection.task import Prompt, Selection, SelectionTask, nearest

QUESTIONS = {
    "digit": (
        "Which digit is shown?",
        "What number is written here?",
        "Name the handwritten numeral.",
        "What figure is this?",
    ),
    "parity": (
        "Is the number even or odd?",
        "Tell me the parity of this digit.",
        "Is it divisible by two?",
        "Does the numeral have odd parity?",
    ),
    "size": (
        "Is it larger than four?",
        "Is the digit five or more?",
        "Is this number big or small?",
        "Does the value exceed four?",
    ),
}
WORDINGS = [(kind, text) for kind, texts in QUESTIONS.items() for text in texts]
ANSWERS = [str(i) for i in range(10)] + ["odd", "even", "large", "small"]
_TRUE = {
    "digit": lambda d: str(d),
    "parity": lambda d: "odd" if d % 2 else "even",
    "size": lambda d: "large" if d > 4 else "small",
}
_ANSWER = torch.tensor([[ANSWERS.index(_TRUE[kind](d)) for d in range(10)] for kind, _ in WORDINGS])
"""[wordings, digits]: index of the true answer."""
IMAGE = 64
"""Pixels, the first features of a query or candidate; the question's embedding follows."""
_TRAIN_IMAGES = 1200  # of 1,797: candidates and training queries; the rest are held-out queries only
_SPLIT = 0


class DigitsVQA(SelectionTask):
    """Prompts: "id" (its split and number, and all that made it), "query" [448], "candidates" [M, 448], "answer",
    "answers" [M]. Every prompt is a function of its id."""

    def __init__(self, config: DigitsVQAConfig, seed: int) -> None:
        self.config, self.seed = config, seed
        self.shots, self.reward, self.size = config.shots, config.reward, config.queries
        self.reward_shots = config.reward_shots
        self.images, self.digits = _images()
        self.texts = embed([text for _, text in WORDINGS], config.embedding)
        order = torch.randperm(len(self.digits), generator=torch.Generator().manual_seed(_SPLIT))
        self.train, self.test = order[:_TRAIN_IMAGES], order[_TRAIN_IMAGES:]
        self._held_out: list[Prompt] | None = None

    def prompts(self, step: int, count: int) -> list[Prompt]:
        if self.size:
            return [self.prompt(f"train-{i}") for i in epoch_indices(self.size, step, count, self.seed)]
        return [self.prompt(f"train-{self.seed}.{step * count + i}") for i in range(count)]

    def held_out(self) -> list[Prompt]:
        """The same queries whatever the run's seed, on images that training never shows."""
        if self._held_out is None:
            self._held_out = [self.prompt(f"test-{i}") for i in range(self.config.held_out)]
        return self._held_out

    def prompt(self, name: str) -> Prompt:
        """The query called `name` ("train-7", "train-<seed>.<number>", "test-7")."""
        split, number = name.split("-")
        source = self.test if split == "test" else self.train
        generator = torch.Generator().manual_seed(_seed(split, number))
        draw = lambda high, *shape: torch.randint(high, shape, generator=generator)  # noqa: E731
        image, wording = source[draw(len(source), 1)[0]], int(draw(len(WORDINGS), 1)[0])
        size = self.config.pool
        if self.config.ragged:
            size -= int(draw(size // 2 + 1, 1)[0])
        images, wordings = self.train[draw(len(self.train), size)], draw(len(WORDINGS), size)
        return {
            "id": name,
            "query": torch.cat([self.images[image], self.texts[wording]]),
            "candidates": torch.cat([self.images[images], self.texts[wordings]], 1),
            "ids": [f"{i}/{w}" for i, w in zip(images.tolist(), wordings.tolist())],
            "excluded": (images == image).nonzero()[:, 0].tolist(),
            "answer": int(_ANSWER[wording, self.digits[image]]),
            "answers": _ANSWER[wordings, self.digits[images]],
        }

    def judge(self, prompts: list[Prompt], selections: list[list[Selection]]) -> dict[str, Tensor]:
        correct = torch.zeros(len(prompts), max(map(len, selections)))
        truth, relevance = torch.zeros_like(correct), torch.zeros_like(correct)
        for p, (prompt, row) in enumerate(zip(prompts, selections)):
            probabilities, cosine = self._learner(prompt, row)
            correct[p] = (probabilities.argmax(-1) == prompt["answer"]).float()
            truth[p], relevance[p] = probabilities[:, prompt["answer"]], cosine
        return {"correct": correct, "accuracy_score": correct.clone(), "gt_prob": truth, "relevance": relevance}

    def stored(self, prompts: list[Prompt]) -> Stored:
        """One demonstration a query: its nearest neighbours in picture and question together, with their reward."""
        actions = [[nearest(p, self.shots)] for p in prompts]
        parts = self.judge(prompts, actions)
        ragged = {name: part.tolist() for name, part in parts.items()}
        return Stored(actions, reward(parts, self.reward).tolist(), None, ragged)

    def _learner(self, prompt: Prompt, selections: list[Selection]) -> tuple[Tensor, Tensor]:
        """Answer probabilities [G, 14] of the kernel average, and the mean similarity in [0, 1] of what was chosen.
        With nothing chosen every answer is as likely, and the argmax of a tie counts as wrong."""
        c, q = prompt["candidates"], prompt["query"]
        image, text = c[:, :IMAGE] @ q[:IMAGE], c[:, IMAGE:] @ q[IMAGE:]
        scores = self.config.image_sharpness * image + self.config.text_sharpness * text
        weights = torch.zeros(len(selections), len(c))
        for g, selection in enumerate(selections):
            weights[g, list(selection)] = scores[list(selection)].softmax(0)
        answers = F.one_hot(prompt["answers"], len(ANSWERS)).float()
        probabilities = weights @ answers
        empty = weights.sum(1) == 0
        probabilities[empty] = 1 / len(ANSWERS)
        probabilities[empty, (prompt["answer"] + 1) % len(ANSWERS)] += 1e-6
        count = (weights > 0).sum(1).clamp_min(1)
        cosine = ((weights > 0).float() @ ((image + text) / 2)) / count
        return probabilities, cosine.clamp(0, 1)


def _images() -> tuple[Tensor, Tensor]:
    """Unit, centred images [1797, 64] and their digits."""
    from sklearn.datasets import load_digits

    data: Any = load_digits()
    pixels = torch.tensor(data.data / 16.0, dtype=torch.float32)
    return F.normalize(pixels - pixels.mean(0), dim=-1), torch.tensor(data.target)


def _seed(split: str, number: str) -> int:
    stream, _, index = number.rpartition(".")
    return (int(index) * 2 + (split == "test")) * 1_000_003 + (int(stream) + 1 if stream else 0)

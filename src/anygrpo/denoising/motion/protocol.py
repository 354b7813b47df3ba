"""The published table of a text-to-motion model (Guo et al., CVPR 2022) on embeddings of the user's evaluator."""

from __future__ import annotations

import torch
from torch import Tensor

from anygrpo.denoising.motion import measures
from anygrpo.denoising.motion.published_task import Prompt, PublishedMotionTask
from anygrpo.denoising.policy import DiffusionPolicy
from anygrpo.errors import ConfigError
from anygrpo.spoken import Text

Row = dict[str, tuple[float, float]]
"""Measure -> (mean over repetitions, half width of its 95% interval)."""
SEEDS = 10_000_000
"""Noise seeds kept for a repetition."""


def protocol(
    policy: DiffusionPolicy,
    task: PublishedMotionTask,
    repetitions: int = 20,
    captions: int = 100,
    samples: int = 30,
    pairs: int = 10,
    rows: int = 64,
    multimodal: int = 5,
) -> dict[str, Row]:
    """{"model", "data"}: R-precision at 1 to 3 (groups of 32), matching distance, diversity (300 pairs); of the model
    also FID to the items' own motions, and multimodality. Each repetition draws captions, lengths and noise anew for
    the task's measured items (`task.held_out` of them).

    Args:
        captions, samples, pairs: of multimodality; captions = 0 leaves it out.
        multimodal: repetitions in which it is measured, the first (published: 5 of the 20).
        rows: motions sampled at once.

    Raises:
        ConfigError: the task has no evaluator.
    """
    if task.evaluator is None:
        raise ConfigError(
            Text("the published measures are of embeddings", "已发布的度量基于嵌入"), 'task.evaluator = "judge.py:make"'
        )
    table = [_repetition(policy, task, i, rows) for i in range(repetitions)]
    model, data = (measures.repeated(lambda i, side=side: table[i][side], repetitions) for side in (0, 1))
    if captions:
        among = lambda i: {"multimodality": _multimodality(policy, task, i, captions, samples, pairs, rows)}  # noqa: E731
        model |= measures.repeated(among, min(multimodal, repetitions))
    return {"model": model, "data": data}


def markdown(found: dict[str, Row]) -> str:
    """The table as Markdown: a line for the data, a line for the model."""
    names = list(found["model"])
    lines = ["| | " + " | ".join(names) + " |", "| --- " * (len(names) + 1) + "|"]
    for side in ("data", "model"):
        cells = [f"{found[side][n][0]:.3f} +- {found[side][n][1]:.3f}" if n in found[side] else "" for n in names]
        lines.append(f"| {side} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


@torch.no_grad()
def _repetition(
    policy: DiffusionPolicy, task: PublishedMotionTask, number: int, rows: int
) -> tuple[dict[str, float], dict[str, float]]:
    """The measures of the model's motions, and of the items' own."""
    generator = torch.Generator().manual_seed(number)
    prompts = [p | {"seed": number * SEEDS + i} for i, p in enumerate(task.drawn(generator))]
    words = task.evaluator.embed_texts(prompts)
    data = task.evaluator.embed_motions([task.kept.items[p["item"]].features()[: p["length"]] for p in prompts])
    made = _embedded(policy, task, prompts, rows)
    return _measured(words, made, number, data), _measured(words, data, number)


def _measured(words: Tensor, motions: Tensor, number: int, data: Tensor | None = None) -> dict[str, float]:
    """`data`: what the FID is to; that of the data to itself would be 0, whatever the data."""
    top = {f"r{k}": value for k, value in enumerate(measures.r_precision(words, motions), 1)}
    pairs = torch.Generator().manual_seed(number)
    top |= {"matching_distance": measures.matching_distance(words, motions)}
    top |= {} if data is None else {"fid": measures.frechet(motions, data)}
    return top | {"diversity": measures.spread(motions, measures.PAIRS, pairs)}


@torch.no_grad()
def _multimodality(
    policy: DiffusionPolicy, task: PublishedMotionTask, number: int, captions: int, samples: int, pairs: int, rows: int
) -> float:
    generator = torch.Generator().manual_seed(number)
    some = task.drawn(generator)[:captions]
    first = number * SEEDS + SEEDS // 2
    prompts = [p | {"seed": first + i * samples + s} for i, p in enumerate(some) for s in range(samples)]
    made = _embedded(policy, task, prompts, rows).view(len(some), samples, -1)
    return measures.multimodality(made, pairs, generator)


def _embedded(policy: DiffusionPolicy, task: PublishedMotionTask, prompts: list[Prompt], rows: int) -> Tensor:
    """[n, D] of one sampled motion a prompt."""
    motions: list[Tensor] = []
    for a in range(0, len(prompts), rows):
        outputs = policy.decode(policy.greedy(prompts[a : a + rows]).samples)
        motions += [task.scaler.undo(row[0].float().cpu()) for row in outputs]
    return task.evaluator.embed_motions(motions)

"""Candidates for a stored-candidate file: beams, samples at several temperatures, retrieved and random selections."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional as F

from anygrpo.selection.policy import SelectorPolicy


@dataclass(frozen=True)
class Plan:
    """How many of each. The published recipe: 5 beams, 2 samples at 1.0, 2 at 1.3, 1 random, 5 retrieved."""

    beams: int = 5
    samples: tuple[tuple[float, int], ...] = ((1.0, 2), (1.3, 2))
    random: int = 1
    retrieved: int = 5


@dataclass(frozen=True)
class Generated:
    """A selection, how it was made, and its log-probability under exactly that (None where it was not drawn)."""

    selection: tuple[int, ...]
    method: str
    log_prob: float | None = None
    temperature: float | None = None
    rank: int | None = None
    beam_score: float | None = None


def generate(policy: SelectorPolicy, prompts: list[dict[str, Any]], plan: Plan, seed: int) -> list[list[Generated]]:
    """Selections of each prompt, duplicates removed *keeping order* (the first method that found one is named)."""
    rows: list[list[Generated]] = [[] for _ in prompts]
    if plan.beams:
        found, scores = policy.beam(prompts, plan.beams)
        for row, actions, values in zip(rows, found, scores):
            row += [Generated(a, "beam", None, None, i, v) for i, (a, v) in enumerate(zip(actions, values))]
    for number, (temperature, count) in enumerate(plan.samples):
        with _at(policy, temperature):
            rollout = policy.sample(prompts, count, seed + number)
        totals = rollout.log_probs.sum(-1).tolist()
        for row, actions, values in zip(rows, policy.decode(rollout.samples), totals):
            row += [Generated(a, "sample", v, temperature) for a, v in zip(actions, values)]
    shots = policy.config.shots
    for i, (row, prompt) in enumerate(zip(rows, prompts)):
        generator = torch.Generator().manual_seed(seed * 1_000_003 + i)
        row += [_random(prompt, shots, generator) for _ in range(plan.random)]
        row += [Generated(a, "retrieval") for a in _retrieved(prompt, shots, plan.retrieved)]
    return [_unique(row) for row in rows]


@contextmanager
def _at(policy: SelectorPolicy, temperature: float) -> Iterator[None]:
    before, policy.temperature = policy.temperature, temperature
    try:
        yield
    finally:
        policy.temperature = before


def _open(prompt: dict[str, Any]) -> list[int]:
    excluded = set(prompt.get("excluded", ()))
    return [i for i in range(len(prompt["candidates"])) if i not in excluded]


def _random(prompt: dict[str, Any], shots: int, generator: torch.Generator) -> Generated:
    positions = _open(prompt)
    k = min(shots, len(positions))
    order = torch.randperm(len(positions), generator=generator)[:k].tolist()
    log_prob = -sum(math.log(len(positions) - i) for i in range(k))  # uniform over ordered selections
    return Generated(tuple(positions[i] for i in order), "random", log_prob)


def _retrieved(prompt: dict[str, Any], shots: int, count: int) -> list[tuple[int, ...]]:
    """The nearest `shots` candidates, the next nearest, and so on."""
    positions = _open(prompt)
    similarity = F.cosine_similarity(prompt["candidates"][positions], prompt["query"][None], dim=-1)
    ranked = [positions[i] for i in similarity.argsort(descending=True).tolist()]
    windows = [tuple(ranked[a : a + shots]) for a in range(0, shots * count, shots)]
    return [w for w in windows if len(w) == min(shots, len(positions))]


def _unique(row: list[Generated]) -> list[Generated]:
    first: dict[tuple[int, ...], Generated] = {}
    for generated in row:
        first.setdefault(generated.selection, generated)
    return list(first.values())

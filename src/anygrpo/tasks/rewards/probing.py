"""Trying a task's reward on answers whose worth is known, before hours are spent on it."""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass, field
from typing import Any

from anygrpo.errors import ConfigError

NO_ANSWER = "I do not know."
"""The wrong answer where all gold answers are alike."""


@dataclass(frozen=True)
class Probe:
    """What a reward gave.

    Attributes:
        rewards: kind of answer ("gold", "wrong", "empty", "truncated") -> its valid rewards.
        invalid: kind -> reasons of those without a verdict.
        milliseconds: of one answer, once workers are warm.
        repeatable: the same answers scored twice got the same rewards.
        problems: sentences for a person; empty where the reward is sound.
    """

    rewards: dict[str, list[float]]
    invalid: dict[str, list[str]]
    milliseconds: float
    repeatable: bool
    problems: list[str] = field(default_factory=list)

    def mean(self, kind: str) -> float | None:
        """Mean reward of a kind; None where there is none."""
        values = self.rewards.get(kind, [])
        return statistics.fmean(values) if values else None


def probe(task: Any, count: int = 8) -> Probe:
    """Score gold, wrong (another prompt's gold), empty and truncated (half the gold) answers of held-out prompts.

    Works without gold answers too: then only empty answers are tried.
    """
    prompts = task.held_out()[:count]
    answers = _answers(task, prompts)
    outputs = [[kinds[kind] for kind in answers[0]] for kinds in answers]
    task.score(prompts, outputs)  # starts the workers
    began = time.perf_counter()
    first = task.score(prompts, outputs)
    seconds = time.perf_counter() - began
    second = task.score(prompts, outputs)
    rewards: dict[str, list[float]] = {kind: [] for kind in answers[0]}
    invalid: dict[str, list[str]] = {kind: [] for kind in answers[0]}
    for p in range(len(prompts)):
        for g, kind in enumerate(answers[0]):
            if first.valid is None or first.valid[p, g]:
                rewards[kind].append(first.rewards[p, g].item())
            else:
                invalid[kind].append(first.reasons.get((p, g), "no reason given"))
    alike = bool((first.rewards == second.rewards).all()) and _same_valid(first, second)
    result = Probe(rewards, invalid, 1e3 * seconds / max(1, len(prompts) * len(answers[0])), alike)
    result.problems.extend(_problems(result))
    return result


def _same_valid(first: Any, second: Any) -> bool:
    return first.valid is None or second.valid is None or bool((first.valid == second.valid).all())


def _answers(task: Any, prompts: list[Any]) -> list[dict[str, str]]:
    """For each prompt its answers by kind; every prompt has the same kinds."""
    try:
        stored = task.stored(prompts)
    except ConfigError:
        return [{"empty": ""} for _ in prompts]
    best = [_best(row, stored.rewards[p] if stored.rewards else None) for p, row in enumerate(stored.actions)]
    if any(answer is None for answer in best):
        return [{"empty": ""} for _ in prompts]
    gold = [str(answer) for answer in best]
    out = []
    for answer in gold:
        other = next((text for text in gold if text != answer), NO_ANSWER)
        out.append({"gold": answer, "wrong": other, "empty": "", "truncated": answer[: len(answer) // 2]})
    return out


def _best(actions: list[Any], rewards: list[float] | None) -> Any:
    if not actions:
        return None
    return actions[max(range(len(actions)), key=rewards.__getitem__)] if rewards else actions[0]


def _problems(result: Probe) -> list[str]:
    problems = []
    for kind, reasons in result.invalid.items():
        if reasons:
            total = len(reasons) + len(result.rewards[kind])
            problems.append(f"{len(reasons)} of {total} {kind} answers got no verdict ({reasons[0]})")
    if not result.repeatable:
        problems.append("the same answers scored twice got different rewards: noise that looks like signal")
    gold = result.mean("gold")
    for kind in ("wrong", "empty", "truncated"):
        other = result.mean(kind)
        if gold is not None and other is not None and other >= gold:
            problems.append(f"{kind} answers earn {other:.3g} on average, right ones {gold:.3g}")
    return problems

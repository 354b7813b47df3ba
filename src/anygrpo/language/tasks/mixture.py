"""Several tasks in one: each source with its share of the prompts, its own rewards and its own evaluation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from anygrpo.core.build import build_task
from anygrpo.core.task import Scores, Stored, Task
from anygrpo.language.task_settings import MixtureTaskConfig
from anygrpo.language.tasks.text import Prompt
from anygrpo.train.evaluation import counted, faults_of, scored

CYCLE = 1000
"""Prompts after which the order of sources repeats: shares are kept to one in a thousand."""


class Mixture(Task):
    """Prompt i belongs to one source, by a fixed order that keeps every stretch near the shares; within a source its
    prompts come in that source's own order. Each prompt says its source in the column "source"."""

    def __init__(self, config: MixtureTaskConfig, seed: int) -> None:
        self.names = [source.name for source in config.sources]
        self.tasks = [build_task(source.section, seed) for source in config.sources]
        self._cycle = order([source.share for source in config.sources])
        self._before = _before(self._cycle, len(self.tasks))
        self._counts = [self._cycle.count(s) for s in range(len(self.tasks))]
        sizes = [task.size for task in self.tasks]
        self.size = sum(sizes) if all(sizes) else 0

    def prompts(self, step: int, count: int) -> list[Prompt]:
        return [self._prompt(step * count + i) for i in range(count)]

    def _prompt(self, index: int) -> Prompt:
        passes, place = divmod(index, CYCLE)
        source = self._cycle[place]
        own = passes * self._counts[source] + self._before[place]
        return self.tasks[source].prompts(own, 1)[0] | {"source": self.names[source]}

    def held_out(self) -> list[Prompt]:
        return [p | {"source": name} for name, task in zip(self.names, self.tasks) for p in task.held_out()]

    def score(self, prompts: list[Prompt], outputs: list[list[str]]) -> Scores:
        return self.score_async(prompts, outputs).result()

    def score_async(  # type: ignore[override]
        self, prompts: list[Prompt], outputs: list[list[str]]
    ) -> _Waiting:
        """Every source's scoring is begun before any is waited for."""
        parts = self._parts(prompts)
        begun = [
            (rows, self.names[s], self.tasks[s].score_async([prompts[p] for p in rows], [outputs[p] for p in rows]))
            for s, rows in parts.items()
        ]
        shape = (len(outputs), max(map(len, outputs), default=0))
        return _Waiting(lambda: joined(shape, [(rows, name, one.result()) for rows, name, one in begun]))

    def _parts(self, prompts: list[Prompt]) -> dict[int, list[int]]:
        """Source -> the prompts that are its."""
        found: dict[int, list[int]] = {}
        for p, prompt in enumerate(prompts):
            found.setdefault(self.names.index(prompt["source"]), []).append(p)
        return found

    def measure(self, prompts: list[Prompt], outputs: list[list[str]]) -> dict[str, float]:
        """Each source's own measures as eval/SOURCE/..., its mean reward among them, and their means over prompts."""
        made, sums, weights = {}, {}, {}
        for s, rows in self._parts(prompts).items():
            given = [prompts[p] for p in rows], [outputs[p] for p in rows]
            scores = scored(self.tasks[s], *given)
            values = counted(scores, self.tasks[s])[~faults_of(scores)]
            own = self.tasks[s].measure(*given)
            for name, value in own.items():
                sums[name] = sums.get(name, 0.0) + value * len(rows)
                weights[name] = weights.get(name, 0) + len(rows)
            if len(values):
                own = own | {"eval/reward": float(values.mean())}
            made |= {f"eval/{self.names[s]}/{name.removeprefix('eval/')}": value for name, value in own.items()}
        return made | {name: sums[name] / weights[name] for name in sums}

    def stored(self, prompts: list[Prompt]) -> Stored:
        """Every source's stored answers; rewards only where all sources have them."""
        parts = [(rows, self.tasks[s].stored([prompts[p] for p in rows])) for s, rows in self._parts(prompts).items()]
        actions: list[Any] = [None] * len(prompts)
        rewards: list[Any] = [None] * len(prompts)
        for rows, stored in parts:
            for i, p in enumerate(rows):
                actions[p], rewards[p] = stored.actions[i], stored.rewards[i] if stored.rewards else None
        return Stored(actions, None if any(r is None for r in rewards) else rewards)

    def close(self) -> None:
        for task in self.tasks:
            task.close()


class _Waiting:
    def __init__(self, wait: Callable[[], Scores]) -> None:
        self._wait = wait

    def result(self) -> Scores:
        return self._wait()


def order(shares: list[float]) -> list[int]:
    """`CYCLE` sources: at each place the one that is furthest behind its share."""
    total, taken, made = sum(shares), [0] * len(shares), []
    for place in range(1, CYCLE + 1):
        source = max(range(len(shares)), key=lambda s: (shares[s] / total * place - taken[s], -s))
        taken[source] += 1
        made.append(source)
    return made


def _before(cycle: list[int], sources: int) -> list[int]:
    """How often the source at each place stood before it."""
    taken, made = [0] * sources, []
    for source in cycle:
        made.append(taken[source])
        taken[source] += 1
    return made


def joined(shape: tuple[int, int], parts: list[tuple[list[int], str, Scores]]) -> Scores:
    """Scores [P, G] of all sources. Components are named SOURCE.NAME; for prompts of other sources they hold their own
    mean, which changes neither a mean nor, being constant in a group, an advantage."""
    rewards, valid = torch.zeros(shape), torch.zeros(shape, dtype=torch.bool)
    components: dict[str, Tensor] = {}
    reasons: dict[tuple[int, int], str] = {}
    for rows, source, scores in parts:
        own = torch.ones_like(scores.rewards, dtype=torch.bool) if scores.valid is None else scores.valid
        width = scores.rewards.shape[1]
        rewards[rows, :width], valid[rows, :width] = scores.rewards.float(), own
        reasons |= {(rows[p], g): why for (p, g), why in scores.reasons.items()}
        for name, part in scores.components.items():
            mean = float(part[own].mean()) if own.any() else 0.0
            components[f"{source}.{name}"] = torch.full(shape, mean)
            components[f"{source}.{name}"][rows, :width] = part.float()
    return Scores(rewards, components, valid, reasons)


build = Mixture
"""build(config, seed) of this kind."""

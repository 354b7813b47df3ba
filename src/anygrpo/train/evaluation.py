"""Held-out evaluation: greedy answers, and how often one of k samples succeeds."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import torch

from anygrpo.core.policy import BasePolicy
from anygrpo.core.rollout import Rollout, Scores
from anygrpo.core.task import Task
from anygrpo.errors import ConfigError, suggestion
from anygrpo.recipe.algorithm import EvaluationConfig
from anygrpo.train.distributed import rank_seed
from anygrpo.train.parallel import from_main, gather, is_main, share, world_size

_PROMPTS_AT_ONCE = 64


@torch.no_grad()
def evaluate(
    policy: BasePolicy, task: Task, config: EvaluationConfig, seed: int, file: Path | None = None
) -> dict[str, float]:
    """Numbers named "eval/...", on the task's held-out prompts: the greedy answers' mean reward with standard error,
    the task's own measures, and with `pass_k` the share of prompts where one of k samples succeeds.

    Args:
        file: where each prompt's own result is written, for paired comparisons (`anygrpo compare`).
    """
    prompts = task.held_out()[: config.prompts]
    if not prompts:
        return {}
    outputs, scores = _answers(policy, task, prompts)
    rewards = scores.rewards[:, 0].double()
    valid = rewards.isfinite() if scores.valid is None else scores.valid[:, 0] & rewards.isfinite()
    if file is not None and is_main():
        _write(file, policy.show(prompts, outputs), scores, valid)
    row = {"eval/prompts": float(len(prompts)), "eval/invalid": float((~valid).double().mean())}
    if bool(valid.any()):
        row["eval/reward"] = float(rewards[valid].mean())
        n = int(valid.sum())
        row["eval/reward_se"] = float(rewards[valid].std(correction=1)) / math.sqrt(n) if n > 1 else 0.0
    row |= from_main(task.measure(prompts, outputs) if is_main() else {})  # type: ignore[attr-defined]
    if config.pass_k:
        row[f"eval/pass_at_{config.pass_k}"] = _pass_at_k(policy, task, prompts, config.pass_k, seed)
    return row


def _answers(policy: BasePolicy, task: Task, prompts: list[Any]) -> tuple[list[list[Any]], Scores]:
    """Greedy outputs and scores of all prompts; each rank answers and scores its share."""
    mine = share(prompts)
    outputs: list[list[Any]] = []
    for chunk in _chunks(mine):
        outputs += policy.decode(policy.greedy(chunk).samples)  # type: ignore[attr-defined]
    if world_size() == 1:
        return outputs, task.score(prompts, outputs)
    scores = task.score(mine, outputs) if mine else None
    parts = gather((_on_cpu(outputs), None if scores is None else _scores_on_cpu(scores)))
    given = [s for _, s in parts if s is not None]
    ones = lambda s: torch.ones_like(s.rewards, dtype=torch.bool) if s.valid is None else s.valid  # noqa: E731
    joined = Scores(
        torch.cat([s.rewards for s in given]),
        {name: torch.cat([s.components[name] for s in given]) for name in given[0].components},
        torch.cat([ones(s) for s in given]),
    )
    return [row for rows, _ in parts for row in rows], joined


def _on_cpu(value: Any) -> Any:
    """Outputs are whatever a reward reads: tensors in lists and dicts move, the rest stays."""
    if isinstance(value, torch.Tensor):
        return value.cpu()
    if isinstance(value, dict):
        return {k: _on_cpu(v) for k, v in value.items()}
    return type(value)(map(_on_cpu, value)) if type(value) in (list, tuple) else value


def _scores_on_cpu(scores: Scores) -> Scores:
    return Scores(
        scores.rewards.cpu(),
        {name: part.cpu() for name, part in scores.components.items()},
        None if scores.valid is None else scores.valid.cpu(),
    )


def _write(file: Path, shown: list[dict[str, Any]], scores: Scores, valid: torch.Tensor) -> None:
    """One line a prompt: its number, the prompt and the greedy output as text, reward, components, validity."""
    file.parent.mkdir(parents=True, exist_ok=True)
    rewards = scores.rewards[:, 0].tolist()
    known = lambda x: x if math.isfinite(x) else None  # noqa: E731  # no value: that part does not apply
    parts = {name: [known(x) for x in part[:, 0].tolist()] for name, part in scores.components.items()}
    with file.open("w", encoding="utf-8") as out:
        for i, row in enumerate(shown):
            line = {"prompt": i, "text": row.get("prompt"), "output": row["outputs"][0], "reward": rewards[i]}
            line |= {"components": {name: part[i] for name, part in parts.items()}, "valid": bool(valid[i])}
            out.write(json.dumps(line, ensure_ascii=False, default=str) + "\n")


def _pass_at_k(policy: BasePolicy, task: Task, prompts: list[Any], k: int, seed: int) -> float:
    """Share of prompts with at least one success among k samples; success: at least half of the best reward seen. What
    could not be scored is no success."""
    best: list[torch.Tensor] = []
    seed = rank_seed(seed)
    for i, chunk in enumerate(_chunks(share(prompts))):
        rollout: Rollout = policy.sample(chunk, k, seed + i)  # type: ignore[attr-defined]
        rollout = rollout.scored(task.score(chunk, policy.decode(rollout.samples)))  # type: ignore[attr-defined]
        best.append(torch.where(rollout.valid, rollout.rewards, -torch.inf).amax(1))
    top = torch.cat([part for parts in gather([b.cpu() for b in best]) for part in parts])
    highest = max([float(x) for x in top if torch.isfinite(x)], default=0.0)
    return float((top >= max(highest, 1e-12) * 0.5).double().mean())


def check_metric(row: dict[str, float], metric: str) -> None:
    """Raises: ConfigError where answers were scored, and none of the measures is the one that decides what is best."""
    if "eval/reward" in row and metric not in row:
        raise ConfigError(
            f"evaluation.metric = {metric!r} is not measured by this task, so nothing would ever be the best",
            suggestion(metric, row),
        )


def _chunks(prompts: list[Any]) -> list[list[Any]]:
    return [prompts[a : a + _PROMPTS_AT_ONCE] for a in range(0, len(prompts), _PROMPTS_AT_ONCE)]

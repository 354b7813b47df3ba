"""Held-out evaluation: greedy answers, and how often one of k samples succeeds."""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from anygrpo.core import task_border
from anygrpo.core.policy import Policy
from anygrpo.core.rollout import Rollout
from anygrpo.core.task import Scores, Task, expect
from anygrpo.errors import ConfigError, suggestion
from anygrpo.recipe.training import EvaluationConfig
from anygrpo.spoken import Text
from anygrpo.train.parallel import from_main, gather, is_main, rank_seed, share, world_size
from anygrpo.train.passing import pass_at_k, right, success_of

_PROMPTS_AT_ONCE = 64


HELD_OUT = 7
"""The salt of the seed that an evaluation draws from."""


def step_seed(seed: int, step: int, salt: int = 0) -> int:
    """A run's seed for one purpose (salt) in one step."""
    return (seed * 1_000_003 + step * 101 + salt) % (2**31 - 1)


@torch.no_grad()
def evaluate(
    policy: Policy, task: Task, config: EvaluationConfig, seed: int, file: Path | None = None
) -> dict[str, float]:
    """Numbers named "eval/...", on the task's held-out prompts: the greedy answers' mean reward with standard error,
    the task's own measures, and with `pass_k` the share of prompts where one of k samples succeeds. Beside them what
    the policy says of itself (`Policy.examined`).

    Args:
        file: where each prompt's own result is written, for paired comparisons (`anygrpo compare`).
    """
    prompts = list(task_border.held_out(task)[: config.prompts])
    if not prompts:
        return {}
    outputs, scores = _answers(policy, task, prompts)
    if file is not None and is_main():
        _write(file, policy.show(prompts, outputs), scores, task)
    row = {"eval/prompts": float(len(prompts))} | _means(scores, task)
    row |= from_main(task_border.measures(task, prompts, outputs) if is_main() else {})
    row |= policy.examined(task)
    if config.pass_k and success_of(task, config) is not None:
        passed = _pass_at_k(policy, task, prompts, config, seed)
        row |= {} if passed is None else {f"eval/pass_at_{config.pass_k}": passed}
    return row


def _means(scores: Scores, task: Task) -> dict[str, float]:
    """eval/reward counts an answer that cannot be scored as the worst; what failed through no fault of the answer is
    left out, and counted."""
    valid, faults = valid_of(scores)[:, 0], faults_of(scores)[:, 0]
    row = {"eval/invalid": float((~valid).double().mean())}
    if bool(faults.any()):
        row["eval/faults"] = float(faults.double().mean())
    values = counted(scores, task)[:, 0][~faults]
    if n := len(values):
        row["eval/reward"] = float(values.mean())
        row["eval/reward_se"] = float(values.std(correction=1)) / math.sqrt(n) if n > 1 else 0.0
        if bool(valid.any()) and not bool((valid | faults).all()):
            row["eval/reward_valid"] = float(scores.rewards[:, 0].double()[valid].mean())
    return row


def valid_of(scores: Scores) -> torch.Tensor:
    """[P, G] bool: scored, and with a reward that float32, in which training reads it, can hold."""
    finite = scores.rewards.float().isfinite()
    return finite if scores.valid is None else scores.valid & finite


def faults_of(scores: Scores) -> torch.Tensor:
    """[P, G] bool: not scored, through no fault of the answer."""
    return torch.zeros_like(scores.rewards, dtype=torch.bool) if scores.faults is None else scores.faults


def counted(scores: Scores, task: Task) -> torch.Tensor:
    """[P, G] float64 rewards as they are compared: an answer that cannot be scored has the task's lowest reward, or
    the lowest that was given where that is less, so that what is unscorable raises no mean."""
    rewards, valid = scores.rewards.double(), valid_of(scores)
    worst = min([float(task.lowest_reward), *rewards[valid].tolist()])
    return torch.where(valid, rewards, worst)


def scored(task: Task, prompts: list[Any], outputs: list[list[Any]]) -> Scores:
    """The task's scores; what failed through no fault of the answer is scored once more.

    Raises:
        ConfigError: scores of another type or shape.
    """
    shape = len(prompts), len(outputs[0]) if outputs else 1
    scores = task.score(prompts, outputs)
    expect(scores, shape, type(task).__name__)
    failed = faults_of(scores)
    again = failed.any(1).nonzero()[:, 0].tolist()
    if not again:
        return scores
    fresh = task.score([prompts[i] for i in again], [outputs[i] for i in again])
    expect(fresh, (len(again), shape[1]), type(task).__name__)
    index = torch.tensor(again, device=failed.device)
    put = lambda old, new: old.index_copy(0, index, torch.where(failed[index], new.to(old), old[index]))  # noqa: E731
    return replace(
        scores,
        rewards=put(scores.rewards, fresh.rewards),
        components={name: put(x, fresh.components[name]) for name, x in scores.components.items()},
        valid=put(valid_of(scores), valid_of(fresh)),
        faults=put(failed, faults_of(fresh)),
    )


def _answers(policy: Policy, task: Task, prompts: list[Any]) -> tuple[list[list[Any]], Scores]:
    """Greedy outputs and scores of all prompts; each rank answers and scores its share."""
    mine = share(prompts)
    outputs: list[list[Any]] = []
    for chunk in _chunks(mine):
        outputs += policy.decode(policy.greedy(chunk).samples)
    scores = scored(task, mine, outputs) if mine else None
    if world_size() == 1:
        assert scores is not None
        return outputs, scores
    parts = gather((_on_cpu(outputs), None if scores is None else _scores_on_cpu(scores)))
    given = [s for _, s in parts if s is not None]
    ones = lambda s: torch.ones_like(s.rewards, dtype=torch.bool) if s.valid is None else s.valid  # noqa: E731
    joined = Scores(
        torch.cat([s.rewards for s in given]),
        {name: torch.cat([s.components[name] for s in given]) for name in given[0].components},
        torch.cat([ones(s) for s in given]),
        faults=torch.cat([faults_of(s) for s in given]),
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
        faults=faults_of(scores).cpu(),
    )


def _write(file: Path, shown: list[dict[str, Any]], scores: Scores, task: Task) -> None:
    """One line a prompt: its number, the prompt and the greedy output as text, reward as it is compared, components,
    whether it could be scored, and whether that was the machine's fault."""
    file.parent.mkdir(parents=True, exist_ok=True)
    rewards, valid, faults = (x[:, 0].tolist() for x in (counted(scores, task), valid_of(scores), faults_of(scores)))
    parts = {name: part[:, 0].tolist() for name, part in scores.components.items()}
    with file.open("w", encoding="utf-8") as out:
        for i, row in enumerate(shown):
            line = {"prompt": i, "text": row.get("prompt"), "output": row["outputs"][0], "reward": rewards[i]}
            line["components"] = {name: part[i] if math.isfinite(part[i]) else None for name, part in parts.items()}
            line |= {"valid": valid[i]} | ({"fault": True} if faults[i] else {})
            if row.get("pictures"):
                line["pictures"] = row["pictures"]
            if row.get("conversations"):
                line["conversation"] = row["conversations"][0]
            out.write(json.dumps(line, ensure_ascii=False, default=str) + "\n")


def _pass_at_k(policy: Policy, task: Task, prompts: list[Any], config: EvaluationConfig, seed: int) -> float | None:
    """The mean over prompts of the unbiased pass@k. What could not be scored is no success; a sample that failed
    through no fault of its own was not drawn, and a prompt with fewer than k others is left out."""
    rule = success_of(task, config)
    assert config.pass_k is not None
    assert rule is not None
    seed, each = rank_seed(seed), config.pass_samples or config.pass_k
    passed: list[tuple[torch.Tensor, torch.Tensor]] = []
    for i, chunk in enumerate(_chunks(share(prompts))):
        with policy.measured():
            rollout: Rollout = policy.sample(chunk, each, held_out_seed(seed, i))
        scores = scored(task, chunk, policy.decode(rollout.samples))
        passed.append((right(scores, rule).cpu() & rollout.valid.cpu(), ~faults_of(scores).cpu()))
    every = [part for parts in gather(passed) for part in parts]
    found = pass_at_k(torch.cat([p for p, _ in every]), config.pass_k, torch.cat([judged for _, judged in every]))
    found = found[found.isfinite()]
    return float(found.mean()) if len(found) else None


def held_out_seed(seed: int, chunk: int) -> int:
    """A seed of one chunk of held-out prompts: at or above 2^31, where no seed of training lies."""
    words = hashlib.blake2b(f"{seed} {chunk}".encode(), digest_size=4).digest()
    return 2**31 + int.from_bytes(words, "big") % 2**31


def check_metric(row: dict[str, float], config: EvaluationConfig) -> None:
    """Raises: ConfigError where answers were scored, and none of the measures is the one that decides what is best."""
    metric = config.metric
    if config.pass_k and metric == f"eval/pass_at_{config.pass_k}":
        return  # not there where too few samples could be scored, through no fault of theirs
    if row.get("eval/invalid", 1.0) < 1.0 and "eval/reward" in row and metric not in row:
        raise ConfigError(
            Text(
                f"evaluation.metric = {metric!r} is not measured by this task, so nothing would ever be the best",
                f"这个任务不测量 evaluation.metric = {metric!r}，因此永远不会有最好的结果",
            ),
            suggestion(metric, row),
        )


def _chunks(prompts: list[Any]) -> list[list[Any]]:
    return [prompts[a : a + _PROMPTS_AT_ONCE] for a in range(0, len(prompts), _PROMPTS_AT_ONCE)]

"""What runs of a selector are worth: accuracy at every number of shots beside baselines, paired, and what changed."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from anygrpo.core.policy import state_of
from anygrpo.core.rollout import tree_map
from anygrpo.errors import DataError
from anygrpo.selection.changes import agreement, cannot_flip, weight_change
from anygrpo.selection.oracle import oracle
from anygrpo.selection.paired import paired
from anygrpo.selection.policy import SelectorPolicy
from anygrpo.selection.task import Selection, SelectionTask, nearest, random_selection

_BATCH = 64
_RANDOM_DRAWS = 4


def compare_runs(
    loaded: list[tuple[SelectorPolicy, SelectionTask, dict[str, Tensor]]], oracle_sets: int = 600
) -> dict[str, Any]:
    """Runs that differ in their seed, on the held-out queries of the first run's task.

    Args:
        loaded: (policy with its final weights, task, weights at its start) of each run.
        oracle_sets: most sets of a size that the oracle tries for a query; 0: no oracle.

    Returns:
        JSON-ready: accuracy of policy, start, baselines and oracle at each number of shots; the policy (mean over runs,
        and each run's) paired with each of them at the best number of shots the baseline has; the policy at all its
        shots paired with itself at fewer; change of the first run's policy.
    """
    task = loaded[0][1]
    prompts = task.held_out()
    if not prompts:
        raise DataError(
            "the task holds no query out, so there is nothing to evaluate on", "set task.validation above 0"
        )
    longest = max(policy.config.evaluation_shots or policy.config.shots for policy, _, _ in loaded)
    shots = list(range(1, longest + 1))
    finals = [greedy(policy, prompts) for policy, _, _ in loaded]
    starts = [_with(policy, start, prompts) for policy, _, start in loaded]
    by_name = {
        "policy": [_correct(task, prompts, run, shots) for run in finals],
        "start": [_correct(task, prompts, run, shots) for run in starts],
        "nearest": [_correct(task, prompts, [nearest(p, longest) for p in prompts], shots)],
        "random": [
            _correct(
                task, prompts, [random_selection(p, longest, 1000 * draw + i) for i, p in enumerate(prompts)], shots
            )
            for draw in range(_RANDOM_DRAWS)
        ],
        "zero_shot": [_correct(task, prompts, [() for _ in prompts], [0]).expand(len(shots), -1)],
    }
    scores = {name: torch.stack(rows).mean(0) for name, rows in by_name.items()}  # [shots, n]
    paired_with = _paired(scores)
    by_run = [_paired(scores | {"policy": rows}) for rows in by_name["policy"]]
    ceiling = oracle(task, prompts, shots, oracle_sets) if oracle_sets else None
    if ceiling is not None:
        scores["oracle"] = ceiling.correct
    return {
        "queries": len(prompts),
        "runs": len(loaded),
        "shots": shots,
        "accuracy": {name: rows.mean(-1).tolist() for name, rows in scores.items()},
        "accuracy_by_run": [rows.mean(-1).tolist() for rows in by_name["policy"]],
        "oracle": None if ceiling is None else ceiling.sentence,
        "paired": paired_with,
        "paired_by_run": {name: [run[name] for run in by_run] for name in paired_with},
        "more_shots": _more_shots(scores["policy"], shots),
        "change": _change(loaded, prompts, finals, starts),
    }


def greedy(policy: SelectorPolicy, prompts: list[Any]) -> list[Selection]:
    """The greedy selection of every prompt."""
    out: list[Selection] = []
    for a in range(0, len(prompts), _BATCH):
        out += [row[0] for row in policy.decode(policy.greedy(prompts[a : a + _BATCH]).samples)]
    return out


def _with(policy: SelectorPolicy, weights: dict[str, Tensor], prompts: list[Any]) -> list[Selection]:
    policy.fix_reference(weights)
    with policy.reference():
        return greedy(policy, prompts)


def _correct(task: SelectionTask, prompts: list[Any], chosen: list[Selection], shots: list[int]) -> Tensor:
    """[shots, n]: whether each query is answered with the first k of its selection."""
    rows = [[selection[:k] for k in shots] for selection in chosen]
    return torch.nan_to_num(task.judge(prompts, rows)["correct"]).T.double()


def _paired(scores: dict[str, Tensor]) -> dict[str, Any]:
    """The policy at all its shots against each other at *its own* best number of shots: the hardest comparison."""
    policy = scores["policy"][-1]
    out: dict[str, Any] = {}
    for name, rows in scores.items():
        if name == "policy":
            continue
        best = int(rows.mean(-1).argmax())
        label = f"policy - {name}" + ("" if name == "zero_shot" else f" ({best + 1} shots)")
        out[label] = _row(policy, rows[best])
    return out


def _more_shots(policy: Tensor, shots: list[int]) -> dict[str, Any]:
    """Do more shots hurt: the policy at all its shots against its own first k picks; [shots, n]."""
    return {f"{shots[-1]} shots - {k}": _row(policy[-1], policy[i]) for i, k in enumerate(shots[:-1])}


def _row(a: Tensor, b: Tensor) -> dict[str, Any]:
    result = paired(a, b)
    return {"difference": result.difference, "se": result.se, "verdict": result.sentence}


def _change(loaded: list[Any], prompts: list[Any], finals: list[Any], starts: list[Any]) -> dict[str, Any]:
    policy, _, start = loaded[0]
    out: dict[str, Any] = {"agreement with the start": agreement(finals[0], starts[0])}
    if len(finals) > 1:
        out["agreement with another seed"] = agreement(finals[0], finals[1])
    kl, first = _divergence(policy, prompts)
    out["exact KL to the start (nats)"] = float(kl.sum(-1).mean())
    out["queries that cannot have flipped"] = float(cannot_flip(first, kl[:, 0]).double().mean())
    out["relative weight change"] = weight_change(start, {n: t.clone() for n, t in state_of(policy.network).items()})
    return out


@torch.no_grad()
def _divergence(policy: SelectorPolicy, prompts: list[Any]) -> tuple[Tensor, Tensor]:
    """Exact KL to the start at each greedy pick [n, K], and the start's probabilities of the first pick [n, C]."""
    kl, first = [], []
    for a in range(0, len(prompts), _BATCH):
        samples = tree_map(lambda x: x.flatten(0, 1), policy.greedy(prompts[a : a + _BATCH]).samples)
        kl.append(policy.evaluate(samples, slice(None), frozenset({"kl"})).kl)
        with policy.reference():
            first.append(policy.first_pick(samples))
    width = max(x.shape[1] for x in first)
    return torch.cat(kl), torch.cat([torch.nn.functional.pad(x, (0, width - x.shape[1])) for x in first])

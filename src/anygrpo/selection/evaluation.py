"""What runs of a selector are worth: accuracy at every number of shots beside baselines, paired, and what changed.

What a task cannot judge is unknown: it is in no accuracy and no comparison, and its share is said.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from anygrpo.core.trained import state_of
from anygrpo.core.tree import tree_map
from anygrpo.doctor.rules.off_support import LEAST as THIN
from anygrpo.selection.changes import agreement, cannot_flip, weight_change
from anygrpo.selection.known_outcomes import KnownOutcomes, difference_bounds, paired_where_known
from anygrpo.selection.off_policy import offline_report
from anygrpo.selection.oracle import oracle, stored_oracle
from anygrpo.selection.pick_judge import Judging
from anygrpo.selection.policy import SelectorPolicy
from anygrpo.selection.task import Selection, nearest, random_selection
from anygrpo.spoken import say

_BATCH = 64
_RANDOM_DRAWS = 4
_FAR = 10.0

Loaded = tuple[SelectorPolicy, Any, dict[str, Tensor]]
"""(policy with its final weights, task, weights at its start) of a run."""


def compare_runs(loaded: list[Loaded], oracle_sets: int = 600) -> dict[str, Any]:
    """Runs that differ in their seed, on the held-out queries of the first run's task.

    Args:
        oracle_sets: most sets of a size that the oracle tries for a query; 0: no oracle.

    Returns:
        JSON-ready: accuracy of policy, start, baselines and oracle at each number of shots, over what is judged, with
        the number of judged queries and the bounds over all; the policy (mean over runs, and each run's) paired with
        each of them at the best number of shots the baseline has; the policy at all its shots paired with itself at
        fewer; change of the first run's policy.
    """
    judging = Judging(loaded[0][1])
    prompts = judging.held_out()
    longest = max(policy.config.evaluation_shots or policy.config.shots for policy, _, _ in loaded)
    shots = [k for k in judging.lengths or range(1, longest + 1) if 0 < k <= longest] or [longest]
    chosen = _selections(loaded, prompts, longest)
    finals, starts = chosen["policy"], chosen["start"]
    by_name = {name: [outcomes(judging, prompts, run, shots) for run in runs] for name, runs in chosen.items()}
    nothing = judging.outcome(prompts, [[()] for _ in prompts])[:, 0]
    scores = {name: torch.stack(rows).nanmean(0) for name, rows in by_name.items()}  # [shots, n]
    scores["zero_shot"] = nothing.expand(len(shots), -1)
    alike = {name: _alike(finals, chosen[name], shots) for name in ("start", "nearest")}
    by_run = [_paired(scores | {"policy": rows}, shots, {}) for rows in by_name["policy"]]
    paired_with = _paired(scores, shots, alike)
    ceiling = None
    if oracle_sets:
        ceiling = (
            stored_oracle(judging, prompts, shots) if judging.lengths else oracle(judging, prompts, shots, oracle_sets)
        )
        scores["oracle"] = ceiling.correct
    change = _change(loaded, prompts, finals, starts)
    offline = offline_report(loaded[0][0], loaded[0][1], prompts)
    return {
        "queries": len(prompts),
        "runs": len(loaded),
        "measure": judging.measure,
        "shots": shots,
        **_levels(scores),
        "accuracy_by_run": [[KnownOutcomes.of(row).mean for row in rows] for rows in by_name["policy"]],
        "oracle": None if ceiling is None else ceiling.sentence,
        "paired": paired_with,
        "paired_by_run": {name: [run[name] for run in by_run] for name in paired_with},
        "more_shots": _more_shots(scores["policy"], shots),
        "change": change,
        "offline": offline,
        "notes": [*dict.fromkeys(judging.unjudged), *_warnings(change, offline)],
    }


def _selections(loaded: list[Loaded], prompts: list[Any], longest: int) -> dict[str, list[list[Selection]]]:
    """Selections of `longest` by name: one list for each run of the policy and its start, or each random draw."""
    finals = [greedy(policy, prompts) for policy, _, _ in loaded]
    draws = range(_RANDOM_DRAWS)
    return {
        "policy": finals,
        "start": [with_weights(policy, start, prompts) for policy, _, start in loaded],
        "nearest": [[nearest(p, longest) for p in prompts]],
        "random": [[random_selection(p, longest, 1000 * d + i) for i, p in enumerate(prompts)] for d in draws],
    }


def greedy(policy: SelectorPolicy, prompts: list[Any]) -> list[Selection]:
    """The greedy selection of every prompt."""
    out: list[Selection] = []
    for a in range(0, len(prompts), _BATCH):
        out += [row[0] for row in policy.decode(policy.greedy(prompts[a : a + _BATCH]).samples)]
    return out


def with_weights(policy: SelectorPolicy, weights: dict[str, Tensor], prompts: list[Any]) -> list[Selection]:
    """The greedy selections under other weights; they are the policy's reference from then on."""
    policy.fix_reference(weights)
    with policy.reference():
        return greedy(policy, prompts)


def outcomes(judging: Judging, prompts: list[Any], chosen: list[Selection], shots: list[int]) -> Tensor:
    """[shots, n]: how each query is answered with the first k of its selection; NaN: unknown."""
    return judging.outcome(prompts, [[selection[:k] for k in shots] for selection in chosen]).T


def _levels(scores: dict[str, Tensor]) -> dict[str, Any]:
    """Accuracies [shots] over judged queries by name, how many those are, and bounds over all; and the names of which
    nothing is known."""
    found = {name: [KnownOutcomes.of(row) for row in rows] for name, rows in scores.items()}
    known = {name: row for name, row in found.items() if any(x.known for x in row)}
    return {
        "accuracy": {name: [x.mean if x.known else None for x in row] for name, row in known.items()},
        "judged": {name: [x.known for x in row] for name, row in found.items()},
        "bounds": {name: [[x.low, x.high] for x in row] for name, row in found.items()},
        "unknown": [name for name in found if name not in known],
    }


def _best(rows: Tensor) -> int:
    """The number of shots (an index) with the highest mean over what is judged."""
    means = torch.where(torch.isfinite(rows).any(-1), rows.nanmean(-1), -torch.inf)
    return int(means.argmax())


def _alike(finals: list[list[Selection]], others: list[list[Selection]], shots: list[int]) -> Tensor:
    """[shots, n] bool: a single run's whole pick is the other's first k: they do not differ, whatever it is worth."""
    if len(finals) > 1:
        return torch.zeros(len(shots), len(finals[0]), dtype=torch.bool)
    return torch.tensor([[a[: shots[-1]] == b[:k] for a, b in zip(finals[0], others[0])] for k in shots])


def _paired(scores: dict[str, Tensor], shots: list[int], alike: dict[str, Tensor]) -> dict[str, Any]:
    """The policy at all its shots against each other at *its own* best number of shots: the hardest comparison."""
    policy = scores["policy"][-1]
    out: dict[str, Any] = {}
    for name, rows in scores.items():
        if name == "policy":
            continue
        best = _best(rows)
        label = f"policy - {name}" + ("" if name == "zero_shot" else f" ({shots[best]} shots)")
        other = rows[best]
        if name in alike:  # unknown, but equal
            equal = alike[name][best] & ~torch.isfinite(policy) & ~torch.isfinite(other)
            out[label] = difference(torch.where(equal, 0.0, policy), torch.where(equal, 0.0, other))
        else:
            out[label] = difference(policy, other)
    return out


def _more_shots(policy: Tensor, shots: list[int]) -> dict[str, Any]:
    """Do more shots hurt: the policy at all its shots against its own first k picks; [shots, n]."""
    return {f"{shots[-1]} shots - {k}": difference(policy[-1], policy[i]) for i, k in enumerate(shots[:-1])}


def difference(a: Tensor, b: Tensor) -> dict[str, Any]:
    """a - b [n] where both are judged, with that n; the bounds over all where some are not."""
    result, n = paired_where_known(a, b), len(a)
    if result is None:
        text = say(
            f"unknown: there is no query of {n} on which both are judged", f"未知：{n} 个查询中没有两边都有评判的"
        )
        return {"n": 0, "verdict": text}
    row = {"n": result.n, "difference": result.difference, "se": result.se, "verdict": result.sentence}
    if result.n < n:
        low, high = difference_bounds(a, b)
        row["over_all"] = [low, high]
        row["verdict"] += say(
            f"; judged on both sides: {result.n} of {n}; over all {low:+.3f} to {high:+.3f}",
            f"；{n} 个中两边都评判了 {result.n} 个；全部的范围 {low:+.3f} 到 {high:+.3f}",
        )
    return row


def _warnings(change: dict[str, Any], offline: dict[str, Any] | None) -> list[str]:
    """What no estimate can make good: a policy that left the file, or the start."""
    kl, out = change["exact KL to the start (nats)"], []
    if kl > _FAR:
        out.append(
            say(
                f"the policy is {kl:.0f} nats from its start: no estimate from the file is of this policy any more",
                f"策略与起点相距 {kl:.0f} nats：由文件得出的估计已不再是这个策略的",
            )
        )
    if offline is not None and offline["coverage"] < THIN:
        share = f"{offline['coverage']:.3f}"
        out.append(
            say(
                f"the policy makes a stored selection with probability {share}: the file says next to nothing of it. "
                "Score its picks (anygrpo select plan), or sample online",
                f"策略作出文件中已有选择的概率只有 {share}：文件几乎说明不了它。"
                "请为它的选择打分（anygrpo select plan），或在线采样",
            )
        )
    return out


def _change(loaded: list[Loaded], prompts: list[Any], finals: list[Any], starts: list[Any]) -> dict[str, Any]:
    policy, _, start = loaded[0]
    out: dict[str, Any] = {"agreement with the start": agreement(finals[0], starts[0])}
    if len(finals) > 1:
        out["agreement with another seed"] = agreement(finals[0], finals[1])
    out["different lists"] = len(set(finals[0]))
    kl, first = divergence(policy, prompts)
    out["exact KL to the start (nats)"] = float(kl.sum(-1).mean())
    out["queries that cannot have flipped"] = float(cannot_flip(first, kl[:, 0]).double().mean())
    out["relative weight change"] = weight_change(start, {n: t.clone() for n, t in state_of(policy.network).items()})
    return out


@torch.no_grad()
def divergence(policy: SelectorPolicy, prompts: list[Any]) -> tuple[Tensor, Tensor]:
    """Exact KL to the start at each greedy pick [n, K], and the start's probabilities of the first pick [n, C]."""
    kl, first = [], []
    for a in range(0, len(prompts), _BATCH):
        samples = tree_map(lambda x: x.flatten(0, 1), policy.greedy(prompts[a : a + _BATCH]).samples)
        kl.append(policy.evaluate(samples, slice(None), frozenset({"kl"})).kl)
        with policy.reference():
            first.append(policy.first_pick(samples))
    width = max(x.shape[1] for x in first)
    return torch.cat(kl), torch.cat([torch.nn.functional.pad(x, (0, width - x.shape[1])) for x in first])

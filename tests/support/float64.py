"""What a run of the walker should have done, in float64, from the sentences of docs/algorithm.md: rewards, filters,
advantages and losses, written anew. Nothing of src is used but what the walker drew, in its order. The updates are in
float64_run.
"""

from __future__ import annotations

import itertools
import math
import statistics
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from walker import ARMS, LIMIT, WEIGHTS, unscorable, worth

Grid = list[list[float]]


@dataclass
class Step:
    """What one step drew (samples, log-probs), replayed, and of which prompts each of its passes was."""

    draws: list[tuple[Any, Tensor]] = field(default_factory=list)
    replayed: list[Any] = field(default_factory=list)
    passes: list[list[int]] = field(default_factory=list)


DEFAULTS: dict[str, Any] = {
    "advantage": "zscore", "std_floor": 0.0, "advantage_clip": None, "component_weights": {}, "pass_k": 2,
    "running_decay": 0.99, "ddof": 1, "epsilon": 0.0, "objective": "ppo", "clip_low": 0.2, "clip_high": 0.2,
    "dual_clip": None, "tau_positive": 1.0, "tau_negative": 1.05, "ratio_guard": 20.0, "importance": "none",
    "importance_cap": 2.0, "importance_level": "decision", "reduction": "token_mean", "horizon": None, "epochs": 1,
    "minibatches": 1, "target_kl": None, "lambda_pg": 1.0, "lambda_supervised": 0.0, "lambda_consistency": 0.0,
    "entropy_coef": 0.0, "beta": 0.0, "kl": "k3", "kl_controller": "fixed", "kl_target": 0.05, "kl_horizon": 10_000,
    "kl_low": 0.01, "kl_high": 0.1, "kl_factor": 1.5, "beta_min": 1e-6, "beta_max": 10.0, "rce_temperature": 1.0,
    "rce_variant": "softmax", "filters": [{"kind": "drop_constant"}], "overlong_buffer": 0, "refill": 0,
    "temperature": None, "learning_rate": 1e-5, "weight_decay": 0.0, "betas": [0.9, 0.999], "eps": 1e-8,
    "grad_clip": 1.0, "method": "grpo", "prompts_per_step": 8, "group_size": 8, "targets": False,
}  # fmt: skip


def at(value: Any, step: int, steps: int) -> Any:
    """A scheduled number: climbs to `start` at step warmup - 1, then moves; an end of 0 is reached after the last."""
    if not isinstance(value, dict) or "start" not in value:
        return value
    start, end, warmup, kind = value["start"], value.get("end", 0.0), value.get("warmup", 0), value["kind"]
    length = value.get("steps", steps)
    if step < warmup:
        return start * (step + 1) / warmup
    if kind == "step":
        return start * math.prod(value.get("factor", 0.5) for m in value["milestones"] if step >= m)
    first, last = max(warmup - 1, 0), length if end == 0 else length - 1
    p = min(max((step - first) / (last - first), 0.0), 1.0)
    if kind == "linear":
        return start * (1 - p) + end * p
    return (start + end) / 2 + (start - end) / 2 * math.cos(math.pi * p)


# --- rewards, filters, advantages: lists of groups


@dataclass
class Groups:
    rewards: Grid
    parts: dict[str, Grid]
    valid: list[list[bool]]
    ended: list[list[bool]]
    lengths: list[list[int]]


def groups_of(samples: Any, s: dict[str, Any], scored: Any = None) -> Groups:
    mask, arms, x = (samples[key].tolist() for key in ("mask", "arms", "x"))
    p, g = len(arms), len(arms[0])
    walk = lambda i, j: [a for a, m in zip(arms[i][j], mask[i][j]) if m]  # noqa: E731
    both = [[worth(x[i][j], walk(i, j)) for j in range(g)] for i in range(p)]
    lengths = [[len(walk(i, j)) for j in range(g)] for i in range(p)]
    parts = {name: [[cell[k] for cell in row] for row in both] for k, name in enumerate(("hit", "short"))}
    over = lambda n: -min(max((n - (LIMIT - s["overlong_buffer"])) / s["overlong_buffer"], 0), 1)  # noqa: E731
    rewards = [[h + 0.5 * t for h, t in row] for row in both]
    if s["overlong_buffer"]:
        rewards = [[r + over(n) for r, n in zip(*rows)] for rows in zip(rewards, lengths)]
    valid = [[not unscorable(walk(i, j)) for j in range(g)] for i in range(p)]
    ended = [[walk(i, j)[-1] == 0 for j in range(g)] for i in range(p)]
    return Groups(rewards, parts, valid, ended, lengths)


def kept(groups: Groups, s: dict[str, Any], step: int, steps: int, neutral: bool) -> list[list[bool]]:
    """Samples that the filters leave; `neutral`: those of drop_constant too."""
    keep = [list(row) for row in groups.valid]
    constant = [False] * len(keep)
    for f in s["filters"]:
        v = {k: at(x, step, steps) for k, x in f.items()}
        for i, row in enumerate(groups.rewards):
            live = [r for r, k in zip(row, keep[i]) if k]
            if v["kind"] == "drop_constant":
                constant[i] |= not live or max(live) - min(live) < 1e-9
            elif v["kind"] == "pass_rate_band":
                rate = sum(r >= v.get("threshold", 0.5) for r in live) / max(len(live), 1)
                keep[i] = [k and v.get("low", 0.0) <= rate <= v.get("high", 1.0) for k in keep[i]]
            elif v["kind"] == "component_at_least":
                some = any(k and c >= v["threshold"] for k, c in zip(keep[i], groups.parts[v["component"]][i]))
                keep[i] = [k and some for k in keep[i]]
            elif v["kind"] == "minimum_spread":
                keep[i] = [k and max(live) - min(live) >= v["spread"] - 1e-6 for k in keep[i]]
            elif v["kind"] == "top_k_by_reward":
                order = sorted((j for j in range(len(row)) if keep[i][j]), key=lambda j: -row[j])
                keep[i] = [j in order[: max(1, round(v["k"]))] for j in range(len(row))]
            elif v["kind"] == "best_and_worst":
                order = sorted((j for j in range(len(row)) if keep[i][j]), key=lambda j: -row[j])
                low = sorted((j for j in range(len(row)) if keep[i][j]), key=lambda j: row[j])
                keep[i] = [j in order[: v["k"]] + low[: v["k"]] for j in range(len(row))]
            elif v["kind"] == "overlong_mask":
                keep[i] = [k and e for k, e in zip(keep[i], groups.ended[i])]
    if neutral and s["advantage"] not in ("overall", "running", "history", "components", "gdpo"):  # those learn there
        keep = [[k and not c for k in row] for row, c in zip(keep, constant)]
    return keep


def _flat(values: Grid, keep: list[list[bool]]) -> list[float]:
    return [r for rows in zip(values, keep) for r, k in zip(*rows) if k]


def _std(values: list[float], ddof: int) -> float:
    return statistics.stdev(values) if ddof else statistics.pstdev(values)


def advantages(groups: Groups, keep: list[list[bool]], s: dict[str, Any], seen: list[list[float]]) -> Grid:
    """`seen`: the kept rewards of every step so far, this one last."""
    over = lambda gap, std: gap / (max(std, s["std_floor"]) + s["epsilon"]) if max(std, s["std_floor"]) else 0.0  # noqa: E731
    name, everything = s["advantage"], _flat(groups.rewards, keep)

    def inside(row: list[float], own: list[bool], i: int) -> float:
        live = [r for r, k in zip(row, own) if k]
        if not own[i] or len(live) < 2 or max(live) - min(live) < 1e-9:
            return 0.0
        n, mean, r = len(live), statistics.fmean(live), row[i]
        others = [row[j] for j in range(len(row)) if own[j] and j != i]
        if name in ("zscore", "components", "gdpo"):
            return over(r - mean, _std(live, s["ddof"]))
        if name in ("centred", "batch", "whitened"):
            return r - mean
        if name == "leave_one_out":
            return r - statistics.fmean(others)
        if name == "leave_one_out_std":
            gap, flat = r - statistics.fmean(others), len(others) < 2 or max(others) - min(others) < 1e-9
            return gap if flat else over(gap, _std(others, s["ddof"]))
        if name == "rank":
            return (sum(r > o for o in others) - sum(r < o for o in others)) / (n - 1)
        if name == "maxrl":
            return (r - mean) / (mean + s["epsilon"])
        if name == "gpg":
            return (r - mean) * len(everything) / sum(e != 0 for e in everything)
        if name == "pass_at_k":
            k = min(s["pass_k"], len(others))
            mine = [max(r, *c, r) for c in itertools.combinations(others, k - 1)]
            theirs = [max(c) for c in itertools.combinations(others, k)]
            return k * (statistics.fmean(mine) - statistics.fmean(theirs))
        assert name == "best_gap"
        first, second = sorted(live)[-1], sorted(live)[-2]
        return over(first - second, _std(live, s["ddof"])) if r == first else 0.0

    def grid(values: Grid) -> Grid:
        return [[inside(row, keep[i], j) for j in range(len(row))] for i, row in enumerate(values)]

    if name == "running":
        weights = [s["running_decay"] ** (len(seen) - 1 - i) for i in range(len(seen))]
        moment = lambda f: sum(w * statistics.fmean(map(f, x)) for w, x in zip(weights, seen)) / sum(weights)  # noqa: E731
        mean = moment(float)
        std = math.sqrt(moment(lambda r: (r - mean) ** 2))
        out = [[over(r - mean, std) for r in row] for row in groups.rewards]
    elif name in ("overall", "history"):  # no prompt of the walker comes again: its own past is never long enough
        mean, std = statistics.fmean(everything), _std(everything, s["ddof"])
        out = [[over(r - mean, std) for r in row] for row in groups.rewards]
    elif name in ("components", "gdpo"):
        weights = {"hit": 1.0} | WEIGHTS | s["component_weights"]
        each = [(w, grid(groups.parts[part])) for part, w in weights.items()]
        out = [[sum(w * v[i][j] for w, v in each) for j in range(len(row))] for i, row in enumerate(groups.rewards)]
    else:
        out = grid(groups.rewards)
    if name == "batch":
        out = [[over(v, _std(everything, s["ddof"])) for v in row] for row in out]
    if name in ("whitened", "gdpo"):
        live = _flat(out, keep)
        out = [[over(v - statistics.fmean(live), _std(live, s["ddof"])) for v in row] for row in out]
    limit = math.inf if s["advantage_clip"] is None else s["advantage_clip"]
    return [[min(max(v, -limit), limit) if k else 0.0 for v, k in zip(*rows)] for rows in zip(out, keep)]


# --- the loss of an update


def logits(w: dict[str, Tensor], x: Tensor) -> Tensor:
    return torch.einsum("ab,...b->...a", w["weight"], x.double())[..., None, :] + w["place"]


def log_probs(w: dict[str, Tensor], samples: Any, temperature: float) -> tuple[Tensor, Tensor]:
    """(of every arm [.., T, A], of the arms taken [.., T])."""
    every = torch.log_softmax(logits(w, samples["x"]) / temperature, -1)
    taken = (every * torch.nn.functional.one_hot(samples["arms"], ARMS)).sum(-1)
    return every, taken


def reduced(mask: Tensor, valid: Tensor, s: dict[str, Any]) -> Tensor:
    """Weight of each decision; mask [P, G, T], valid [P, G]."""
    used = (mask & valid[..., None]).double()
    length = used.sum(-1, keepdim=True)
    if s["reduction"] == "token_mean":
        return used / used.sum()
    if s["reduction"] == "sequence_mean":
        return used / length.clamp(min=1) / (length > 0).sum()
    if s["reduction"] == "prompt_mean":
        own = length.sum((1, 2), keepdim=True)
        return used / own.clamp(min=1) / (own > 0).sum()
    return used / valid.sum() / (s["horizon"] or LIMIT)


def objective(new: Tensor, old: Tensor, a: Tensor, used: Tensor, s: dict[str, Any]) -> Tensor:
    d = torch.where(used, new - old, 0.0)
    if s["objective"] == "gspo":  # the sequence's ratio, of which each place has the gradient of its own log-prob
        mean = (d.sum(-1, keepdim=True) / used.sum(-1, keepdim=True).clamp(min=1)).detach()
        d = mean + d - d.detach()
    r, low, high = d.exp(), 1 - s["clip_low"], 1 + s["clip_high"]
    if s["objective"] == "reinforce":
        return -a * new
    if s["objective"] == "cispo":
        return -r.detach().clamp(low, high) * a * new
    if s["objective"] == "sapo":
        tau = torch.where(a > 0, s["tau_positive"], s["tau_negative"])
        loss = -a * 4 / tau / (1 + torch.exp(-tau * (r - 1)))
    else:
        loss = -torch.minimum(r * a, r.clamp(low, high) * a)
        if s["dual_clip"]:
            loss = torch.where(a < 0, torch.minimum(loss, -s["dual_clip"] * a), loss)
    return torch.where(d > s["ratio_guard"], 0.0, loss)

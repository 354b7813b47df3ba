"""Two trained policies of one kind: KL both ways, change of weights, and choices that cannot have flipped."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from anygrpo.core.build import build_policy
from anygrpo.core.intervals import interval
from anygrpo.core.rollout import Batch, Rollout
from anygrpo.core.trained import load_state, state_of
from anygrpo.errors import ConfigError, DataError
from anygrpo.files import run_of
from anygrpo.probes.check import temporary_run
from anygrpo.probes.subject import Subject
from anygrpo.recipe.load import load_recipe
from anygrpo.spoken import Text
from anygrpo.train import checkpoint

_CONTINUOUS = ("diffusion", "motion", "stochastic", "restorer")
"""Policies whose decisions are densities: there is no most likely choice to flip."""
_PROMPTS, _GROUP = 64, 4

State = dict[str, Tensor]


def compare_weights(a: Path, b: Path, which: str = "newest") -> dict[str, Any]:
    """What the two runs' weights do on A's held-out prompts, both scored with A's settings.

    Args:
        a, b: runs, or checkpoints of runs (RUN/checkpoints/NAME).
        which: of a run, the "newest" checkpoint, or "best".

    Raises:
        DataError: a run without such a checkpoint.
        ConfigError: the two policies have different weights (other modules or shapes).
    """
    states = [_state(run, which) for run in (a, b)]
    recipe = load_recipe(run_of(a) / "config.toml")
    with torch.random.fork_rng(), temporary_run(recipe) as run:
        last = len(run.stages) - 1
        start = {name: p.clone() for name, p in state_of(run.policy.trainable()).items()}
        _fits(start, states, (a, b))
        start_b = start if _same_start(a, b) else _fresh_state(b)
        subject = Subject(run, last, seconds=20)
        prompts = subject.task.held_out()[:_PROMPTS]
        out: dict[str, Any] = {"checkpoints": which, "modules": change_by_module(start, start_b, *states)}
        out["kl_a_to_b"] = divergence(subject, prompts, states[0], states[1])
        out["kl_b_to_a"] = divergence(subject, prompts, states[1], states[0])
        discrete = recipe.policy.kind not in _CONTINUOUS
        out["cannot_flip"] = cannot_flip(subject, prompts, *states) if discrete and prompts else None
        return out


def _state(run: Path, which: str) -> State:
    if run_of(run) != run:
        return dict(checkpoint.load(run)[0])
    folder = run / "checkpoints"
    found = folder / "best" if which == "best" else checkpoint.newest(folder)
    if found is None or not found.is_dir():
        raise DataError(
            Text(f"{run} has no {which} checkpoint", f"{run} 没有 {which} 检查点"),
            Text("train it further, or compare with --weights newest", "请继续训练，或用 --weights newest 比较"),
        )
    return dict(checkpoint.load(found)[0])


def _fits(start: State, states: list[State], runs: tuple[Path, Path]) -> None:
    for state, run in zip(states, runs):
        shapes = {name: tuple(t.shape) for name, t in state.items()}
        if shapes != {name: tuple(t.shape) for name, t in start.items()}:
            raise ConfigError(
                Text(f"the weights of {run} are of another model", f"{run} 的权重属于另一个模型"),
                Text("only their answers can be compared", "只能比较它们的回答"),
            )


def _same_start(a: Path, b: Path) -> bool:
    first, second = (load_recipe(run_of(run) / "config.toml") for run in (a, b))
    return first.policy == second.policy and first.seed == second.seed


def _fresh_state(run: Path) -> State:
    """The weights that a run started from."""
    recipe = load_recipe(run_of(run) / "config.toml")
    policy = build_policy(recipe.policy, recipe.seed)
    return {name: p.clone() for name, p in state_of(policy.trainable()).items()}


def change_by_module(start_a: State, start_b: State, a: State, b: State) -> list[dict[str, Any]]:
    """Relative change of each module, from their starts to A and to B, and from A to B; the largest first."""
    modules: dict[str, list[str]] = {}
    for name in start_a:
        modules.setdefault(name.rpartition(".")[0] or name, []).append(name)
    rows = []
    for module, names in modules.items():
        size = _norm(start_a, names) or 1.0
        gaps = {"a": _norm(a, names, start_a), "b": _norm(b, names, start_b), "between": _norm(a, names, b)}
        rows.append({"module": module} | {key: value / size for key, value in gaps.items()})
    return sorted(rows, key=lambda r: -max(r["a"], r["b"]))


def _norm(x: State, names: list[str], y: State | None = None) -> float:
    squares = [((x[n] - y[n]) if y else x[n]).double().square().sum() for n in names]
    return float(torch.stack(squares).sum().sqrt())


def divergence(subject: Subject, prompts: list[Any], one: State, two: State) -> dict[str, Any]:
    """KL(one || two) on one's own samples, per sample with its 95% interval over prompts, and per decision.

    A sample's KL is the sum over its decisions of the exact KL, where the policy can, else of q/p - 1 - log q/p (k3)
    given what came before: unbiased, and of no sample below 0. (The mean of log p - log q has the same expectation and
    falls below 0 by chance, further than its own error where few samples carry the difference.)
    """
    load_state(subject.module, one)
    batch, own = _samples(subject, prompts)
    subject.policy.fix_reference({name: t.to(batch.old.device) for name, t in two.items()})
    exact = None
    if "kl" in subject.policy.provides:
        exact = torch.where(batch.mask, subject.exact_kl(batch).to(batch.mask.device).double(), 0.0)
    gap = torch.where(batch.mask, subject.score(batch) - subject.reference_scores(batch), 0.0).double()
    sampled = torch.where(batch.mask, (torch.expm1(-gap) + gap).clamp(min=0.0), 0.0)
    whole = (sampled if exact is None else exact).sum(-1).cpu()
    size = max(1, len(whole) // max(len(prompts), 1)) if own else 1
    found = interval(whole, [i // size for i in range(len(whole))])
    decisions = batch.mask.sum().clamp(min=1)
    return {
        "per_sample": found.mean,
        "per_sample_low": max(0.0, found.low),
        "per_sample_high": found.high,
        "per_decision": float(sampled.sum() / decisions),
        "samples": len(whole),
        "own_samples": own,
        "exact_per_decision": None if exact is None else float(exact.sum() / decisions),
    }


def _samples(subject: Subject, prompts: list[Any]) -> tuple[Batch, bool]:
    """(samples of held-out prompts, whether they are the policy's own): stored actions where it draws none."""
    if not prompts:
        return subject.everything(subject.draw(0)), subject.samples_itself
    try:
        with torch.no_grad():
            rollout: Rollout = subject.policy.sample(prompts, _GROUP, subject.run.seed(0, salt=91))
    except (ConfigError, DataError):
        return subject.everything(subject.draw(0)), False
    return subject.everything(rollout), True


def cannot_flip(subject: Subject, prompts: list[Any], a: State, b: State) -> dict[str, Any]:
    """Along A's greedy answers: decisions to which B gives more than 1/2, so that B's most likely choice is A's.

    No other choice could be likelier: it is a proof, and a lower bound, since a flatter distribution may keep its
    largest entry too.
    """
    load_state(subject.module, a)
    with torch.no_grad():
        batch = subject.everything(subject.policy.greedy(prompts))
    under_a = subject.score(batch)
    load_state(subject.module, b)
    under_b = subject.score(batch)
    if bool((torch.stack([under_a, under_b])[:, batch.mask] > 1e-6).any()):
        return {"decisions": None, "why": "log-probs above 0: these decisions are densities, not choices"}
    proven = (under_b > torch.tensor(0.5, dtype=torch.float64).log()) & batch.mask
    return {
        "decisions": float(proven.sum() / batch.mask.sum()),
        "prompts": float((proven | ~batch.mask).all(-1).double().mean()),
        "largest_change": float((under_b - under_a)[batch.mask].abs().max()),
    }

"""Every numeric key acts, and as its sentence says: two runs that differ in the key leave the weights that a float64
replay of their own samples has (tests/support/float64.py, written from the documents), and not the same ones.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, get_args

import pytest
import torch
from replayed import OFF, learnt

from anygrpo.recipe.algorithm import AlgorithmConfig
from anygrpo.recipe.filters import FilterConfig
from anygrpo.recipe.section import Schedule
from anygrpo.recipe.training import OptimizerConfig


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("keys")
    count = iter(range(10_000))
    known: dict[str, dict[str, torch.Tensor]] = {}

    def make(given: dict[str, Any]) -> dict[str, torch.Tensor]:
        key = json.dumps(given, sort_keys=True)
        if key not in known:
            known[key] = learnt(folder / str(next(count)), given)
        return known[key]

    return make


def algorithm(key: str, value: Any, base: Any = None, **more: Any) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """A case: the key at `value`, against `base` (None: not given), everything else being `more`."""
    setting = {k: more.pop(k) for k in ("sampler", "method", "policy", "steps") if k in more}
    first = setting | {"algorithm": more | ({} if base is None else {key: base})}
    return key, first, setting | {"algorithm": more | {key: value}}


def optimizer(key: str, value: Any, base: Any = None, **more: Any) -> tuple[str, dict[str, Any], dict[str, Any]]:
    first = {"optimizer": more | ({} if base is None else {key: base})}
    return key, first, {"optimizer": more | {key: value}}


def filtered(kind: str, key: str, value: Any, base: Any, **more: Any) -> tuple[str, dict[str, Any], dict[str, Any]]:
    of = lambda v: {"algorithm": {"filters": [{"kind": kind, **more, key: v}]}}  # noqa: E731
    return f"{kind}.{key}", of(base), of(value)


def scheduled(key: str, value: Any, base: Any, **more: Any) -> tuple[str, dict[str, Any], dict[str, Any]]:
    of = lambda v: {"steps": 4, "optimizer": {"learning_rate": {"start": 0.05, **more, key: v}}}  # noqa: E731
    return f"schedule.{key}", of(base), of(value)


PROPORTIONAL = {"kl_controller": "proportional", "beta": 0.5}
BAND = {"kl_controller": "band", "beta": 0.5}

CASES = [
    algorithm("prompts_per_step", 2),
    algorithm("group_size", 3),
    algorithm("temperature", 0.6),
    algorithm("temperature", {"kind": "linear", "start": 2.0, "end": 0.5}, 2.0),
    algorithm("std_floor", 0.6),
    algorithm("advantage_clip", 0.5),
    algorithm("component_weights", {"hit": 3.0}, advantage="components"),
    algorithm("component_weights", {"short": 0.0}, advantage="gdpo"),
    algorithm("pass_k", 3, advantage="pass_at_k"),
    algorithm("running_decay", 0.3, advantage="running"),
    algorithm("ddof", 0),
    algorithm("epsilon", 0.3),
    algorithm("clip_low", 0.05, sampler=OFF),
    algorithm("clip_low", 0.05, 1.0, sampler=OFF, objective="cispo", clip_high=0.2, reduction="token_mean"),
    algorithm("clip_high", 0.05, sampler=OFF),
    algorithm("clip_high", {"kind": "linear", "start": 0.05, "end": 2.0}, 0.05, sampler=OFF),
    algorithm("dual_clip", 1.1, sampler=OFF),
    algorithm("tau_positive", 4.0, sampler=OFF, objective="sapo", reduction="token_mean"),
    algorithm("tau_negative", 4.0, sampler=OFF, objective="sapo", reduction="token_mean"),
    algorithm("ratio_guard", 0.1, sampler=OFF, clip_high=5.0),
    algorithm("importance_cap", 1.05, sampler=OFF, importance="truncate"),
    algorithm("importance_cap", 1.05, sampler=OFF, importance="mask", beta=0.3),
    algorithm("horizon", 2, reduction="constant"),
    algorithm("epochs", 3),
    algorithm("minibatches", 3, entropy_coef=0.01),
    algorithm("minibatches", 2, entropy_coef=0.01, epochs=2, reduction="prompt_mean", beta=0.2),
    algorithm("target_kl", 1e-3, epochs=4),
    algorithm("target_kl", 0.01, epochs=4),
    algorithm("lambda_pg", 0.3),
    algorithm("lambda_supervised", 0.4),
    algorithm("lambda_supervised", 0.4, policy="taught"),
    algorithm("lambda_consistency", 0.2),
    algorithm("entropy_coef", 0.2),
    algorithm("beta", 0.3),
    algorithm("beta", 0.3, kl="exact"),
    algorithm("kl_target", 5.0, **PROPORTIONAL, kl_horizon=10),
    algorithm("kl_horizon", 50, **PROPORTIONAL),
    algorithm("kl_low", 3.0, **BAND, kl_high=4.0),
    algorithm("kl_high", 3.0, **BAND),
    algorithm("kl_factor", 3.0, **BAND),
    algorithm("beta_min", 0.49, **BAND, kl_low=3.0, kl_high=4.0),
    algorithm("beta_max", 0.55, **BAND),
    algorithm("rce_temperature", 0.2, method="rce"),
    algorithm("overlong_buffer", 3),
    algorithm("refill", 3, filters=[{"kind": "drop_constant"}, {"kind": "pass_rate_band", "low": 0.3, "high": 0.7}]),
    optimizer("learning_rate", 0.02),
    optimizer("weight_decay", 0.5),
    optimizer("betas", [0.5, 0.999]),
    optimizer("betas", [0.9, 0.5]),
    optimizer("eps", 1e-6),
    optimizer("grad_clip", 0.05),
    filtered("pass_rate_band", "low", 0.4, 0.0),
    filtered("pass_rate_band", "high", 0.4, 1.0),
    filtered("pass_rate_band", "threshold", 0.2, 0.9, high=0.6),
    filtered("component_at_least", "threshold", 0.75, 0.0, component="hit"),
    filtered("minimum_spread", "spread", 1.0, 0.0),
    filtered("top_k_by_reward", "k", 2, 5),
    filtered("top_k_by_reward", "k", {"kind": "linear", "start": 5.0, "end": 2.0}, 5),
    filtered("best_and_worst", "k", 1, 2),
    scheduled("start", 0.02, 0.05, end=0.01, kind="linear"),
    scheduled("end", 0.01, 0.0, kind="cosine"),
    scheduled("warmup", 3, 0, kind="cosine"),
    scheduled("steps", 2, 4, kind="linear"),
    scheduled("milestones", [1, 2], [3], kind="step"),
    scheduled("factor", 0.1, 0.5, kind="step", milestones=[1]),
]  # fmt: skip


ELSEWHERE = {
    "samples_per_step": "test_adaptive.py",
    "smallest_group": "test_adaptive.py",
    "largest_group": "test_adaptive.py",
    "discount": "test_credit.py",
    "history_size": "test_history.py",
    "history_least": "test_history.py",
}
"""Keys of what the walker has not (groups of unequal size, turns) -> the file that tries them."""


@pytest.mark.parametrize(("key", "one", "other"), CASES, ids=[f"{i}-{case[0]}" for i, case in enumerate(CASES)])
def test_a_key_moves_the_weights_as_it_says(made, key, one, other):
    first, second = made(one), made(other)
    apart = max(float((first[name] - second[name]).abs().max()) for name in first)
    assert apart > 1e-4, f"{key} changes nothing"


def _numeric(section: Any) -> set[str]:
    def holds(annotation: Any) -> bool:
        return annotation in (int, float) or any(holds(a) for a in get_args(annotation) if not isinstance(a, str | int))

    special = {"ddof"}  # 0 or 1, as words
    return {name for name, f in section.model_fields.items() if holds(f.annotation) or name in special}


def test_no_numeric_key_is_left_out():
    """A key that is added is tried too, or this fails."""
    tried = {case[0] for case in CASES}
    wanted = _numeric(AlgorithmConfig) | _numeric(OptimizerConfig) | {f"schedule.{k}" for k in _numeric(Schedule)}
    for kind in get_args(get_args(FilterConfig)[0]):
        name = get_args(kind.model_fields["kind"].annotation)[0]
        wanted |= {f"{name}.{key}" for key in _numeric(kind)} if name != "function" else set()
    wanted -= {"filters"}  # tables: their keys are tried each
    for key, file in ELSEWHERE.items():
        assert key in Path(__file__).with_name(file).read_text(), f"{file} no longer tries {key}"
    assert wanted - tried - ELSEWHERE.keys() == set()
    assert {"schedule.milestones", "betas", "kl_horizon", "minimum_spread.spread"} <= wanted

"""Every rule fires on its own fault and is silent on what it must not be confused with."""

from __future__ import annotations

import math
from typing import Any

import pytest
from logs import dull, flat, healthy, line, rows

from anygrpo.doctor import diagnose
from anygrpo.doctor.columns import build
from anygrpo.doctor.log import Log
from anygrpo.doctor.prescriptions import present
from anygrpo.doctor.rules import LEVEL, RULES

NAN = math.nan


def with_rows(base: list[dict[str, float]], changes: dict[int, dict[str, float]]) -> list[dict[str, float]]:
    """Some rows (0-based) changed."""
    return [{**row, **changes.get(i, {})} for i, row in enumerate(base)]


def evaluated(base: list[dict[str, float]], every: int = 10, **evals: Any) -> list[dict[str, float]]:
    """Evaluation columns in every tenth row: functions of progress."""
    n = len(base)
    return [
        {**row, **({k.replace("__", "/"): f(i / (n - 1)) for k, f in evals.items()} if i % every == 0 else {})}
        for i, row in enumerate(base)
    ]


def wiggle(a: float, size: float = 0.01) -> Any:
    """A level with small deterministic ups and downs."""
    return lambda t: a + size * math.sin(40 * t + 1)


def spiky(harm: bool) -> list[dict[str, float]]:
    """Four gradient spikes; each followed by a step in the reward, or not."""
    base = healthy(120, reward=flat(0.5))
    for k, at in enumerate((25, 50, 75, 100)):
        base[at]["grad_norm"] = 40.0
        if harm:
            for i in range(at + 1, len(base)):
                base[i]["reward"] = 0.5 - 0.1 * (k + 1)
    return base


COMPONENTS = {"rewards__correct__mean": line(0.2, 0.5), "rewards__format__mean": line(0.1, 0.2)}
OFF_POLICY: dict[str, Any] = {"clip_ratio__region_mean": flat(0.1)}

# rule -> (rows, config)
FIRES: dict[str, tuple[list[dict[str, float]], dict[str, Any]]] = {
    "nonfinite": (with_rows(healthy(), {40: {"loss": NAN}, 41: {"grad_norm": math.inf}}), {}),
    "not_rl_log": (rows(40, loss=line(2.0, 0.5), grad_norm=flat(1.0), learning_rate=1e-5), {}),
    "too_short": (healthy(5), {}),
    "wrong_reference": (healthy(kl=flat(1.0)), {}),
    "markov_bound": (with_rows(healthy(ratio__mean=1.0), {5: {"ratio/mean": 3e9}}), {}),
    "saturated_clamp": (rows(10, reward=flat(0.3), ratio__mean=math.exp(20)), {}),
    "z2": (healthy(z2=1.5), {"z2_dims": 10000}),
    "sampler_mismatch": (healthy(rollout_corr__rollout_is_mean=flat(0.2)), {}),
    "stale_rollouts": (dull(train_rollout_logprob_abs_diff=line(0.001, 0.05)), {}),
    "sign_inverted": (healthy(reward=line(0.7, 0.2)), {}),
    "failed_rewards": (healthy(invalid__share=flat(0.6)), {}),
    "truncation": (healthy(completions__clipped_ratio=flat(0.6)), {}),
    "dead_term": (healthy(**COMPONENTS, rewards__strict__mean=0.0), {}),
    "aux_only_gain": (
        healthy(reward=line(0.5, 0.9), rewards__answer__mean=wiggle(0.4), rewards__format__mean=line(0.1, 0.5)),
        {},
    ),
    "group_of_one": (
        [
            {"step": i, "critic/score/mean": x, "critic/score/max": x + 0.2, "critic/score/min": x - 0.2}
            | {"critic/advantages/mean": x, "critic/advantages/max": x + 0.2, "critic/advantages/min": x - 0.2}
            for i, x in enumerate(math.sin(j) for j in range(30))
        ],
        {},
    ),
    "constant_reward": (dull(reward=wiggle(0.5, 0.1), reward_std=0.0, frac_reward_zero_std=1.0), {}),
    "difficulty_dominates": (healthy(advantage__one_sign=flat(0.98)), {}),
    "starved_groups": (dull(reward=flat(0.1), frac_reward_zero_std=flat(0.8)), {}),
    "mastered_groups": (dull(reward=wiggle(0.95, 0.02), frac_reward_zero_std=flat(0.8)), {}),
    "advantage_compressed": (dull(advantage__std=flat(0.006)), {}),
    "phantom_advantages": (
        healthy(
            reward=lambda t: min(0.99, 0.4 + 2 * t), reward_std=lambda t: max(0.0005, 0.3 - t), grad_norm=flat(5.0)
        ),
        {},
    ),
    "rank_std": (dull(advantage__std=flat(0.3)), {"normaliser": "rank"}),
    "zscore_std": (dull(advantage__std=flat(0.006)), {"normaliser": "zscore", "std_floor": 0.1}),
    "zero_gradient": (dull(grad_norm=0.0), {}),
    "lr_too_small": (dull(200, kl=flat(1e-4)), {}),
    "kl_dominates": (dull(grad_norm__policy=flat(0.1), grad_norm__kl=flat(0.5)), {}),
    "kl_blowup": (dull(kl=lambda t: 0.01 + 3 * t**2), {}),
    "log_ratio_explosion": (healthy(log_ratio__abs_max=flat(12.0)), {}),
    "lr_too_large": (healthy(90, reward=lambda t: 0.6 * math.exp(-4 * t), kl=lambda t: 0.001 + 60 * t**3), {}),
    "pg_loss_growing": (
        healthy(reward=line(0.7, 0.3), kl=flat(0.01), loss__policy=lambda t: 0.01 + 0.5 * t, **OFF_POLICY),
        {},
    ),
    "grad_spikes": (spiky(harm=True), {}),
    "clip_saturated": (healthy(clip_ratio__region_mean=flat(0.35)), {}),
    "clip_idle": (healthy(clip_ratio__region_mean=0.0), {"updates_per_batch": 4}),
    "low_entropy_start": (healthy(entropy=flat(0.03)), {}),
    "entropy_collapse": (
        dull(entropy=lambda t: 0.6 * math.exp(-8 * t), frac_reward_zero_std=line(0.1, 0.5), reward=flat(0.4)),
        {},
    ),
    "entropy_explosion": (
        healthy(reward=lambda t: 0.7 - 0.5 * t, kl=flat(0.02), entropy=lambda t: 0.5 + 2 * t**2),
        {},
    ),
    "decision_collapse": (healthy(answers__distinct=line(0.8, 0.05), texts__distinct=flat(0.95)), {}),
    "reward_hacking": (
        evaluated(healthy(120), eval_accuracy=wiggle(0.4, 0.005)),
        {},
    ),
    "length_collapse": (healthy(completions__mean_length=line(400, 40)), {}),
    "length_explosion": (dull(completions__mean_length=line(200, 500)), {}),
    "overfitting": (evaluated(healthy(120), eval_accuracy=lambda t: 0.5 - 0.1 * t + 0.004 * math.sin(50 * t)), {}),
    "validation_drop": (
        evaluated(healthy(120), eval_accuracy=lambda t: 0.5 + (0.2 * t if t < 0.6 else 0.12 - 0.25 * (t - 0.6))),
        {},
    ),
    "late_collapse": (healthy(160, reward=lambda t: 0.3 + 0.6 * t if t < 0.5 else 0.6 - 0.5 * (t - 0.5)), {}),
    "no_learning": (dull(), {}),
    "sup_loss_flat": (healthy(loss__supervised=flat(1.0)), {"lambda_supervised": 0.5}),
    "consistency_rising": (healthy(loss__consistency=lambda t: 0.2 if t < 0.3 else 0.2 + t), {}),
    "lr_exhausted": (healthy(120, learning_rate=lambda t: max(0.0, 1e-6 * (1 - t))), {}),
    "eval_resolution": (
        evaluated(healthy(), eval_accuracy=lambda t: round((0.40 + 0.05 * t) * 50) / 50),
        {"eval_questions": 50},
    ),
    "group_size_bound": (healthy(critic__advantages__max=2.475, critic__advantages__min=-2.0), {}),
    "on_policy": (healthy(clip_ratio__region_mean=0.0, ppo_kl=0.0), {}),
    "kl_off": (healthy(kl=0.0), {}),
    "beta_from_loss": ([row | {"loss": 0.04 * row["kl"]} for row in healthy()], {}),
    "mean_advantage": (healthy(advantage__mean=0.0), {}),
}

# rule -> a run that looks like it and is not
SILENT: dict[str, tuple[list[dict[str, float]], dict[str, Any]]] = {
    "nonfinite": ([*healthy()[:40], {"step": 41.0, "reward": 0.5}], {}),  # rows with fewer metrics
    "not_rl_log": (rows(40, my_reward=line(0.1, 0.5), loss=flat(0.1)), {}),
    "too_short": (healthy(12), {}),
    "wrong_reference": (healthy(kl=lambda t: 0.0 if t == 0 else 1.0), {}),
    "markov_bound": (healthy(ratio__mean=flat(1.4)), {}),
    "saturated_clamp": (healthy(ratio__mean=flat(20000.0)), {}),
    "z2": (healthy(z2=1.01), {"z2_dims": 10000}),
    "sampler_mismatch": (healthy(rollout_corr__rollout_is_mean=flat(0.98)), {}),
    "stale_rollouts": (dull(train_rollout_logprob_abs_diff=flat(0.05)), {}),
    "sign_inverted": (healthy(reward=lambda t: 0.5 - 0.3 * math.sin(math.pi * t)), {}),
    "failed_rewards": (healthy(invalid__share=line(0.1, 0.0)), {}),
    "truncation": (healthy(completions__clipped_ratio=line(0.3, 0.01)), {}),
    "dead_term": (healthy(**COMPONENTS, rewards__strict__mean=lambda t: min(1.0, 3 * t)), {}),
    "aux_only_gain": (
        healthy(reward=line(0.5, 1.1), rewards__answer__mean=line(0.4, 0.8), rewards__format__mean=line(0.1, 0.3)),
        {},
    ),
    "group_of_one": (healthy(critic__score__max=1.0, critic__advantages__max=1.5, critic__advantages__mean=0.0), {}),
    "constant_reward": (dull(reward=flat(0.95), reward_std=flat(0.02), frac_reward_zero_std=flat(0.9)), {}),
    "difficulty_dominates": (healthy(advantage__one_sign=flat(0.3)), {}),
    "starved_groups": (dull(reward=flat(0.05), frac_reward_zero_std=flat(0.3)), {}),
    "mastered_groups": (dull(reward=wiggle(0.5, 0.02), frac_reward_zero_std=flat(0.8)), {}),
    "advantage_compressed": (dull(advantage__std=flat(0.006)), {"scale_rewards": False}),
    "phantom_advantages": (
        healthy(
            reward=lambda t: min(0.99, 0.4 + 2 * t), reward_std=lambda t: max(0.0005, 0.3 - t), grad_norm=line(5, 0.1)
        ),
        {},
    ),
    "rank_std": (dull(advantage__std=flat(0.7)), {"normaliser": "rank"}),
    "zscore_std": (dull(advantage__std=flat(0.9)), {"normaliser": "zscore"}),
    "zero_gradient": (with_rows(healthy(), {0: {"grad_norm": 0.0, "learning_rate": 0.0}}), {}),
    "lr_too_small": (dull(200, kl=flat(1e-4), frac_reward_zero_std=flat(0.95)), {}),
    "kl_dominates": (dull(grad_norm__policy=flat(0.5), grad_norm__kl=flat(0.1)), {}),
    "kl_blowup": (healthy(kl=line(0.001, 0.9)), {}),
    "log_ratio_explosion": (healthy(log_ratio__abs_max=flat(3.0)), {}),
    "lr_too_large": (healthy(90, reward=line(0.7, 0.3), kl=line(0.001, 0.3)), {}),
    "pg_loss_growing": (healthy(reward=line(0.7, 0.3), kl=flat(0.01), loss__policy=lambda t: 0.01 + 0.5 * t), {}),
    "grad_spikes": (spiky(harm=False), {}),
    "clip_saturated": (healthy(**{"actor__clipfrac@sum": flat(0.35)}), {}),
    "clip_idle": (healthy(clip_ratio__region_mean=0.0), {"updates_per_batch": 1}),
    "low_entropy_start": (healthy(entropy=flat(0.3)), {}),
    "entropy_collapse": (evaluated(healthy(entropy=line(0.58, 0.13)), eval_accuracy=line(0.2, 0.4)), {}),
    "entropy_explosion": (healthy(entropy=lambda t: 0.5 + 2 * t**2), {}),
    "decision_collapse": (healthy(answers__distinct=flat(0.6), texts__distinct=flat(0.95)), {}),
    "reward_hacking": (evaluated(healthy(120), eval_accuracy=line(0.2, 0.6)), {}),
    "length_collapse": (evaluated(healthy(completions__mean_length=line(400, 40)), eval_accuracy=line(0.2, 0.6)), {}),
    "length_explosion": (healthy(completions__mean_length=line(200, 500)), {}),
    "overfitting": (evaluated(healthy(120), eval_accuracy=wiggle(0.4, 0.02)), {}),
    "validation_drop": (
        with_rows(evaluated(healthy(120), eval_accuracy=line(0.2, 0.6)), {110: {"eval_accuracy": 0.3}}),
        {},
    ),
    "late_collapse": (healthy(160, reward=lambda t: min(0.6, 0.3 + 0.6 * t)), {}),
    "no_learning": (dull(reward=line(0.35, 0.5)), {}),
    "sup_loss_flat": (healthy(loss__supervised=lambda t: 0.02 + math.exp(-9 * t)), {"lambda_supervised": 0.5}),
    "consistency_rising": (healthy(loss__consistency=wiggle(0.2, 0.01)), {}),
    "lr_exhausted": (healthy(120, reward=lambda t: min(0.7, 0.3 + t), learning_rate=lambda t: 1e-6 * (1 - t)), {}),
    "eval_resolution": (
        evaluated(healthy(), eval_accuracy=lambda t: round((0.2 + 0.5 * t) * 50) / 50),
        {"eval_questions": 50},
    ),
    "group_size_bound": (healthy(critic__advantages__max=2.0, critic__advantages__min=-1.3), {"group_size": 8}),
    "on_policy": (healthy(clip_ratio__region_mean=0.0, ppo_kl=flat(0.001)), {}),
    "kl_off": (with_rows(healthy(kl=0.0), {70: {"kl": 1e-7}}), {}),
    "beta_from_loss": ([row | {"loss": 0.04 * row["kl"] + row["reward"]} for row in healthy()], {}),
    "mean_advantage": (healthy(advantage__mean=flat(0.3)), {}),
}

MOSTLY_NOTES = {"starved_groups", "mastered_groups"}
ELSEWHERE = {"crash", "no_effect"}  # tests/doctor/test_readers.py and test_pair.py


def rules_of(case: tuple[list[dict[str, float]], dict[str, Any]]) -> dict[str, str]:
    data, config = case
    return {f.rule: f.severity for f in diagnose(data, config, format="jsonl").findings}


@pytest.mark.parametrize("rule", sorted(FIRES))
def test_fires_on_its_fault(rule: str) -> None:
    assert rule in rules_of(FIRES[rule])


@pytest.mark.parametrize("rule", sorted(SILENT))
def test_is_silent_on_the_look_alike(rule: str) -> None:
    found = rules_of(SILENT[rule])
    assert found.get(rule, "info") == "info"
    if rule not in {"truncation", "group_size_bound", "length_collapse", "length_explosion"}:
        assert rule not in found


def test_every_rule_has_both_cases() -> None:
    assert set(FIRES) == set(SILENT) == set(LEVEL) - ELSEWHERE
    assert set(RULES) == set(LEVEL) - {"no_effect"}


def test_healthy_runs_of_many_seeds_and_sizes_get_no_warning() -> None:
    for seed in range(12):
        for n in (24, 80, 200):
            data = healthy(n)
            for i, row in enumerate(data):
                row["reward"] += 0.05 * math.sin(seed + 7.3 * i)
            found = diagnose(data, format="jsonl")
            assert found.first is None, (seed, n, found.first)
            assert found.verdict == "no_objection"


def test_what_explains_comes_first_and_demotes() -> None:
    found = diagnose(
        dull(completions__clipped_ratio=flat(0.9), reward_std=0.0, frac_reward_zero_std=1.0), format="jsonl"
    )
    assert found.first is not None
    assert found.first.rule == "truncation"
    follower = next(f for f in found.findings if f.rule == "constant_reward")
    assert (follower.severity, follower.follows) == ("info", "truncation")
    assert not any(f.rule == "no_learning" for f in found.findings)


def test_a_missing_metric_is_named_and_never_called_healthy() -> None:
    found = diagnose(rows(40, reward=line(0.2, 0.6)), format="jsonl")
    assert {"kl_to_reference", "entropy", "grad_norm", "truncation_fraction"} <= set(found.not_observable)


def test_short_logs_keep_their_certainties() -> None:
    found = diagnose(rows(4, reward=flat(0.4), ratio__mean=math.exp(20)), format="jsonl")
    assert {"too_short", "saturated_clamp"} <= {f.rule for f in found.findings}
    assert found.verdict == "serious"
    assert diagnose(healthy(5), format="jsonl").verdict == "cannot_tell"


def test_a_gain_too_small_for_a_noisy_log_is_not_called_no_learning() -> None:
    data = [row | {"reward": 0.5 + 0.4 * math.sin(3.7 * i)} for i, row in enumerate(healthy(24))]
    found = diagnose(data, format="jsonl")
    assert found.verdict == "cannot_tell"
    assert found.first is None


def test_a_filter_that_makes_groups_homogeneous_is_named():
    rows = [
        {"step": i, "reward/mean": 0.4 + 0.01 * (i % 3), "reward/std_within": 0.3, "groups/live": 0.8,
         "groups/live_after/drop_constant": 0.8, "groups/live_after/top_k_by_reward": 0.06}
        for i in range(20)
    ]  # fmt: skip
    found = next(f for f in diagnose(rows).findings if f.rule == "starved_groups")
    assert (found.certainty, found.severity, found.variant) == ("certain", "serious", "filter")
    assert found.facts["filter"] == "top_k_by_reward"
    harmless = [row | {"groups/live_after/top_k_by_reward": 0.5} for row in rows]
    assert "starved_groups" not in [f.rule for f in diagnose(harmless).findings]


def test_a_std_that_dead_groups_explain_is_not_called_compressed():
    """One group in a hundred live: the std of z-scores is sqrt(.01) = .1 at most; .09 is that, .002 is not."""
    rows = [{"step": i, "reward/mean": 0.3, "groups/live": 0.01, "advantage/std": 0.09} for i in range(20)]
    assert "advantage_compressed" not in [f.rule for f in diagnose(rows).findings]
    scaled = [row | {"advantage/std": 0.002} for row in rows]
    assert "advantage_compressed" in [f.rule for f in diagnose(scaled).findings]


def test_two_gradients_that_cancel_mean_that_the_kl_term_holds_the_policy():
    rows = [
        {"step": i, "reward/mean": 0.3 + 0.01 * (i % 2), "kl/reference": 0.0009, "beta": 10.0, "advantage/std": 0.9,
         "lr": 1e-3, "grad_norm/total": 0.1, "grad_norm/policy": 0.17, "grad_norm/kl": 0.15}
        for i in range(120)
    ]  # fmt: skip
    assert diagnose(rows).first.rule == "kl_dominates"
    free = [row | {"grad_norm/kl": 0.01} for row in rows]
    assert "kl_dominates" not in [f.rule for f in diagnose(free).findings]


def test_a_log_ratio_far_off_downwards_is_drift_and_no_fault_of_scoring() -> None:
    """A bounded largest ratio says that abs max lies on the lower side, where Markov's bound is silent."""
    down = healthy(log_ratio__abs_max=300.0, ratio__max=2.0)
    assert "markov_bound" not in {f.rule for f in diagnose(down).findings}
    assert diagnose(down).first.rule == "log_ratio_explosion"
    assert "markov_bound" in {f.rule for f in diagnose(healthy(log_ratio__abs_max=300.0)).findings}


def test_ratios_that_are_all_zero_are_a_fault_of_scoring_since_the_first_pass_has_ratio_one() -> None:
    rows = with_rows(healthy(log_ratio__abs_max=5e5, ratio__max=2.0), {i: {"ratio/max": 0.0} for i in range(80)})
    found = diagnose(rows, format="console").first
    assert (found.rule, found.variant, found.certainty) == ("markov_bound", "downward", "likely")
    assert diagnose(rows).first.certainty == "certain"  # our own loop scores each rollout before its first update


def test_the_rate_in_force_is_that_of_the_steps_with_a_policy_loss() -> None:
    """A supervised stage before it has a rate of its own."""
    supervised = [{"step": i, "loss/supervised": 1.0, "lr": 1e-3} for i in range(30)]
    later = [{"step": 30 + i, "reward/mean": 0.5, "loss/policy": 0.0, "lr": 1e-5} for i in range(20)]
    assert present(build(Log("x", "anygrpo", [*supervised, *later])), "learning_rate") == 1e-5
    assert present(build(Log("x", "anygrpo", supervised)), "learning_rate") == 1e-3


@pytest.mark.parametrize(("logged", "said"), [(None, True), (15.0, False), (8.0, True)])
def test_the_size_of_a_group_is_what_was_compared_not_what_was_asked_for(logged: float | None, said: bool) -> None:
    """Stored candidates come in groups of their own size: max |A| = 3.2 breaks the bound of 8 and 10, not of 15."""
    rows = [row | ({} if logged is None else {"groups/size": logged}) for row in healthy(advantage__abs_max=3.2)]
    found = rules_of((rows, {"group_size": 10}))
    assert (found.get("group_size_bound") == "warning") is said


@pytest.mark.parametrize("rule", ["entropy_collapse", "decision_collapse", "entropy_explosion"])
def test_no_clip_is_prescribed_where_no_ratio_ever_reaches_one(rule: str) -> None:
    data, config = FIRES[rule]
    for clipped, named in ((0.0, False), (0.02, True)):
        rows = [row | {"clip_ratio/region_mean": clipped} for row in data]
        found = next(f for f in diagnose(rows, config, format="jsonl").findings if f.rule == rule)
        assert ("clip_high" in [c.concept for c in found.changes]) is named

"""Every rule fires on its own fault and is silent on what it must not be confused with."""

from __future__ import annotations

import importlib
import math
from typing import Any

import pytest

from anygrpo.doctor import diagnose
from anygrpo.doctor.columns import build
from anygrpo.doctor.findings import Finding
from anygrpo.doctor.log import Log
from anygrpo.doctor.prescriptions import present
from anygrpo.doctor.rules import RULES
from anygrpo.doctor.synthetic import Case, dull, flat, healthy, line, rows, with_rows

FIRES: dict[str, Case] = {}
SILENT: dict[str, Case] = {}
for _id in RULES:
    _module = importlib.import_module(f"anygrpo.doctor.rules.{_id}")
    if hasattr(_module, "fires"):
        FIRES[_id], SILENT[_id] = _module.fires(), _module.silent()
ELSEWHERE = {"crash", "no_effect"}  # tests/doctor/test_readers.py and test_live.py


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


@pytest.mark.parametrize(("value", "severity"), [(0.5, None), (0.8, "warning"), (2.0, "serious")])
def test_log_ratios_of_a_policy_that_clips_at_less_are_in_its_own_unit(value: float, severity: str | None) -> None:
    """A denoising step that is clipped at 0.025 is as far at 0.7 as a token's decision is at 5.6."""
    data = healthy(log_ratio__abs_max=flat(value), clip__own=flat(0.025))
    assert rules_of((data, {})).get("log_ratio_explosion") == severity
    assert "log_ratio_explosion" not in rules_of((healthy(log_ratio__abs_max=flat(value)), {}))
    if severity:
        found = next(f for f in diagnose(data, format="jsonl").findings if f.rule == "log_ratio_explosion")
        assert found.facts["unit"] == pytest.approx(0.125, rel=0.1)


def found_of(rule: str, data: list[dict[str, float]], **config: Any) -> tuple[str, str] | None:
    found = next((f for f in diagnose(data, config, format="jsonl").findings if f.rule == rule), None)
    return found and (found.severity, found.certainty)


def test_no_spread_is_certain_only_where_groups_were_counted() -> None:
    """One sample a row has a std of 0 as well; where the reward rises something was learnt from."""
    from anygrpo.doctor.synthetic import wiggle

    bare = [{k: v for k, v in row.items() if k != "frac_reward_zero_std"} for row in dull(reward_std=0.0)]
    rising = [{k: v for k, v in row.items() if k != "frac_reward_zero_std"} for row in healthy(reward_std=0.0)]
    counted = dull(reward=wiggle(0.5, 0.1), reward_std=0.0, frac_reward_zero_std=1.0)
    assert found_of("constant_reward", bare) == ("serious", "likely")
    assert found_of("constant_reward", bare, group_size=1) is None
    assert found_of("constant_reward", counted) == ("serious", "certain")
    assert found_of("constant_reward", counted, normaliser="running") == ("serious", "likely")
    assert {f.rule for f in diagnose(rising, format="jsonl").findings if f.severity == "serious"} == set()


def test_no_baseline_is_certain_only_with_both_extremes() -> None:
    full = FIRES["group_of_one"][0]
    mean = [{k: v for k, v in row.items() if not k.endswith(("/max", "/min"))} for row in full]
    upper = [{k: v for k, v in row.items() if not k.endswith("/min")} for row in full]
    assert found_of("group_of_one", full) == ("serious", "certain")
    assert found_of("group_of_one", mean) == ("serious", "likely")
    assert found_of("group_of_one", upper) == ("serious", "likely")
    changes = [f.changes for f in diagnose(full, {"group_size": 8}).findings if f.rule == "group_of_one"]
    assert changes == [()]


def test_every_rule_has_both_cases() -> None:
    assert set(FIRES) == set(SILENT) == set(RULES) - ELSEWHERE


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


def test_suspicions_name_an_experiment_that_exists() -> None:
    from anygrpo.doctor.experiments import EXPERIMENTS, plan

    named = {r.experiment for r in RULES.values()} - {""}
    assert named == set(EXPERIMENTS)
    found = diagnose(*FIRES["truncation"], format="jsonl")
    assert plan(found.findings)[0]["experiment"] == "cap_doubled"
    assert "加倍" in plan(found.findings, "zh")[0]["do"]
    assert plan((Finding("saturated_clamp", "certain", "serious"),)) == []


@pytest.mark.parametrize("settings", [{"updates_per_batch": 1}, {"updates_per_batch": 4, "objective": "reinforce"}])
def test_no_clip_is_idle_where_nothing_is_to_be_clipped(settings: dict[str, Any]) -> None:
    diagnosis = diagnose(healthy(clip_ratio__region_mean=0.0), settings)
    assert "clip_idle" not in [f.rule for f in diagnosis.findings]


@pytest.mark.parametrize("other", ["sup_loss_flat", "no_learning", "entropy_collapse", "lr_too_small"])
def test_an_idle_clip_stands_behind_what_says_more(other: str) -> None:
    data, config = FIRES[other]
    rows = [row | {"clip_ratio/region_mean": 0.0} for row in data]
    found = [f.rule for f in diagnose(rows, {**config, "updates_per_batch": 4}, format="jsonl").findings]
    assert "clip_idle" in found
    assert found.index(other) < found.index("clip_idle")


@pytest.mark.parametrize(
    ("distance", "more", "said"),
    [
        (5.0, {}, ("summed", "info")),  # 5 / .025 = 200 times, and answers have 190 tokens
        (125.0, {"settings": {"beta": 0.04}}, ("summed", "info")),  # a KL logged with its weight: 190 / .04 = 4750
        (125.0, {}, ("two", "warning")),
        (25.0, {"length": False}, ("meter", "info")),
        (25.0, {"length": False, "settings": {"dimensions": 1024}}, ("summed", "info")),
        (500.0, {"length": False}, ("two", "warning")),  # 20,000 tokens that nobody told of
        (500.0, {"length": False, "settings": {"dimensions": 16384}}, ("summed", "info")),
    ],
)
def test_a_sum_over_an_answer_beside_a_mean_is_a_matter_of_units(
    distance: float, more: dict[str, Any], said: tuple[str, str]
) -> None:
    data = healthy(kl=0.025001, log_prob_current=-300.0, log_prob_ref=-300.0 - 1.01 * distance)
    if not more.get("length", True):
        data = [{k: x for k, x in row.items() if k != "completions/mean_length"} for row in data]
    found = [f for f in diagnose(data, more.get("settings")).findings if f.rule == "reference_distance"]
    assert [(f.variant, f.severity) for f in found] == [said]


def test_a_kl_that_its_framework_logs_negative_is_no_distance() -> None:
    rows = [{"ppo_actor/kl_rewards/avg": -200 * row.pop("kl")} | row for row in healthy(kl=line(0.03, 0.05))]
    assert "reference_distance" not in {f.rule for f in diagnose(rows).findings}

"""What a log of ours says beside its recipe: one update a rollout, clip ranges, gradients measured apart; and what
follows from what in such runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from anygrpo.doctor import diagnose
from anygrpo.doctor.configs import of_our_recipe, parse, read_settings
from anygrpo.doctor.findings import Finding
from anygrpo.doctor.synthetic import Rows, dull, evaluated, flat, healthy, line, wiggle, with_rows

ALONE = {"updates_per_batch": 1, "on_policy": True}


def weight(rows: Rows, settings: dict[str, Any] | None = None) -> list[Finding]:
    return [f for f in diagnose(rows, settings).findings if f.severity != "info"]


def test_a_recipe_tells_how_many_updates_a_rollout_gets(tmp_path: Path) -> None:
    recipe = '[policy]\nkind = "selector"\n[algorithm]\nepochs = 2\nminibatches = 3\n[training]\noff_policy_steps = 0\n'
    (tmp_path / "config.toml").write_text(recipe, "utf-8")
    found = read_settings(tmp_path / "config.toml")
    assert (found["updates_per_batch"], found["on_policy"]) == (6, False)


STAGED = """
[policy]
kind = "selector"
[algorithm]
epochs = 1
minibatches = 1
[[stages]]
name = "a"
method = "grpo"
source = "policy"
[stages.algorithm]
"""


def test_stages_that_agree_tell_it_too() -> None:
    def found(text: str) -> dict[str, Any]:
        made = of_our_recipe(parse(text, ".toml"))
        return {name: made[name] for name in ("updates_per_batch", "on_policy") if name in made}

    assert found(STAGED) == ALONE
    assert found(STAGED.replace('"policy"\n[', '"stored"\n[')) == {"updates_per_batch": 1, "on_policy": False}
    second = '\n[[stages]]\nname = "b"\n'
    assert found(STAGED + second) == ALONE
    assert found(STAGED + second + "[stages.algorithm]\nepochs = 2\n") == {}  # they differ
    assert found(STAGED + "epochs = 2\n") == {"updates_per_batch": 2, "on_policy": False}
    assert found(STAGED + second + 'method = "rce"\n') == {}
    assert found(STAGED.replace('"selector"', '"selector"\nreuse = 8')) == {"updates_per_batch": 1, "on_policy": False}


@pytest.mark.parametrize(
    ("key", "value"), [("algorithm.importance", "truncate"), ("training.off_policy_steps", 1), ("stages", [1])]
)
def test_samples_of_other_weights_are_no_fault_where_the_recipe_asks_for_them(key: str, value: Any) -> None:
    flat_recipe: dict[str, Any] = {"policy.kind": "selector", "algorithm.epochs": 1, "algorithm.minibatches": 1}
    assert of_our_recipe(flat_recipe)["on_policy"] is True
    assert not of_our_recipe(flat_recipe | {key: value}).get("on_policy")


def test_one_update_a_rollout_and_a_ratio_that_is_not_1_is_another_policy() -> None:
    rows = healthy(60, **{"kl__behaviour": flat(0.03)})
    first = weight(rows, ALONE)[0]
    assert (first.rule, first.variant, first.severity) == ("sampler_mismatch", "one_update", "serious")
    assert weight(rows, {"updates_per_batch": 4, "on_policy": False}) == []  # several updates move it
    unknown = weight(rows)[0]  # the log itself shows it: .03 from the sampler, .001 from the start
    assert (unknown.rule, unknown.variant, unknown.severity) == ("sampler_mismatch", "nowhere", "warning")
    rounding = healthy(60, **{"kl__behaviour": flat(0.002)})
    assert weight(rounding, ALONE) == []


def test_a_ratio_that_is_1_at_first_only_is_a_sampler_left_behind() -> None:
    rows = with_rows(healthy(60, **{"kl__behaviour": flat(0.02)}), {0: {"kl/behaviour": 0.0}})
    assert [(f.rule, f.variant) for f in weight(rows, ALONE)] == [("stale_rollouts", "refreshed")]
    assert weight(healthy(60, **{"kl__behaviour": 0.0}), ALONE) == []


def test_a_kl_made_by_the_later_passes_of_the_first_rollout_is_no_wrong_reference() -> None:
    rows = healthy(60, kl=flat(0.6), **{"kl__behaviour": flat(0.25)})
    assert "wrong_reference" not in {f.rule for f in diagnose(rows, {"updates_per_batch": 4}).findings}
    unknown = next(f for f in diagnose(rows).findings if f.rule == "wrong_reference")
    assert unknown.certainty == "likely"  # the log does not say how many updates its first row holds
    known = next(f for f in diagnose(rows, ALONE).findings if f.rule == "wrong_reference")
    assert known.certainty == "certain"


def grown(own: list[float], start: list[float]) -> list[dict[str, float]]:
    """A run that learns, with its distances from the sampler and from its start."""
    both = zip(healthy(len(own)), own, start)
    return [row | {"kl/behaviour": a, "kl/reference": b, "kl": b} for row, a, b in both]


def test_a_sampler_left_at_the_start_is_named_by_the_log_alone() -> None:
    walk = [0.0005 * i**2 / 4 for i in range(40)]
    left = grown(walk, [1.05 * x for x in walk])
    assert [(f.rule, f.variant) for f in weight(left)] == [("stale_rollouts", "start")]
    passes = grown([0.0, *[0.0004] * 39], walk)  # several updates a rollout, from a warm-up on
    assert weight(passes) == []


def test_a_distance_from_the_sampler_that_leads_nowhere_is_another_scorer() -> None:
    n = 40
    colder = grown([2.0] * n, [0.06 * i for i in range(n)])  # at its start, yet far from what sampled
    assert ("sampler_mismatch", "nowhere") in [(f.rule, f.variant) for f in weight(colder)]
    dropout = grown([0.024] * n, [0.055] * 6 + [0.01 * i for i in range(6, n)])
    assert ("sampler_mismatch", "nowhere") in [(f.rule, f.variant) for f in weight(dropout)]
    large = grown([0.2] * n, [0.2 * (i + 1) for i in range(n)])  # large steps that do lead somewhere
    before = grown([0.2] * n, [0.2 * i for i in range(n)])  # the KL to the start taken before the updates
    for sound in (large, before):
        assert "sampler_mismatch" not in {f.rule for f in diagnose(sound, format="jsonl").findings}
        assert "wrong_reference" not in {f.rule for f in diagnose(sound, format="jsonl").findings}


def test_a_clip_range_of_nothing_is_told_although_the_run_learns() -> None:
    rows = healthy(60, **{"clip_ratio__region_mean": flat(0.45)})
    settings = {"updates_per_batch": 4, "clip": 1e-6, "objective": "ppo"}
    assert [(f.rule, f.variant) for f in weight(rows, settings)] == [("clip_saturated", "narrow")]
    assert weight(rows, settings | {"objective": "gspo"}) == []  # ratios of whole sequences are that near to 1
    assert weight(rows, settings | {"clip": 0.2}) == []


def test_an_entropy_bonus_that_outpulls_the_reward() -> None:
    cut = {"completions__clipped_ratio": line(0.1, 0.5), "grad_norm__policy": flat(0.1)}
    rows = dull(60, **cut, grad_norm__entropy=line(0.9, 0.1))
    heavy = weight(rows, {"entropy_coef": 3.0})
    assert [(f.rule, f.variant) for f in heavy] == [("entropy_explosion", "bonus")]
    small = dull(60, grad_norm__policy=flat(0.1), grad_norm__entropy=flat(0.001))
    assert "entropy_explosion" not in {f.rule for f in weight(small, {"entropy_coef": 0.001})}


def test_entropy_that_falls_because_the_task_is_learnt_is_no_collapse() -> None:
    """Sums of two digits: accuracy to .95, entropy from .8 to .02, ever more groups all right. Also with a plateau."""
    for reward in (line(0.2, 0.98), lambda t: min(0.95, 0.2 + 2 * t), lambda t: min(0.62, 0.2 + 0.6 * t)):
        rows = healthy(48, reward=reward, entropy=lambda t: 0.8 * 0.02**t, frac_reward_zero_std=line(0.05, 0.9))
        assert [f.rule for f in weight(rows) if f.rule == "entropy_collapse"] == []
    bought_nothing = healthy(
        60, reward=lambda t: min(0.4, 0.2 + 2 * t), entropy=lambda t: 2 * 0.02**t, frac_reward_zero_std=line(0.05, 0.9)
    )
    assert [f.rule for f in weight(bought_nothing)] == ["entropy_collapse"]  # dead groups followed from it


def test_a_paid_length_is_told_before_the_cut_answers_that_it_made() -> None:
    grown = evaluated(healthy(120, completions__clipped_ratio=line(0.02, 0.9)), eval_accuracy=wiggle(0.4, 0.005))
    assert weight(grown)[0].rule == "reward_hacking"
    always = evaluated(healthy(120, completions__clipped_ratio=flat(0.6)), eval_accuracy=wiggle(0.4, 0.005))
    assert weight(always)[0].rule == "truncation"


def test_two_of_eight_questions_lost_are_no_drop() -> None:
    def accuracy(t: float) -> float:
        return 0.25 if 0.2 < t < 0.5 else 0.125 if t < 0.8 else 0.0

    rows = evaluated(healthy(120, reward=flat(0.5)), eval_accuracy=accuracy)
    few = [row | ({"eval_prompts": 8.0} if "eval_accuracy" in row else {}) for row in rows]
    many = [row | ({"eval_prompts": 4000.0} if "eval_accuracy" in row else {}) for row in rows]
    assert "validation_drop" not in {f.rule for f in weight(few)}
    assert "validation_drop" in {f.rule for f in weight(many)}


def test_ratios_that_left_before_the_groups_died_explain_the_dead_groups() -> None:
    rows = dull(60, reward=lambda t: 0.3 if t < 0.1 else 0.95, log_ratio__abs_max=line(3, 18),
                frac_reward_zero_std=lambda t: 0.0 if t < 0.5 else 0.9)  # fmt: skip
    assert weight(rows)[0].rule == "log_ratio_explosion"
    assert "mastered_groups" not in {f.rule for f in weight(rows)}


def test_a_fall_that_gathers_speed_as_kl_explodes_is_no_flipped_sign() -> None:
    rows = healthy(
        120, reward=lambda t: 0.4 - 0.2 * t * t, kl=lambda t: 0.002 * 2980**t, grad_norm=lambda t: 0.5 + 2 * t * t
    )
    assert weight(rows)[0].rule == "kl_blowup"


def test_a_gradient_that_is_always_0_is_not_for_want_of_spread() -> None:
    rows = [
        {"step": r["step"], "actor/grad_norm": 0.0, "critic/score/mean": r["reward"], "actor/kl_loss": 0.0}
        for r in healthy(60, noise=0.1, reward=flat(0.3))
    ]
    first = weight(rows)[0]
    assert (first.rule, first.variant) == ("zero_gradient", "every")


def test_a_share_that_is_nearly_1_from_the_start_has_nothing_left_to_learn() -> None:
    rows = [{"step": r["step"], "reward": r["reward"], "kl": 0.002} for r in healthy(80, 0.01, reward=flat(0.95))]
    assert [(f.rule, f.variant, f.certainty) for f in weight(rows)] == [("mastered_groups", "level", "ask")]


def test_flow_trainers_and_sections_of_one_s_own_are_read_by_name() -> None:
    from anygrpo.doctor.canonical import concept

    for key, name in {
        "zero_std_ratio": "groups/dead", "reward_std_mean": "reward/std_within", "clipfrac_gt_one": "clip/high",
        "train/tokens/mean_len": "length/mean", "train/tokens/truncated": "truncated/share",
        "policy/grad_norm": "grad_norm/total", "rl/kl": "kl/reference",
    }.items():  # fmt: skip
        found = concept(key)
        assert found is not None, key
        assert found[0] == name


def test_a_wrong_reference_is_certain_only_where_the_first_row_holds_no_update() -> None:
    def found(**more: Callable[[int], float]) -> Finding:
        rows = healthy(40, kl=flat(1.0), **more)
        return next(f for f in diagnose(rows, format="jsonl").findings if f.rule == "wrong_reference")

    assert found().certainty == "likely"  # several updates at a huge rate would look the same
    assert found(clip_ratio__region_mean=flat(0.0)).certainty == "certain"

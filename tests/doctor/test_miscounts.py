"""Meters that cannot count what they are called: told by arithmetic, or known by framework and shown by the log."""

from __future__ import annotations

from typing import Any

import pytest

from anygrpo.doctor import diagnose
from anygrpo.doctor.canonical import concept, counts
from anygrpo.doctor.miscounts import KNOWN, SHOWN, broken
from anygrpo.doctor.render.as_json import as_json
from anygrpo.doctor.series import Series
from anygrpo.doctor.synthetic import Rows, flat, healthy, line


def series(name: str, *values: float) -> Series:
    return Series(name, name, tuple(range(1, len(values) + 1)), values)


def laws(**columns: tuple[float, ...]) -> set[tuple[str, str]]:
    made = {k.replace("__", "/"): series(k.replace("__", "/"), *v) for k, v in columns.items()}
    return {(b.law, b.name) for b in broken(made)}


def test_each_law_by_hand() -> None:
    assert laws(clip__fraction=(0.5, 31.0, 30.0, 29.0)) == {("share", "clip/fraction")}
    assert laws(groups__dead=(0.0, 1.0, 0.5, 1.0)) == set()
    assert laws(length__mean=(10, 20, 30), length__max=(9, 19, 31)) == {("order", "length/max")}
    assert laws(reward__mean=(0.1, 0.2, 0.3), reward__min=(0.2, 0.3, 0.4)) == {("order", "reward/min")}
    # two values 0 and 1 have the largest std there is: 1 / sqrt(2) = .7071
    edges = {"reward__max": (1.0, 1.0, 1.0), "reward__min": (0.0, 0.0, 0.0)}
    assert laws(reward__std=(0.7071, 0.7071, 0.7071), **edges) == set()
    assert laws(reward__std=(0.72, 0.72, 0.72), **edges) == {("spread", "reward/std")}
    assert laws(clip__fraction=(0.1, 0.1, 0.1), clip__high=(0.2, 0.2, 0.2)) == {("part", "clip/high")}
    assert laws(grad_norm__total=(-1.0, -1.0, 0.5)) == {("norm", "grad_norm/total")}
    assert laws(clip__fraction=(0.1, 0.2, 1.5, 0.1)) == set()  # one row may be a misprint


def test_a_share_that_is_none_decides_nothing() -> None:
    """A clip fraction of 31 (a count over dimensions), 20% of truncation written as 20."""
    found = diagnose(healthy(60, actor__clip_fraction=flat(31.0)), format="jsonl")
    assert [(f.rule, f.severity) for f in found.findings if f.rule != "on_policy"] == [("broken_meter", "info")]
    assert found.run.get("clip/fraction") is None
    found = diagnose(healthy(60, completions__clipped_ratio=flat(20.0)), format="jsonl")
    assert {f.rule for f in found.findings if f.severity != "info"} == set()


def verl(**more: Any) -> Rows:
    base: dict[str, Any] = {
        "critic__score__mean": line(0.3, 0.6),
        "actor__pg_loss": flat(0.01),
        "actor__grad_norm": 0.4,
    }
    rows = healthy(40, **(base | more))
    return [
        {k: v for k, v in row.items() if k == "step" or k.startswith(("actor/", "critic/", "response"))} for row in rows
    ]


@pytest.mark.parametrize(
    ("name", "columns", "silent"),
    [
        ("response_length/clip_ratio", {"response_length__clip_ratio": flat(0.03),
         "response_length__max": lambda t: round(700 + 300 * t)}, {"response_length__max": 1024.0}),
        ("response_length/clip_ratio", {"response_length__clip_ratio": 0.0, "response_length__max": 4096.0},
         {"response_length__max": flat(3000.0)}),
    ],
)  # fmt: skip
def test_meters_that_are_known_are_shown_by_the_log(name: str, columns: dict[str, Any], silent: dict[str, Any]) -> None:
    def shown(more: dict[str, Any]) -> list[Any]:
        rows = [
            row | ({"response_length/max": float(round(row["response_length/max"]))} if name in row else {})
            for row in verl(**more)
        ]
        return [f.facts["keys"] for f in diagnose(rows, format="jsonl").findings if f.rule == "broken_meter"]

    assert shown(columns) == [name]
    assert shown(columns | silent) == []


def test_a_product_of_tokens_is_called_one() -> None:
    more = {"sampling__importance_sampling_ratio__mean": flat(0.4), "sampling__sampling_logp_difference__mean": 0.004}
    found = [f for f in diagnose(healthy(40, **more), format="jsonl").findings if f.rule == "broken_meter"]
    assert [f.facts["keys"] for f in found] == ["sampling/importance_sampling_ratio/mean"]


def test_the_registry_is_whole_and_stands_in_the_machine_form() -> None:
    assert {k.shown for k in KNOWN} - {""} == set(SHOWN)
    assert all(k.counts and k.counts.zh and len(k.seen) == 7 for k in KNOWN)
    listed = as_json(diagnose(verl(actor__kl_loss=flat(0.01)), format="jsonl"))["meters"]
    assert {"actor/pg_loss", "actor/kl_loss"} <= {m["column"] for m in listed}


TRL = [
    "loss",
    "grad_norm",
    "learning_rate",
    "epoch",
    "num_tokens",
    "step_time",
    "reward",
    "reward_std",
    "frac_reward_zero_std",
    "entropy",
    "kl",
    "entropy_coef",
    "policy_loss",
    "aux_loss",
    "clip_ratio",
    "clip_ratio/high_max",
    "clip_ratio/high_mean",
    "clip_ratio/low_mean",
    "clip_ratio/low_min",
    "clip_ratio/region_mean",
    "cispo_clip_ratio",
    "completion_length",
    "completions/clipped_ratio",
    "completions/max_length",
    "completions/max_terminated_length",
    "completions/mean_length",
    "completions/mean_terminated_length",
    "completions/min_length",
    "completions/min_terminated_length",
    "rewards/right",
    "rewards/right/mean",
    "rewards/right/std",
    "sampling/importance_sampling_ratio/max",
    "vespo/phi_seq_mean",
    "sampling/importance_sampling_ratio/mean",
    "sampling/importance_sampling_ratio/min",
    "tools/call_frequency",
    "sampling/sampling_logp_difference/max",
    "sampling/sampling_logp_difference/mean",
    "tools/failure_frequency",
    "episode",
    "eps",
    "lr",
    "loss/policy_avg",
    "objective/entropy",
    "objective/kl",
    "objective/non_score_reward",
    "objective/rlhf_reward",
    "objective/scores",
    "policy/approxkl_avg",
    "policy/clipfrac_avg",
    "policy/entropy_avg",
    "val/clipfrac_avg",
    "val/num_eos_tokens",
    "val/ratio",
    "val/ratio_var",
    "ratio",
    "training_tok/s",
    "forward_time_s",
    "train_seq_len",
    "weight_sync_time_s",
    "queue_wait_time_s",
    "sample/staleness_mean",
    "sample/dropped_stale_total",
    "batch/pad_frac",
    "perf/mfu_fwd_bwd",
    "perf/step_s",
    "perf/rollout_wait_s",
]
"""Everything that TRL's trainers of this kind log in any version from 0.14 to 1.16."""


def test_no_column_of_trls_is_unknown_and_none_is_taken_for_an_evaluation() -> None:
    assert [key for key in TRL if not concept(key) and not counts(key)] == []
    assert [key for key in TRL if (found := concept(key)) and found[0].startswith("eval/")] == []


def test_extremes_hold_their_means() -> None:
    assert laws(mismatch__ratio_mean=(1.0, 3.0, 3.0), mismatch__ratio_max=(2.0, 2.0, 2.0)) == {
        ("order", "mismatch/ratio_max")
    }
    assert laws(clip__high=(0.3, 0.3, 0.3), clip__high_max=(0.2, 0.2, 0.2)) == {("order", "clip/high_max")}
    assert laws(clip__low=(0.1, 0.1, 0.1), clip__low_min=(0.2, 0.2, 0.2)) == {("order", "clip/low_min")}
    assert laws(tools__failures=(1.2, 1.3, 1.4)) == {("share", "tools/failures")}


@pytest.mark.parametrize(
    ("more", "name"),
    [
        ({}, "reward/std_within"),  # before 0.26
        ({"step_time": 3.0}, "reward/std"),  # 0.27 and later: the batch's
        ({"step_time": 3.0, "rewards__right__std": 0.4}, "reward/std_within"),  # differs from its only part's: 0.26
        ({"step_time": 3.0, "rewards__right__std": 0.2}, "reward/std"),
    ],
)
def test_which_spread_trls_reward_std_is(more: dict[str, Any], name: str) -> None:
    rows = healthy(40, reward_std=0.2, frac_reward_zero_std=flat(0.3), **more)
    assert diagnose(rows, format="jsonl").run.series[name].key == "reward_std"


def test_a_foreign_std_reward_is_of_the_batch() -> None:
    """As the documents mean it; where a whole batch has no spread, neither has any group."""
    rows = [{"step": i + 1.0, "mean_reward": 0.5, "std_reward": 0.2} for i in range(10)]
    assert diagnose(rows, format="jsonl").run.series["reward/std"].key == "std_reward"
    rows = [row | {"std_reward": 0.0} for row in rows]
    assert diagnose(rows, format="jsonl").run.series["reward/std_within"].high == 0


def test_a_step_time_makes_nobody_elses_reward_std_the_batchs() -> None:
    """A trainer of one's own, 40 rows: what TRL 0.27 changed is TRL's alone, known by its share of dead groups."""
    rows = [
        {k: x for k, x in row.items() if k != "frac_reward_zero_std"}
        for row in healthy(40, reward_std=0.2, step_time=3.0)
    ]
    run = diagnose(rows, format="jsonl").run
    assert run.series["reward/std_within"].key == "reward_std"
    assert "reward/std" not in run.series

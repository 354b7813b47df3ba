"""One, two or five pasted rows: what needs no trend is said, and said before the refusal of trends."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from anygrpo.cli.main import main
from anygrpo.doctor import diagnose, diagnose_log, read
from anygrpo.doctor.diagnose import Diagnosis
from anygrpo.doctor.synthetic import flat, healthy, line, rows
from anygrpo.errors import DataError


def of(*rows: dict[str, Any]) -> Diagnosis:
    return diagnose([{"step": i + 1.0, **row} for i, row in enumerate(rows)], format="jsonl")


ROW = {"reward": 3.0, "reward_std": 0.0, "frac_reward_zero_std": 1.0, "loss": 0.0, "grad_norm": 0.0}


def test_one_row_without_spread_shows_it_at_any_level_of_the_reward() -> None:
    found = of(ROW)
    assert found.first is not None
    assert (found.first.rule, found.first.certainty, found.verdict) == ("constant_reward", "certain", "serious")


@pytest.mark.parametrize(("best", "said"), [(0.0, True), (0.4, True), (1.0, False)])
def test_equal_extremes_leave_no_advantage_but_a_batch_all_right_is_mastered(best: float, said: bool) -> None:
    scores = {"critic/score/mean": best, "critic/score/max": best, "critic/score/min": best}
    assert ("constant_reward" in {f.rule for f in of(scores).findings}) is said


def test_equal_rewards_beside_a_critic_say_nothing() -> None:
    scores = {"critic/score/mean": 0.0, "critic/score/max": 0.0, "critic/score/min": 0.0}
    gae = {"critic/advantages/mean": 0.0, "critic/advantages/max": 2.0, "critic/advantages/min": -2.0}
    assert "constant_reward" not in {f.rule for f in of(scores | gae).findings}


@pytest.mark.parametrize(
    ("count", "more", "said"),
    [
        (1, {"advantage_max": 0.0, "advantage_min": 0.0}, ("warning", "likely")),  # one prompt that nobody solved
        (1, {"advantage_max": 0.0, "advantage_min": 0.0, "groups/dead": 1.0}, ("warning", "likely")),
        (3, {"advantage_max": 0.0, "advantage_min": 0.0}, ("serious", "likely")),
        (3, {"groups/dead": 1.0}, ("serious", "likely")),
        (3, {"advantage_max": 0.0, "advantage_min": 0.0, "groups/dead": 1.0}, ("serious", "certain")),
    ],
)
def test_equal_extremes_weigh_as_much_as_their_rows_and_groups(
    count: int, more: dict[str, float], said: tuple[str, str]
) -> None:
    row = {"reward_mean": 0.0, "reward_max": 0.0, "reward_min": 0.0}
    found = [f for f in of(*[row | more] * count).findings if f.rule == "constant_reward"]
    assert [(f.variant, f.severity, f.certainty) for f in found] == [("extremes", *said)]


@pytest.mark.parametrize(
    ("count", "more", "said"),
    [
        (3, {}, True),
        (3, {"reward_std": 0.3}, False),
        (3, {"frac_reward_zero_std": 0.2}, False),
        (80, {"reward": flat(0.5)}, True),
        (80, {"reward": line(0.3, 0.7)}, False),
    ],
)
def test_advantages_of_zero_beside_a_spread_inside_groups_are_a_column_at_fault(
    count: int, more: dict[str, Any], said: bool
) -> None:
    """Masked or rounded: the same log says that groups differ, or the run learns."""
    extremes = {"reward_max": 1.0, "reward_min": 0.0, "advantage_max": 0.0, "advantage_min": 0.0}
    found = diagnose(rows(count, **({"reward": 0.5} | more | extremes)), format="jsonl")
    assert said is ("advantages" in {f.variant for f in found.findings if f.rule == "constant_reward"})


def test_two_rows_of_one_prompt_each_show_nothing() -> None:
    none = {"advantage_max": 0.0, "advantage_min": 0.0}
    one, other = ({"reward_mean": x, "reward_max": x, "reward_min": x} for x in (1.0, 0.0))
    assert "constant_reward" not in {f.rule for f in of(one | none, other | none).findings}


def test_rewards_that_differ_and_advantages_that_are_all_zero_differ_between_prompts_only() -> None:
    scores = {"critic/score/mean": 0.8, "critic/score/max": 1.0, "critic/score/min": 0.0}
    none = {f"critic/advantages/{k}": 0.0 for k in ("mean", "max", "min")}
    found = of(scores | none).first
    assert found is not None
    assert (found.rule, found.variant, found.certainty) == ("constant_reward", "advantages", "likely")
    some = {"critic/advantages/mean": 0.0, "critic/advantages/max": 1.5, "critic/advantages/min": -1.5}
    assert "constant_reward" not in {f.rule for f in of(scores | some).findings}


@pytest.mark.parametrize(
    ("change", "said"),
    [({}, True), ({"learning_rate": 0.0}, False), ({"reward_std": 0.0}, False), ({"clipped_ratio": 0.6}, False)],
)
def test_a_zero_gradient_beside_a_spread_and_a_rate(change: dict[str, float], said: bool) -> None:
    row = {"reward": 0.3, "reward_std": 0.4, "grad_norm": 0.0, "learning_rate": 1e-6, "kl": 0.0} | change
    assert ("zero_gradient" in {f.rule for f in of(row, row).findings}) is said


def test_losses_and_ratios_that_are_never_finite_are_no_column_that_was_switched_off() -> None:
    nan = float("nan")
    found = of({"reward": 0.5, "loss": nan, "kl": nan}, {"reward": 0.6, "loss": nan, "kl": nan}).first
    assert found is not None
    assert (found.rule, found.variant) == ("nonfinite", "nothing")
    assert of({"reward": 0.5, "loss": 0.1, "kl": nan}, {"reward": 0.6, "loss": 0.1, "kl": nan}).verdict == "cannot_tell"


def test_a_gradient_norm_that_was_never_logged_is_no_fault_of_a_run_that_learns() -> None:
    rows = healthy(grad_norm=flat(float("nan")))
    assert diagnose(rows, format="jsonl").verdict == "no_objection"


def test_a_spread_between_groups_alone_leaves_no_gradient_and_is_no_fault() -> None:
    row = {"reward": 0.5, "grad_norm": 0.0, "learning_rate": 1e-6}
    spread = {"frac_reward_zero_std": 1.0, "reward_std": 0.5, "step_time": 4.0}  # TRL from 0.27 on
    for other in (spread, {"std_reward": 0.5}, {"reward/std": 0.5, "groups/dead": 1.0}):
        for count in (1, 2, 9):
            found = {f.rule for f in of(*[row | other] * count).findings}
            assert "zero_gradient" not in found or (count == 9 and "std_reward" in other)
    assert "zero_gradient" in {f.rule for f in of(row | {"reward_std": 0.5, "frac_reward_zero_std": 0.5}).findings}


@pytest.mark.parametrize("name", ["loss", "policy_loss", "advantage_std", "ratio_mean", "clip_ratio", "grad_norm"])
def test_a_column_of_nan_is_no_fault_of_a_run_that_learns(name: str) -> None:
    found = diagnose(healthy(**{"loss": 0.01, name: flat(float("nan"))}), format="jsonl")
    assert (found.verdict, [f.variant for f in found.findings if f.rule == "nonfinite"]) == ("no_objection", ["never"])


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"loss": float("nan")}, ("nothing", "certain")),
        ({"loss": 0.0, "policy_loss": float("nan")}, ("nothing", "likely")),  # 0 is what some loggers write for NaN
        ({"advantage_std": float("nan")}, ("nothing", "likely")),
        ({"loss": 0.1, "policy_loss": float("nan")}, ("never", "certain")),  # a sum is finite only where its terms are
        ({"grad_norm": 0.3, "advantage_std": float("nan")}, ("never", "certain")),
        ({"ratio_mean": float("nan")}, ("never", "certain")),
        ({"grad_norm": 0.3, "loss": float("nan")}, ("never", "certain")),  # NaN has no finite gradient: a lost column
        ({"grad_norm": 0.0, "loss": float("nan")}, ("nothing", "likely")),
        ({"loss": 0.1, "grad_norm": float("nan")}, ("nothing", "likely")),  # NaN steps would have ended the loss too
        ({"policy_loss": 0.1, "grad_norm": float("nan")}, ("nothing", "likely")),
        ({"loss": float("nan"), "grad_norm": float("nan")}, ("nothing", "certain")),
        ({"grad_norm": float("nan")}, ("nothing", "certain")),
    ],
)
def test_a_term_that_is_never_finite_is_lost_only_where_its_sum_is_too(
    row: dict[str, float], said: tuple[str, str]
) -> None:
    found = of({"reward": 0.5} | row, {"reward": 0.6} | row)
    assert [(f.variant, f.certainty) for f in found.findings if f.rule == "nonfinite"] == [said]


def test_five_rows_show_a_kl_that_no_rate_can_have_caused() -> None:
    kl = (0.41, 0.43, 0.40, 0.44, 0.42)
    rows = [
        {"reward": 0.5 + x, "kl": x, "learning_rate": 6e-8 * (i + 1), "step": 2.0 * i + 2} for i, x in enumerate(kl)
    ]
    found = diagnose(rows, format="jsonl").first
    assert found is not None
    assert (found.rule, found.certainty) == ("wrong_reference", "likely")
    paid = [row | {"learning_rate": 1e-4} for row in rows]
    assert diagnose(paid, format="jsonl").verdict == "cannot_tell"


def test_a_fall_that_the_cut_answers_cannot_have_caused_comes_first() -> None:
    rows = healthy(reward=line(0.9, 0.4), kl=0.02, completions__clipped_ratio=line(0.14, 0.2))
    found = diagnose(rows, format="jsonl").first
    assert found is not None
    assert found.rule != "truncation"
    cut = healthy(reward=line(0.9, 0.4), kl=0.02, completions__clipped_ratio=line(0.0, 0.7))
    first = diagnose(cut, format="jsonl").first
    assert first is not None
    assert first.rule == "truncation"


def test_noise_has_no_end_token() -> None:
    """Where entropy explodes and only then answers run into the limit, the entropy comes first."""
    rows = healthy(
        reward=lambda t: 0.8 - 0.7 * t,
        kl=flat(0.02),
        entropy=lambda t: 0.3 + 4 * t**3,
        completions__clipped_ratio=lambda t: t**3,
    )
    found = diagnose(rows, format="jsonl").first
    assert found is not None
    assert found.rule == "entropy_explosion"


def test_a_dict_cut_in_copying_gives_its_whole_pairs(tmp_path: Path) -> None:
    text = "{'loss': 0.1, 'reward': 0.25, 'kl': 0.01}\n{'loss': 0.2, 'reward': 0.5, 'kl': 0.0"
    (tmp_path / "pasted.txt").write_text(text)
    log = read(tmp_path / "pasted.txt")
    assert [row.get("reward") for row in log.rows] == [0.25, 0.5]
    assert "kl" not in log.rows[1]
    assert diagnose_log(log).verdict == "cannot_tell"


def test_a_history_exported_as_parquet_is_read_by_its_own_step(tmp_path: Path) -> None:
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    table = {
        "_step": [0, 1, 2], "_timestamp": [1.0, 2.0, 3.0], "train/reward": [0.1, None, 0.3],
        "train/kl": [0.0, 0.01, 0.02],
    }  # fmt: skip
    parquet.write_table(arrow.table(table), tmp_path / "history.parquet")
    log = read(tmp_path / "history.parquet")
    assert log.rows[1] == {"step": 1.0, "train/kl": 0.01}
    assert diagnose_log(log).run.series["reward/mean"].values == (0.1, 0.3)
    (tmp_path / "cut.parquet").write_bytes(b"PAR1" + bytes(40))
    with pytest.raises(DataError):
        read(tmp_path / "cut.parquet")


def test_a_plan_of_nothing_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "log.jsonl").write_text('{"step": 1, "reward": 0.5}\n{"step": 2, "reward": 0.6}\n')
    assert main(["doctor", str(tmp_path / "log.jsonl"), "--plan"]) == 0
    assert "no finding" in capsys.readouterr().out


@pytest.mark.parametrize("more", [{"step_time": 4.0}, {"rewards/correct/mean": 0.5, "rewards/correct/std": 0.516}])
def test_a_pasted_row_without_group_shares_shows_no_spread_inside_groups(more: dict[str, float]) -> None:
    """TRL from 0.27 on logs the batch's spread: with a gradient of 0 that is no fault of the gradient."""
    row = {"loss": 0.0, "grad_norm": 0.0, "learning_rate": 9e-7, "reward": 0.5, "reward_std": 0.516, "kl": 4e-4}
    assert "zero_gradient" in {f.rule for f in diagnose([row], format="jsonl").findings}
    assert "zero_gradient" not in {f.rule for f in diagnose([{**row, **more}], format="jsonl").findings}

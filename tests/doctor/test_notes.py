"""Numbers and claims of a person's note, in prose, bullets, tables either way round, and shell exports."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from anygrpo.cli.main import main
from anygrpo.doctor.autopsy import examine
from anygrpo.doctor.diagnose import diagnose
from anygrpo.doctor.notes import name_of, read_note

NINE = {
    "loss": 171551552.0, "policy_loss": 171531792.0, "kl_penalty": 197562.5312, "mean_ratio": 485165216.0,
    "mean_advantage": 0.0, "mean_log_prob_current": -833610.3125, "mean_log_prob_ref": -1031172.875,
    "mean_reward": 0.4971, "std_reward": 0.1766,
}  # fmt: skip


def answers(numbers: dict[str, object], text: str = "") -> dict[str, str]:
    return {c.said.split(" =")[0]: c.answer for c in examine(numbers, text).claims}


def test_nine_numbers_are_all_used_and_kl_is_the_difference_of_log_probs() -> None:
    found = examine(NINE)
    assert found.unused == ()
    assert found.inferred["beta"] == 0.1
    assert answers(NINE) == {"KL": "holds"}
    assert answers(NINE | {"kl_penalty": 197000.0})["KL"] == "fails"


@pytest.mark.parametrize(
    ("raw", "name"),
    [
        ("actor/ratio_mean", "mean_ratio"), ("critic/advantages/max", "advantage_max"),
        ("actor/pg_loss", "policy_loss"), ("actor/kl_loss", "kl"), ("critic/rewards/mean", "mean_reward"),
        ("KL_BETA", "beta"), ("平均优势", "mean_advantage"),
        ("KL散度", "kl"), ("组大小", "group_size"), ("num_generations", "group_size"),
        ("something", None),
    ],
)  # fmt: skip
def test_names_of_frameworks_documents_and_chinese(raw: str, name: str | None) -> None:
    assert name_of(raw) == name


def test_a_chinese_note_as_it_is() -> None:
    note = read_note(
        "当前 mean_ratio 高达 485165216，KL散度为 197562.53。\n- **平均优势**：0.0（异常）\n- 组大小: 4\n"
        "export KL_BETA=0.1\n| 指标 | 当前值 | 正常值 |\n|---|---|---|\n| std_reward | 0.1766 | 0.2 |\n"
        "总维度 2,577,400\n"
    )
    assert note.numbers == {
        "mean_ratio": "485165216", "kl": "197562.53", "mean_advantage": "0.0", "group_size": "4", "beta": "0.1",
        "std_reward": "0.1766", "dimensions": "2577400",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("line", "numbers"),
    [
        ("current - ref = -94037", {"log_prob_gap": "-94037"}),
        ("current_log_prob - ref_log_prob = -94,037.5", {"log_prob_gap": "-94037.5"}),
        ("mean_log_prob_current - mean_log_prob_ref: 12", {"log_prob_gap": "12"}),
        ("当前-参考差异: -94037", {"log_prob_gap": "-94037"}),
        ("Reference minus Current difference is 3.5", {"log_prob_gap": "-3.5"}),
        ("new - old = 0.02", {"mean_log_ratio": "0.02"}),
        ("旧策略 - 当前策略 = 20", {"mean_log_ratio": "-20"}),
        ("ref - old = 5", {}),
        ("mean_log_prob_ref = -5", {"log_prob_ref": "-5"}),
    ],
)
def test_a_difference_of_two_log_probs_is_neither_of_them(line: str, numbers: dict[str, str]) -> None:
    assert read_note(line).numbers == numbers


def test_a_stated_difference_stands_against_the_kl() -> None:
    assert answers({"log_prob_gap": -94037, "kl": 94037.0})["KL"] == "fails"
    assert answers({"log_prob_gap": 3.2, "kl": 3.2})["KL"] == "holds"


def test_stated_against_inferred() -> None:
    motion = NINE | {"group_size": 4, "beta": 0.1, "mean_log_ratio": -94037}
    found = answers(motion, "优势均值为 0，所以学不到；应降低学习率。KL 项占主导。")
    assert found["group_size"] == "fails"  # normalised over 2 samples
    assert found["beta"] == "holds"
    assert found["mean log-ratio"] == "fails"  # every ratio is e^20
    assert found["loss"] == "holds"
    assert found["the KL term dominates / KL 项占主导"] == "open"
    contradiction = answers({"loss": 1.0, "policy_loss": 0.5, "beta": 0.1, "kl": 1.0})
    assert contradiction["loss"] == "fails"
    assert answers({"mean_log_ratio": -94037, "dimensions": 2577400})["-94037 / 2.5774e+06"] == "holds"


def test_the_command_reads_a_note_in_chinese(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "note.md"
    path.write_text("平均比率为 485165216，策略损失为 171531792，组大小为 4。\n", "utf-8")
    assert main(["autopsy", str(path), "--lang", "zh"]) == 0
    assert "不成立" in capsys.readouterr().out
    assert main(["autopsy", str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["claims"][0]["answer"] == "fails"
    path.write_text("这里没有数字。", "utf-8")
    assert main(["autopsy", str(path)]) == 3


def nine(**changes: object) -> list[dict[str, float]]:
    """Forty rows of that trainer's nine numbers in their ranges, some changed: numbers, or functions of the row."""
    rows = []
    for i in range(40):
        row = {"step": i, "loss": 0.02, "policy_loss": 0.001 * (-1) ** i, "kl_penalty": 0.01 * i, "mean_ratio": 1.0,
               "mean_advantage": 0.0, "mean_log_prob_current": -833610.0, "std_reward": 0.17,
               "mean_reward": 0.4 + 0.003 * i + 0.01 * (i % 3)}  # fmt: skip
        row |= {k: v(i) if callable(v) else v for k, v in changes.items()}
        rows.append({"mean_log_prob_ref": row["mean_log_prob_current"] - row["kl_penalty"]} | row)
    return rows


def rules_of(rows: list[dict[str, float]]) -> dict[str, str]:
    return {f.rule: f.severity for f in diagnose(rows, format="jsonl").findings if f.severity != "info"}


def test_each_of_the_nine_far_outside_its_range_draws_a_finding() -> None:
    assert rules_of(nine()) == {}
    assert "loss_scale" in rules_of(nine(policy_loss=1.7e8))
    assert "loss_scale" in rules_of(nine(loss=1.7e8, policy_loss=1.7e8))
    assert "ratio_mean" in rules_of(nine(mean_ratio=30.0))
    assert rules_of(nine(mean_ratio=math.exp(20)))["markov_bound"] == "serious"
    assert {"sampler_mismatch", "kl_far"} & rules_of(nine(kl_penalty=2e5)).keys()


def test_log_probs_alone_tell_the_kl() -> None:
    rows = nine(mean_log_prob_ref=lambda i: -833610.0 - 1000 * i)
    rows = [{k: v for k, v in r.items() if k != "kl_penalty"} for r in rows]
    run = diagnose(rows, format="jsonl").run
    assert run.series["kl/reference"].key == "mean_log_prob_current - mean_log_prob_ref"
    assert run.series["kl/reference"].values[:3] == (0.0, 1000.0, 2000.0)
    assert "kl_far" in rules_of(rows)
    near = [r | {"mean_log_prob_ref": r["mean_log_prob_current"] - 0.01} for r in rows]
    assert "kl_far" not in rules_of(near)


@pytest.mark.parametrize(
    ("size", "tier"), [(3.0, None), (7.0, "raised_mean"), (12.0, "high_mean"), (25.0, "stop_mean")]
)
def test_tiers_where_only_the_mean_ratio_is_logged(size: float, tier: str | None) -> None:
    found = {f.rule: f for f in diagnose(nine(mean_ratio=math.exp(size)), format="jsonl").findings}
    said = found.get("log_ratio_explosion")
    assert (said.variant if said else None) == tier
    if said:
        rate = {"raised_mean": 1e-6, "high_mean": 5e-7, "stop_mean": 1e-7}[tier or ""]
        assert rate in [c.value for c in said.changes]


def test_log_probs_that_lie_apart_are_told_beside_a_small_kl() -> None:
    found = rules_of(nine(kl_penalty=0.01, mean_log_prob_ref=-1031173.0))
    assert found["reference_distance"] == "warning"
    assert rules_of(nine(kl_penalty=lambda i: -990000.0 + i))["reference_distance"] == "warning"
    alone = [{k: v for k, v in r.items() if k != "kl_penalty"} for r in nine(mean_log_prob_ref=-700000.0)]
    assert (
        rules_of(alone)["reference_distance"] == "warning"
    )  # the reference likes the samples better than their author
    assert "reference_distance" not in rules_of(nine(kl_penalty=lambda i: 0.01 * (-1) ** i))
    assert "reference_distance" not in rules_of(nine(kl_penalty=lambda i: 2.0 + i))

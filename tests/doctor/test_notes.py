"""Numbers and claims of a person's note, in prose, bullets, tables either way round, and shell exports."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from anygrpo.cli.main import main
from anygrpo.doctor.autopsy import examine
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

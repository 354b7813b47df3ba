"""Claims in words, each with the answer that arithmetic gives (computed by hand in the comment beside it)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from anygrpo.cli.main import main
from anygrpo.doctor.autopsy import examine
from anygrpo.doctor.claims import Claim
from anygrpo.doctor.notes import read_note
from anygrpo.doctor.rate_claims import RATE, rate_claims
from anygrpo.errors import ConfigError


def claims(text: str) -> list[Claim]:
    note = read_note(text)
    numbers: dict[str, object] = dict(note.numbers) | ({"normaliser": note.normaliser} if note.normaliser else {})
    return examine(numbers, text).claims


CASES = (
    # std .0063 over 640 queries: 640 x .0063 = 4.03 groups of std 1
    ("共 640 个查询，优势标准差 0.0063，最大优势 0.0072。只有 4 组有信号。", "4 组", "holds"),
    ("共 640 个查询，优势标准差 0.0063，最大优势 0.0072。大约有 200 组有信号。", "200 组", "fails"),
    ("共 128 个提示，优势标准差 0.0156，最大优势 0.018。有效组数为 2。", "有效组数", "holds"),
    ("320 queries, adv_std 0.05, adv_max 0.06. 16 groups are live.", "16 groups", "holds"),
    # se = sqrt((.578 x .422 + .573 x .427) / 800) = .0247 > .005 / 1.96
    ("方法 A 准确率 57.8%，方法 B 准确率 57.3%，验证集共 800 题。A 比 B 更好。", "0.578 > 0.573", "open"),
    ("方法 A 准确率 40.0%，方法 B 准确率 60.0%，测试集 800 题。A 优于 B。", "0.4 > 0.6", "fails"),
    ("正确率从 31% 提升到 52%（500 题）。", "0.52 > 0.31", "holds"),
    ("验证准确率从 0.52 提高到 0.53。", "0.53 > 0.52", "open"),
    ("accuracy of 41.5% and accuracy of 46.0% on 200 questions: the second is an improvement", "0.46 > 0.415", "open"),
    ("比率恒为 1.0，裁剪比例为 0，代码肯定有 bug。", "裁剪", "fails"),
    ("平均比率 1.3。裁剪比例为 0，说明更新没有生效。", "裁剪", "open"),
    ("损失 0.0，奖励标准差 0.31。损失为 0，说明模型没有在学习。", "损失为 0", "open"),
    ("损失 0.0，奖励标准差 0.31，梯度范数 0.4。损失为 0，说明模型没有在学习。", "损失为 0", "fails"),
    ("损失 0.0，奖励标准差 0.31，梯度范数 0.0。损失为 0，说明模型没有在学习。", "损失为 0", "holds"),
    ("损失 0.0，奖励标准差 0.0。损失为 0，说明模型没有在学习。", "损失为 0", "holds"),
    ("奖励标准差 0.0，平均优势 0.0。组内奖励全相同，没有学习信号。", "信号", "holds"),
    ("奖励标准差 0.2，平均优势 0.0。没有学习信号。", "信号", "fails"),
    ("最大比率 22026.466，说明比率被钳制在 e^10。", "e^10", "holds"),
    ("最大比率 22026.466，说明比率被钳制在 e^20。", "e^20", "fails"),
    ("熵从 2.1 降到 0.3，说明策略已经坍缩。", "熵", "open"),
    ("KL散度 -0.012，用 k3 估计。KL 为负说明实现有错。", "KL", "holds"),
    ("KL散度 -0.012，用 k1 估计。KL 为负说明实现有错。", "KL", "fails"),
    ("KL散度 -0.012。KL 为负说明实现有错。", "KL", "open"),
    # p = 1/4: .75 / sqrt(.1875 x 4/3) = 1.5; p = 4/16: .75 / sqrt(.1875 x 16/15) = 1.677
    ("组大小为 4，组内 1 个答对。它的优势是 1.5。", "1.5", "holds"),
    ("每组 16 个样本，其中 4 个答对，答对样本的优势是 1.68。", "1.68", "holds"),
    ("每组 16 个样本，其中 4 个答对，答错样本的优势为 -0.9。", "-0.9", "fails"),
)


@pytest.mark.parametrize(("text", "said", "answer"), CASES)
def test_a_claim_in_words(text: str, said: str, answer: str) -> None:
    assert [c.answer for c in claims(text) if said in c.said] == [answer]


def test_a_weight_that_is_only_stated_is_no_cure() -> None:
    numbers = "平均比率 485165216，策略损失 171531792，组大小 4。"
    assert len(claims(numbers + "KL 系数是 0.1。")) == 1
    assert [c.answer for c in claims(numbers + "应该把 KL 系数加大到 1。")] == ["fails", "fails"]


def test_settings_are_exact_and_measures_are_rounded() -> None:
    """.35 + .1 x 2 = .55, not .60; (.60 - .35) / 2 = .125, not .1."""
    text = "损失 0.60，策略损失 0.35，KL 散度 2.0，KL 权重 0.1。"
    assert {c.said: c.answer for c in claims(text)} == {"beta = 0.1": "fails", "loss = 0.6": "fails"}
    right = "损失 0.55，策略损失 0.35，KL 散度 2.0，KL 权重 0.1。"
    assert {c.answer for c in claims(right)} == {"holds"}


def test_an_advantage_that_nobody_blames_is_no_claim() -> None:
    assert claims("平均优势 0.0，奖励标准差 0.3。一切顺利。") == []
    assert [c.answer for c in claims("平均优势 0.0，奖励标准差 0.3。平均优势为 0 是问题所在。")] == ["fails"]


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("mean ratio 稳定在 22026.466 左右", {"mean_ratio": "22026.466"}),
        ("比率恒为 1.0", {"mean_ratio": "1.0"}),
        ("KL 权重 0.04", {"beta": "0.04"}),
        ("the KL loss is 0.3, the loss stays at 0.5", {"loss": "0.5"}),
        ("每组 8 个样本，共 64 个提示", {"group_size": "8", "queries": "64"}),
    ],
)
def test_what_prose_says_of_a_number(text: str, numbers: dict[str, str]) -> None:
    assert read_note(text).numbers == numbers


def test_a_note_with_claims_and_no_known_number_is_answered(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "note.md"
    path.write_text("熵只剩 0.02，策略已经崩溃。", "utf-8")
    assert main(["autopsy", str(path), "--lang", "zh"]) == 0
    assert "无法判定" in capsys.readouterr().out
    with pytest.raises(ConfigError):
        examine({}, "今天天气很好。")


@pytest.mark.parametrize(
    ("note", "answer"),
    [
        ("组大小为 8，优势做了组内标准化，优势最大值达到 3.2。", "fails"),  # 7 / sqrt(8) = 2.475, sqrt(7) = 2.646
        ("每组采样 4 个样本，advantage_max 为 1.5。", "holds"),
        ("每组采样 4 个样本，advantage_max 为 1.73。", "open"),  # only with the biased std: sqrt(3) = 1.732
        ("| 指标 | 当前值 |\n|---|---|\n| loss | 0.60 |\n| policy_loss | 0.50 |\n| kl_penalty | 0.2 |\n"
         "| KL_BETA | 0.1 |\n", "fails"),  # .60 is .595 to .605: the last digit counts in a table too
        ("共 640 个查询，优势标准差为 0.0063，所有组都有信号。", "fails"),
        ("640 个查询的优势标准差是 0.0126，有信号的组只有 8 个。", "holds"),
        ("max_ratio 恒为 22026.47，代码里没有对比率做任何钳制。", "fails"),
        ("方法 A 的准确率为 90%，方法 B 为 50%，各测 400 题，A 明显优于 B。", "holds"),
        ("基线正确率 40%，训练后正确率 55%，共 1000 道题，训练后优于基线。", "holds"),
        ("基线正确率 40%，训练后正确率 55%，共 1000 道题，基线优于训练后。", "fails"),
        ("| 步 | 总损失 | 策略损失 | KL散度 | KL系数 |\n|---|---|---|---|---|\n| 50 | 0.45 | 0.40 | 0.50 | 0.10 |\n"
         "| 100 | 0.80 | 0.40 | 0.50 | 0.10 |\n", "fails"),  # a note speaks of how it stands now
    ],
)  # fmt: skip
def test_claims_in_the_documents_manner(
    note: str, answer: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "note.md").write_text(note, "utf-8")
    assert main(["autopsy", str(tmp_path / "note.md"), "--json", "--lang", "zh"]) == 0
    asked = [c["answer"] for c in json.loads(capsys.readouterr().out)["claims"] if not c["said"].startswith("beta =")]
    assert asked == [answer]  # 0.60 - 0.50 = .1 x .5 and 0.45 - .40 are answered twice, as beta and as the loss


RATES = (
    ("准确率 A 为 80%，B 为 60%，共 1000 题。A 更好。", "holds"),
    ("准确率 A 为 80%，B 为 60%，共 1000 题。B 更好。", "fails"),
    ("准确率：A 为 80%，B 为 60%，测试集 1000 题。A 优于 B。", "holds"),
    ("准确率：A 为 80%，B 为 60%，测试集 1000 题。B 比 A 更好。", "fails"),
    ("accuracy: A is 80% and B is 60% on 1000 questions. A is better.", "holds"),
    ("accuracy: A is 80% and B is 60% on 1000 questions. B is clearly better.", "fails"),
    ("accuracy of B is 80%, accuracy of A is 60%, on 1000 questions. B is better.", "holds"),
    ("accuracy of B is 80%, accuracy of A is 60%, on 1000 questions. A is better.", "fails"),
    ("accuracy 80% for A and 60% for B on 1000 questions. A is better.", "holds"),
    ("accuracy 80% for A and 60% for B on 1000 questions. So B is better.", "fails"),
    ("Our baseline accuracy 60%, new method accuracy 80% on 1000 questions. Our baseline is not better.", "holds"),
    ("Our baseline accuracy 60%, new method accuracy 80% on 1000 questions. Our baseline is better.", "fails"),
    ("Our baseline accuracy 60%, new method accuracy 80% on 1000 questions. The new method is no better.", "fails"),
    ("准确率从 60% 提升到 80%（1000 题），比基线更高。", "holds"),
    ("准确率从 80% 降到 60%（1000 题），没有提升。", "holds"),
    ("准确率从 80% 提升到 60%（1000 题）。", "fails"),
    ("准确率从 80% 降到 60%（1000 题），需要改进。", "holds"),
    ("验证准确率 80%，训练准确率 60%，1000 题，训练准确率没有更高。", "holds"),
    ("改进后准确率 80%，改进前准确率 60%（1000 题）。", "holds"),
    ("With a higher learning rate accuracy rose from 60% to 80% (1000 questions).", "holds"),
    ("accuracy of A is 60%, accuracy of B is 80% on 1000 questions: A is outperformed by B.", "holds"),
    ("方法 A 准确率 80%，方法 B 准确率 60%，1000 题，A 不仅优于 B，而且更快。", "holds"),
    ("方法 A 准确率 80%，方法 B 准确率 60%，1000 题，B 不比 A 更好。", "holds"),
    ("方法 A 准确率 80%，方法 B 准确率 60%，1000 题，B 是否更好？", None),
    ("pass@1 of 0.80 for SFT and pass@1 of 0.60 for RL, 1000 problems; SFT is better", "holds"),
    ("pass@1 of 0.80 for SFT and pass@1 of 0.60 for RL, 1000 problems; RL is better", "fails"),
    ("pass@8 of 0.80 for SFT and pass@8 of 0.60 for RL, 1000 problems; SFT is better", "holds"),
    ("SFT avg@16: 0.60, RL avg@16: 0.80 on 1000 problems. RL is better.", "holds"),
    ("accuracy went from 60% to 80% on 1000 questions; B did not improve", None),
    ("A's accuracy went from 60% to 80% on 1000 questions; B did not improve", None),
    ("B's accuracy did not improve; A's accuracy rose from 60% to 80% on 1000 questions", "holds"),
    ("A's accuracy went from 60% to 80% on 1000 questions; A did not improve", "fails"),
    ("accuracy went from 60% to 80% on 1000 questions; it did not improve", "fails"),
    ("The accuracy of A went from 40% to 55% on 1000 questions, so A improved.", "holds"),
    ("The accuracy of A went from 55% to 40% on 1000 questions, so A improved.", "fails"),
    ("The accuracy of A went from 40% to 55% on 1000 questions; B did not improve.", None),
    ("On 2000 problems, the success rate of the policy rose from 0.31 to 0.46; it learned.", "holds"),
    ("accuracy for the larger model dropped from 70% to 60% on 1000 questions, which is worse", "holds"),
    ("Accuracy went from .60 to .70 on 800 questions: the method hurts.", "fails"),
    ("Accuracy went from .578 to .573 on 800 questions: the method hurts.", "open"),
    ("Accuracy went from .60 to .70 on 800 questions; the KL is worse.", None),
    ("accuracy went from 60% to 80% on 1000 questions; the model improved", "holds"),
    ("准确率从 60% 到 80%（1000 题），基线没有提升。", None),
    ("准确率从 60% 到 80%（1000 题），方法 B 没有提升。", None),
    ("方法 A 准确率从 60% 到 80%（1000 题），方法 A 没有提升。", "fails"),
    ("准确率从 60% 到 80%（1000 题），模型没有提升。", "fails"),
    ("accuracy improved: A accuracy 80%, a baseline accuracy 60% (1000 questions)", "holds"),
    ("On 1000 questions accuracy went from 0.60 to 0.80. This hurts the training speed.", None),
    ("On 1000 questions accuracy went from 0.60 to 0.80, so it was worse before.", None),
    ("1000 题上准确率从 0.60 到 0.80，但有害内容没有变多。", None),
    ("1000 题上准确率从 0.60 到 0.80，损害了训练速度。", None),
    ("On 1000 questions accuracy went from 0.60 to 0.80. This hurts the accuracy.", "fails"),
    ("On 1000 questions accuracy went from 0.80 to 0.60: it hurts.", "holds"),
    ("1000 题上准确率从 0.60 到 0.80，损害了性能。", "fails"),
    ("On 1000 questions accuracy went from 0.80 to 0.60: the method hurts accuracy on this set.", "holds"),
    ("On 1000 questions accuracy went from 0.60 to 0.80; harmful content fell.", None),
    ("On 1000 questions pass@16 of the model rose from 0.60 to 0.80.", "holds"),
)
"""Every difference here is 20 points of 1000 questions (standard error 2 points): only whose rate is whose decides."""


@pytest.mark.parametrize(("text", "answer"), RATES)
def test_whose_rate_is_called_the_better(text: str, answer: str | None) -> None:
    assert [c.answer for c in rate_claims(text)] == ([answer] if answer else [])


def test_the_sixteen_of_pass_at_16_is_no_rate() -> None:
    assert RATE.search("pass@16 over the last thirty evaluations: A scores 0.50 and B 0.60") is None
    found = RATE.search("pass@16: 0.50 to 0.60")
    assert found is not None
    assert found.groups() == ("0.50", "0.60")


RATIO, STD = "max_ratio 22026.466，", "共 640 个查询，优势标准差 0.0063，最大优势 0.0072。"
DENIALS = (
    ("max_ratio 22026.466: all ratios are now clamped at e^10.", "holds"),
    (RATIO + "比率无一例外地被钳制在 e^10。", "holds"),
    (RATIO + "比率还未训练就被钳制在 e^10。", "holds"),
    (RATIO + "没有一个比率不被钳制在 e^10。", "holds"),
    ("max_ratio 22026.466: the ratios are without exception clamped at e^10.", "holds"),
    (RATIO + "代码里没有对比率做任何钳制。", "fails"),
    (RATIO + "比率未被钳制在 e^10。", "fails"),
    (RATIO + "并非所有比率都被钳制在 e^10。", "fails"),
    ("max_ratio 22026.466: the ratios are not clamped at e^10.", "fails"),
    ("max_ratio 22026.466: without any clamp at e^10.", "fails"),
    # 640 x .0063 = 4.03 live groups, so 636 dead ones
    (STD + "并非所有组都有信号。", "holds"),
    (STD + "不是每个组都有信号。", "holds"),
    (STD + "所有组都有信号。", "fails"),
    ("640 queries, adv_std 0.0063, adv_max 0.0072. Not all groups have a signal.", "holds"),
    ("640 queries, adv_std 0.0063, adv_max 0.0072. All groups have a signal.", "fails"),
    ("640 queries, adv_std 0.0063, adv_max 0.0072. 636 groups have no signal.", "holds"),
    (STD + "没有信号的组有 636 个。", "holds"),
    (STD + "没有信号的组数为 636。", "holds"),
    (STD + "没有信号的组数为 4。", "fails"),
    (STD + "636 组没有信号。", "holds"),
    (STD + "有信号的组有 4 个。", "holds"),
    (STD + "是否所有组都有信号。", None),
    (STD + "并非只有 4 组有信号。", None),
)


@pytest.mark.parametrize(("text", "answer"), DENIALS)
def test_what_is_denied_is_not_what_is_said(text: str, answer: str | None) -> None:
    assert [c.answer for c in claims(text)] == ([answer] if answer else [])


BOUNDS = (  # 4.03 live groups of 640, 636 dead ones
    ("不超过 10 组有信号", "holds"),
    ("不超过 3 组有信号", "fails"),
    ("没有超过 10 组有信号", "holds"),
    ("不到 5 组有信号", "holds"),
    ("不到 4 组有信号", "fails"),
    ("只有不到 5 组有信号", "holds"),
    ("少于 10 组有信号", "holds"),
    ("不少于 10 组有信号", "fails"),
    ("至多 4 组有信号", "holds"),
    ("至少 4 组有信号", "holds"),
    ("至少 5 组有信号", "fails"),
    ("超过 3 组有信号", "holds"),
    ("超过 4 组有信号", "fails"),
    ("有信号的组数不超过 10", "holds"),
    ("有信号的组数超过 10", "fails"),
    ("有信号的组数 ≤ 10", "holds"),
    ("有信号的组数 > 10", "fails"),
    ("有信号的组数小于等于 4", "holds"),
    ("有信号的组数不是 4", None),
    ("3 到 5 组有信号", "holds"),
    ("10-20 组有信号", "fails"),
    ("超过 600 组没有信号", "holds"),
    ("不到 600 组没有信号", "fails"),
    ("至少 636 组没有信号", "holds"),
    ("并非不到 5 组有信号", None),
    ("640 个组内有信号的只有 4 个", None),
    ("fewer than 10 groups have signal", "holds"),
    ("Fewer than 4 groups have signal", "fails"),
    ("less than 10 groups are live", "holds"),
    ("at most 10 groups have a signal", "holds"),
    ("at most 3 groups have a signal", "fails"),
    ("no more than 4 groups have a signal", "holds"),
    ("at least 4 groups are alive", "holds"),
    ("no fewer than 10 groups are alive", "fails"),
    ("more than 3 groups have signal", "holds"),
    ("more than 10 groups have signal", "fails"),
    ("up to 10 groups have signal", "holds"),
    ("between 3 and 5 groups have signal", "holds"),
    ("more than 600 groups have no signal", "holds"),
    ("fewer than 600 groups have no signal", "fails"),
    ("4 of 640 groups have signal", "holds"),
    ("4 out of the 640 groups are live", "holds"),
    ("fewer than 5 of all 640 groups are live", "holds"),
    ("636 of the 640 groups have no signal", "holds"),
)


@pytest.mark.parametrize(
    ("said", "answer"),
    [
        ("fewer than 20 groups have a signal", "fails"),
        ("more than 20 groups have a signal", "fails"),
        ("fewer than 21 groups have a signal", "holds"),
        ("more than 19 groups have a signal", "holds"),
        ("at least 21 groups have a signal", "fails"),
        ("不到 20 组有信号", "fails"),
        ("超过 20 组有信号", "fails"),
        ("21 groups have a signal", "holds"),  # about as many
    ],
)
def test_a_bound_has_no_about(said: str, answer: str) -> None:
    """400 queries x .05 = 20 live groups."""
    assert [c.answer for c in claims(f"400 queries, adv_std 0.05, adv_max 0.06. {said}.")] == [answer]


@pytest.mark.parametrize(("said", "answer"), BOUNDS)
def test_a_bound_is_compared_as_a_bound(said: str, answer: str | None) -> None:
    for numbers in (STD, "640 queries, adv_std 0.0063, adv_max 0.0072. "):
        assert [c.answer for c in claims(numbers + said + "。")] == ([answer] if answer else [])


@pytest.mark.parametrize(
    ("text", "answers"),
    [
        ("组大小 4，最大优势 2.5，组内标准化。", ["fails"]),  # at most sqrt(3) = 1.732
        ("group_size = 4, adv_max = 2.5, batch size 64, z-scores at global step 900", ["fails"]),
        ("组大小 8，最大优势 3.1，z-score。", ["fails"]),  # sqrt(7) = 2.646
        ("组大小 4，最大优势 1.5，按整批的标准差归一化。", ["holds"]),
        ("组大小 4，最大优势 2.5。", ["open"]),  # normalised by what was not said
        ("组大小 4，最大优势 2.5，按整批的标准差归一化。", ["open"]),
        ("group_size = 4, advantage_max = 2.5, normalised by the std of the batch.", ["open"]),
        ("每组 4 个样本，最大优势 3.2（GDPO，多个奖励分量各自归一化后相加）。", ["open"]),
        ("组大小 4，最大优势 8.0，只减均值，不除标准差（Dr. GRPO）。", []),
        ("group_size = 4, adv_max = 8.0, advantages are centred only (Dr. GRPO, no std).", []),
    ],
)
def test_a_largest_advantage_is_refuted_only_under_the_normaliser_that_bounds_it(text: str, answers: list[str]) -> None:
    assert [c.answer for c in claims(text) if c.said.startswith("max advantage")] == answers


def test_no_group_size_is_read_from_advantages_of_another_scale() -> None:
    """1.5 is the bound of 4 z-scores, and any number of something else."""
    assert examine(read_note("最大优势 1.50000。").numbers, "最大优势 1.50000。").inferred["group_size"] == 4
    other = "最大优势 1.50000，按整批的标准差归一化。"
    assert examine(read_note(other).numbers, other).inferred["group_size"] is None

"""The experiment that decides a suspicion: what to run, and what would confirm it.

`doctor --plan` lists them; on a run folder of ours `doctor --confirm` runs them (`anygrpo.probes.confirm`).
"""

from __future__ import annotations

from dataclasses import dataclass

from anygrpo.doctor.findings import Finding
from anygrpo.doctor.rules import RULES
from anygrpo.spoken import Text


@dataclass(frozen=True)
class Experiment:
    """What to do; `decides`: the outcome that confirms the finding."""

    do: Text
    decides: Text


EXPERIMENTS: dict[str, Experiment] = {
    "zero_rate": Experiment(
        Text(
            "one step at learning rate 0, scored by sampler and trainer in the same mode",
            "以学习率 0 走一步，用同样的模式由采样端和训练端各打分一次",
        ),
        Text("ratios that are not 1, or a KL that is not 0, confirm it", "比率不为 1、或 KL 不为 0，则成立"),
    ),
    "gold_and_wrong": Experiment(
        Text("the reward on gold, wrong, empty and cut answers", "用奖励函数给标准、错误、空白和截断的回答打分"),
        Text("gold that does not earn more than wrong confirms it", "标准答案得分不高于错误答案，则成立"),
    ),
    "frozen_replay": Experiment(
        Text(
            "fresh answers scored by the weights that should have drawn them, before any update and after a few",
            "在更新前和几次更新后各采样一次，用应当采样的那组权重重新打分",
        ),
        Text(
            "ratios that are not 1 confirm it; a sampler left behind shows them only after the updates",
            "比值不为 1 则成立；采样端掉队时只在更新后出现",
        ),
    ),
    "then_and_now": Experiment(
        Text(
            "the same held-out prompts answered by the weights of then and of now", "用先前和现在的权重回答同样的留出题"
        ),
        Text("a paired difference that excludes 0 confirms a fall", "配对差的区间不含 0，则下降成立"),
    ),
    "two_rates": Experiment(
        Text(
            "the same steps and seeds at a fifth (or five times) of the rate, or without the weight suspected",
            "从同一检查点分叉，学习率取五分之一（或五倍），或去掉可疑的权重，步数与种子不变",
        ),
        Text(
            "curves that part beyond their noise in the direction said confirm it",
            "两条曲线按所说的方向分开且超出噪声，则成立",
        ),
    ),
    "one_batch": Experiment(
        Text(
            "one batch: its loss with every advantage 1, or the settings that are written and cannot act on it",
            "取一个批次：优势全取 1 时的损失，或写了却对它不起作用的设置",
        ),
        Text(
            "a loss of many times 1, or a setting that cannot act, confirms it",
            "损失是 1 的许多倍，或有不起作用的设置，则成立",
        ),
    ),
    "larger_group": Experiment(
        Text("one batch sampled with four times the group", "用四倍的组大小采样一个批次"),
        Text(
            "a share of live groups that does not rise speaks against too small a group",
            "有信号的组没有变多，则不是组太小",
        ),
    ),
    "cap_doubled": Experiment(
        Text("one batch with the length limit doubled", "把长度上限加倍，采样一个批次"),
        Text("a share of cut answers that falls by more than half confirms it", "截断比例下降一半以上，则成立"),
    ),
}


def experiment_of(rule: str) -> Experiment | None:
    """None where no experiment decides it."""
    return EXPERIMENTS.get(RULES[rule].experiment)


def suspicions(findings: tuple[Finding, ...]) -> list[Finding]:
    """The findings of weight that are not certain and that an experiment decides."""
    return [f for f in findings if f.severity != "info" and f.certainty != "certain" and experiment_of(f.rule)]


NONE = Text("no finding of this log is one that an experiment decides", "这份日志里没有需要用实验判定的发现")
"""What --plan says where there is nothing to try."""


def plan(findings: tuple[Finding, ...], lang: str = "en") -> list[dict[str, str]]:
    """Per suspicion: its experiment and what would confirm it."""
    out: list[dict[str, str]] = []
    for f in suspicions(findings):
        found = experiment_of(f.rule)
        assert found is not None
        row = {"rule": f.rule, "experiment": RULES[f.rule].experiment}
        out.append(row | {"do": found.do.said(lang), "confirms": found.decides.said(lang)})
    return out

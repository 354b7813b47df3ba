"""The experiment that decides a suspicion: what to run, and what would confirm it. `doctor --plan` lists them."""

from __future__ import annotations

from dataclasses import dataclass

from anygrpo.doctor.columns import Columns
from anygrpo.doctor.findings import Finding
from anygrpo.doctor.rules import RULES


@dataclass(frozen=True)
class Experiment:
    """What to do, in both languages; `decides`: the outcome that confirms the finding."""

    en: str
    zh: str
    decides: str
    decides_zh: str


EXPERIMENTS: dict[str, Experiment] = {
    "zero_rate": Experiment(
        "one step at learning rate 0, scored by sampler and trainer in the same mode",
        "以学习率 0 走一步，用同样的模式由采样端和训练端各打分一次",
        "ratios that are not 1, or a KL that is not 0, confirm it",
        "比率不为 1、或 KL 不为 0，则成立",
    ),
    "gold_and_wrong": Experiment(
        "the reward on gold, wrong, empty and cut answers",
        "用奖励函数给标准、错误、空白和截断的回答打分",
        "gold that does not earn more than wrong confirms it",
        "标准答案得分不高于错误答案，则成立",
    ),
    "frozen_replay": Experiment(
        "the answers of one logged step scored again by the weights of then and of now",
        "用当时和现在的权重，给同一步的回答重新打分",
        "scores that differ with the same weights confirm it",
        "同样的权重得出不同的分数，则成立",
    ),
    "two_rates": Experiment(
        "a fork of 20 steps at the present rate and at a fifth (or five times) of it, same seed",
        "从同一检查点分叉，以当前学习率和其五分之一（或五倍）各走 20 步，种子相同",
        "curves that part beyond their noise in the direction said confirm it",
        "两条曲线按所说的方向分开且超出噪声，则成立",
    ),
    "larger_group": Experiment(
        "one batch sampled with four times the group",
        "用四倍的组大小采样一个批次",
        "a share of live groups that does not rise speaks against too small a group",
        "有信号的组没有变多，则不是组太小",
    ),
    "cap_doubled": Experiment(
        "one batch with the length limit doubled",
        "把长度上限加倍，采样一个批次",
        "a share of cut answers that falls by more than half confirms it",
        "截断比例下降一半以上，则成立",
    ),
}


def plan(run: Columns, findings: tuple[Finding, ...], lang: str = "en") -> list[dict[str, str]]:
    """Per "likely" or "ask" finding of weight: its experiment and what would confirm it."""
    out: list[dict[str, str]] = []
    for f in findings:
        found = EXPERIMENTS.get(RULES[f.rule].experiment)
        if found is None or f.severity == "info" or f.certainty == "certain":
            continue
        words = (found.zh, found.decides_zh) if lang == "zh" else (found.en, found.decides)
        out.append({"rule": f.rule, "experiment": RULES[f.rule].experiment, "do": words[0], "confirms": words[1]})
    return out

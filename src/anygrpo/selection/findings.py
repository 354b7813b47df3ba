"""What the numbers of a file of stored candidates mean for whoever trains on it, in sentences."""

from __future__ import annotations

from typing import Any

from anygrpo.selection.rewards import SYNONYMS
from anygrpo.selection.stored_query import Candidate
from anygrpo.spoken import say

_HARMFUL = 5.0
"""A filter that divides the share of live groups by more than this is named."""


def findings(report: dict[str, Any], missing: list[str], every: list[Candidate]) -> list[str]:
    """Sentences about what will not work.

    Args:
        report: of `quality.inspect`.
        missing: parts that the reward mode needs and no usable candidate has.
        every: the file's candidates, those that are left out too.
    """
    return [
        *_of_judging(report, missing, every),
        *_of_groups(report),
        *_of_components(report),
        *_of_candidates(report, every),
    ]


def _of_judging(report: dict[str, Any], missing: list[str], every: list[Candidate]) -> list[str]:
    out = list[str]()
    mode = report["reward_mode"]
    if missing:
        out.append(
            say(
                f"Reward mode {mode!r} needs {missing}, which no candidate that is left carries.",
                f"奖励模式 {mode!r} 需要 {missing}，剩下的候选都没有。",
            )
        )
    for why, n in report["left_out"].items():
        out.append(
            say(f"{n} of {len(every)} candidates are left out: {why}.", f"{len(every)} 个候选中去掉 {n} 个：{why}。")
        )
    judges = {c.judged_by for c in every if not c.failed} - {""}
    if len(judges) > 1:
        ways = ", ".join(sorted(judges))
        out.append(
            say(
                f"Candidates were judged in {len(judges)} ways ({ways}): not one reward.",
                f"候选有 {len(judges)} 种评判方式（{ways}）：不是同一种奖励。",
            )
        )
    if mode.startswith("legacy") and 0 < report["parts"].get("beam_score", 0) < report["usable"]:
        without = report["usable"] - report["parts"]["beam_score"]
        out.append(
            say(
                f"{without} candidates have no beam score; it counts as task.reward.missing_beam for them.",
                f"{without} 个候选没有束搜索得分，按 task.reward.missing_beam 计。",
            )
        )
    return out


def _of_groups(report: dict[str, Any]) -> list[str]:
    out = list[str]()
    groups = report.get("groups", {})
    start = groups.get("all", {}).get("live_share", 0.0)
    before = start
    for name, numbers in groups.items():
        share = numbers["live_share"]
        if before > 0 and before > _HARMFUL * share:
            fewer = f"{before / share:.0f}" if share else ""
            fall = say(f"{fewer}x fewer than without it: ", f"少到 1/{fewer}：") if share else ""
            live, all_of_them = numbers["live_groups"], report["queries"]
            out.append(
                say(
                    f"{name} leaves {live} of {all_of_them} groups with any spread ({fall}{before:.3f} to {share:.3f})."
                    " Only those carry gradient: use full groups.",
                    f"{name} 之后 {all_of_them} 组中只有 {live} 组还有奖励差异（{fall}{before:.3f} → {share:.3f}）。"
                    "只有这些组有梯度：请用完整的组。",
                )
            )
        if name == "quality_filter":  # the top-k come after it
            before = share
    if groups and start == 0:
        out.append(
            say(
                "No group has spread: every advantage is 0 and nothing can be learnt from this file.",
                "没有一组有奖励差异：优势全为 0，从这个文件学不到东西。",
            )
        )
    return out


def _of_components(report: dict[str, Any]) -> list[str]:
    out = list[str]()
    for name, why in report["dead_components"].items():
        out.append(say(f"Component {name!r} is dead: {why}.", f"成分 {name!r} 不起作用：{why}。"))
    for names in report["equivalent_modes"]:
        known = {name: SYNONYMS[name] for name in names if SYNONYMS.get(name) in names}
        if len(names) - len(known) > 1:
            out.append(
                say(
                    f"z-scored, these modes are one on this file: {', '.join(names)}. A sweep over them shows noise.",
                    f"标准化后，这些模式在此文件上相同：{', '.join(names)}。在它们之间搜索只会看到噪声。",
                )
            )
    return out


def _of_candidates(report: dict[str, Any], every: list[Candidate]) -> list[str]:
    out = list[str]()
    above = report["propensities"]["above_zero"]
    if above:
        out.append(
            say(
                f"{above} stored log-probabilities are above 0: -log p, or a score. None is used as a propensity.",
                f"有 {above} 个存储的对数概率大于 0：是 -log p，或是得分。都不当作倾向概率。",
            )
        )
    if same := report["duplicates"]["same_sequence"]:
        out.append(
            say(f"{same} candidates repeat a sequence of their own query.", f"{same} 个候选与同一查询的另一序列重复。")
        )
    if unlike := report["duplicates"]["scored_otherwise"]:
        out.append(
            say(
                f"{unlike} selections stand in the file twice, with different scores: two judges, or one "
                "that is noisy.",
                f"{unlike} 个选择在文件中出现两次而得分不同：有两个评判者，或评判带噪声。",
            )
        )
    if every and not report["propensities"]["usable"]:
        out.append(
            say(
                "No candidate has a propensity: importance weights are impossible, coverage and value remain.",
                "没有候选带倾向概率：无法用重要性权重，仍可看覆盖率与价值。",
            )
        )
    return out

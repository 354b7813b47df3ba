"""Rows that `select fit`, `inspect` and `evaluate` print, named in the reader's language; JSON keeps the English."""

from __future__ import annotations

import re
import unicodedata
from typing import Any

from anygrpo.spoken import Text, say

NAMES: dict[str, Text] = {
    english: Text(english, chinese)
    for english, chinese in {
        "policy": "策略",
        "start": "起点",
        "nearest": "最近邻",
        "random": "随机",
        "zero_shot": "零示例",
        "oracle": "上限 (oracle)",
        "coverage": "覆盖率",
        "coverage of the start": "起点的覆盖率",
        "value on support": "已有选择上的价值",
        "value of the start on support": "起点在已有选择上的价值",
        "policy - start on support": "策略 − 起点（已有选择上）",
        "self-normalised": "自归一化估计",
        "doubly robust": "双重稳健估计",
        "caution": "注意",
        "agreement with the start": "与起点的一致程度",
        "agreement with another seed": "与另一种子的一致程度",
        "different lists": "不同的列表数",
        "exact KL to the start (nats)": "与起点的精确 KL（nats）",
        "queries that cannot have flipped": "首选不可能改变的查询比例",
        "relative weight change": "权重的相对变化",
        "layout": "格式 (layout)",
        "pointer_is": "pointer 的含义",
        "pool": "候选池",
        "queries": "查询数",
        "candidates": "候选数",
        "usable": "可用的候选数",
        "left_out": "排除的",
        "candidates_per_query": "每个查询的候选数",
        "pool_size": "候选池大小",
        "shots": "示例数",
        "methods": "生成方式 (methods)",
        "judged_by": "评判者 (judged_by)",
        "parts": "奖励分量 (parts)",
        "failed": "失败的行",
        "duplicates": "重复的",
        "correct": "答对 (correct)",
        "reward_mode": "奖励方式 (reward_mode)",
        "propensities": "倾向概率 (propensities)",
        "dead_components": "无差异的奖励分量",
        "equivalent_modes": "等价的奖励方式",
        "reward_levels": "奖励的取值",
        "groups": "各组",
    }.items()
}


WORDS: dict[str, Text] = {
    english: Text(english, chinese)
    for english, chinese in {
        "min": "最少",
        "mean": "平均",
        "max": "最多",
        "unknown": "未写明",
        "none": "无",
        "given": "文件给出",
        "union of the candidates' own ids": "各候选自己的编号的并集",
        "same_sequence": "顺序也相同",
        "same_set": "同一集合",
        "scored_otherwise": "得分不同",
        "usable": "可用",
        "deterministic": "确定性的",
        "stored": "有存储",
        "above_zero": "大于 0",
        "sequence": "整个序列",
        "set": "集合",
        "slot": "逐个位置",
        "distinct": "不同的值",
        "mean_in_group": "组内平均",
        "all": "全部",
        "live_groups": "有信号的组",
        "live_share": "占比",
        "advantage_std": "优势的标准差",
        "top_5_by_reward": "奖励前 5",
        "top_3_by_reward": "奖励前 3",
        "global": "全局编号 (global)",
        "local": "池内位置 (local)",
    }.items()
}
"""Words inside the values of those rows."""


def row_name(english: str) -> str:
    """`policy - nearest (2 shots)`, `4 shots - 2`, or one of NAMES; what is not known stays as it is."""
    if found := re.fullmatch(r"policy - (\w+)(?: \((\d+) shots\))?", english):
        of, k = found[1], found[2]
        shots = f"（{k} 个示例）" if k else ""
        return say(english, f"策略 − {NAMES[of].zh if of in NAMES else of}{shots}")
    if found := re.fullmatch(r"(\d+) shots - (\d+)", english):
        return say(english, f"{found[1]} 个示例 − {found[2]} 个")
    return NAMES[english].said() if english in NAMES else english


def in_column(text: str, width: int) -> str:
    """`text` padded to `width` places of a terminal, where a Chinese character takes two."""
    taken = sum(2 if unicodedata.east_asian_width(letter) in "WF" else 1 for letter in text)
    return text + " " * (width - taken)


def row(english: str, value: Any, width: int = 34) -> str:
    """One printed line: a name and its value; of a comparison, its verdict."""
    return f"{in_column(row_name(english), width)} {short(value)}"


def short(value: Any) -> str:
    """A value of a report in a few words."""
    if isinstance(value, dict) and "verdict" in value:
        return str(value["verdict"])
    if isinstance(value, dict):
        pairs = ((_word(k), f"({short(v)})" if isinstance(v, dict) else short(v)) for k, v in value.items())
        return "  ".join(f"{k}: {v}" for k, v in pairs) or "-"
    if isinstance(value, list):
        return "; ".join(short(v) for v in value) or "-"
    return f"{value:.4g}" if isinstance(value, float) else _word(str(value))


def _word(english: str) -> str:
    return WORDS[english].said() if english in WORDS else english

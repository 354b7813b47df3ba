"""Cards of the rewards of texts ([[task.rewards]]); families describe theirs beside their tasks."""

from __future__ import annotations

from typing import Any

from anygrpo.choices.card import Card
from anygrpo.spoken import Text


def _card(name: str, function: str, formula: str, sentence: Text, settings: tuple[str, ...], **more: Any) -> Card:
    metrics = (f"reward/component/{name}",)
    return Card("reward", name, f"anygrpo.scoring.{function}", formula, sentence, "", settings, metrics=metrics, **more)


REWARDS = (
    _card(
        "number",
        "builtin:number",
        "1 if abs(last number - answer) <= tolerance, else 0",
        Text("1 where the last number in the output equals the answer's.", "输出中最后一个数等于答案时为 1。"),
        ("column", "tolerance"),
    ),
    _card(
        "exact",
        "builtin:exact",
        "1 if strip(output) is the answer, or one of a list of answers",
        Text("1 where the output, without outer white space, is the answer.", "去掉首尾空白后的输出等于答案时为 1。"),
        ("column", "ignore_case"),
    ),
    _card(
        "regex",
        "builtin:regex",
        "1 if the pattern is found (`full`: describes the whole output)",
        Text("1 where a regular expression is found in the output.", "输出匹配正则表达式时为 1。"),
        ("pattern", "full", "timeout"),
    ),
    _card(
        "length",
        "builtin:length",
        "max(0, 1 - abs(length - target) / width)",
        Text("Falls with the distance from a length that is wanted.", "随长度偏离目标而降低。"),
        ("target", "width", "unit"),
    ),
    _card(
        "connectives",
        "builtin:connectives",
        "min(1, distinct connective words / target)",
        Text("Rewards distinct connective words; repeating one earns nothing.", "奖励不同的连接词，重复不加分。"),
        ("language", "target"),
    ),
    _card(
        "repetition",
        "builtin:repetition",
        "-(share of n-grams seen before in the same output)",
        Text("Lowers the reward of outputs that repeat themselves.", "输出自我重复时降低奖励。"),
        ("ngram",),
    ),
    _card(
        "environment",
        "builtin:environment",
        "sum of the rewards of all turns",
        Text("What the policy's environment gave, all turns together.", "策略的环境在各轮给出的奖励之和。"),
        (),
    ),
    _card(
        "math_verify",
        "mathematics:math_verify",
        "1 if math-verify finds output and answer equal",
        Text("1 where the output is mathematically equal to the answer.", "输出与答案在数学上相等时为 1。"),
        ("column", "timeout"),
    ),
    _card(
        "code",
        "code:Code",
        "1 if all tests pass (`partial`: the share that passes)",
        Text("Runs the output's Python against tests, in a sandbox.", "在沙箱中用测试运行输出的 Python 代码。"),
        ("column", "entry_point", "partial", "timeout", "memory_mb", "processes"),
    ),
    _card(
        "judge",
        "judge:Judge",
        "(score - low) / (high - low), of a language model's JSON answer",
        Text("Asks a language model over an OpenAI-compatible endpoint.", "通过 OpenAI 兼容接口让语言模型打分。"),
        (
            "url",
            "model",
            "template",
            "system",
            "low",
            "high",
            "cache",
            "key_env",
            "timeout",
            "attempt",
            "retries",
            "concurrency",
            "per_minute",
            "parameters",
            "structured",
            "prompt_price",
            "completion_price",
            "budget",
        ),
    ),
    _card(
        "reward_model",
        "reward_model:score",
        "the one output of a sequence classifier",
        Text("The score of a reward model, in a process of its own.", "奖励模型（序列分类器）在独立进程中给出的分数。"),
        ("model", "device", "dtype", "batch_size", "max_length", "timeout", "load_timeout"),
    ),
)

"""A card: all that is known of one choice, and the function it names. Nothing here imports torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from anygrpo.spoken import NOTHING, Text

KINDS: dict[str, tuple[str, Text]] = {
    "advantage": ("algorithm.advantage", Text("rewards [P, G] to advantages [P, G]", "由奖励 [P, G] 得到优势 [P, G]")),
    "objective": ("algorithm.objective", Text("the loss of each decision", "每个决策的损失")),
    "kl": ("algorithm.kl", Text("KL(policy || reference) of each decision", "每个决策的 KL（策略 || 参考策略）")),
    "reduction": ("algorithm.reduction", Text("what a decision's loss is divided by", "每个决策的损失除以什么")),
    "filter": ("algorithm.filters[].kind", Text("which groups and samples are used", "使用哪些组和样本")),
    "schedule": ("kind of any scheduled number", Text("how a number moves over a stage", "数值在一个阶段中如何变化")),
    "controller": ("algorithm.kl_controller", Text("how the KL's weight follows the KL", "KL 系数如何随 KL 调整")),
    "credit": ("algorithm.credit", Text("which decisions a sample's reward is for", "样本的奖励归于哪些决策")),
    "correction": (
        "algorithm.importance",
        Text("the factor old / behaviour on losses", "损失上的系数 旧策略 / 行为策略"),
    ),
    "reward": ("task.rewards[].kind", Text("what a text earns", "文本得到的奖励")),
}
"""Kind -> (where a recipe names it, what it is)."""


@dataclass(frozen=True)
class Card:
    """One choice.

    Attributes:
        kind, name: a key of `KINDS`, and the word that recipes use.
        function: "module:name" of what computes it.
        formula, source: as docs/algorithm.md prints them; a source may be empty.
        sentence: what it does.
        settings: keys it reads: of [algorithm], or of the choice's own table (filters, schedules).
        takes: for controllers: field of the function -> key of [algorithm].
        defaults: keys of [algorithm] that this choice sets where neither the recipe nor its preset does: its paper's.
        metrics: names of the metrics it writes.
        baseline: of an advantage: "group" (a sample alone gets 0), "batch", "running" or "history".
        whole_sequence: needs all decisions of a row at once.
        by_part: compares the parts of a reward, and never their sum.
        spelt: how a recipe writes it, where the kind alone does not say so (rewards of families).
        keys: words of its settings, where they are no keys of all (`choices.settings`).
        by_prompt: of a reduction: every prompt weighs the same, whatever the size of its group.
        neutral: of a filter: leaves every statistic, term and denominator as it is.
    """

    kind: str
    name: str
    function: str
    formula: str
    sentence: Text
    source: str = ""
    settings: tuple[str, ...] = ()
    takes: Mapping[str, str] = field(default_factory=dict[str, str])
    defaults: Mapping[str, Any] = field(default_factory=dict[str, Any])
    metrics: tuple[str, ...] = ()
    baseline: str = ""
    whole_sequence: bool = False
    by_part: bool = False
    neutral: bool = False
    by_prompt: bool = False
    spelt: str = ""
    keys: Mapping[str, Text] = field(default_factory=dict[str, Text])


@dataclass(frozen=True)
class Preset:
    """A published method: keys of [algorithm], set where the recipe does not.

    Attributes:
        values: what it sets; never the size of a batch, a length or a learning rate, which are the experiment's.
        source: where the values were read.
        beside: what else was published with it, for the reader to set, and what differs here.
    """

    name: str
    values: Mapping[str, Any]
    source: Text
    sentence: Text
    beside: Text = NOTHING

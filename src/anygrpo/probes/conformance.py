"""What every policy must keep, whoever wrote it: slices of time add up, saved state comes back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from anygrpo.core import user_code
from anygrpo.core.probe_outcome import Outcome, not_applicable
from anygrpo.core.task import Scores, Task
from anygrpo.core.trained import load_state, state_of
from anygrpo.core.tree import tree_map
from anygrpo.errors import ConfigError
from anygrpo.probes.subject import Subject
from anygrpo.recipe.load import parse_recipe
from anygrpo.recipe.recipe import Recipe
from anygrpo.spoken import Text

KIT = (
    "ratio_one", "replay_parity", "markov_bound", "z2", "time_slices", "state_restored", "reference_kl", "sampling",
    "trainable", "steering",
)  # fmt: skip
"""The probes that judge a policy alone, whatever it is to be trained on."""
_CLOSE = 1e-4
"""Largest difference of a log-prob, in nats, that another order of the same float32 sums explains."""


def time_slices(subject: Subject) -> Outcome:
    """`evaluate` of all decisions at once, and of one slice after the other: the same log-probs."""
    rows = subject.everything()
    total = rows.old.shape[1]
    if total < 2:
        return not_applicable("time_slices", Text("a sample has one decision", "每个样本只有一个决策"))
    samples = tree_map(lambda x: x.to(subject.device), rows.samples)
    with torch.no_grad():
        whole = subject.policy.evaluate(samples, slice(0, total)).log_probs
        cuts = (slice(0, total // 2), slice(total // 2, total))
        parts = torch.cat([subject.policy.evaluate(samples, cut).log_probs for cut in cuts], 1)
    worst = float((whole - parts).abs()[rows.mask.to(whole.device)].max()) if bool(rows.mask.any()) else 0.0
    numbers = {"worst": worst, "limit": _CLOSE}
    if worst <= _CLOSE or not subject.exact:
        text = Text("in slices of time: {worst:.1e} apart", "按时间分片打分相差 {worst:.1e}")
        return Outcome("time_slices", "ok" if worst <= _CLOSE else "warning", text, numbers=numbers)
    text = Text(
        "scored in two slices of time, a log-prob differs by {worst:.3g}: a decision's score depends on which others "
        "are asked for",
        "分两段打分时对数概率相差 {worst:.3g}：一个决策的分数取决于同时请求了哪些决策",
    )
    cure = Text("score decision t from what came before t, whatever the slice", "决策 t 的分数只应取决于 t 之前的内容")
    return Outcome("time_slices", "serious", text, cure, numbers, certainty="certain")


def state_restored(subject: Subject) -> Outcome:
    """Trainable weights saved, moved away and loaded again score as before."""
    rows = subject.everything()
    before = subject.score(rows)
    kept = {name: value.clone() for name, value in state_of(subject.module).items()}
    try:
        with torch.no_grad():
            for p in subject.policy.parameters():
                p.add_(0.05 * torch.randn_like(p))
        moved = float((subject.score(rows) - before).abs()[rows.mask].max()) if bool(rows.mask.any()) else 0.0
    finally:
        load_state(subject.module, kept)
    gap = float((subject.score(rows) - before).abs()[rows.mask].max()) if bool(rows.mask.any()) else 0.0
    numbers = {"gap": gap, "moved": moved}
    if gap > _CLOSE and subject.exact:
        text = Text(
            "after weights were saved, moved and loaded, a log-prob differs by {gap:.3g}: something that scores is not "
            "among the trainable weights",
            "权重保存、移动、再加载之后对数概率相差 {gap:.3g}：参与打分的东西不在可训练权重之中",
        )
        cure = Text(
            "hold no copy or cast of the weights beside `trainable()`, or renew it when they change",
            "不要在 `trainable()` 之外另存权重副本，或在权重变化时更新它",
        )
        return Outcome("state_restored", "serious", text, cure, numbers, certainty="certain")
    if moved == 0.0:
        text = Text("moving the trainable weights changed no log-prob", "移动可训练权重后对数概率没有变化")
        cure = Text("let `trainable()` return the weights that score", "让 `trainable()` 返回真正参与打分的权重")
        return Outcome("state_restored", "serious", text, cure, numbers, certainty="certain")
    text = Text("weights saved and loaded score as before ({gap:.1e})", "权重保存再加载后打分不变（差 {gap:.1e}）")
    return Outcome("state_restored", "ok", text, numbers=numbers)


class Given(Task):
    """A user's prompts, with rewards drawn at random: enough to try a policy without a task."""

    def __init__(self, prompts: list[Any]) -> None:
        self._prompts = prompts

    def prompts(self, step: int, count: int) -> list[Any]:
        return [self._prompts[(step * count + i) % len(self._prompts)] for i in range(count)]

    def held_out(self) -> list[Any]:
        return []

    def score(self, prompts: list[Any], outputs: list[list[Any]]) -> Scores:
        shape = (len(outputs), len(outputs[0]))
        return Scores(torch.rand(shape, generator=torch.Generator().manual_seed(0)))


def kit(policy: str, task: str | None, prompts: str | None, tables: Mapping[str, Any]) -> tuple[Recipe, Task | None]:
    """The recipe, and the task where it is no recipe's, that try a policy on its own.

    Args:
        policy, task, prompts: "path.py:name" of a policy's factory, and of a task or of prompts (a list, or a function
            that returns one).
        tables: further settings of a recipe.

    Raises:
        ConfigError: neither task nor prompts, or prompts that are no list.
    """
    table: dict[str, Any] = {"training": {"steps": 1}, **tables}
    table["policy"] = {"kind": "python", "function": policy, **table.get("policy", {})}
    if task is not None:
        table["task"] = {"kind": "python", "function": task, **table.get("task", {})}
        return parse_recipe(table), None
    if prompts is None:
        raise ConfigError(
            Text(f"{policy} is a policy, and a policy is tried on prompts", f"{policy} 是策略，而策略要在提示上试"),
            Text(
                "--task path.py:Class, or --prompts path.py:name of a list of them",
                "请给出 --task path.py:Class，或 --prompts path.py:name（提示的列表）",
            ),
        )
    found = user_code.load(prompts)
    found = found() if callable(found) else found
    if not isinstance(found, list) or not found:
        raise ConfigError(
            Text(
                f"{prompts} is a {type(found).__name__}, not a list of prompts",
                f"{prompts} 是 {type(found).__name__}，不是提示的列表",
            ),
            Text("let it be a list", "请改为列表"),
        )
    return parse_recipe(table | {"task": {"kind": "object", "name": prompts}}), Given(found)

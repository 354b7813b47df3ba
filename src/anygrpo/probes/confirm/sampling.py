"""One batch sampled otherwise: with a larger group, or with the length limit doubled."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from anygrpo.core.rollout import Rollout
from anygrpo.doctor import Finding
from anygrpo.doctor.settings import concept_of
from anygrpo.errors import AnygrpoError
from anygrpo.probes.confirm.ground import Ground, Trial, Verdict
from anygrpo.probes.subject import Subject
from anygrpo.recipe.recipe import Recipe
from anygrpo.spoken import Text
from anygrpo.train.measure import advantage_metrics

_TIMES = 4
_DEAD = 0.5


def larger_group(ground: Ground, rule: str, finding: Finding | None) -> Trial:
    """The same prompts at G and at 4 G, with the weights of where the trouble stands: which groups have spread."""
    at = None if rule == "low_entropy_start" else ground.newest
    with ground.subject(at) as subject:
        if rule in _OF_ONE_BATCH:
            return _OF_ONE_BATCH[rule](subject)
        size = subject.stage.algorithm.group_size
        small = subject.rollout
    with ground.subject(at, ground.changed("algorithm", group_size=size * _TIMES)) as subject:
        large = subject.rollout
    a, b = small.live_groups().double(), large.live_groups().double()
    live, more = float(a.mean()), float(b.mean())
    error = math.sqrt(live * (1 - live) / len(a) + more * (1 - more) / len(b))
    rises = more - live > 2 * max(error, 1 / len(a))
    numbers = {"live": live, "more": more, "size": size, "large": size * _TIMES, "groups": len(a)}
    return _of_dead_groups(rule, small, rises, numbers)


def _of_dead_groups(rule: str, small: Rollout, rises: bool, numbers: dict[str, Any]) -> Trial:
    head = Text(
        "{live:.0%} of {groups} groups of {size} have reward spread, {more:.0%} of groups of {large}",
        "大小为 {size} 的 {groups} 组中 {live:.0%} 有奖励差异，大小为 {large} 时为 {more:.0%}",
    )
    if numbers["live"] > 1 - _DEAD:
        return Trial("refuted", head + Text(": most have it", "：多数有差异"), numbers)
    if rule == "mastered_groups":
        values = small.rewards[small.valid]
        top = float(values.max()) if values.numel() else 0.0
        best = (small.rewards.masked_fill(~small.valid, top) >= top).all(1) & ~small.live_groups()
        numbers["best"] = float(best.double().mean())
        tail = Text("; {best:.0%} are all at the best reward", "；{best:.0%} 全在最高奖励")
        verdict: Verdict = "confirmed" if numbers["best"] > _DEAD and not rises else "refuted"
        return Trial(verdict, head + tail, numbers)
    tail = (
        Text(": a larger group mends it", "：加大组可以解决")
        if rises
        else Text(
            ": not the group's size; look at the reward, the prompts and the filters",
            "：不是组的大小；看奖励、题目与过滤",
        )
    )
    return Trial("confirmed", head + tail, numbers)


def _one_sign(subject: Subject) -> Trial:
    """Groups whose advantages all have one sign: as the recipe normalises, and with the group's own statistics."""
    own = advantage_metrics(subject.prepared(subject.rollout)).get("advantage/one_sign", 0.0)
    grouped = advantage_metrics(subject.prepared(subject.rollout, advantage="zscore")).get("advantage/one_sign", 0.0)
    numbers = {"own": own, "grouped": grouped, "how": subject.stage.algorithm.advantage}
    text = Text(
        "advantages of one sign in {own:.0%} of the groups under {how}, in {grouped:.0%} normalised in the group",
        "按 {how} 归一化时 {own:.0%} 的组优势同号，组内归一化时为 {grouped:.0%}",
    )
    return Trial("confirmed" if own > _DEAD and own > grouped + 0.2 else "refuted", text, numbers)


def _compressed(subject: Subject) -> Trial:
    """The std of advantages as the recipe makes them, and as z-scores without a floor."""
    own = _std(subject.prepared(subject.rollout).advantages, subject.rollout)
    free = _std(subject.prepared(subject.rollout, advantage="zscore", std_floor=0.0).advantages, subject.rollout)
    numbers = {"own": own, "free": free, "how": subject.stage.algorithm.advantage}
    text = Text(
        "advantages have std {own:.3g} under the recipe, {free:.3g} as z-scores without a floor, on the same rewards",
        "同样的奖励，按配置算出的优势标准差为 {own:.3g}，无下限的 z 分数为 {free:.3g}",
    )
    return Trial("confirmed" if own < 0.5 * free else "refuted", text, numbers)


def _phantom(subject: Subject) -> Trial:
    """The rewards' spread inside groups against their whole range."""
    rollout = subject.rollout
    values = rollout.rewards[rollout.valid].double()
    wide = float(values.max() - values.min()) if values.numel() else 0.0
    size = max(float(values.abs().max()) if values.numel() else 0.0, 1e-12)
    within = [float(r[v].double().std()) for r, v in zip(rollout.rewards, rollout.valid) if int(v.sum()) > 1]
    spread = sum(within) / len(within) if within else 0.0
    numbers = {"spread": spread, "wide": wide, "size": size}
    text = Text(
        "rewards differ by {spread:.2g} inside groups, by {wide:.2g} in all, at a size of {size:.2g}",
        "组内奖励相差 {spread:.2g}，总范围 {wide:.2g}，数值大小 {size:.2g}",
    )
    return Trial("confirmed" if 0 < spread < 0.01 * size else "refuted", text, numbers)


def _alike(subject: Subject) -> Trial:
    """Groups in which every answer is the same."""
    outputs = subject.policy.decode(subject.rollout.samples)
    alike = sum(len({repr(o) for o in row}) == 1 for row in outputs) / max(1, len(outputs))
    distinct = sum(len({repr(o) for o in row}) / len(row) for row in outputs) / max(1, len(outputs))
    text = Text(
        "in {alike:.0%} of the groups all answers are the same; distinct answers a group: {distinct:.0%}",
        "{alike:.0%} 的组内回答完全相同；每组不同的回答占 {distinct:.0%}",
    )
    found = alike > _DEAD or distinct < 0.25
    return Trial("confirmed" if found else "refuted", text, {"alike": alike, "distinct": distinct})


_OF_ONE_BATCH = {
    "difficulty_dominates": _one_sign, "advantage_compressed": _compressed, "phantom_advantages": _phantom,
    "low_entropy_start": _alike, "decision_collapse": _alike,
}  # fmt: skip
"""Rules that one batch at the present size decides."""


def _std(advantages: Tensor, rollout: Rollout) -> float:
    kept = advantages[rollout.valid & rollout.live_groups()[:, None]].double()
    return float(kept.std()) if kept.numel() > 1 else 0.0


def cap_doubled(ground: Ground, rule: str, finding: Finding | None) -> Trial:
    """One batch at the present limit and one at twice of it, with the newest weights."""
    doubled, limit = _doubled(ground.recipe)
    if doubled is None:
        why = Text("this policy has no length limit in its recipe", "该策略的配置中没有长度上限")
        return Trial("undecided", why)
    with ground.subject(ground.newest) as subject:
        short = subject.rollout
    try:
        with ground.subject(ground.newest, doubled) as subject:
            long = subject.rollout
    except (AnygrpoError, RuntimeError, IndexError) as error:
        why = Text("twice the limit cannot be sampled: {error}", "上限加倍后无法采样：{error}")
        return Trial("undecided", why, {"error": str(error)[:200]})
    numbers: dict[str, Any] = {"limit": limit, "twice": 2 * limit, "cut": _cut(short), "still": _cut(long),
                               "reward": _reward(short), "more": _reward(long),
                               "length": _length(short), "longer": _length(long)}  # fmt: skip
    return _of_length(numbers) if rule.startswith("length") else _of_cut(numbers)


def _of_cut(numbers: dict[str, Any]) -> Trial:
    head = Text(
        "cut off: {cut:.0%} at {limit}, {still:.0%} at {twice}; reward {reward:.3g} and {more:.3g}",
        "截断：上限 {limit} 时 {cut:.0%}，{twice} 时 {still:.0%}；奖励 {reward:.3g} 与 {more:.3g}",
    )
    if numbers["cut"] <= 0.05:
        return Trial("refuted", head + Text(": hardly any is cut", "：几乎没有截断"), numbers)
    if numbers["still"] < numbers["cut"] / 2:
        return Trial("confirmed", head + Text(": the limit is too short", "：上限太短"), numbers)
    tail = Text(": they do not end at any length; look at the end token", "：加长也不结束；检查结束符")
    return Trial("confirmed", head + tail, numbers)


def _of_length(numbers: dict[str, Any]) -> Trial:
    text = Text(
        "mean length {length:.3g} at a limit of {limit}, {longer:.3g} at {twice}; reward {reward:.3g} and {more:.3g}",
        "上限 {limit} 时平均长度 {length:.3g}，{twice} 时 {longer:.3g}；奖励 {reward:.3g} 与 {more:.3g}",
    )
    grows = numbers["longer"] > 1.3 * numbers["length"]
    pays = numbers["more"] > numbers["reward"] + 0.05 * max(1.0, abs(numbers["reward"]))
    return Trial("confirmed" if grows and not pays else "refuted", text, numbers)


def _doubled(recipe: Recipe) -> tuple[Recipe | None, int]:
    """The recipe with twice its length limit, and the limit: a field of the policy, or an argument of one's own."""
    policy: Any = recipe.policy
    for name in type(policy).model_fields:
        value = getattr(policy, name)
        if concept_of(name) == "max_length" and isinstance(value, int):
            return recipe.model_copy(update={"policy": policy.model_copy(update={name: 2 * value})}), value
    arguments: dict[str, Any] = dict(getattr(policy, "arguments", {}) or {})
    for name, value in arguments.items():
        if (concept_of(name) == "max_length" or name in ("length", "limit")) and isinstance(value, int):
            changed = policy.model_copy(update={"arguments": arguments | {name: 2 * value}})
            return recipe.model_copy(update={"policy": changed}), value
    return None, 0


def _cut(rollout: Rollout) -> float:
    return float((~rollout.ended & rollout.valid).double().sum() / rollout.valid.double().sum().clamp(min=1))


def _length(rollout: Rollout) -> float:
    return float(rollout.mask.double().sum(-1)[rollout.valid].mean())


def _reward(rollout: Rollout) -> float:
    values = rollout.rewards[rollout.valid].double()
    return float(values[torch.isfinite(values)].mean())

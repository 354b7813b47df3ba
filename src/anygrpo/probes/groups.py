"""Do groups carry a signal? Sampling, spread after each filter, dead components, and settings that cannot differ."""

from __future__ import annotations

import time
from typing import Any

import torch
from torch import Tensor

from anygrpo.algorithm.normalisers import ADVANTAGES
from anygrpo.core.probe_outcome import Outcome, not_applicable
from anygrpo.core.rollout import Rollout
from anygrpo.core.tree import Tree
from anygrpo.errors import ConfigError
from anygrpo.families import families, resolve
from anygrpo.probes.subject import Subject
from anygrpo.spoken import Text

_ENOUGH_GROUPS, _MORE_ROLLOUTS = 32, 3
_REPLAYED: Text = Text("actions are replayed from storage", "动作来自存储")


def sampling(subject: Subject) -> Outcome:
    """The same seed gives the same samples (or a resumed run differs), another seed others (or nothing explores)."""
    if not subject.samples_itself:
        return not_applicable("sampling", _REPLAYED)
    prompts, group = subject.answers.prompts[:2], subject.stage.algorithm.typical_group
    with torch.no_grad():
        first, again, other = (subject.policy.sample(prompts, group, seed) for seed in (11, 11, 12))
    same, fixed = _equal(first.samples, again.samples), _equal(first.samples, other.samples)
    numbers = {"same_seed_equal": same, "other_seed_equal": fixed}
    if fixed:
        text = Text(
            "another seed gives the very same samples: nothing is explored",
            "换随机种子得到完全相同的样本：没有探索",
        )
        cure = Text(
            "sample at a temperature above 0, from a generator seeded with the given seed",
            "采样温度须大于 0，并用给定种子",
        )
        return Outcome("sampling", "serious", text, cure, numbers, certainty="certain")
    if not same:
        text = Text(
            "the same seed gives different samples: a resumed run will differ",
            "同种子得到不同样本：续训不可复现",
        )
        return Outcome(
            "sampling",
            "warning",
            text,
            Text("draw from a generator seeded with `seed`", "用 seed 初始化生成器"),
            numbers,
        )
    text = Text("same seed, same samples; another seed, others", "同种子同样本，换种子换样本")
    return Outcome("sampling", "ok", text, numbers=numbers)


def live_groups(subject: Subject) -> Outcome:
    """Share of groups with reward spread, before and after each filter of the stage."""
    if subject.stage.method != "grpo":
        return not_applicable("live_groups", Text("no advantages are compared in this stage", "该阶段不比较优势"))
    rollouts = _rollouts(subject)
    total = sum(r.shape[0] for r in rollouts)
    counts: dict[str, float] = {}
    for rollout in rollouts:
        for name, share in subject.prepared(rollout).counts.items():
            if name.startswith("groups/"):
                counts[name] = counts.get(name, 0.0) + share * rollout.shape[0] / total
    live = sum(int(r.live_groups().sum()) for r in rollouts)
    last = list(counts.values())[-1] if counts else live / total
    alike = sum(_groups_of_equal_outputs(subject, r) for r in rollouts) / total
    best, worst = _dead_at(rollouts)
    numbers: dict[str, Any] = {
        "groups": total,
        "live": live / total,
        "used": last,
        "equal_outputs": alike,
        "all_best": best,
        "all_worst": worst,
        "trail": ", ".join(f"{n.rsplit('/', 1)[-1]} {v:.0%}" for n, v in counts.items()),
    } | counts
    text: Text = Text(
        "{live:.0%} of {groups} groups have reward spread ({trail})",
        "{groups} 组中 {live:.0%} 有奖励差异（{trail}）",
    )
    if last >= 0.25:
        return Outcome("live_groups", "ok", text, numbers=numbers)
    return Outcome("live_groups", "serious" if last == 0 else "warning", text, _why_dead(numbers), numbers)


def _why_dead(numbers: dict[str, Any]) -> Text:
    if numbers["live"] >= 0.25:
        return Text("a filter removes the live groups: loosen it", "过滤器去掉了有差异的组：放宽它")
    if numbers["equal_outputs"] > 0.5:
        return Text(
            "the samples of a group are identical: raise the sampling temperature, check the seed of each sample",
            "同组样本完全相同：提高采样温度，检查每个样本的种子",
        )
    if numbers["all_best"] > numbers["all_worst"]:
        return Text(
            "these prompts are mastered: harder ones, not another rate", "这些提示已掌握：换更难的，而不是调学习率"
        )
    return Text(
        "no sample succeeds: larger groups, easier prompts first, a reward that grades failures, "
        "a supervised stage before",
        "没有样本成功：加大组、先易后难、给失败分级的奖励、先做监督阶段",
    )


def _rollouts(subject: Subject) -> list[Rollout]:
    """The subject's rollout and, while there is time, further ones until there are enough groups to count."""
    rollouts = [subject.rollout]
    began, allowed = time.perf_counter(), subject.seconds / 6
    while len(rollouts) <= _MORE_ROLLOUTS and sum(r.shape[0] for r in rollouts) < _ENOUGH_GROUPS:
        if time.perf_counter() - began + subject.sampling_seconds > allowed:
            break
        rollouts.append(subject.draw(len(rollouts)))
    return rollouts


def _groups_of_equal_outputs(subject: Subject, rollout: Rollout) -> int:
    outputs = subject.policy.decode(rollout.samples)
    return sum(len(row) > 1 and all(_same(row[0], o) for o in row[1:]) for row in outputs)


def _dead_at(rollouts: list[Rollout]) -> tuple[float, float]:
    """Shares of groups that are constant at the best and at the worst reward seen."""
    values = torch.cat([r.rewards[r.valid] for r in rollouts])
    if not values.numel():
        return 0.0, 0.0
    best, worst = values.max(), values.min()
    dead = [torch.where(r.valid, r.rewards, -torch.inf).amax(1)[~r.live_groups()] for r in rollouts]
    level, total = torch.cat(dead), sum(r.shape[0] for r in rollouts)
    if best == worst:
        return 0.0, float(len(level)) / total
    return float((level == best).sum()) / total, float((level == worst).sum()) / total


def components(subject: Subject) -> Outcome:
    """Reward components that are constant over every sample: they add an offset, not a signal."""
    parts, valid = subject.rollout.components, subject.rollout.valid
    if not parts or not bool(valid.any()):
        return not_applicable("components", Text("the reward has no named components", "奖励没有命名的成分"))
    rows = []
    for name, part in parts.items():
        x = part[valid & part.isfinite()].double()
        if not x.numel():
            continue
        rows.append({"component": name, "mean": float(x.mean()), "min": float(x.min()), "max": float(x.max())})
    dead = [r["component"] for r in rows if r["max"] - r["min"] <= 1e-9]
    named = ", ".join(f"{r['component']} = {r['mean']:g}" for r in rows if r["component"] in dead)
    numbers = {"components": len(rows), "dead": named}
    if not dead:
        text = Text("all {components} reward components vary", "{components} 个奖励成分都有变化")
        return Outcome("components", "ok", text, numbers=numbers, rows=rows)
    text = Text("constant on every sample: {dead}", "在所有样本上为常数：{dead}")
    cure = Text(
        "unit-test it on a gold answer: "
        "an unreachable format (prompt does not ask for it, regex too strict), or an offset",
        "用标准答案单测：格式不可达（提示未要求、正则过严），或只是常数偏移",
    )
    return Outcome("components", "warning", text, cure, numbers, rows)


def equivalent_settings(subject: Subject) -> Outcome:
    """Normalisers and reward modes that give the same gradient on these groups, or the same direction.

    On policy the gradient is linear in the advantages: equal advantages give the equal gradient, proportional ones the
    same direction, which Adam (whose steps do not depend on the gradient's scale) turns into the same first update.
    """
    if subject.stage.method != "grpo":
        return not_applicable("equivalent_settings", Text("no advantages in this stage", "该阶段没有优势"))
    a = subject.stage.algorithm
    own = a.advantage if isinstance(a.advantage, str) else a.advantage.function  # or a user's
    mine = subject.prepared(subject.rollout).advantages.double()
    values: dict[str, Tensor] = {}
    for name in ADVANTAGES:
        if name == own:
            continue
        try:
            values[name] = subject.prepared(subject.rollout, advantage=name).advantages.double()
        except ConfigError:
            continue  # this data has no components, or G is smaller than k
    if not bool(mine.any()):
        return not_applicable("equivalent_settings", Text("every advantage is 0 on this data", "此数据上优势全为 0"))
    rows = [{"setting": f"advantage = {n}", "to": own, "relation": _relation(mine, v)} for n, v in values.items()]
    rows += _of_families(subject)
    equal = [r["setting"] for r in rows if r["relation"] == "equal"]
    direction = [r["setting"] for r in rows if r["relation"] == "proportional"]
    numbers = {"advantage": own, "equal": ", ".join(equal) or "-", "direction": ", ".join(direction) or "-"}
    text = Text(
        "on this data, advantage = {advantage} gives the same gradient as: {equal}; the same direction as: {direction}",
        "在此数据上，advantage = {advantage} 与以下设置梯度相同：{equal}；方向相同：{direction}",
    )
    return Outcome("equivalent_settings", "ok", text, numbers=numbers, rows=rows, certainty="certain")


def sites(subject: Subject) -> Outcome:
    """What each random gate of a network does to its output and reward; measured by the family that has gates."""
    for family in families():
        text = family.probes.get("sites")
        found = resolve(text)(subject) if text else None
        if found is not None:
            return Outcome("sites", **found)
    return not_applicable("sites", Text("this policy has no gates", "该策略没有门控"))


def _relation(a: Tensor, b: Tensor) -> str:
    """equal | proportional | different, of two advantage tables."""
    scale = float(a.abs().max())
    if float((a - b).abs().max()) <= 1e-5 * scale:
        return "equal"
    if not bool(b.any()):
        return "different"
    cosine = float((a * b).sum() / (a.norm() * b.norm()))
    return "proportional" if cosine >= 1 - 1e-9 else "different"


def _of_families(subject: Subject) -> list[dict[str, Any]]:
    """What the families know of settings that this data cannot tell from the recipe's."""
    added = [family.probes.get("equivalent_settings") for family in families()]
    return [row for text in added if text for row in resolve(text)(subject)]


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, Tensor):
        return isinstance(b, Tensor) and a.shape == b.shape and bool(torch.equal(a, b))
    return bool(a == b)


def _equal(a: Tree, b: Tree) -> bool:
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(_equal(a[k], b[k]) for k in a)
    if isinstance(a, Tensor) and a.is_floating_point():
        return a.shape == b.shape and bool(torch.equal(a.nan_to_num(), b.nan_to_num()))
    return _same(a, b)

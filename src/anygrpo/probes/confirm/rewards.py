"""What the reward pays: gold, wrong and the policy's own answers; and the same questions then and now."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import torch

from anygrpo.core.policy import Policy
from anygrpo.core.probe_outcome import Outcome
from anygrpo.core.task import Scores, Task
from anygrpo.doctor import Finding
from anygrpo.probes.check import probe_stage
from anygrpo.probes.confirm.ground import Ground, Trial, Verdict
from anygrpo.probes.payment import gold_and_wrong as payment
from anygrpo.probes.significance import paired
from anygrpo.spoken import Text
from anygrpo.train.evaluation import counted

_PROMPTS = 256


def gold_and_wrong(ground: Ground, rule: str, finding: Finding | None) -> Trial:
    """Gold against wrong answers; and, where a hack or dead part is suspected, against the policy's own."""
    with ground.subject(ground.newest) as subject:
        if rule == "sign_inverted":
            return _sign(probe_stage(subject, only=("gold_and_wrong", "steering")))
        found = payment(subject)
        own = subject.rollout.rewards[subject.rollout.valid].double()
        dead = 1 - float(subject.rollout.live_groups().double().mean())
    if rule == "constant_reward":
        return _constant(found, dead)
    if found.status == "not applicable":
        return Trial("undecided", Text("not decided: {en}", "无法判定：{zh}"), _words(found))
    if rule in ("dead_term", "aux_only_gain"):
        return _part(found, finding)
    return _hack(found, float(own.mean()), float(own.std()) / math.sqrt(max(1, len(own))))


def _words(outcome: Outcome) -> dict[str, Any]:
    return {"en": outcome.say("en"), "zh": outcome.say("zh")}


def _sign(outcomes: list[Outcome]) -> Trial:
    """Gold must earn more than wrong, and a made-up preference must be followed: else a sign is wrong."""
    bad = [o for o in outcomes if o.status == "serious"]
    shown = bad or [o for o in outcomes if o.status != "not applicable"]
    words = {"en": "; ".join(o.say("en") for o in shown), "zh": "; ".join(o.say("zh") for o in shown)}
    if not shown:
        return Trial("undecided", Text("neither could be tried", "两项都无法尝试"))
    return Trial("confirmed" if bad else "refuted", Text("{en}", "{zh}"), words)


def _constant(found: Outcome, dead: float) -> Trial:
    numbers = _words(found) | {"dead": dead}
    text = Text(
        "{dead:.0%} of the groups of a fresh batch have equal rewards; {en}",
        "新采一批中 {dead:.0%} 的组奖励相同；{zh}",
    )
    return Trial("confirmed" if dead > 0.9 else "refuted", text, numbers)


def _part(found: Outcome, finding: Finding | None) -> Trial:
    """Does a gold answer earn the part that never moved, or a wrong one the part that rose?"""
    named = str((finding.facts if finding else {}).get("names", ""))
    rows = {str(r["answers"]): r for r in found.rows}
    parts = {k.removeprefix("component/") for k in rows.get("gold", {}) if k.startswith("component/")}
    wanted = sorted(p for p in parts if p in named) or sorted(parts)
    if not wanted or "wrong" not in rows:
        return Trial("undecided", Text("not decided: {en}", "无法判定：{zh}"), _words(found))
    gold = {p: float(rows["gold"][f"component/{p}"]) for p in wanted}
    other = {p: float(rows["wrong"][f"component/{p}"]) for p in wanted}
    same = all(abs(gold[p] - other[p]) <= 1e-9 for p in wanted)
    listing = ", ".join(f"{p} {gold[p]:.3g} | {other[p]:.3g}" for p in wanted)
    text = Text(
        "on gold | wrong answers: {listing}" + (": it does not tell them apart" if same else ": it tells them apart"),
        "标准 | 错误答案：{listing}" + ("：分不开二者" if same else "：分得开二者"),
    )
    return Trial("confirmed" if same else "refuted", text, {"listing": listing})


def _hack(found: Outcome, own: float, error: float) -> Trial:
    """Answers that earn more than gold ones are paid for something else; so are wrong ones that earn as much."""
    gold = float(found.numbers.get("gold", math.nan))
    numbers = _words(found) | {"own": own, "gold": gold}
    text = Text(
        "the policy's own answers earn {own:.3g}, gold ones {gold:.3g}; {en}",
        "策略自己的回答得 {own:.3g}，标准答案得 {gold:.3g}；{zh}",
    )
    beaten = own > gold + 2 * error
    return Trial("confirmed" if beaten or found.status == "serious" else "refuted", text, numbers)


def then_and_now(ground: Ground, rule: str, finding: Finding | None) -> Trial:
    """The same held-out questions, answered greedily with two states of the weights: their paired difference.

    The earlier state is the start; of a drop since the best evaluation, the best checkpoint.
    """
    best = ground.best if rule in ("validation_drop", "overfitting") else None
    if ground.newest is None:
        return Trial("undecided", Text("no checkpoint is left of this run", "这次运行没有留下检查点"))
    before, after = _answers(ground, best), _answers(ground, ground.newest)
    if before is None or after is None:
        return Trial("undecided", Text("the task holds no prompts out", "任务没有留出题目"))
    name = _measure(rule, finding, before)
    a, b = before[name], after[name]
    found = paired(a, b)
    numbers = {"name": name, "a": found.mean_a, "b": found.mean_b, "n": found.n, "low": found.low, "high": found.high,
               "gap": found.difference, "seen": found.detectable}  # fmt: skip
    text = Text(
        "{name} on {n} held-out prompts: {a:.4g} then, {b:.4g} now; difference {gap:+.3g} [{low:+.3g}, {high:+.3g}]",
        "{n} 道留出题的 {name}：先前 {a:.4g}，现在 {b:.4g}；差 {gap:+.3g} [{low:+.3g}, {high:+.3g}]",
    )
    if finding is None and found.difference >= 0:
        return Trial("refuted", text, numbers)
    return Trial(_verdict(rule, found.low, found.high, finding), text, numbers)


def _verdict(rule: str, low: float, high: float, finding: Finding | None) -> Verdict:
    """A fall is confirmed where the whole interval lies below 0; refuted where what the log shows lies outside it."""
    if rule == "eval_resolution":  # the suspicion: these questions cannot show it
        return "confirmed" if low <= 0 <= high else "refuted"
    if high < 0:
        return "confirmed"
    facts = finding.facts if finding else {}
    first, last = facts.get("best", facts.get("first")), facts.get("last")
    fall = float(first) - float(last) if isinstance(first, int | float) and isinstance(last, int | float) else 0.0
    return "refuted" if low > -max(fall, 1e-9) / 2 or low >= 0 else "undecided"


def _measure(rule: str, finding: Finding | None, found: dict[str, torch.Tensor]) -> str:
    """The measure that the finding names, where it is one of the reward's parts; else the reward."""
    named = str((finding.facts if finding else {}).get("name", ""))
    if rule == "length_collapse" and "length" in found:
        return "length"
    return next((name for name in found if name != "reward" and name in named), "reward")


def _answers(ground: Ground, at: Path | None) -> dict[str, torch.Tensor] | None:
    """measure -> [n] of greedy answers to the held-out prompts: the reward, its components, the answers' length."""
    with ground.run(at) as run, torch.no_grad():
        task: Task = run.stages[-1].task
        prompts = task.held_out()[: ground.recipe.evaluation.prompts or _PROMPTS][:_PROMPTS]
        if not prompts:
            return None
        return _scored(run.policy, task, prompts)


def _scored(policy: Policy, task: Task, prompts: list[Any]) -> dict[str, torch.Tensor]:
    rollout = policy.greedy(prompts)
    scores: Scores = task.score(prompts, policy.decode(rollout.samples))
    out = {"reward": counted(scores, task)[:, 0].cpu(), "length": rollout.mask.double().sum(-1)[:, 0].cpu()}
    return out | {name: part[:, 0].double().cpu().nan_to_num() for name, part in scores.components.items()}

"""Is the reward what is meant? Gold, wrong, empty and cut answers; its time and repeatability; what was cut off."""

from __future__ import annotations

import time
from typing import Any

import torch
from torch import Tensor

from anygrpo.core.probe_outcome import Outcome, not_applicable
from anygrpo.core.task import Scores
from anygrpo.errors import AnygrpoError
from anygrpo.probes.subject import Subject
from anygrpo.spoken import Text

_AT_LEAST, _AT_MOST = 16, 32
"""Prompts whose stored answers are scored."""


def gold_and_wrong(subject: Subject) -> Outcome:
    """Rewards of stored (gold) answers, of other prompts' answers, of empty and of cut ones."""
    step_size = subject.stage.algorithm.prompts_per_step
    prompts = subject.task.prompts(0, min(max(step_size, _AT_LEAST), _AT_MOST))
    try:
        actions, rewards = (s := subject.task.stored(prompts)).actions, s.rewards
    except AnygrpoError as error:
        return not_applicable("gold_and_wrong", Text(f"no gold answers: {error.what}", f"没有标准答案：{error.what}"))
    kept = [p for p in range(len(prompts)) if actions[p]]
    if len(kept) < 2:
        return not_applicable(
            "gold_and_wrong", Text("fewer than two prompts have stored answers", "少于两个提示有存储的答案")
        )
    gold = [_best(actions[p], rewards[p] if rewards else None) for p in kept]
    cases: dict[str, list[Any]] = {"gold": gold, "wrong": [*gold[1:], gold[0]]}
    for name, change in (("empty", _empty), ("cut", _cut)):
        made = [change(g) for g in gold]
        if all(m is not None for m in made):
            cases[name] = made
    chosen = [prompts[p] for p in kept]
    scored: dict[str, Scores] = {}
    for name, outputs in cases.items():
        try:
            scored[name] = subject.task.score(chosen, [[o] for o in outputs])
        except Exception as error:
            return _raises(name, error)
    return _compare(scored, exact=all(isinstance(g, str) for g in gold))


def _compare(scored: dict[str, Scores], exact: bool) -> Outcome:
    """Texts stored as answers are right (`exact`): they must earn more. Other stored actions are demonstrations, which
    must only not be beaten by two standard errors."""
    rows = [{"answers": name} | _summary(s) for name, s in scored.items()]
    mean = {r["answers"]: r["mean"] for r in rows}
    listing = ", ".join(f"{r['answers']} {r['mean']:.3g}" for r in rows)
    numbers: dict[str, Any] = {"prompts": len(scored["gold"].rewards), "listing": listing} | mean
    rank = [name for name in ("wrong", "empty") if name in scored and _not_above(scored["gold"], scored[name], exact)]
    if "wrong" in rank:
        text = Text(
            "gold answers are not rewarded above other prompts' answers: {listing} (mean of {prompts})",
            "标准答案的奖励不高于别题的答案：{listing}（{prompts} 题平均）",
        )
        cure = Text(
            "the reward's sign or its parsing is wrong: score one gold answer by hand",
            "奖励符号或解析有误：手工核对一个标准答案",
        )
        return Outcome("gold_and_wrong", "serious", text, cure, numbers, rows)
    if rank:
        text = Text("an empty answer earns as much as gold: {listing}", "空答案与标准答案同分：{listing}")
        return Outcome(
            "gold_and_wrong",
            "serious",
            text,
            Text("make an empty answer earn nothing", "空答案不应得分"),
            numbers,
            rows,
        )
    text = Text("mean reward of {prompts} answers: {listing}", "{prompts} 个答案的平均奖励：{listing}")
    return Outcome("gold_and_wrong", "ok", text, numbers=numbers, rows=rows)


def _not_above(gold: Scores, other: Scores, exact: bool) -> bool:
    gap = (gold.rewards - other.rewards)[:, 0].double()
    gap = gap[torch.isfinite(gap)]
    if len(gap) < 2:
        return False
    margin = 0.0 if exact else 2 * float(gap.std()) / len(gap) ** 0.5
    return float(gap.mean()) <= -margin if exact else float(gap.mean()) < -margin


def _raises(name: str, error: Exception) -> Outcome:
    text = Text("scoring {name} answers raises {error}", "给 {name} 答案打分时抛出 {error}")
    cure = Text(
        "a bad sample must be invalid data with a reason, never an exception",
        "坏样本应为带原因的无效数据，而不是异常",
    )
    numbers = {"name": name, "error": f"{type(error).__name__}: {str(error)[:200]}"}
    return Outcome("gold_and_wrong", "serious", text, cure, numbers, certainty="certain")


def _summary(scores: Scores) -> dict[str, Any]:
    valid = torch.ones_like(scores.rewards, dtype=torch.bool) if scores.valid is None else scores.valid
    row: dict[str, Any] = {"mean": _mean(scores.rewards, valid), "invalid": float((~valid).double().mean())}
    return row | {f"component/{name}": _mean(part, valid) for name, part in scores.components.items()}


def _mean(x: Tensor, valid: Tensor) -> float:
    valid = valid & x.isfinite()
    return float(x[valid].double().mean()) if bool(valid.any()) else 0.0


def _best(actions: list[Any], rewards: list[float] | None) -> Any:
    return actions[max(range(len(actions)), key=rewards.__getitem__)] if rewards else actions[0]


def _empty(answer: Any) -> Any:
    """An answer of the same type with nothing in it; None where the type has no such thing."""
    return type(answer)() if isinstance(answer, str | tuple | list) else None


def _cut(answer: Any) -> Any:
    """The first half of a text or sequence."""
    return answer[: len(answer) // 2] if isinstance(answer, str | tuple | list) else None


def repeatable_reward(subject: Subject) -> Outcome:
    """The same outputs scored twice, on fresh copies of the lists, and the seconds a sample takes."""
    answers = subject.answers
    if not subject.samples_itself:
        return not_applicable("repeatable_reward", Text("rewards are stored", "奖励来自存储"))
    began = time.perf_counter()
    first, second = (subject.task.score(list(answers.prompts), [list(r) for r in answers.outputs]) for _ in range(2))
    count = max(1, 2 * sum(map(len, answers.outputs)))
    numbers: dict[str, Any] = {
        "seconds": (time.perf_counter() - began) / count,
        "step_seconds": subject.sampling_seconds,
    }
    both = torch.isfinite(first.rewards) & torch.isfinite(second.rewards)
    numbers["difference"] = float((first.rewards - second.rewards)[both].abs().max()) if bool(both.any()) else 0.0
    invalid = 1 - float(subject.rollout.valid.double().mean())
    reasons = sorted(set(subject.rollout.reasons.values()))
    numbers |= {"invalid": invalid, "reasons": "; ".join(reasons[:3])}
    if invalid > 0.05:
        text = Text(
            "{invalid:.0%} of samples could not be scored: {reasons}", "{invalid:.0%} 的样本无法打分：{reasons}"
        )
        cure = Text("mend the reward for these outputs", "修正对这些输出的打分")
        return Outcome("repeatable_reward", "serious" if invalid > 0.5 else "warning", text, cure, numbers)
    if numbers["difference"] > 1e-6:
        text = Text("the same outputs scored twice differ by {difference:.3g}", "相同输出两次打分相差 {difference:.3g}")
        cure = Text("remove randomness and state from the reward, or average it", "去掉奖励中的随机性与状态，或取平均")
        return Outcome("repeatable_reward", "warning", text, cure, numbers, certainty="certain")
    text = Text("repeatable; {seconds:.2g} s a sample", "可重复；每样本 {seconds:.2g} 秒")
    return Outcome("repeatable_reward", "ok", text, numbers=numbers)


def truncation(subject: Subject) -> Outcome:
    """Samples cut off at the limit, and end tokens that count as decisions with nothing after them."""
    if not subject.samples_itself:
        return not_applicable("truncation", Text("actions are replayed from storage", "动作来自存储"))
    rollout = subject.rollout
    lengths = rollout.mask.sum(-1)
    cap = int(lengths.max()) if lengths.numel() else 0
    cut = 1 - float(rollout.ended.double().mean())
    numbers: dict[str, Any] = {
        "cut": cut,
        "cap": cap,
        "mean": float(lengths.double().mean()),
        "at_cap": float((lengths == cap).double().mean()),
    }
    numbers["after_end"] = _after_end(subject)
    if numbers["after_end"]:
        text = Text("{after_end} samples have decisions after an end token", "{after_end} 个样本在结束符之后还有决策")
        cure = Text("mask what follows the end token", "遮住结束符之后的部分")
        return Outcome("truncation", "serious", text, cure, numbers, certainty="certain")
    if cut <= 0.05:
        text = Text(
            "{cut:.0%} cut off; mean length {mean:.1f}, longest {cap}",
            "{cut:.0%} 被截断；平均长度 {mean:.1f}，最长 {cap}",
        )
        return Outcome("truncation", "ok", text, numbers=numbers)
    text = Text(
        "{cut:.0%} of samples are cut off at {cap} decisions before they end by themselves",
        "{cut:.0%} 的样本在 {cap} 个决策处被截断，未能自行结束",
    )
    cure = Text(
        "a larger limit (max_new_tokens), or name the end token that the model really uses (policy.eos), or mask cut "
        "samples (filter overlong_mask)",
        "加大上限（max_new_tokens），或指明模型真正使用的结束符（policy.eos），或遮掉截断样本（过滤器 overlong_mask）",
    )
    status = "serious" if cut > 0.9 else "warning" if cut > 0.15 else "ok"
    return Outcome("truncation", status, text, cure, numbers)


def _after_end(subject: Subject) -> int:
    """Samples in which a decision follows an end token; 0 where the policy has no end tokens."""
    ends = getattr(getattr(subject.policy, "support", None), "eos_ids", ())
    several_turns = getattr(getattr(subject.policy, "config", None), "max_turns", 1) > 1
    samples = subject.rollout.samples
    tokens = samples.get("completion_ids") if isinstance(samples, dict) else None
    if not ends or several_turns or tokens is None or tokens.shape != subject.rollout.mask.shape:
        return 0
    is_end = torch.isin(tokens, torch.tensor(sorted(ends))) & subject.rollout.mask
    before = is_end.long().cumsum(-1) - is_end.long() > 0
    return int((before & subject.rollout.mask).any(-1).sum())

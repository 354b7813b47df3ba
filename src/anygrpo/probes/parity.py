"""Is the scorer the sampler? Ratio 1 before any update, the same score twice, z2, the reference, faults left on."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from anygrpo.core.probe_outcome import Outcome, not_applicable
from anygrpo.core.rollout import Batch
from anygrpo.probes.subject import Subject
from anygrpo.spoken import Text

_FLOAT32, _COARSE = 1e-3, 1e-2
"""Largest |log-ratio| of a decision that rounding explains, in float32 and in bfloat16 or float16."""
_IMPOSSIBLE = 1e-6
"""A probability below which the Markov bound is called a proof."""

_ROWS = 4
"""Rows whose exact KL to themselves is looked at."""

_STORED = Text("actions are replayed from storage: nothing was sampled", "动作来自存储，没有采样")


def ratio_one(subject: Subject) -> Outcome:
    """Before the first update the new log-probs are the old ones: every ratio is 1, every log-ratio 0."""
    if not subject.samples_itself:
        return not_applicable("ratio_one", _STORED)
    batch = subject.everything()
    change = _at(subject.score(batch) - batch.old.double(), batch.mask)
    if not change.numel():
        return not_applicable("ratio_one", Text("no valid decision was sampled", "没有有效的决策样本"))
    worst = float(change.abs().max())
    limit = _rounding(subject, batch) if _coarse(subject) and worst > _COARSE else _limit(subject)
    numbers = {
        "abs_max": worst, "mean": float(change.mean()), "mean_ratio": float(change.exp().mean()), "limit": limit,
        "decisions": change.numel(),
    }  # fmt: skip
    if worst <= limit:
        text = Text(
            "log-ratio before any update: at most {abs_max:.1e} over {decisions} decisions (limit {limit:g})",
            "更新前对数概率比：{decisions} 个决策中最大 {abs_max:.1e}（上限 {limit:g}）",
        )
        return Outcome("ratio_one", "ok", text, numbers=numbers, certainty="certain")
    text = Text(
        "before any update a log-ratio is already {abs_max:.3g} (mean ratio {mean_ratio:.3g}); it must be 0 "
        "(limit {limit:g}): the policy is scored by something other than what sampled it",
        "尚未更新，对数概率比已达 {abs_max:.3g}（平均比值 {mean_ratio:.3g}），应为 0（上限 {limit:g}）："
        "打分的策略不是采样的策略",
    )
    cure = Text(
        "score in the sampler's own mode and settings: dropout off, same temperature and support, same dtype, "
        "log-probs of the behaviour policy (not the reference) as the old ones",
        "用采样时的模式和设置打分：关闭 dropout，同一温度与候选范围，同一精度，旧对数概率取行为策略而非参考策略",
    )
    status = "warning" if worst <= 10 * limit else "serious"
    return Outcome("ratio_one", status, text, cure, numbers, certainty="certain")


def markov_bound(subject: Subject) -> Outcome:
    """P(log p_other - log p_behaviour >= c) <= exp(-c) for one decision drawn from the behaviour policy."""
    if not subject.samples_itself:
        return not_applicable("markov_bound", _STORED)
    batch = subject.everything()
    change = _at(subject.score(batch) - batch.old.double(), batch.mask)
    if not change.numel():
        return not_applicable("markov_bound", Text("no valid decision was sampled", "没有有效的决策样本"))
    up = float(change.max())
    # the other way round: were the samples the scorer's, the old log-probs would be the "other" policy's
    down = float(-change.min())
    c = max(up, down)
    bound = min(1.0, change.numel() * math.exp(-min(c, 700.0)))
    numbers = {"c": c, "bound": bound, "decisions": change.numel(), "upwards": up, "downwards": down}
    if bound >= _IMPOSSIBLE:
        text = Text(
            "largest log-ratio {c:.2g}: possible for one and the same policy",
            "最大对数概率比 {c:.2g}：同一策略可能出现",
        )
        return Outcome("markov_bound", "ok", text, numbers=numbers, certainty="certain")
    text = Text(
        "a log-ratio of {c:.4g}: were sampler and scorer one policy, that would happen with probability at most "
        "{decisions} x exp(-{c:.4g}) = {bound:.1e}. It is a proof, not a trend: a lower rate or more KL cannot mend it",
        "对数概率比 {c:.4g}：若采样与打分是同一策略，概率至多 {decisions} x exp(-{c:.4g}) = {bound:.1e}。"
        "这是证明，不是趋势：降学习率或加 KL 都无济于事",
    )
    cure = Text(
        "find what differs between sampling and scoring: dropout, train mode, temperature, the reference in the old "
        "one's place, a noise-free step scored, padding counted",
        "找出采样与打分的差异：dropout、训练模式、温度、误用参考策略、给无噪声步骤打分、计入填充",
    )
    return Outcome("markov_bound", "serious", text, cure, numbers, certainty="certain")


def replay_parity(subject: Subject) -> Outcome:
    """The same rows scored twice, then in other blocks: random scorers, and the KL that is seen without any update."""
    batch = subject.everything()
    first = subject.score(batch)
    again = _at(subject.score(batch) - first, batch.mask)
    other = _at(subject.score(batch, rows=max(1, subject.block_rows // 3)) - first, batch.mask)
    if not again.numel():
        return not_applicable("replay_parity", Text("no valid decision", "没有有效决策"))
    limit = _limit(subject)
    noise = float((torch.expm1(other) - other).mean())
    numbers = {"twice": float(again.abs().max()), "blocks": float(other.abs().max()), "kl_noise": noise, "limit": limit}
    if numbers["twice"] > limit:
        text = Text(
            "the same rows scored twice differ by {twice:.3g} in a log-prob: something random is on while scoring",
            "同一批样本两次打分相差 {twice:.3g}：打分时有随机成分",
        )
        cure = Text("switch dropout and condition dropping off while scoring", "打分时关闭 dropout 与条件丢弃")
        return Outcome("replay_parity", "serious", text, cure, numbers, certainty="certain")
    text = Text(
        "scored twice: {twice:.1e} apart; in other blocks: {blocks:.1e}; KL without any update: {kl_noise:.1e}, "
        "the smallest KL that means something",
        "两次打分相差 {twice:.1e}；换分块相差 {blocks:.1e}；无更新时的 KL 为 {kl_noise:.1e}，更小的 KL 没有意义",
    )
    return Outcome("replay_parity", "ok" if numbers["blocks"] <= limit else "warning", text, numbers=numbers)


def reference_kl(subject: Subject) -> Outcome:
    """KL to the reference before the first update must be 0: the reference is the policy the stage begins with."""
    batch = subject.everything()
    if not bool(batch.mask.any()):
        return not_applicable("reference_kl", Text("no valid decision", "没有有效决策"))
    new, ref = subject.score(batch), subject.reference_scores(batch)
    gap = _at(ref - new, batch.mask)
    numbers = {
        "kl": float((torch.expm1(gap) - gap).mean()),
        "abs_max": float(gap.abs().max()),
        "beta": subject.numbers.beta,
    }
    limit = _COARSE if _coarse(subject) else _FLOAT32
    numbers["exact"] = _exact_kl(subject, batch)
    if numbers["abs_max"] <= limit < numbers["exact"]:
        text = Text(
            'the policy is its own reference, and evaluate(want={{"kl"}}) gives a KL of {exact:.3g}',
            '策略就是它自己的参考策略，而 evaluate(want={{"kl"}}) 给出的 KL 为 {exact:.3g}',
        )
        cure = Text(
            "it is sum p (log p - log reference) of each decision's whole distribution, both at the same temperature",
            "它应为每次决策整个分布上的 sum p (log p - log reference)，两者温度相同",
        )
        used = subject.numbers.beta > 0 and subject.stage.algorithm.kl == "exact"
        return Outcome("reference_kl", "serious" if used else "warning", text, cure, numbers, certainty="certain")
    if numbers["abs_max"] <= limit:
        text = Text("KL to the reference before the first update: {kl:.1e}", "首次更新前与参考策略的 KL：{kl:.1e}")
        return Outcome("reference_kl", "ok", text, numbers=numbers, certainty="certain")
    text = Text(
        "KL to the reference is {kl:.3g} before any update: the reference is not the policy the run starts from",
        "尚未更新，与参考策略的 KL 已为 {kl:.3g}：参考策略不是起始策略",
    )
    cure = Text(
        "make the starting weights the reference (adapters that start non-zero, a reference loaded from elsewhere, or "
        "one scored in another mode); a smaller beta does not mend it",
        "让参考策略等于起始权重（检查适配器初值、参考权重来源、打分模式）；调小 beta 不能解决",
    )
    used = subject.numbers.beta > 0 and subject.stage.method == "grpo"
    return Outcome("reference_kl", "serious" if used else "warning", text, cure, numbers, certainty="certain")


def _exact_kl(subject: Subject, batch: Batch) -> float:
    """Largest |KL| that the policy itself computes over a few rows; 0 where it computes none."""
    if "kl" not in subject.policy.provides:
        return 0.0
    few = batch.to(subject.device).rows(slice(0, _ROWS))
    times = slice(0, min(few.mask.shape[1], subject.policy.time_chunk or few.mask.shape[1]))
    with torch.no_grad():
        kl = subject.policy.evaluate(few.samples, times, frozenset({"kl"})).kl
    found = kl[few.mask[:, times]].abs() if kl is not None else few.old.new_zeros(0)
    return float(found.max()) if found.numel() else 0.0


def z2(subject: Subject) -> Outcome:
    """Gaussian decisions: mean of ((action - mean) / std)^2 is 1 +- 6 sqrt(2 / n) if and only if the scorer sampled."""
    measure = getattr(subject.policy, "z2", None)
    if measure is None or not subject.samples_itself:
        return not_applicable(
            "z2", Text("decisions are not Gaussian (the policy has no z2)", "决策不是高斯分布（策略没有 z2）")
        )
    value, n = measure(subject.small.samples)
    width = 6 * math.sqrt(2 / max(n, 1))
    numbers = {"z2": value, "n": n, "width": width}
    if abs(value - 1) <= width:
        text = Text(
            "z2 = {z2:.4f}, within 1 +- {width:.4f} (n = {n})", "z2 = {z2:.4f}，在 1 +- {width:.4f} 之内（n = {n}）"
        )
        return Outcome("z2", "ok", text, numbers=numbers, certainty="certain")
    text = Text(
        "z2 = {z2:.4g}, outside 1 +- {width:.2g} (n = {n}): "
        "these actions were not drawn from the Gaussians that score them",
        "z2 = {z2:.4g}，超出 1 +- {width:.2g}(n = {n})：动作不是从打分所用的高斯分布中抽取的",
    )
    cure = Text(
        "score with the sampler's mean and std: eval mode, same guidance, only the stochastic steps, no padding",
        "用采样时的均值与标准差打分：eval 模式、同样的引导、只算随机步骤、不计填充",
    )
    return Outcome("z2", "serious", text, cure, numbers, certainty="certain")


def faults_off(subject: Subject) -> Outcome:
    """Settings that exist only to reproduce published faults."""
    config = subject.run.recipe.policy
    active = list(getattr(getattr(config, "faults", None), "active", ()))
    active += [name for name in ("dropout_in_scoring",) if getattr(config, name, False)]
    if not active:
        return Outcome(
            "faults_off",
            "ok",
            Text("no reproduction-only fault is on", "没有打开任何仅供复现的故障"),
            certainty="certain",
        )
    text = Text("faults for reproduction are on: {names}", "打开了仅供复现的故障：{names}")
    cure = Text("remove them from [policy] to train", "训练前从 [policy] 中去掉它们")
    return Outcome("faults_off", "serious", text, cure, {"names": ", ".join(active)}, certainty="certain")


def _at(values: Tensor, mask: Tensor) -> Tensor:
    return values[mask]


def _limit(subject: Subject) -> float:
    return _COARSE if _coarse(subject) else _FLOAT32


def _rounding(subject: Subject, batch: Batch) -> float:
    """Twice what other blocks alone change in a log-prob: half precision in dozens of layers rounds tenths of a nat."""
    moved = subject.score(batch, rows=max(1, subject.block_rows // 3)) - subject.score(batch)
    return max(_COARSE, 2.0 * float(_at(moved, batch.mask).abs().max()))


def _coarse(subject: Subject) -> bool:
    return not subject.exact

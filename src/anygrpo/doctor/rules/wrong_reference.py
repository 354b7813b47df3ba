"""The KL reference is not the starting policy."""

from __future__ import annotations

import math

from anygrpo.doctor.columns import Columns
from anygrpo.doctor.evidence.distances import leads_nowhere
from anygrpo.doctor.evidence.progress import LONG_ENOUGH
from anygrpo.doctor.findings import Change
from anygrpo.doctor.rule import Result, finding, rule
from anygrpo.doctor.series import Series
from anygrpo.doctor.synthetic import Case, flat, healthy
from anygrpo.spoken import Text

WORDS = {
    "title": Text("The KL reference is not the starting policy", "KL 的参考模型不是训练的起点"),
    "evidence": Text(
        "KL is {first} in the very first row, before any update could have caused it, and then stays in a band"
        " ({low} to {high}, median {middle}). Against its own start a policy has KL 0.",
        "第一行的 KL 就是 {first}，此时还没有任何更新，之后一直停在一个带里（{low} 到 {high}，中位数 {middle}）"
        "。策略对自己的起点，KL 应为 0。",
    ),
    "cause": Text(
        "An adapter or checkpoint loaded into the policy but not into the reference, another base model,"
        " another precision or chat template.",
        "适配器或检查点只加载到策略、没有加载到参考模型；基座模型、精度或对话模板不同。",
    ),
    "prescription": Text(
        "Load the same weights into the reference as the policy starts from. Raising or lowering beta mends"
        " nothing here. `anygrpo check` shows the KL before the first update, adapters on and off.",
        "让参考模型加载与策略起点相同的权重。调大或调小 beta 都无济于事。`anygrpo check` 会给出第一次更新前、适"
        "配器开与关时的 KL。",
    ),
    "principle": Text("KL to the starting policy is 0 before the first update", "第一次更新之前，对起点的 KL 为 0"),
    "unlike": Text(
        "a KL blow-up: that one grows; KL averaged over the first 10 steps",
        "KL 失控（那是增长的）；前 10 步平均后的 KL",
    ),
    "evidence:rate": Text(
        "KL is {first} when the learning rates up to there add up to {rate}: no update can have caused it. Then it"
        " stays in a band ({low} to {high}, median {middle}). Against its own start a policy has KL 0.",
        "学习率累计才 {rate} 时 KL 已是 {first}：更新不可能造成它。之后它一直停在一个带里（{low} 到 {high}，中位数"
        " {middle}）。策略对自己的起点，KL 应为 0。",
    ),
    "title:scoring": Text(
        "The same weights give two answers: a KL before any update", "同一组权重给出两个答案：更新之前就有 KL"
    ),
    "evidence:scoring": Text(
        "In the very first row the KL to the reference is {first} and the KL to the policy that sampled is"
        " {own}, before any update could have caused them; then the first stays in a band ({low} to {high},"
        " median {middle}). With equal weights and equal scoring both are 0.",
        "第一行对参考模型的 KL 就是 {first}，对采样策略的 KL 是 {own}，此时还没有任何更新；之后前者一直停在一个"
        "带里（{low} 到 {high}，中位数 {middle}）。权重相同、打分方式相同时，两者都是 0。",
    ),
    "cause:scoring": Text(
        "Dropout while scoring (or another mode than in sampling), or old log-probs that were not made by the"
        " policy as it is.",
        "打分时开着 dropout（或与采样的模式不同），或旧的对数概率不是当前策略算的。",
    ),
    "prescription:scoring": Text(
        "Score in eval mode, and take old log-probs from the policy that samples, anew in each step. The"
        " learning rate and beta mend nothing here.",
        "用 eval 模式打分，每一步都从采样的策略重新取旧的对数概率。学习率和 beta 都治不了。",
    ),
}


@rule(
    stage="scoring",
    order=10,
    certainty="certain",
    experiment="zero_rate",
    needs=("kl/reference",),
    explains=("kl_far", "kl_blowup", "kl_dominates", "no_learning", "lr_too_small", "lr_too_large"),
)
def wrong_reference(run: Columns) -> Result:
    """A KL that no update can have caused, then a band that training does not move.

    Certain from .05 in the very first row of a log with one row a step, where one update a rollout is stated or that
    row shows that it holds none. Else from what the learning rate can do: KL per unit of cumulative rate is under 2e4
    in every sound run seen, and was over 1e6 in the first rows of those whose reference was another model. With
    averaged rows and no rate, the first row may hold some updates: from .5 on. Under 8 rows it is a suspicion.
    Where the policy is as far from what it just sampled with, it is the scoring that differs, not the reference.
    """
    kl = run.comparable("kl/reference")
    if not kl or len(kl) < 3 or ("penalty" in kl.key and run.framework != "nemo-rl"):
        return None
    once = run.settings.get("updates_per_batch", 1) in (1, None)
    at_start = once and kl.rows[0] in run.steps and run.steps_per_row == 1 and run.steps[kl.rows[0]] <= 1
    near_start = not run.steps or (run.steps.get(kl.rows[0], 99.0) <= 10 and (run.steps_per_row or 99.0) <= 10)
    rate = None if at_start else unpayable(run, kl)
    if len(kl) < LONG_ENOUGH and rate is None and not at_start:
        return None  # a fragment shows its start only by its counter or its rates
    if not (at_start and kl.values[0] > 0.05) and rate is None and not (near_start and kl.values[0] > 0.5):
        return None
    own = run.comparable("kl/behaviour")
    passes = run.settings.get("updates_per_batch", 1)
    if passes > 1 and own and own.rows[0] == kl.rows[0] and own.values[0] > kl.values[0] / 10:
        return None  # the first rollout's own later updates
    if at_start and rate is None and walked(run, kl):
        return None
    band = kl.end / kl.start if kl.start > 0 else math.inf
    if not 1 / 3 <= band <= 3 or min(kl.start, kl.end, kl.median) < kl.values[0] / 4:
        return None
    scoring = at_start and own is not None and own.rows[0] == kl.rows[0] and own.values[0] > kl.values[0] / 3
    if scoring and len(kl) < LONG_ENOUGH:
        return None
    shown = "updates_per_batch" in run.settings or (not scoring and still(run, kl))
    sure = at_start and shown and len(kl) >= LONG_ENOUGH
    return finding(
        "wrong_reference",
        "serious" if at_start or rate is not None else "warning",
        kl.rows[:8],
        certainty="certain" if sure else "likely",
        variant="scoring" if scoring else "rate" if rate is not None else "",
        changes=_scoring_faults(run) if scoring else (Change("reference_model"),),
        metrics=("kl/reference", "kl/behaviour") if scoring else ("kl/reference",),
        own=own.values[0] if scoring and own else 0.0,
        rate=rate or 0.0,
        first=kl.values[0],
        middle=kl.median,
        low=kl.low,
        high=kl.high,
    )


def walked(run: Columns, kl: Series) -> bool:
    """Whether the first row holds updates of its own: its ratios moved or were clipped, and that led somewhere."""
    if "updates_per_batch" in run.settings or leads_nowhere(run):
        return False
    own, clip = run.comparable("kl/behaviour"), run.get("clip/fraction")
    if own and own.rows[0] == kl.rows[0]:
        large = own.values[0] > max(0.1, kl.values[0] / 10)  # an average over passes: it ends further
        return large or (own.values[0] > kl.values[0] / 10 and kl.values[1] > 2 * kl.values[0])
    return bool(clip and clip.rows[0] == kl.rows[0] and clip.values[0] > 0.01)


def still(run: Columns, kl: Series) -> bool:
    """Whether the first row itself shows that it holds no update: nothing clipped, or no distance from the sampler.

    Else it may hold several, at a rate that could take a policy so far.
    """
    seen = (run.comparable("kl/behaviour"), run.get("clip/fraction"))
    return any(x is not None and x.rows[0] == kl.rows[0] and x.values[0] <= kl.values[0] / 100 for x in seen)


PAYABLE = 2e5
"""KL per unit of cumulative learning rate: ten times the largest seen in a sound run (1.7e4)."""


def unpayable(run: Columns, kl: Series) -> float | None:
    """The cumulative rate by the first row, where the first rows' KL is far beyond what it can have caused."""
    rate = run.get("lr")
    if rate is None:
        return None
    at, total, before, early = rate.at(), 0.0, 0.0, list[tuple[float, float]]()
    for r, x in zip(kl.rows[:3], kl.values):
        step = run.steps.get(r, before + (run.steps_per_row or 1))
        total += at.get(r, 0.0) * max(1.0, step - before)
        before = step
        early.append((x, total))
    beyond = [(x, spent) for x, spent in early if x > 0.05 and x > PAYABLE * spent]
    return early[0][1] if len(beyond) >= 2 else None


def _scoring_faults(run: Columns) -> tuple[Change, ...]:
    """Settings of ours that make scoring another policy than sampling, where the run has them."""
    faults = {"scoring_dropout": (True, "false"), "behaviour": ("first", "current")}
    return tuple(Change(name, cure) for name, (bad, cure) in faults.items() if run.settings.get(name) == bad)


def fires() -> Case:
    return (healthy(kl=flat(1.0)), {})


def silent() -> Case:
    return (healthy(kl=lambda t: 0.0 if t == 0 else 1.0), {})

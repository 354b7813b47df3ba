"""Rewards differ, the gradient is zero."""

from __future__ import annotations

from anygrpo.doctor.columns import Columns
from anygrpo.doctor.findings import Finding
from anygrpo.doctor.rule import Result, finding, rule
from anygrpo.doctor.series import Series, paired
from anygrpo.doctor.synthetic import Case, dull, healthy, with_rows
from anygrpo.spoken import Text

WORDS = {
    "title": Text("Rewards differ, the gradient is zero", "奖励有差别，梯度却是零"),
    "evidence": Text(
        "The gradient norm is exactly 0 in {count} of the {of} rows whose rewards differ.",
        "在奖励有差别的 {of} 行中，有 {count} 行梯度范数恰好为 0。",
    ),
    "evidence:still": Text(
        "The weights did not move in {count} of {of} rows with a rate above 0.",
        "在学习率大于 0 的 {of} 行中，有 {count} 行权重没有移动。",
    ),
    "evidence:every": Text(
        "The gradient norm is exactly 0 in all {count} rows, although the mean reward moves by {noise} from row to"
        " row: that every group of every batch lacks spread is hardly possible.",
        "全部 {count} 行的梯度范数恰好为 0，而平均奖励逐行变动 {noise}：每一批的每一组都没有差异，几乎不可能。",
    ),
    "cause": Text(
        "requires_grad off, log-probs detached, a frozen adapter, bf16 master weights (at rate 1e-6 only 2% of"
        " them move).",
        "requires_grad 关闭；对数概率被 detach；适配器被冻结；bf16 主权重（学习率 1e-6 时只有 2% 会动）。",
    ),
    "prescription": Text(
        "Count the trainable parameters and their change over one step (expect 1e-5 to 1e-3 relative).",
        "数一数可训练参数，以及一步之后它们的变化（相对量应在 1e-5 到 1e-3）。",
    ),
    "principle": Text("advantages alive, gradient 0", "优势在，梯度为 0"),
    "unlike": Text("a warm-up row with rate 0", "预热时学习率为 0 的那一行"),
}


@rule(
    stage="step",
    order=10,
    certainty="likely",
    experiment="zero_rate",
    needs=("grad_norm/total|update/relative_norm",),
    explains=("lr_too_small", "no_learning"),
)
def zero_gradient(run: Columns) -> Result:
    """Rewards differ and the gradient is exactly 0, or the weights do not move. A warm-up row with rate 0 is none."""
    moved, rate = run.get("update/relative_norm"), run.get("lr")
    if moved and len(moved) >= 3:
        off = rate.at() if rate else {}
        still = [r for r, x in zip(moved.rows, moved.values) if x <= 0 and off.get(r, 1.0) > 0]
        if len(still) > 0.9 * len(moved):
            return finding("zero_gradient", "serious", still, variant="still", count=len(still), of=len(moved))
    grad, inside = run.get("grad_norm/total"), run.get("reward/std_within") or run.get("advantage/std")
    within = run.get("reward/std_within") or run.get("reward/std") or inside
    if grad and not within and (found := never(run, grad)):
        return found
    if not grad or not within:
        return None
    dead = run.get("groups/dead")
    none = {r for r, x in zip(dead.rows, dead.values) if x >= 1} if dead else set[int]()
    alive = [(r, g) for r, s, g in paired(within, grad) if s > 1e-6 and r not in none]
    zero = [r for r, g in alive if abs(g) <= 1e-12]
    if len(alive) < 3 and rate and inside:  # a fragment: where a rate above 0 is told beside it, one row shows it
        at, cut = rate.at(), run.get("truncated/share")
        masked = cut is not None and cut.high > 0.5  # a mask over cut answers may have taken what differs
        zero = [] if masked else [r for r in zero if at.get(r, 0.0) > 0]
    elif len(alive) < 3:  # and of few rows a spread of the whole batch may lie between the groups alone
        return None
    if not alive or len(zero) < 0.9 * len(alive):
        return None
    return finding(
        "zero_gradient",
        "serious",
        zero,
        count=len(zero),
        of=len(alive),
        metrics=("grad_norm/total", "reward/std_within"),
    )


def never(run: Columns, grad: Series) -> Finding | None:
    """No spread is logged, but rewards move from row to row: groups that differ so do not all lack spread inside."""
    reward, dead = run.get("reward/mean"), run.get("groups/dead")
    if len(grad) < 8 or grad.high > 1e-12 or grad.low < 0 or not reward or reward.noise <= 0.005 or dead:
        return None
    rows = grad.rows
    return finding(
        "zero_gradient",
        "serious",
        rows,
        variant="every",
        count=len(rows),
        noise=reward.noise,
        metrics=("grad_norm/total", "reward/mean"),
        explains=("starved_groups",),
    )


def fires() -> Case:
    return (dull(grad_norm=0.0), {})


def silent() -> Case:
    return (with_rows(healthy(), {0: {"grad_norm": 0.0, "learning_rate": 0.0}}), {})

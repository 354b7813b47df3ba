"""The KL term holds the policy still."""

from __future__ import annotations

from anygrpo.doctor.columns import Columns
from anygrpo.doctor.evidence.progress import held_out_rose, loss_kl_slope, progress, worthless
from anygrpo.doctor.findings import Change
from anygrpo.doctor.rule import Result, finding, rule
from anygrpo.doctor.series import median, paired
from anygrpo.doctor.synthetic import Case, dull, flat
from anygrpo.spoken import Text

WORDS = {
    "title": Text("The KL term holds the policy still", "KL 项把策略按住了"),
    "evidence": Text(
        "The KL term's gradient is {ratio} times the policy term's (median of {count} rows).",
        "KL 项的梯度是策略项的 {ratio} 倍（{count} 行的中位数）。",
    ),
    "evidence:held": Text(
        "beta = {beta}, KL stands at {kl}, and the reward changed by {gain} (MDE {mde}) though advantages are healthy.",
        "beta = {beta}，KL 停在 {kl}，奖励变化 {gain}（MDE {mde}），而优势是健康的。",
    ),
    "cause": Text(
        "beta too large; KL gradients of groups that have no advantage.", "beta 太大；没有优势的组也在给 KL 梯度。"
    ),
    "prescription": Text(
        "beta of .001 to .01, and no KL gradient from dead groups.",
        "beta 取 .001 到 .01，并且没有差异的组不给 KL 梯度。",
    ),
    "principle": Text("the larger gradient decides the step", "更大的梯度决定这一步"),
    "unlike": Text(
        "a KL share of 90% of the loss value on policy, which says nothing",
        "同策略时 KL 占损失数值的 90%：那说明不了什么",
    ),
}


@rule(
    stage="step",
    order=30,
    certainty="likely",
    experiment="two_rates",
    explains=("no_learning", "lr_too_small"),
    live="patient",
)
def kl_dominates(run: Columns) -> Result:
    ours, theirs = run.get("grad_norm/policy"), run.get("grad_norm/kl")
    cut = (Change("beta", 0.001),)
    if ours and theirs:
        ratios = [(r, k / p) for r, p, k in paired(ours, theirs) if p > 0]
        middle = median(x for _, x in ratios) if ratios else 0.0
        if len(ratios) >= 3 and middle > 1:
            return finding(
                "kl_dominates", "warning", [r for r, x in ratios if x > 1], ratio=middle, count=len(ratios), changes=cut
            )
        if middle < 0.5:  # a policy held by the KL term sees two gradients of like size that cancel
            return None
    p, kl, beta = progress(run), run.comparable("kl/reference"), beta_of(run)
    spread = run.get("advantage/std")
    if not p or not kl or beta is None or beta < 0.1 or len(kl) < 8 or not (p.flat or worthless(run, p, kl)):
        return None
    if beta < 1 and held_out_rose(run):  # a weight of 1 a decision and more holds whatever else little moves
        return None
    if abs(kl.gain) > kl.mde or (spread and spread.last < 0.3):
        return None
    return finding(
        "kl_dominates",
        "warning",
        kl.rows,
        variant="held",
        beta=beta,
        kl=kl.last,
        gain=p.reward.gain,
        mde=p.reward.mde,
        changes=cut,
    )


def beta_of(run: Columns) -> float | None:
    logged, setting = run.get("beta"), run.settings.get("beta")
    if logged:
        return logged.median
    return float(setting) if isinstance(setting, int | float) else loss_kl_slope(run)


def fires() -> Case:
    return (dull(grad_norm__policy=flat(0.1), grad_norm__kl=flat(0.5)), {})


def silent() -> Case:
    return (dull(grad_norm__policy=flat(0.5), grad_norm__kl=flat(0.1)), {})

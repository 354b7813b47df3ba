"""There is no KL term."""

from __future__ import annotations

from anygrpo.doctor.columns import Columns
from anygrpo.doctor.rule import Result, finding, rule
from anygrpo.doctor.synthetic import Case, healthy, with_rows
from anygrpo.spoken import Text

WORDS = {
    "title": Text("There is no KL term", "没有 KL 项"),
    "evidence": Text("KL is exactly 0 in all {count} rows.", "KL 在全部 {count} 行里恰好是 0。"),
    "cause": Text("beta is 0, or no reference was loaded.", "beta 为 0，或没有加载参考模型。"),
    "prescription": Text("", ""),
    "principle": Text("a KL to a different policy is not 0 in every row", "对另一个策略的 KL 不会每行都是 0"),
    "unlike": Text(
        "a policy that does not move, whose KL is small and not 0", "没有移动的策略：它的 KL 很小，但不是 0"
    ),
}


@rule(
    stage="facts",
    order=30,
    certainty="certain",
    needs=("kl/reference",),
)
def kl_off(run: Columns) -> Result:
    """Exactly 0 in every row although a gradient moved the policy, and no beta is set: KL is not computed.

    A policy that does not move has a KL of 0 to itself, and a beta that is set says that there is a term.
    """
    kl, grad, beta = run.get("kl/reference"), run.get("grad_norm/total"), run.settings.get("beta")
    logged, rate = run.get("beta"), run.get("lr")
    if not kl or len(kl) < 3 or any(x != 0 for x in kl.values):
        return None
    if (isinstance(beta, int | float) and beta != 0) or (logged and logged.high > 0):
        return None
    moving = bool(grad and grad.median > 1e-9 and (rate is None or rate.median > 0))
    if not moving:
        return None
    return finding("kl_off", "info", kl.rows[:3], count=len(kl))


def fires() -> Case:
    return (healthy(kl=0.0), {})


def silent() -> Case:
    return (with_rows(healthy(kl=0.0), {70: {"kl": 1e-7}}), {})

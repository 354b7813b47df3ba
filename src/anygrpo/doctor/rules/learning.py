"""Is anything learnt at all, and could the log or the evaluation have shown it?"""

from __future__ import annotations

import math

from anygrpo.doctor.columns import Run
from anygrpo.doctor.findings import Change
from anygrpo.doctor.rules.progress import blocks, held_out_rose, outcomes, progress, rounding
from anygrpo.doctor.rules.rule import Result, finding, rule
from anygrpo.doctor.series import Series, mean


@rule("no_learning", "likely", needs=("reward/mean",), trend=True)
def no_learning(run: Run) -> Result:
    """No gain beyond MDE and no trend. Which causes the log excludes is part of the statement."""
    p = progress(run)
    if not p or not p.flat or held_out_rose(run) or p.reward.constant:
        return None
    return finding(
        "no_learning",
        "warning",
        p.reward.rows[-p.reward.quarter_size :],
        metrics=("reward/mean",),
        gain=p.reward.gain,
        mde=p.reward.mde,
        first=p.reward.first,
        count=len(p.reward),
        noise=p.reward.noise,
        excluded=excluded(run),
    )


def excluded(run: Run) -> str:
    """Names of causes that the logged metrics speak against."""
    out: list[str] = []
    cut, grad, dead, kl = (
        run.get("truncated/share"),
        run.get("grad_norm/total"),
        run.get("groups/dead"),
        run.comparable("kl/reference"),
    )
    if cut and cut.last < 0.05:
        out.append("truncation")
    if grad and grad.median > 1e-6:
        out.append("zero_gradient")
    if dead and dead.last < 0.3:
        out.append("starved_groups")
    if kl and abs(kl.last) > 1e-3:
        out.append("lr_too_small")
    return ", ".join(out) or "-"


@rule("lr_exhausted", "likely", needs=("lr", "reward/mean"), trend=True)
def lr_exhausted(run: Run) -> Result:
    """Still rising over the second half when the rate has fallen below a twentieth of its maximum."""
    p, rate = progress(run), run.get("lr")
    if not p or not rate or len(p.reward) < 40 or not p.rose or rate.high <= 0:
        return None
    if rate.values[-1] > 0.05 * rate.high:
        return None
    parts = blocks(p.reward, 4)
    width = p.reward.noise * math.sqrt(2 / p.reward.quarter_size)
    if parts[3] - parts[2] < 2 * width or parts[2] - parts[1] < 0:
        return None
    return finding(
        "lr_exhausted",
        "info",
        rate.rows[-5:],
        end=rate.values[-1],
        top=rate.high,
        third=parts[2],
        fourth=parts[3],
        changes=(Change("max_steps", factor=2.0),),
        metrics=("reward/mean", "lr"),
    )


@rule("sup_loss_flat", "likely", needs=("loss/supervised",), trend=True)
def sup_loss_flat(run: Run) -> Result:
    """Under 2% over the last 30% of the run while it carries weight; under a tenth of its start it has converged."""
    loss = run.get("loss/supervised")
    weight = run.settings.get("lambda_supervised")
    if not loss or len(loss) < 20 or loss.high <= 0 or (isinstance(weight, int | float) and weight == 0):
        return None
    tail = loss.tail(0.3)
    half = len(tail) // 2
    a, b = mean(tail[:half]), mean(tail[half:])
    if a <= 0 or abs(a - b) / a >= 0.02 or b < 0.1 * loss.values[0]:
        return None
    changes = (Change("lambda_supervised", 0.8), Change("warmup", "15 epochs"))
    return finding(
        "sup_loss_flat",
        "warning" if b > 0.5 * loss.values[0] else "info",
        loss.rows[-len(tail) :],
        a=a,
        b=b,
        change=(a - b) / a,
        changes=changes,
    )


@rule("consistency_rising", "likely", needs=("loss/consistency",), trend=True)
def consistency_rising(run: Run) -> Result:
    loss = run.get("loss/consistency")
    if not loss or len(loss) < 16:
        return None
    smooth = loss.smooth()
    least = min(smooth)
    after = loss.values[smooth.index(least) :]
    tail = Series(loss.name, loss.key, loss.rows[-len(after) :], after)
    if least <= 0 or smooth[-1] <= 1.5 * least or len(after) < 8 or tail.p >= 0.01 or tail.gain <= 0:
        return None
    return finding(
        "consistency_rising",
        "warning",
        tail.rows,
        least=least,
        now=smooth[-1],
        p=tail.p,
        changes=(Change("lambda_consistency", factor=0.5),),
    )


@rule("eval_resolution", "ask", trend=True)
def eval_resolution(run: Run) -> Result:
    """A difference between first and last evaluation that so many questions cannot show, and how many could."""
    asked = run.settings.get("eval_questions")
    for s in outcomes(run).values():
        rate = s.last
        if not 0 < rate < 1 or not 0 <= s.low <= s.high <= 1:
            continue
        n = int(asked) if isinstance(asked, int | float) and asked > 0 else questions(s)
        if n is None:
            continue
        claimed = s.values[-1] - s.values[0]
        limit = 2 * math.sqrt(2 * rate * (1 - rate) / n)
        if 0 < abs(claimed) < limit:
            needed = math.ceil(8 * rate * (1 - rate) / claimed**2)
            return finding(
                "eval_resolution",
                "info",
                (s.rows[0], s.rows[-1]),
                name=s.key,
                claimed=claimed,
                n=n,
                limit=limit,
                needed=needed,
            )
    return None


def questions(s: Series) -> int | None:
    """The number of questions, where all accuracies are multiples of 1/n and n is small enough to be sure of."""
    if rounding(list(s.values)) > 1e-5 or len(set(s.values)) < 3:
        return None
    for n in range(4, 201):
        if all(abs(x * n - round(x * n)) < 1e-4 for x in s.values):
            return n
    return None

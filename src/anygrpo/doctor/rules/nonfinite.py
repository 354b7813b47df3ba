"""NaN or infinity in the training numbers."""

from __future__ import annotations

import math

from anygrpo.doctor.columns import Columns
from anygrpo.doctor.evidence.progress import progress
from anygrpo.doctor.findings import Change
from anygrpo.doctor.rule import Result, finding, rule
from anygrpo.doctor.series import Series
from anygrpo.doctor.synthetic import Case, healthy, with_rows
from anygrpo.spoken import Text

WORDS = {
    "title": Text("NaN or infinity in the training numbers", "训练数值出现 NaN 或无穷"),
    "evidence:nothing": Text(
        "{names}: not finite in any of {count} rows, and no training goes on without them.",
        "{names}：{count} 行里没有一行是有限数，而没有它们就谈不上训练。",
    ),
    "title:never": Text("A column that was never computed", "从未计算过的一列"),
    "evidence": Text(
        "{names}: not finite in {count} rows, first in row {first}.",
        "{names}：有 {count} 行不是有限数，最早在第 {first} 行。",
    ),
    "evidence:never": Text("{names}: never finite, so never computed.", "{names}：从来不是有限数，说明从未计算。"),
    "cause": Text(
        "fp16 overflow, a standard deviation over a group of one, exp of a masked position, a reward that"
        " returned NaN.",
        "fp16 溢出；对只有一个样本的组求标准差；对被屏蔽位置取 exp；奖励函数返回了 NaN。",
    ),
    "prescription": Text(
        "Train in bf16, drop groups of one, mask with where before exp (not by multiplying), refuse optimizer"
        " steps with a non-finite gradient. Some loggers replace a NaN loss by 0: believe the gradient norm.",
        "用 bf16 训练；丢弃单样本组；在 exp 之前用 where 屏蔽（不要用乘法）；梯度不是有限数时拒绝更新。有些日志"
        "把 NaN 损失写成 0：以梯度范数为准。",
    ),
    "prescription:never": Text("Nothing to do if that term is switched off.", "如果该项本来就关闭，则无需处理。"),
    "principle": Text("NaN and infinity spread through every later sum", "NaN 与无穷会传进之后的每一个和"),
    "unlike": Text(
        "a KL column of NaN because beta is 0; rows that were not logged", "beta 为 0 时 KL 列全为 NaN；没有记录的行"
    ),
}


@rule(
    stage="log",
    order=20,
    certainty="certain",
    explains=("crash", "no_learning", "lr_too_small", "late_collapse", "zero_gradient"),
    live="at_once",
)
def nonfinite(run: Columns) -> Result:
    """Any NaN or infinity in a training metric; a column that is never finite was never computed and only noted."""
    watched = (
        "loss/total",
        "loss/policy",
        "grad_norm/total",
        "reward/mean",
        "kl/reference",
        "entropy",
        "ratio/mean",
        "advantage/std",
    )
    hit = {name: s for name, s in run.series.items() if s.bad and not name.startswith("eval/")}
    never = [s.key for s in hit.values() if not s.values]
    some = {name: s for name, s in hit.items() if s.values}
    lost = [s for name, s in hit.items() if not s.values and indispensable(name, run)]
    if lost:
        rows, names = sorted({r for s in lost for r in s.bad}), ", ".join(sorted(s.key for s in lost))
        return finding(
            "nonfinite", "serious", rows, variant="nothing", names=names, count=len(rows),
            certainty="certain" if nothing_left(lost, run) else "likely", changes=(Change("precision"),),
        )  # fmt: skip
    if not some:
        return finding("nonfinite", "info", variant="never", names=", ".join(never)) if never else None
    core = {name: s for name, s in some.items() if name in watched}
    rows = sorted({r for s in (core or some).values() for r in s.bad})
    names = ", ".join(sorted(s.key for s in (core or some).values()))
    still = max(rows) >= max(max(s.rows) for s in some.values())
    severity = "serious" if core and (still or len(rows) > 2) else "warning" if core else "info"
    return finding(
        "nonfinite", severity, rows, names=names, count=len(rows), first=rows[0], changes=(Change("precision"),)
    )


SUMS = ("loss/total", "grad_norm/total")
"""What every other term goes into, in order: finite only where all before are."""


def indispensable(name: str, run: Columns) -> bool:
    """Losses, advantages and gradients are computed in every update: NaN throughout, they were lost.

    Unless the run plainly learns; and a term was only never logged where the sum or the gradient it enters is a number
    (other than 0, which some loggers write for NaN), as the loss is where its gradient is one. Ratios and clip shares
    are NaN in healthy logs too: a mean over no update beyond the first.
    """
    p = progress(run)
    if (p and p.rose) or not name.startswith(("loss/total", "loss/policy", "advantage/", "grad_norm/total")):
        return False
    later = SUMS[SUMS.index(name) + 1 :] if name in SUMS else SUMS
    return not any((s := run.get(x)) and any(s.values) for x in later)


def nothing_left(lost: list[Series], run: Columns) -> bool:
    """Whether a sum is lost and no loss or gradient is finite anywhere: beside one, the column may be at fault."""
    return any(s.name in SUMS for s in lost) and not any(run.get(x) for x in (*SUMS, "loss/policy"))


NAN = math.nan


def fires() -> Case:
    return (with_rows(healthy(), {40: {"loss": NAN}, 41: {"grad_norm": math.inf}}), {})


def silent() -> Case:
    return ([*healthy()[:40], {"step": 41.0, "reward": 0.5}], {})

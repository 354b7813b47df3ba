"""Advantages are far too small."""

from __future__ import annotations

from anygrpo.doctor.columns import Columns
from anygrpo.doctor.evidence.progress import lost_everything
from anygrpo.doctor.rule import Result, finding, rule
from anygrpo.doctor.series import Series, mean
from anygrpo.doctor.synthetic import Case, dull, flat
from anygrpo.spoken import Text

WORDS = {
    "title": Text("Advantages are far too small", "优势小得不正常"),
    "evidence": Text(
        "The advantages' std is {now}. Normalised in live groups it would be near 1: at most {share:%} of them"
        " carry a signal, or something scales it down.",
        "优势的标准差是 {now}。在有效的组里归一化后应接近 1：最多只有 {share:%} 带有信号，或者后面又被缩小了。",
    ),
    "evidence:shrunk": Text("The advantages' std fell from {first} to {now}.", "优势的标准差从 {first} 降到 {now}。"),
    "cause": Text(
        "A std floor or epsilon as large as the spread, ranks on ties, a later scaling, most groups filtered to"
        " sameness.",
        "标准差下限或 epsilon 与差异一样大；并列名次；之后的缩放；过滤后组内都一样。",
    ),
    "prescription": Text(
        "Log the live groups after each filter stage; then the floor and the epsilon against the rewards' own spread.",
        "记录每一级过滤之后有信号的组数；再把下限和 epsilon 与奖励自身的差异比较。",
    ),
    "principle": Text("z-scores have std near 1 whatever the reward", "不论奖励如何，z 分数的标准差约为 1"),
    "unlike": Text("Dr. GRPO, which is not normalised by design", "Dr. GRPO：它本来就不归一化"),
}


@rule(
    stage="advantages",
    order=10,
    certainty="likely",
    experiment="larger_group",
    needs=("advantage/std",),
    explains=("no_learning", "lr_too_small"),
)
def advantage_compressed(run: Columns) -> Result:
    """Std below .1, or a tenth of its start, beyond what dead groups explain. Un-normalised advantages (Dr. GRPO) are
    small by design. Exactly 0 where all answers now fail alike: a consequence."""
    spread = run.get("advantage/std")
    assert spread
    if run.settings.get("scale_rewards") in (False, "none") or str(run.settings.get("normaliser")) in (
        "centred",
        "centered",
        "dr_grpo",
    ):
        return None
    if spread.last == 0 and lost_everything(run):
        return None
    absolute = spread.last < 0.1
    shrunk = len(spread) >= 8 and spread.last < 0.1 * spread.first
    if not (absolute or shrunk) or dead_groups_explain(run, spread):
        return None
    rows = [r for r, x in zip(spread.rows, spread.values) if x < 0.1] or list(spread.rows)
    return finding(
        "advantage_compressed",
        "warning",
        rows,
        variant="" if absolute else "shrunk",
        now=spread.last,
        first=spread.first,
        share=spread.last**2,
        metrics=("advantage/std",),
    )


def dead_groups_explain(run: Columns, spread: Series) -> bool:
    """Whether the advantages' std is about sqrt(live share), that of z-scores in the groups that are live."""
    dead = run.get("groups/dead")
    if not dead:
        return False
    share = dead.at()
    late = [(x, max(0.0, 1 - share[r]) ** 0.5) for r, x in zip(spread.rows, spread.values) if r in share]
    late = late[-max(1, len(late) // 4) :]
    return bool(late) and mean([x for x, _ in late]) >= mean([expected for _, expected in late]) / 3


def fires() -> Case:
    return (dull(advantage__std=flat(0.006)), {})


def silent() -> Case:
    return (dull(advantage__std=flat(0.006)), {"scale_rewards": False})

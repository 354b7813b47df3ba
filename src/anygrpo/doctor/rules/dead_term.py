"""A part of the reward never moves."""

from __future__ import annotations

from typing import Any

from anygrpo.doctor.columns import Columns
from anygrpo.doctor.evidence.progress import LONG_ENOUGH, progress
from anygrpo.doctor.rule import Result, finding, rule
from anygrpo.doctor.synthetic import Case, healthy, line
from anygrpo.spoken import Text

WORDS = {
    "title": Text("A part of the reward never moves", "奖励有一部分从不变化"),
    "evidence": Text(
        "{count} of {of} parts are constant in every row: {names}.",
        "{of} 个部分中有 {count} 个在每一行都是常数：{names}。",
    ),
    "evidence:floor": Text(
        "{count} of {of} parts are constant in every row, at their floor: {names}. Nobody ever reaches them.",
        "{of} 个部分中有 {count} 个在每一行都停在下限：{names}。从来没有人够到。",
    ),
    "evidence:ceiling": Text(
        "{count} of {of} parts are constant in every row: {names}. They are an offset.",
        "{of} 个部分中有 {count} 个在每一行都是常数：{names}。它只是一个偏移。",
    ),
    "cause": Text(
        "A regular expression or prompt that never matches, a condition that always holds.",
        "永远匹配不上的正则或提示；总是成立的条件。",
    ),
    "prescription": Text(
        "Unit-test that reward on a gold answer. A constant adds nothing to any advantage.",
        "用标准答案给这项奖励写单元测试。常数对任何优势都没有贡献。",
    ),
    "principle": Text("a constant has no gradient", "常数没有梯度"),
    "unlike": Text("a term that is saturated late, after it has taught something", "教会了东西之后才饱和的项"),
}


@rule(
    stage="reward",
    order=10,
    certainty="certain",
    experiment="gold_and_wrong",
    needs=("reward/mean",),
    explains=("aux_only_gain",),
)
def dead_term(run: Columns) -> Result:
    """Parts of the reward that never moved. At least half of them dead and no gain: a warning; else a note."""
    parts = run.components
    dead = {name: s for name, s in parts.items() if len(s) >= 3 and s.constant}
    spread = run.family("reward/component_std/")
    dead = {name: s for name, s in dead.items() if name not in spread or spread[name].high < 1e-6}
    if not dead or len(parts) < 2:
        return None
    p = progress(run)
    bad = len(dead) * 2 >= len(parts) and p is not None and p.flat
    floor = [name for name, s in dead.items() if s.mean <= 0]
    names = ", ".join(f"{name} = {s.mean:.3g}" for name, s in sorted(dead.items()))
    rows = next(iter(dead.values())).rows
    return finding(
        "dead_term",
        "warning" if bad else "info",
        rows,
        variant="floor" if floor else "ceiling",
        certainty=None if len(rows) >= LONG_ENOUGH else "likely",  # a few rounded means may agree by chance
        names=names,
        count=len(dead),
        of=len(parts),
        metrics=tuple(f"reward/component/{name}" for name in dead),
    )


COMPONENTS: dict[str, Any] = {"rewards__correct__mean": line(0.2, 0.5), "rewards__format__mean": line(0.1, 0.2)}


def fires() -> Case:
    return (healthy(**COMPONENTS, rewards__strict__mean=0.0), {})


def silent() -> Case:
    return (healthy(**COMPONENTS, rewards__strict__mean=lambda t: min(1.0, 3 * t)), {})

"""A gate whose drawn values change no output."""

from __future__ import annotations

from anygrpo.doctor.columns import Columns
from anygrpo.doctor.rule import Result, finding, rule
from anygrpo.doctor.synthetic import Case, Value, flat, healthy
from anygrpo.spoken import Text

WORDS = {
    "title": Text("Gates that do nothing", "不起作用的门控"),
    "evidence": Text(
        "{names}: drawn alone, different values changed no output in the last evaluation that drew them "
        "({dead} of {of} gates measured).",
        "{names}：在最近一次抽到不同取值的评估中单独抽样，不同取值都不改变输出（测得的 {of} 个门控中的 {dead} 个）。",
    ),
    "cause": Text(
        "A rounding that gives 0 at this size of crop (h // 128 x rate), a factor of 0, a branch that is not taken.",
        "该裁剪尺寸下取整为 0（h // 128 × rate）、乘以 0、未执行的分支。",
    ),
    "prescription": Text(
        "Look at what its value goes through, or leave it out of policy.sites. `anygrpo check` measures it (sites).",
        "查看取值之后的计算，或从 policy.sites 去掉。`anygrpo check` 可测出（sites）。",
    ),
    "principle": Text(
        "a choice that changes no output earns the same reward whatever is chosen", "不改变输出的选择，奖励总是相同"
    ),
    "unlike": Text(
        "a gate whose effect is small (its number is above 0), or one that has settled on a value (it has no number)",
        "作用很小的门控（其数值大于 0），或已收敛到一个取值的门控（没有数值）",
    ),
}
EFFECT = "restoration/gate_effect/"


@rule(stage="groups", order=55, certainty="certain")
def dead_gates(run: Columns) -> Result:
    gates = run.family(EFFECT)
    dead = {name: s for name, s in gates.items() if s.values[-1] == 0}
    if not dead:
        return None
    series = list(dead.values())
    return finding(
        "dead_gates",
        "serious" if len(dead) == len(gates) else "warning",
        [s.rows[-1] for s in series][:1],
        names=", ".join(s.key[len(EFFECT) :] for s in series),
        dead=len(dead),
        of=len(gates),
        metrics=tuple(EFFECT + name for name in dead),
    )


def _gated(effect: Value) -> Case:
    return (healthy(restoration__gate_effect__rate=effect, restoration__gate_effect__fusion=flat(1.2)), {})


def fires() -> Case:
    return _gated(0.0)


def silent() -> Case:
    return _gated(flat(0.004))

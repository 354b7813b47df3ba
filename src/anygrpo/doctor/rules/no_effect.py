"""A setting has no effect."""

from __future__ import annotations

from typing import Any

from anygrpo.doctor.columns import Columns
from anygrpo.doctor.findings import Finding
from anygrpo.doctor.rule import Result, rule
from anygrpo.spoken import Text

COMPARED = ("reward/mean", "loss/total", "loss/policy", "kl/reference", "grad_norm/total", "entropy", "length/mean")

WORDS = {
    "title": Text("A setting has no effect", "某个设置没有效果"),
    "evidence": Text(
        "{other} is equal to this run in {count} common rows (largest difference {largest}), although settings"
        " differ: {names}.",
        "{other} 与本次在 {count} 个共同行上相同（最大差 {largest}），而设置不同：{names}。",
    ),
    "cause": Text(
        "The flag is parsed and not wired, or two settings give the same gradient.",
        "参数解析了但没有接上，或两种设置给出同样的梯度。",
    ),
    "prescription": Text(
        "Compare the resolved configurations, then the gradient of one batch under both.",
        "比较解析后的配置，再比较同一批数据在两种设置下的梯度。",
    ),
    "principle": Text("two runs equal to 1e-6", "两次训练在 1e-6 之内相同"),
    "unlike": Text("a run compared with itself", "与自己比较"),
}


@rule(
    stage="outcome",
    order=50,
    certainty="ask",
    experiment="one_batch",
    live="never",
)
def no_effect(run: Columns) -> Result:
    """Said of two runs, never of one: `anygrpo.doctor.pair` asks `equal_runs`."""
    return None


def equal_runs(one: Columns, two: Columns) -> Finding | None:
    """Runs equal to 1e-6 in every common metric although a known setting differs (or the settings are not known)."""
    names = [name for name in COMPARED if one.get(name) and two.get(name)]
    changed = {k for k in set(one.settings) | set(two.settings) if one.settings.get(k) != two.settings.get(k)}
    ours = "run-folder" in (one.format, two.format)  # their recipes hold more settings than have a name here
    if one.source == two.source or len(names) < 2 or (one.settings and two.settings and not changed and not ours):
        return None
    largest, rows = 0.0, 0
    for name in names:
        a, b = one.series[name], two.series[name]
        if len(a) != len(b) or len(a) < 3:
            return None
        rows = max(rows, len(a))
        largest = max(largest, *(abs(x - y) / max(1.0, abs(x)) for x, y in zip(a.values, b.values)))
    if largest > 1e-6 or all(one.series[name].constant for name in names):
        return None
    facts: dict[str, Any] = {
        "other": one.source,
        "count": rows,
        "largest": largest,
        "names": ", ".join(sorted(changed)) or "?",
    }
    return Finding("no_effect", "certain" if changed else "ask", "warning", (), facts)

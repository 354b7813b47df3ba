"""Is the reward paid to outputs that only seem good? The policy's family makes them; see `Family.probes` ("cheats")."""

from __future__ import annotations

from anygrpo.core.probe_outcome import Outcome, not_applicable
from anygrpo.families import family_of, resolve
from anygrpo.probes.subject import Subject
from anygrpo.spoken import Text

_ROUNDING = 1e-5
"""Relative differences of float32 rewards that say nothing."""


def cheats(subject: Subject) -> Outcome:
    """Rows {"cheat", "paid", "honest", "difference", "error"} of the family, judged: a cheat that earns more than what
    it was made from, beyond two standard errors and float32's rounding, is serious; one that does not earn clearly
    less, a warning."""
    family = family_of(subject.run.recipe.policy.kind)
    text = None if family is None else family.probes.get("cheats")
    rows = resolve(text)(subject) if text else []
    if not rows:
        return not_applicable("cheats", Text("no cheats are known for these outputs", "这类输出没有已知的作弊方式"))
    listing = ", ".join(f"{r['cheat']} {r['difference']:+.3g}" for r in rows)
    doubt = lambda r: max(2 * r["error"], _ROUNDING * abs(r["honest"]))  # noqa: E731
    more = [r["cheat"] for r in rows if r["difference"] > doubt(r)]
    equal = [r["cheat"] for r in rows if abs(r["difference"]) <= doubt(r)]
    numbers = {"listing": listing, "honest": rows[0]["honest"], "names": ", ".join(more or equal)}
    cure = Text(
        "give the reward a part that sees it (for motions: floating, contact, matching), or more weight to that part",
        "为奖励加入能识别它的分项（动作：floating、contact、matching），或增大该分项权重",
    )
    if more:
        text_ = Text(
            "{names} earns more than the data it was made from (reward {honest:.3g}; differences: {listing})",
            "{names} 的奖励高于其原始数据（奖励 {honest:.3g}；差值：{listing}）",
        )
        return Outcome("cheats", "serious", text_, cure, numbers, rows)
    if equal:
        text_ = Text(
            "{names} does not earn clearly less than the data it was made from ({honest:.3g}; differences: {listing})",
            "{names} 的奖励并未明显低于其原始数据（{honest:.3g}；差值：{listing}）",
        )
        return Outcome("cheats", "warning", text_, cure, numbers, rows)
    text_ = Text("every cheat earns less: {listing}", "所有作弊输出的奖励都更低：{listing}")
    return Outcome("cheats", "ok", text_, numbers=numbers, rows=rows)

"""One update a batch: the ratio is 1."""

from __future__ import annotations

from anygrpo.doctor.columns import Columns
from anygrpo.doctor.rule import Result, finding, rule
from anygrpo.doctor.synthetic import Case, flat, healthy
from anygrpo.spoken import Text

WORDS = {
    "title": Text("One update a batch: the ratio is 1", "每批只更新一次：比值为 1"),
    "evidence:clip": Text(
        "Nothing is clipped in {count} rows, as it is with one update a batch. Whether the clip range is right"
        " cannot be seen here.",
        "{count} 行里没有裁剪，正如每批只更新一次时那样。裁剪范围是否合适，这里看不到。",
    ),
    "evidence": Text(
        "Nothing is clipped and the new policy equals the old in {count} rows. Whether the clip range is right"
        " cannot be seen here.",
        "{count} 行里没有裁剪，新旧策略相同。裁剪范围是否合适，这里看不到。",
    ),
    "cause": Text("As designed.", "设计如此。"),
    "prescription": Text("", ""),
    "principle": Text("one update a batch: ratio = 1", "每批一次更新：比值 = 1"),
    "unlike": Text(
        "a dead clip; a policy loss near 0 says nothing here, and a KL share of 90% of the loss says nothing either",
        "失效的裁剪；此时策略损失接近 0 说明不了什么，KL 占损失 90% 也说明不了什么",
    ),
}


@rule(
    stage="facts",
    order=20,
    certainty="certain",
    needs=("clip/fraction|clip/low|kl/behaviour|ratio/mean",),
)
def on_policy(run: Columns) -> Result:
    """Certain with two witnesses (clip 0 and ratio 1 or KL(new, old) 0); with the clip alone it is only likely."""
    clip = run.get("clip/fraction") or run.get("clip/high") or run.get("clip/low")
    ratio, moved = run.get("ratio/mean"), run.get("kl/behaviour")
    if clip and clip.high > 0:
        return None
    if ratio and any(abs(x - 1) > 1e-6 for x in ratio.values):
        return None
    if moved and any(abs(x) > 1e-9 for x in moved.values):
        return None
    witness = clip or ratio or moved
    assert witness
    if len(witness) < 3:
        return None
    sure = bool(clip) and bool(ratio or moved)
    variant = "" if ratio or moved else "clip"
    certainty = "certain" if sure else "likely"
    return finding("on_policy", "info", witness.rows[:3], variant=variant, certainty=certainty, count=len(witness))


def fires() -> Case:
    return (healthy(clip_ratio__region_mean=0.0, ppo_kl=0.0), {})


def silent() -> Case:
    return (healthy(clip_ratio__region_mean=0.0, ppo_kl=flat(0.001)), {})

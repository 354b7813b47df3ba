"""Nothing is ever clipped."""

from __future__ import annotations

from anygrpo.doctor.columns import Columns
from anygrpo.doctor.rule import Result, finding, rule
from anygrpo.doctor.synthetic import Case, healthy
from anygrpo.spoken import Text

WORDS = {
    "title": Text("Nothing is ever clipped", "从来没有裁剪"),
    "evidence": Text(
        "{several} updates a batch and a clip fraction of 0 in {count} rows.",
        "每批更新 {several} 次，而 {count} 行的裁剪比例都是 0。",
    ),
    "cause": Text(
        "Old log-probs recomputed after each update, or taken from the wrong place.",
        "每次更新后都重算了旧对数概率，或取错了地方。",
    ),
    "prescription": Text(
        "Take the old log-probs once, before the first update of a batch.", "旧对数概率只在一批的第一次更新之前取一次。"
    ),
    "principle": Text("several updates move the ratio", "多次更新会移动比值"),
    "unlike": Text("one update a batch, where the ratio is 1", "每批只更新一次：比值本来就是 1"),
}


CLIPPED = ("ppo", "gspo", "cispo")
"""Objectives with a clip; the others log a fraction of 0 and mean it."""
MOVED = 1e-4
"""Largest |log-ratio| that rounding explains: above it the old log-probs are right, and the ratios stay in the clip."""


@rule(
    stage="outcome",  # a small rate clips nothing either: behind all that says more of why
    order=70,
    certainty="likely",
    experiment="two_rates",
    needs=("clip/fraction|clip/high",),
)
def clip_idle(run: Columns) -> Result:
    """Nothing is ever clipped although a batch is used several times and the rate is not 0."""
    clip = run.get("clip/fraction") or run.get("clip/high")
    several = run.settings.get("updates_per_batch")
    if not clip or len(clip) < 8 or clip.high > 0 or not isinstance(several, int | float) or several <= 1:
        return None
    moved = run.get("log_ratio/abs_max")
    if (moved and moved.high > MOVED) or run.settings.get("objective", "ppo") not in CLIPPED:
        return None
    return finding("clip_idle", "warning", clip.rows, several=several, count=len(clip))


def fires() -> Case:
    return (healthy(clip_ratio__region_mean=0.0), {"updates_per_batch": 4})


def silent() -> Case:
    """Ratios that move and stay inside the clip."""
    rows = [{**row, "log_ratio/abs_max": 0.07} for row in healthy(clip_ratio__region_mean=0.0)]
    return (rows, {"updates_per_batch": 4})

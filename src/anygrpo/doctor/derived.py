"""Series that follow from others of the same log, by arithmetic; each is added in place and says of what it is made."""

from __future__ import annotations

from dataclasses import replace

from anygrpo.doctor import canonical
from anygrpo.doctor.miscounts import rename_batch_std
from anygrpo.doctor.series import Series


def derive(series: dict[str, Series]) -> None:
    """Series that follow from others: dead groups from all-best plus all-worst, or from live ones."""
    best, worst = series.get("groups/all_best"), series.get("groups/all_worst")
    if "groups/dead" not in series and best and worst and len(best) and len(worst):
        other = worst.at()
        pairs = [(r, x + other[r]) for r, x in zip(best.rows, best.values) if r in other]
        if pairs:
            name = f"{best.key} + {worst.key}"
            series["groups/dead"] = Series("groups/dead", name, tuple(r for r, _ in pairs), tuple(x for _, x in pairs))
    rename_batch_std(series)
    live = series.pop("groups/live", None)
    if live and "groups/dead" not in series:
        name = f"1 - {live.key}"
        series["groups/dead"] = Series("groups/dead", name, live.rows, tuple(1 - x for x in live.values), live.bad)
    low, high = series.get("clip/low"), series.get("clip/high")
    if "clip/fraction" not in series and low and high:
        other = high.at()
        both = [(r, x + other[r]) for r, x in zip(low.rows, low.values) if r in other]
        if both:
            name = f"{low.key} + {high.key}"
            rows, values = tuple(r for r, _ in both), tuple(x for _, x in both)
            series["clip/fraction"] = Series("clip/fraction", name, rows, values)


def signed(series: dict[str, Series], framework: str) -> None:
    """Stable-Baselines3's `entropy_loss` is minus the entropy; elsewhere a negative one has a weight."""
    entropy = series.get("entropy")
    if entropy is None or not canonical.normalise(entropy.key).endswith("entropy_loss"):
        return
    if framework == "sb3":
        series["entropy"] = replace(entropy, key=f"- {entropy.key}", values=tuple(-x for x in entropy.values))
    elif len(entropy) and entropy.high <= 0:
        del series["entropy"]


def kl_of_log_probs(series: dict[str, Series]) -> None:
    """KL to the reference where only the log-probs under both policies are logged: their mean difference (k1)."""
    now, then = series.get("log_prob/current"), series.get("log_prob/reference")
    if "kl/reference" in series or not now or not then:
        return
    other = then.at()
    both = [(r, x - other[r]) for r, x in zip(now.rows, now.values) if r in other]
    if both:
        rows, values = tuple(r for r, _ in both), tuple(x for _, x in both)
        series["kl/reference"] = Series("kl/reference", f"{now.key} - {then.key}", rows, values)

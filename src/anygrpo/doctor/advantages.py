"""The autopsy of advantages: how many groups are live, how large, and whether the normaliser can be what it says."""

from __future__ import annotations

import math

from anygrpo.doctor.argument import Autopsy
from anygrpo.doctor.evidence.advantages import bound
from anygrpo.doctor.printed import Measured


def size_of_advantages(a: Autopsy) -> None:
    """The number of groups that carry any gradient, from the spread of the advantages.

    Let q groups of G, L of them live. If the logged std was taken inside each group and averaged, it is (L/q) s, with s
    the std of one live group (1 for unbiased z-scores). Pooled over all samples it is about sqrt(L/q) s, and at least
    sqrt(1/(2q)) s as soon as one group lives; and the pooled maximum is at least sqrt((G-1)/G) >= .707.
    """
    spread, queries, top = a.given.get("advantage_std"), a.given.get("queries"), a.given.get("advantage_max")
    if top is not None and top.value >= 0.7:
        group_from_maximum(a, top)
    if spread is None or queries is None or spread.value <= 0 or queries.value < 1 or a.normaliser == "centred":
        return
    least = math.sqrt(1 / (2 * queries.value))
    if spread.high < least or (top is not None and top.high < 0.7):
        averaged(a, spread, queries.value, least)
        if top is not None:
            averaged_maximum(a, spread, top)
    elif top is not None:
        pooled(a, spread, queries.value)
    else:
        a.open.append("two_readings")


def averaged(a: Autopsy, spread: Measured, q: float, least: float) -> None:
    """std = (L/q) x 1. Under ranks a live group's own std is below 1, so L is then a lower bound: only likely."""
    live = q * spread.value
    whole = max(1, round(live))
    a.inferred["live_groups"] = whole
    a.say(
        "starved_groups",
        "serious" if live < 0.1 * q else "info",
        "averaged",
        "likely" if a.normaliser == "rank" else "certain",
        std=spread.value,
        queries=int(q),
        live=live,
        whole=whole,
        low=q * spread.low,
        high=q * spread.high,
        least=least,
        share=live / q,
    )


def averaged_maximum(a: Autopsy, spread: Measured, top: Measured) -> None:
    """max / std, averaged alike, is the largest z-score of a typical live group: it needs a group that allows it."""
    least = min((g for g in range(2, 65) if top.low / spread.high <= bound(g)), default=2)
    per_group = top.value / spread.value
    a.say("group_size_bound", "info", "averaged", top=top.value, per=per_group, group=least, std=spread.value)


def pooled(a: Autopsy, spread: Measured, q: float) -> None:
    """Pooled variance of z-scores: L (G-1) / (qG - 1); without G about L/q."""
    given = a.given.get("group_size")
    size = given.value if given else a.inferred["group_size"]
    live = spread.value**2 * ((q * size - 1) / (size - 1) if size and size > 1 else q)
    a.inferred["live_groups"] = min(int(q), max(1, round(live)))
    weight = "serious" if live < 0.1 * q else "info"
    a.say("starved_groups", weight, "pooled", std=spread.value, queries=int(q), live=live, share=live / q)


def group_from_maximum(a: Autopsy, top: Measured) -> None:
    """A largest z-score on a bound (G-1)/sqrt(G) gives G; printing must be fine enough to single one out.

    A larger group allows the same number: it is read as the bound only where so many digits meet one by chance in at
    most COINCIDENCE of cases ("3.5" lies within printing of G = 14, and is as well what one of 16 had).
    """
    if a.normaliser in ("rank", "centred") or a.other_scale or a.inferred["group_size"] is not None:
        return
    slack = max(top.half, 1e-3 * top.value)
    fits = [g for g in range(2, 257) if abs(bound(g) - top.value) <= slack]
    if len(fits) != 1:
        return
    gap = bound(fits[0] + 1) - bound(fits[0])
    if 2 * top.half <= COINCIDENCE * gap:
        a.inferred["group_size"] = fits[0]
        a.say("group_size_bound", "info", "maximum", top=top.value, group=fits[0])


COINCIDENCE = 0.02


def std_of_ranks(a: Autopsy, spread: Measured, group: Measured | None) -> None:
    """Ranks without ties have sqrt((n + 1) / (3 (n - 1))), with ties averaged at least 1 / sqrt(n - 1): one sample
    against n - 1 equal ones. A share d of dead groups leaves at most 1 - d of it (averaged; sqrt(1 - d) pooled, the
    larger, so std / tied of the groups live at most)."""
    n = group.value if group and group.value > 1 else None
    least = math.sqrt((n + 1) / (3 * (n - 1))) if n else 1 / math.sqrt(3)
    tied = 1 / math.sqrt(n - 1) if n else 0.0
    if spread.high < 0.98 * tied:
        dead = 1 - spread.high / tied
        weight = "serious" if dead >= 0.9 else "warning"
        a.say("rank_std", weight, "autopsy", std=spread.value, least=tied, n=int(n or 0), dead=dead)
    elif spread.high < 0.98 * least:
        a.say("rank_std", "warning", "ask", "ask", highest=spread.value, least=least)


def stated_normaliser(a: Autopsy) -> None:
    """Whether the stated normaliser can give the stated std at all."""
    spread, group = a.given.get("advantage_std"), a.given.get("group_size")
    if spread is None:
        return
    if a.normaliser == "rank":
        std_of_ranks(a, spread, group)
    elif a.normaliser == "zscore" and spread.high < 0.5:
        floor = a.given.get("std_floor")
        if floor is not None and floor.value > 0:
            a.say(
                "zscore_std",
                "warning",
                "autopsy_floor",
                std=spread.value,
                floor=floor.value,
                reward=spread.value * floor.value,
            )
        else:
            a.say("zscore_std", "warning", "autopsy", std=spread.value)
    top = a.given.get("advantage_max")
    if (
        top is not None
        and group is not None
        and group.value > 1
        and a.normaliser == "zscore"
        and top.low > bound(int(group.value)) * 1.001
    ):
        a.say(
            "group_size_bound", "warning", "above", top=top.value, group=int(group.value), limit=bound(int(group.value))
        )

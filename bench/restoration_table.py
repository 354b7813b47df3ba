"""Tables of paired gains from what `restoration.py` measured."""

from __future__ import annotations

from typing import Any

import torch

from anygrpo.core.intervals import arms as two_arms
from anygrpo.core.intervals import interval


def compared(arms: list[str], ours: list[str]) -> list[tuple[str, str]]:
    """What is compared: "ARM:KIND" pairs, gains of the second over the first. `ours` are the arms with GRPO."""
    rivals = [f"{arm}:greedy" for arm in arms if arm not in ours] + ["supervised/mean:soft"]
    pairs = [("warm:greedy", f"{arm}:greedy") for arm in arms]
    pairs += [("warm:greedy", "warm:best"), *((f"{arm}:greedy", f"{arm}:oracle") for arm in arms if arm not in ours)]
    for arm in ours:
        pairs += [(rival, f"{arm}:greedy") for rival in (*rivals, f"{arm}:fixed")]
        pairs += [(f"{arm}:greedy", f"{arm}:{upper}") for upper in ("best", "oracle")]
    return pairs


def table(results: list[dict[str, Any]], names: list[str], pictures: list[str], a: str, b: str) -> list[dict[str, Any]]:
    """Paired gains of b over a, per degradation and over all: keys are "ARM:KIND". Intervals are over pictures; of the
    last row, of several seeds, they are Student's t over pictures and seeds."""

    def numbers(result: dict[str, Any], key: str, metric: str) -> torch.Tensor:
        arm, kind = key.split(":")
        return torch.tensor(result["arms"][arm][kind][metric])

    rows = []
    for name in [*dict.fromkeys(names), "all"]:
        places = [i for i, n in enumerate(names) if name in (n, "all")]
        row: dict[str, Any] = {"degradation": name}
        for metric in METRICS:
            gain = torch.cat([(numbers(r, b, metric) - numbers(r, a, metric))[places] for r in results])
            clusters = [pictures[i] for i in places] * len(results)
            base = torch.cat([numbers(r, a, metric)[places] for r in results]).mean().item()
            found = interval(gain, clusters)
            row[metric] = [base, found.mean, found.low, found.high]
        rows.append(row)
    if len(results) > 1:
        both = {m: [scenes_of([numbers(r, key, m) for r in results], pictures) for key in (a, b)] for m in METRICS}
        found = {m: two_arms(*x) for m, x in both.items()}
        rows.append({"degradation": "all, over scenes and seeds"}
                    | {m: [f.mean_a, f.difference, f.low, f.high] for m, f in found.items()})  # fmt: skip
    return rows


METRICS = ("psnr", "ssim", "reward")


def scenes_of(values: list[torch.Tensor], pictures: list[str]) -> torch.Tensor:
    """[seeds, pictures]: means over a picture's degradations."""
    names = sorted(set(pictures))
    places = [[i for i, p in enumerate(pictures) if p == name] for name in names]
    return torch.stack([torch.stack([x[i].mean() for i in places]) for x in values])


def printed(title: str, rows: list[dict[str, Any]]) -> None:
    print(f"\n{title}\n| degradation | PSNR dB | gain [95%] | SSIM | gain [95%] |\n|---|---|---|---|---|")
    for r in rows:
        p, s = r["psnr"], r["ssim"]
        print(
            f"| {r['degradation']} | {p[0]:.2f} | {p[1]:+.3f} [{p[2]:+.3f}, {p[3]:+.3f}] "
            f"| {s[0]:.4f} | {s[1]:+.4f} [{s[2]:+.4f}, {s[3]:+.4f}] |"
        )


def tables(
    results: list[dict[str, Any]], arms: list[str], ours: list[str], names: list[str], pictures: list[str]
) -> dict[str, list[dict[str, Any]]]:
    """Every comparison that was measured, printed and returned."""
    summary = {}
    for a, b in compared(arms, ours):
        sides = [side.split(":") for side in (a, b)]
        both = [r for r in results if all(kind in r["arms"].get(arm, {}) for arm, kind in sides)]
        if both:
            title = f"{a} -> {b} (seeds {' '.join(str(r['seed']) for r in both)})"
            summary[f"{a} -> {b}"] = table(both, names, pictures, a, b)
            printed(title, summary[f"{a} -> {b}"])
    return summary

"""An exported selector, loaded in a process of its own, picks what the policy picks."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from anygrpo.core.device import of_a_child
from anygrpo.errors import TrainingError
from anygrpo.scratch import Scratch
from anygrpo.selection.offer import IDS, POOL, Offer
from anygrpo.spoken import Text

if TYPE_CHECKING:
    from anygrpo.selection.policy import SelectorPolicy

QUERIES, CANDIDATES, MOST = 16, 24, 4096
CLOSE = 1e-4
"""Largest difference of a pick's probability: another process may sum in another order."""

LINES = """
import json, sys
from anygrpo.selection.apply import apply
from anygrpo.selection.export import load
folder, queries, candidates = sys.argv[1:]
print(json.dumps(apply(load(folder), {"queries": queries, "candidates": candidates})))
"""


def certify(policy: SelectorPolicy, folder: Path, offer: Offer) -> dict[str, Any]:
    """Picks among random candidates for random queries, here and from `folder` in a fresh process.

    Args:
        offer: what queries are offered here; `folder` must know it by itself. There are more candidates than its pool
            (of at most 4,096), and the queries' ids are among the candidates'.

    Returns:
        What was compared: "queries", "candidates", "other_picks" (queries with other picks), "probability" (largest
        difference of a pick's probability).

    Raises:
        TrainingError: the folder does not load there, or picks otherwise.
    """
    from anygrpo.selection.apply import apply

    draw = np.random.default_rng(0)
    many = CANDIDATES + max(policy.config.shots, policy.config.evaluation_shots or 0, min(offer.pool or 0, MOST))
    with Scratch("export") as place:
        tables = [str(place / f"{name}.npz") for name in ("queries", "candidates")]
        for file, count in zip(tables, (QUERIES, many)):
            rows = draw.normal(size=(count, policy.config.features)).astype(np.float32)
            np.savez(file, ids=np.arange(count), embeddings=rows)
        there = _elsewhere(folder, tables)
        here = apply(policy, {"queries": tables[0], "candidates": tables[1]} | offer.or_else(Offer(POOL, IDS)).told())
    other = sum(a["picks"] != b["picks"] for a, b in zip(here, there, strict=True))
    pairs = [(x, y) for a, b in zip(here, there) for x, y in zip(a["probabilities"], b["probabilities"])]
    away = float(np.max([abs(x - y) for x, y in pairs], initial=0.0))  # NaN where there is one
    if other or not away <= CLOSE:
        raise TrainingError(
            Text(
                f"{folder}, loaded by itself, picks otherwise for {other} of {QUERIES} queries; a "
                "pick's probability is "
                f"{away:.2g} away (allowed {CLOSE:g})",
                f"单独加载的 {folder} 对 {QUERIES} 个查询中的 {other} 个选出不同的结果；选择概率相差 "
                f"{away:.2g}（允许 {CLOSE:g}）",
            ),
            Text(
                "weights that changed while they were written, or another version of anygrpo",
                "权重在写入时改变了，或 anygrpo 的版本不同",
            ),
        )
    return {
        "queries": QUERIES,
        "candidates": many,
        "other_picks": 0,
        "probability": away,
        "torch": torch.__version__,
    }


def _elsewhere(folder: Path, tables: list[str]) -> list[dict[str, Any]]:
    """What `folder` picks in a fresh process.

    Raises:
        TrainingError: it does not load there.
    """
    words = [sys.executable, "-c", LINES, str(folder.resolve()), *tables]
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=of_a_child())
    if done.returncode:
        said = done.stderr.strip().splitlines() or ["no output"]
        raise TrainingError(
            Text(
                f"{folder} does not load in a process of its own: {said[-1]}",
                f"{folder} 在单独的进程中无法加载：{said[-1]}",
            ),
            Text("export it again", "请重新导出"),
        )
    return json.loads(done.stdout.strip().splitlines()[-1])

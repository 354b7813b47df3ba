"""The worst-samples curriculum: of each degradation, the share that the start model restores worst."""

from __future__ import annotations

import json
from pathlib import Path

from anygrpo.errors import DataError
from anygrpo.files import json_value
from anygrpo.spoken import Text


def worst_of(rewards: list[float], degradations: list[str], share: float) -> list[int]:
    """Indices of the lowest `share` per degradation (at least one), ascending."""
    kept: list[int] = []
    for name in dict.fromkeys(degradations):
        places = sorted((i for i, d in enumerate(degradations) if d == name), key=lambda i: (rewards[i], i))
        kept += places[: max(1, round(share * len(places)))]
    return sorted(kept)


def save(path: Path, kept: list[int], key: str) -> None:
    """Write the kept indices with the key of the pool that they index."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"pool": key, "kept": kept}))


def load(path: Path, key: str) -> list[int]:
    """Read them back.

    Raises:
        DataError: unreadable, or of another pool (other pictures, degradations, crops or seed).
    """
    try:
        content = json_value(path.read_text())
        pool, kept = content["pool"], [int(i) for i in content["kept"]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(
            Text(f"{path} is not a ranking of samples: {error}", f"{path} 不是样本的排名：{error}")
        ) from error
    if pool != key:
        raise DataError(
            Text(
                f"{path} ranks pool {pool}, this recipe's is {key}",
                f"{path} 给样本池 {pool} 排名，而这个配方的是 {key}",
            ),
            Text("rank again: leave out task.worst.file", "请重新排名：去掉 task.worst.file"),
        )
    return kept

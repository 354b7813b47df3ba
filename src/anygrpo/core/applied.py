"""Rows of an apply that may be interrupted: kept in a JSONL file as they come, taken up again by the same weights."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from torch import Tensor

from anygrpo.core.policy import Policy
from anygrpo.core.trained import state_of
from anygrpo.errors import DataError
from anygrpo.files import json_value, lines_of
from anygrpo.spoken import Text

OF = "of"
"""Key of a row: what made it."""
_PER_TENSOR = 1024


def made_by(policy: Policy, **settings: Any) -> str:
    """What decides an output beside the input, in 16 digits: trained weights (numbers of each) and settings."""
    digest = hashlib.sha256(json.dumps(settings, sort_keys=True, default=str).encode())
    for name, tensor in state_of(policy.trainable()).items():
        digest.update(name.encode())
        digest.update(_sampled(tensor).numpy().tobytes())
    return digest.hexdigest()[:16]


def digest_of(tensor: Tensor, names: Iterable[str] = ()) -> str:
    """Of evenly spread numbers of a tensor, and of names, in 16 digits."""
    digest = hashlib.sha256(json.dumps([list(tensor.shape), *names]).encode())
    digest.update(_sampled(tensor).numpy().tobytes())
    return digest.hexdigest()[:16]


def _sampled(tensor: Tensor) -> Tensor:
    flat = tensor.detach().flatten()
    return flat[:: max(1, flat.numel() // _PER_TENSOR)].float().cpu().contiguous()


def kept_rows(file: Path | None, of: str, asked: list[Any], key: str, together: int = 1) -> list[dict[str, Any]]:
    """The rows that `file` holds already, in order; a last line that was cut off is taken away.

    Args:
        asked: what each row's `key` must be.
        together: rows are made in batches of so many; of a batch that was cut off none is kept.

    Raises:
        DataError: the file holds rows of other inputs, weights or settings.
    """
    if file is None or not file.exists():
        return []
    rows: list[dict[str, Any]] = []
    for line in lines_of(file.read_text(encoding="utf-8")):
        try:
            row = json_value(line)
        except ValueError:
            break
        if not isinstance(row, dict):
            break
        rows.append(row)
    for i, row in enumerate(rows):
        if i >= len(asked) or row.get(key) != asked[i]:
            raise DataError(
                Text(
                    f"{file} holds answers to other prompts, from line {i + 1} on",
                    f"{file} 从第 {i + 1} 行起是其他提示的回答",
                ),
                Text("name another file", "请换一个文件名"),
            )
        if row.get(OF) != of:
            raise DataError(
                Text(
                    f"{file} holds answers of other weights or settings, from line {i + 1} on",
                    f"{file} 从第 {i + 1} 行起是其他权重或设置的回答",
                ),
                Text("name another file", "请换一个文件名"),
            )
    if len(rows) < len(asked):
        rows = rows[: len(rows) // together * together]
    part = file.with_name(f".{file.name}.part")
    part.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    part.replace(file)
    return rows


def add_rows(file: Path | None, rows: list[dict[str, Any]], of: str) -> None:
    """Append rows, each with what made it; they are on the disk when this returns."""
    for row in rows:
        row[OF] = of
    if file is None:
        return
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a", encoding="utf-8") as lines:
        lines.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        lines.flush()
        os.fsync(lines.fileno())

"""What was written, read: TRL's completions tables (JSON lines, CSV; Parquet where pyarrow is there), verl's rollout
dumps, our samples/."""

from __future__ import annotations

import csv
import importlib
import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from anygrpo.doctor.log import PROMPT, TEXT, number
from anygrpo.errors import DataError
from anygrpo.spoken import Text

SCORE = ("advantage", "advantages", "reward", "score", "rewards", "total_reward")
TRUTH = ("gts", "ground_truth", "target", "solution", "truth", "label", "gold", "correct", "acc", "accuracy")
STEP = re.compile(r"(?:step_|completions_|^)0*(\d+)$")


@dataclass(frozen=True)
class Sample:
    """One answer: where and when, what it says, what it got."""

    prompt: str
    text: str
    score: float
    step: float
    right: float | None = None


def read_samples(path: str | Path) -> list[Sample]:
    """Answers of a file or of all files in a folder.

    Raises:
        DataError: nothing there, no answers with a score, or a Parquet file without pyarrow.
    """
    where = Path(path)
    if not where.exists():
        raise DataError(
            Text(f"{path}: no such file or folder", f"{path}：没有这个文件或文件夹"),
            Text("give a folder of samples or a completions table", "请给出样本文件夹或回答的表格"),
        )
    folder = where / "samples" if (where / "samples").is_dir() else where
    files = sorted(p for p in folder.rglob("*") if p.suffix in READERS) if folder.is_dir() else [folder]
    rows = (one for file in files for row in rows_of(file) for one in spread_out(row | {"__file": file.stem}))
    found = [sample for row in rows if (sample := sample_of(row))]
    if not found:
        raise DataError(
            Text(f"{path}: no answers with a score found", f"{path}：没有找到带分数的回答"),
            Text("each needs a text and a reward or advantage", "每条需要一段文本，以及奖励或优势"),
        )
    return found


def rows_of(path: Path) -> Iterator[dict[str, Any]]:
    reader = READERS.get(path.suffix, jsonl_rows)
    try:
        yield from reader(path)
    except (OSError, ValueError, csv.Error) as error:
        raise DataError(
            Text(f"{path}: cannot be read ({str(error)[:100]})", f"{path}：无法读取（{str(error)[:100]}）"),
            Text("give JSON lines, CSV or Parquet", "请给出 JSON 行、CSV 或 Parquet"),
        ) from None


def jsonl_rows(path: Path) -> Iterator[dict[str, Any]]:
    with path.open(encoding="utf-8", errors="replace") as handle:
        for line in handle:
            if line.strip().startswith("{"):
                yield json.loads(line)


def json_rows(path: Path) -> Iterator[dict[str, Any]]:
    data: Any = json.loads(path.read_text("utf-8", "replace"))
    if isinstance(data, dict):  # a table of columns
        table = cast(dict[str, Any], data)
        columns: dict[str, list[Any]] = {k: v for k, v in table.items() if isinstance(v, list)}
        data = [dict(zip(columns, cells)) for cells in zip(*columns.values())]
    yield from (row for row in data if isinstance(row, dict))


def csv_rows(path: Path) -> Iterator[dict[str, Any]]:
    with path.open(encoding="utf-8", errors="replace", newline="") as handle:
        yield from csv.DictReader(handle)


def parquet_rows(path: Path) -> Iterator[dict[str, Any]]:
    try:
        parquet: Any = importlib.import_module("pyarrow.parquet")
    except ImportError:
        raise DataError(
            Text(f"{path}: a Parquet table", f"{path}：这是 Parquet 表"),
            Text("pip install pyarrow, or save it as JSON lines", "pip install pyarrow，或存为 JSON 行"),
        ) from None
    for batch in parquet.ParquetFile(path).iter_batches():
        yield from batch.to_pylist()


READERS = {".jsonl": jsonl_rows, ".json": json_rows, ".csv": csv_rows, ".parquet": parquet_rows}


def spread_out(row: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """A row of one answer as it is; a row of a whole group (lists of texts and scores) as one row an answer."""
    texts = next((k for k in (*TEXT, "outputs") if isinstance(row.get(k), list)), None)
    scores = next((k for k in SCORE if isinstance(row.get(k), list)), None)
    if texts is None or scores is None or len(row[texts]) != len(row[scores]):
        yield row
        return
    for text, score in zip(row[texts], row[scores]):
        yield row | {scores: score, texts: None, "completion": text}


def sample_of(row: dict[str, Any]) -> Sample | None:
    text, score = first(row, TEXT), next((x for k in SCORE if (x := number(row.get(k))) is not None), None)
    if text is None or score is None or not math.isfinite(score):
        return None
    found = STEP.search(str(row.get("__file", "")))
    step = number(row.get("step"))
    truth = next((row[k] for k in TRUTH if row.get(k) not in (None, "")), None)
    right = number(truth) if number(truth) in (0.0, 1.0) else None
    if right is None and isinstance(truth, str):
        right = float(truth.strip() in text)
    return Sample(
        first(row, PROMPT) or "", text, score, step if step is not None else float(found[1]) if found else 0.0, right
    )


def first(row: dict[str, Any], names: tuple[str, ...]) -> str | None:
    """The first of some fields as text; a conversation's last message."""
    for name in names:
        value: Any = row.get(name)
        if isinstance(value, list) and value and isinstance(value[-1], dict):
            value = cast(dict[str, Any], value[-1]).get("content")
        if isinstance(value, str) and value:
            return value
    return None

"""Parquet tables: histories that trackers export (`history.parquet` of wandb's artifacts), with pyarrow."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

from anygrpo.doctor.log import Log
from anygrpo.doctor.readers.source import Rows
from anygrpo.doctor.readers.wandb import row_of
from anygrpo.errors import DataError
from anygrpo.spoken import Text


def looks_like(head: bytes) -> bool:
    return head.startswith(b"PAR1")


def read(path: Path, source: str) -> Log:
    """A row a row of the table, without the cells that are empty; wandb's own columns are left out.

    Raises:
        DataError: pyarrow is not installed, or the file is damaged.
    """
    try:
        parquet: Any = importlib.import_module("pyarrow.parquet")
    except ImportError:
        raise DataError(
            Text(f"{source}: Parquet needs pyarrow", f"{source}：读取 Parquet 需要 pyarrow"),
            Text("pip install pyarrow, or export the history as CSV", "pip install pyarrow，或把历史导出为 CSV"),
        ) from None
    rows = Rows()
    try:
        for batch in parquet.ParquetFile(path).iter_batches():
            for item in batch.to_pylist():
                if row := row_of(item):
                    rows.append(row)
    except (OSError, ValueError) as error:
        raise DataError(
            Text(f"{source}: not a readable Parquet file ({error})", f"{source}：不是可读的 Parquet 文件（{error}）"),
            Text("export it again, or as CSV", "请重新导出，或导出为 CSV"),
        ) from None
    return Log(source, "parquet", rows, notes=rows.note)

"""A row of the data: an object with a prompt, and candidates that can be read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from anygrpo.errors import DataError, suggestion
from anygrpo.language.tasks.messages import clean_prompt
from anygrpo.language.tasks.pictures import pictures_of, with_pictures
from anygrpo.spoken import Text

Columns = tuple[str, ...] | Callable[[dict[str, Any]], tuple[str, ...]]
"""Names of columns, or a row -> its own."""


def row_of(
    value: Any, where: str, prompt_column: str, pictures: Columns = (), folder: Path | None = None
) -> dict[str, Any]:
    """The row with its prompt under "prompt", pictures in their places.

    Args:
        pictures: columns that hold some, or what tells those of a row. folder: from which their paths are.
    """
    if not isinstance(value, dict):
        raise DataError(
            Text(f"{where}: a {type(value).__name__}, not an object", f"{where}：是 {type(value).__name__}，不是对象"),
            Text("write one JSON object a line", "请每行写一个 JSON 对象"),
        )
    if prompt_column not in value:
        raise DataError(
            Text(
                f"{where}: no column {prompt_column!r}; {suggestion(prompt_column, value)}",
                f"{where}：没有 {prompt_column!r} 列；{suggestion(prompt_column, value)}",
            ),
            Text("set task.prompt_column", "请设置 task.prompt_column"),
        )
    value = dict(value)
    prompt = clean_prompt(value.pop(prompt_column), where, folder)
    pictures = pictures(value) if callable(pictures) else pictures
    if pictures or not isinstance(prompt, str):
        prompt = with_pictures(prompt, pictures_of(value, pictures, where, folder), where)
    check_candidates(value.get("candidates"), where)
    return value | {"prompt": prompt}


def check_candidates(candidates: Any, where: str) -> None:
    if candidates is None:
        return
    good = isinstance(candidates, list) and all(
        isinstance(c, dict) and isinstance(c.get("text"), str) and finite(c.get("reward", 0.0)) for c in candidates
    )
    if not good:
        raise DataError(
            Text(f"{where}: candidates cannot be read", f"{where}：候选无法读取"),
            Text('write [{"text": "...", "reward": 0.5}, ...]', '请写成 [{"text": "...", "reward": 0.5}, ...]'),
        )


def finite(value: Any) -> bool:
    return isinstance(value, int | float) and value == value and abs(value) != float("inf")

"""Tensors in safetensors files, and the JSON beside them. Reading runs no code.

A file that is for this package alone is `numbered`: its tensors are called "0", "1", ..., and their names stand in the
header. No library takes such a file for weights: under their own names an optimizer's moments of adapters look like
adapters to diffusers.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from anygrpo.errors import DataError
from anygrpo.spoken import Text

NAMES = "anygrpo.names"
"""Where in its header a numbered file says the names, in order, as a JSON list."""


def write_tensors(
    path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None, numbered: bool = False
) -> None:
    """A safetensors file; tensors that are views, or share memory, are copied first.

    Args:
        numbered: under numbers, names in the header: no library takes the file for weights.

    Raises:
        OSError: the disk is full, or not writable.
    """
    held: set[int] = set()
    plain: dict[str, Tensor] = {}
    for i, (name, tensor) in enumerate(tensors.items()):
        t = tensor.detach().cpu()
        own = t.is_contiguous() and t.untyped_storage().nbytes() == t.numel() * t.element_size()
        address = t.untyped_storage().data_ptr()
        plain[str(i) if numbered else name] = t if own and address not in held and t.numel() else t.contiguous().clone()
        held.add(address)
    names = {NAMES: json.dumps(list(tensors), ensure_ascii=False)} if numbered else {}
    try:
        save_file(plain, path, metadata={"format": "pt", **(metadata or {}), **names})
    except SafetensorError as error:
        code = re.search(r"os error (\d+)", str(error))
        raise OSError(int(code[1]) if code else 5, str(error), str(path)) from None


def read_tensors(path: Path) -> dict[str, Tensor]:
    """All tensors of a safetensors file, mapped rather than read: ranks of one host share its pages.

    Raises:
        DataError: not a safetensors file, or a numbered one whose header does not name its tensors.
    """
    try:
        with safe_open(path, "pt") as file:
            found = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            listed = (file.metadata() or {}).get(NAMES)
    except (SafetensorError, OSError, ValueError) as error:
        raise DataError(
            Text(f"{path} is no safetensors file: {error}", f"{path} 不是 safetensors 文件：{error}"),
            Text("give another file, or another checkpoint", "请给出另一个文件，或另一个检查点"),
        ) from None
    return found if listed is None else {name: found[key] for name, key in _table(path, listed, found).items()}


def _table(path: Path, listed: str, found: Mapping[str, Any]) -> dict[str, str]:
    """name -> number of a numbered file."""
    try:
        names = json.loads(listed)
        table = {name: str(i) for i, name in enumerate(names)} if isinstance(names, list) else {}
    except (ValueError, RecursionError, TypeError):
        table = {}
    if set(table.values()) != set(found) or not all(isinstance(name, str) for name in table):
        raise DataError(
            Text(
                f"{path}: its header does not name its {len(found)} tensors",
                f"{path}：文件头没有列出它的 {len(found)} 个张量",
            ),
            Text("take another checkpoint", "请用另一个检查点"),
        )
    return table


def read_tensor(path: Path, name: str, shape: list[int] | None = None) -> Tensor:
    """One tensor of a safetensors file, of the shape that was announced (None: of any).

    Raises:
        DataError: absent, or of another shape.
    """
    try:
        with safe_open(path, "pt") as opened:
            found = opened.get_tensor(name)
    except (SafetensorError, OSError) as error:
        raise DataError(
            Text(f"{path} cannot be read: {error}", f"{path} 无法读取：{error}"),
            Text("take another checkpoint", "请用另一个检查点"),
        ) from None
    if shape is not None and list(found.shape) != shape:
        raise DataError(
            Text(
                f"{path}: {name} has shape {list(found.shape)}, {shape} was written",
                f"{path}：{name} 的形状是 {list(found.shape)}，写入时是 {shape}",
            ),
            Text("take another checkpoint", "请用另一个检查点"),
        )
    return found


def read_json(path: Path) -> dict[str, Any]:
    """A JSON table.

    Raises:
        DataError: absent, or not a table.
    """
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(
            Text(
                f"{path} cannot be read: {type(error).__name__}: {error}",
                f"{path} 无法读取：{type(error).__name__}: {error}",
            ),
            Text("take another checkpoint", "请用另一个检查点"),
        ) from None
    if not isinstance(value, dict):
        raise DataError(
            Text(f"{path} holds a {type(value).__name__}, not a table", f"{path} 中是 {type(value).__name__}，不是表"),
            Text("take another checkpoint", "请用另一个检查点"),
        )
    return value

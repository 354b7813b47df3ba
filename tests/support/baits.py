"""Files that create another file if anything unpickles them."""

from __future__ import annotations

import io
import os
import pickle
from pathlib import Path
from typing import Any

import torch


class Call:
    def __init__(self, path: Path) -> None:
        self.path = str(path)

    def __reduce__(self) -> Any:
        return os.mkdir, (self.path,)


def bait(mark: Path) -> bytes:
    """A pickle whose loading makes the folder `mark`."""
    return pickle.dumps({"step": 1, "x": Call(mark)})


def torch_bait(mark: Path) -> bytes:
    """The same as torch.save writes it."""
    buffer = io.BytesIO()
    torch.save({"step": 1, "x": Call(mark)}, buffer)
    return buffer.getvalue()

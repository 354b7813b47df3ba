"""What was made last, kept up to a number of bytes."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any

from torch import Tensor


class Recent:
    """Tensors, or tables that hold some, by key; the longest unused ones go first.

    Args:
        limit: bytes of tensors kept. One larger than that is made each time.
    """

    def __init__(self, limit: int) -> None:
        self.limit, self.bytes = limit, 0
        self._kept: OrderedDict[Hashable, Any] = OrderedDict()

    def __call__(self, key: Hashable, make: Callable[[], Any]) -> Any:
        """What is kept under `key`, or made and kept."""
        if key in self._kept:
            self._kept.move_to_end(key)
            return self._kept[key]
        value = make()
        size = _size(value)
        if size <= self.limit:
            self._kept[key] = value
            self.bytes += size
            while self.bytes > self.limit:
                self.bytes -= _size(self._kept.popitem(last=False)[1])
        return value

    def __len__(self) -> int:
        return len(self._kept)


def _size(value: Any) -> int:
    if isinstance(value, Tensor):
        return value.numel() * value.element_size()
    return sum(_size(x) for x in value.values()) if isinstance(value, dict) else 0

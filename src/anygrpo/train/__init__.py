"""The loop, and what it calls. `anygrpo.train(policy, task)` is one name with this room, so the room can be called."""

from __future__ import annotations

import importlib
import sys
import types
from typing import Any


class _Room(types.ModuleType):
    def __call__(self, *args: Any, **settings: Any) -> Any:
        return importlib.import_module("anygrpo.watch.session").train(*args, **settings)


sys.modules[__name__].__class__ = _Room

"""Torch files read without running what they name: tensors and plain values come back, every other object as a husk.

`torch.load(weights_only=True)` refuses a file that holds anything but tensors, and trainers put much beside them: their
arguments, a path, a config, the whole module. Here no class of the file is looked up but those in `ALLOWED`; of the
others only the name and the state are kept, so nothing of the file's can run.
"""

from __future__ import annotations

import pickle
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from anygrpo.errors import DataError
from anygrpo.spoken import Text

ALLOWED: dict[str, frozenset[str]] = {
    "collections": frozenset({"OrderedDict", "defaultdict"}),
    "builtins": frozenset({"set", "frozenset", "dict", "list", "tuple", "int", "float", "bool", "str", "bytes"}),
    "torch": frozenset({"Size", "device"}),
    "torch._utils": frozenset({"_rebuild_tensor", "_rebuild_tensor_v2", "_rebuild_parameter"}),
    "torch._tensor": frozenset({"_rebuild_from_type_v2"}),
    "torch.nn.parameter": frozenset({"Parameter"}),
    "torch.serialization": frozenset({"_get_layout"}),
    "numpy": frozenset({"dtype", "ndarray"}),
    "numpy.core.multiarray": frozenset({"scalar", "_reconstruct"}),
    "numpy._core.multiarray": frozenset({"scalar", "_reconstruct"}),
    "_codecs": frozenset({"encode"}),
}
"""What a file may name: containers, and what puts tensors and numbers together."""
DTYPES = frozenset(name for name in dir(torch) if isinstance(getattr(torch, name), torch.dtype))


class Husk:
    """An object whose class was not looked up.

    Attributes:
        state: what the file says of it: attributes by name where it was written as most objects are.
        items: what was appended or set, of lists and tables of its own.
    """

    state: Any = None

    def __new__(cls, *given: Any, **named: Any) -> Husk:
        made = super().__new__(cls)
        made.items = []
        return made

    def __init__(self, *given: Any, **named: Any) -> None:
        self.items: list[Any]

    def __setstate__(self, state: Any) -> None:
        self.state = state

    def __setitem__(self, key: Any, value: Any) -> None:
        self.items.append((key, value))

    def __call__(self, *given: Any, **named: Any) -> Husk:
        return self

    def __hash__(self) -> int:
        return id(self)

    def append(self, item: Any) -> None:
        self.items.append(item)

    def extend(self, items: Any) -> None:
        self.items.extend(items)

    add = append


class Restricted(pickle.Unpickler):
    """Looks up `ALLOWED` alone."""

    def find_class(self, module: str, name: str) -> Any:
        module = "builtins" if module == "__builtin__" else module  # as older protocols write it
        if name in ALLOWED.get(module, ()) or (module == "torch" and name in DTYPES):
            return super().find_class(module, name)
        return type(name.rpartition(".")[2] or "Husk", (Husk,), {"__module__": module})


def _load(file: Any, **given: Any) -> Any:
    return Restricted(file, **given).load()


_PICKLE = SimpleNamespace(Unpickler=Restricted, load=_load, __name__="anygrpo.models.unpickled")


def read_torch(path: Path) -> Any:
    """What a torch file (.pt, .pth, .ckpt, .bin) holds, on the CPU.

    Raises:
        DataError: it is none, or broken.
    """
    with suppress(Exception):  # something beside tensors, or broken: the next attempt tells
        return torch.load(path, map_location="cpu", weights_only=True)
    try:
        return torch.load(path, map_location="cpu", weights_only=False, pickle_module=_PICKLE)
    except Exception as error:  # a broken pickle can raise anything
        first = str(error).strip().splitlines()[:1] or [type(error).__name__]
        raise DataError(
            Text(f"{path} cannot be read as a torch file: {first[0]}", f"{path} 不能作为 torch 文件读取：{first[0]}"),
            Text("save its state_dict again", "请重新保存它的 state_dict"),
        ) from error

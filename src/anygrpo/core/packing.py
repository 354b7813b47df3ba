"""Plain values and tensors, to JSON beside safetensors and back: what a run keeps on disk. Reading it runs no code.

In the JSON scalars stand for themselves; all else is a table whose first key says what it is: {"list": [...]},
{"tuple": [...]}, {"dict": [[key, value], ...]}, {"tensor": name} (with "shape" and "stride" where not laid out row by
row), {"array": name}, {"image": name, "mode": "RGB"}, {"float": "nan"}, or a record of ours, {"record": "Shared",
"fields": {...}}. Tensors lie beside it by name.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import torch
from torch import Tensor

from anygrpo.algorithm.kl import AdaptiveKL, BandKL, FixedKL
from anygrpo.algorithm.statistics import PromptHistory, RunningState
from anygrpo.core.rollout import Rollout
from anygrpo.core.tree import Shared
from anygrpo.errors import ConfigError, DataError
from anygrpo.spoken import Text

RECORDS: dict[str, type] = {
    c.__name__: c for c in (Rollout, Shared, RunningState, PromptHistory, FixedKL, AdaptiveKL, BandKL)
}
"""All that a file may ask to be made. Nothing is looked up by a name from a file anywhere else."""


def pack(value: Any, tensors: dict[str, Tensor], where: str) -> Any:
    """`value` as JSON; its tensors go into `tensors` (on the CPU) under names that begin with `where`.

    Raises:
        ConfigError: something that is neither plain data nor tensors; says where it stands.
    """
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {"float": str(value)}
    if isinstance(value, Tensor):
        return {"tensor": _kept(_dense(value), tensors, where)} | _layout(value)
    if isinstance(value, Mapping):
        pairs = [(k, x, f"{where}/{_word(k, i)}") for i, (k, x) in enumerate(value.items())]
        return {"dict": [[pack(k, tensors, place), pack(x, tensors, place)] for k, x, place in pairs]}
    if isinstance(value, list | tuple) and type(value) in (list, tuple):
        kind = "tuple" if isinstance(value, tuple) else "list"
        return {kind: [pack(x, tensors, f"{where}/{i}") for i, x in enumerate(value)]}
    if is_dataclass(value) and RECORDS.get(type(value).__name__) is type(value):
        inside = {f.name: getattr(value, f.name) for f in fields(value)}
        packed = {name: pack(x, tensors, f"{where}/{name}") for name, x in inside.items()}
        return {"record": type(value).__name__, "fields": packed}
    return _of_a_library(value, tensors, where)


def _of_a_library(value: Any, tensors: dict[str, Tensor], where: str) -> Any:
    """NumPy's arrays and numbers, Pillow's images: by their types' names, so that neither need be imported."""
    import numpy as np

    if isinstance(value, np.ndarray) and value.dtype.kind in "biuf":
        return {"array": _kept(torch.from_numpy(np.ascontiguousarray(value)), tensors, where)}
    if isinstance(value, np.bool_ | np.integer | np.floating):
        return pack(value.item(), tensors, where)
    if type(value).__module__.startswith("PIL.") and getattr(value, "mode", "") in ("L", "RGB", "RGBA"):
        picture: Any = value
        return {"image": _kept(torch.from_numpy(np.array(picture)), tensors, where), "mode": picture.mode}
    raise ConfigError(
        Text(
            f"{where} holds a {type(value).__name__}, which cannot be kept: files hold plain data and tensors",
            f"{where} 中有 {type(value).__name__}，无法保存：文件只存普通数据和张量",
        ),
        Text("keep tensors, numbers, texts, lists and dicts there", "请在那里存张量、数、文本、列表和字典"),
    )


def _layout(x: Tensor) -> dict[str, Any]:
    """How a tensor that is not laid out row by row lies in memory: the same numbers in another order of memory give
    products that differ in the last bit, and a resumed run would too."""
    return {} if x.is_contiguous() else {"shape": list(x.shape), "stride": list(x.stride())}


def _dense(x: Tensor) -> Tensor:
    """Without the copies that `expand` stands for."""
    return x[tuple(slice(0, 1) if step == 0 else slice(None) for step in x.stride())] if x.dim() else x


def _laid_out(x: Tensor, packed: dict[str, Any]) -> Tensor:
    """A tensor of its own memory, as it lay when it was packed."""
    if "stride" not in packed:
        return x.clone()
    shape, stride = ([int(n) for n in packed[key]] for key in ("shape", "stride"))
    if len(shape) != x.dim() or len(stride) != x.dim() or min([0, *stride]) < 0:
        raise ValueError("a layout of another tensor")
    # the steps of memory in the order that was kept, as close together as they come
    order = sorted(range(x.dim()), key=lambda d: -stride[d])
    dense = x.permute(order).contiguous().permute([order.index(d) for d in range(x.dim())])
    return dense.expand(shape)


def _word(key: Any, number: int) -> str:
    return key if isinstance(key, str) and key else str(number)


def _kept(value: Tensor, tensors: dict[str, Tensor], where: str) -> str:
    name, more = where, 1
    while name in tensors:
        name, more = f"{where}~{more}", more + 1
    tensors[name] = value.detach().cpu()
    return name


def unpack(packed: Any, tensors: Mapping[str, Tensor]) -> Any:
    """What `pack` was given.

    Raises:
        DataError: not what `pack` writes.
    """
    try:
        return _unpacked(packed, tensors)
    except Exception as error:  # whatever a malformed file makes of a constructor
        raise DataError(
            Text(
                f"not a saved state: {type(error).__name__}: {error}",
                f"不是已保存的状态：{type(error).__name__}: {error}",
            ),
            Text("take another checkpoint", "请用另一个检查点"),
        ) from None


def _unpacked(packed: Any, tensors: Mapping[str, Tensor]) -> Any:
    if not isinstance(packed, dict):
        if packed is None or isinstance(packed, bool | int | float | str):
            return packed
        raise ValueError(f"a bare {type(packed).__name__}")
    kind, inside = next(iter(packed.items()))
    if kind == "record":
        made = {name: _unpacked(x, tensors) for name, x in packed["fields"].items()}
        return RECORDS[inside](**made)
    if kind in ("list", "tuple"):
        items = [_unpacked(x, tensors) for x in inside]
        return tuple(items) if kind == "tuple" else items
    if kind == "dict":
        return {_unpacked(k, tensors): _unpacked(x, tensors) for k, x in inside}
    if kind == "float":
        return {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}[inside]
    if kind == "tensor":
        return _laid_out(tensors[inside], packed)
    if kind == "array":
        return tensors[inside].numpy()
    if kind == "image":
        from PIL import Image

        return Image.fromarray(tensors[inside].numpy(), packed["mode"])
    raise ValueError(f"unknown kind {kind!r}")

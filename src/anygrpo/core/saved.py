"""What a policy's weights are called in files, and the weights that files hold: a checkpoint's, a run's, others'."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from anygrpo.core import saved_parts
from anygrpo.core.tensor_files import read_json, read_tensors
from anygrpo.errors import ConfigError, DataError
from anygrpo.spoken import Text

WHOLE = "policy.safetensors"
STATE = "state.json"
T = TypeVar("T")


@dataclass(frozen=True)
class Form:
    """What makes a checkpoint's folder one that the policy's own library loads as it is.

    Attributes:
        file: name of the file of weights (the one that the library looks for).
        metadata: of that file: texts by key (a LoRA's strength, for diffusers).
        beside: small text files that the library reads with it, by name (adapter_config.json, config.json).
        fixed: tensors that are not trained (buffers), which the library wants in the file all the same; by its names.
        split: the library also reads it in several files with an index; ranks that hold shards then write one each.
        numbered: no library can use these weights as they are, and one would take them for its own by their names:
            they are written under numbers (`anygrpo.core.tensor_files`).
    """

    file: str = WHOLE
    metadata: Mapping[str, str] = field(default_factory=dict[str, str])
    beside: Mapping[str, str] = field(default_factory=dict[str, str])
    fixed: Mapping[str, Tensor] = field(default_factory=dict[str, Tensor])
    split: bool = True
    numbered: bool = False


def whole(folder: Path) -> Path | None:
    """The file of weights in a checkpoint's folder, or the index of several: `policy.safetensors`, or the one that its
    state names."""
    names = [WHOLE]
    try:
        said = read_json(folder / STATE).get("weights")
        names += [said] if isinstance(said, str) and said == Path(said).name else []
    except DataError:
        pass
    found = (folder / (name + ending) for name in names for ending in ("", saved_parts.INDEX))
    return next((file for file in found if file.is_file()), None)


def holds_weights(folder: Path) -> bool:
    """Whether a folder is a checkpoint's, sharded or not."""
    return (folder / saved_parts.FOLDER).is_dir() or whole(folder) is not None


def read_weights(path: Path) -> Any:
    """What a safetensors or torch file holds; of a checkpoint's folder, or the newest checkpoint of a run's, the
    weights by the policy's own names, whole tensors whatever number of ranks wrote them.

    Raises:
        DataError: nothing there, or no such file of tensors.
    """
    if path.is_dir():
        folders = [path, *sorted(path.glob("checkpoints/step_*"))]
        path = next((f for f in reversed(folders) if holds_weights(f)), path)
        if holds_weights(path):
            return dict(weights(path))
        path = path / WHOLE
    if not path.is_file():
        raise DataError(
            Text(f"no weights at {path}", f"{path} 处没有权重"),
            Text(
                "give a file of weights, a checkpoint's folder or a run's folder",
                "请给出权重文件、检查点文件夹或运行文件夹",
            ),
        )
    if path.suffix == ".safetensors":
        return read_tensors(path)
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        found = type(error).__name__
        raise DataError(
            Text(
                f"{path} is no file of weights that can be read safely: {found}",
                f"{path} 不是可以安全读取的权重文件：{found}",
            ),
            Text("give a .safetensors file", "请给出 .safetensors 文件"),
        ) from None


def library_names(names: Mapping[str, str], own: Mapping[str, Any]) -> dict[str, str]:
    """own name -> the name in files, for all of `own`; names not in `names` are their own.

    Raises:
        ConfigError: two weights would have the same name in files.
    """
    table = {name: names.get(name, name) for name in own}
    if len(set(table.values())) < len(table):
        twice = sorted(v for v in set(table.values()) if list(table.values()).count(v) > 1)
        raise ConfigError(
            Text(
                f"saved_names gives two weights the name {twice[0]!r}", f"saved_names 给两个权重同一个名称 {twice[0]!r}"
            ),
            Text("name each weight once", "每个权重只命名一次"),
        )
    return table


def own_names(found: Mapping[str, T], names: Mapping[str, str]) -> dict[str, T]:
    """Tensors or moments by a policy's own names, of files with those or the library's. `names`: own -> library's."""
    back = {library: own for own, library in names.items()}
    return {name if name in names else back.get(name, name): found[name] for name in found}


def weights(folder: Path) -> Mapping[str, Tensor]:
    """The weights in a checkpoint folder by the policy's own names (its state says which those are)."""
    found: Mapping[str, Tensor]
    file = whole(folder)
    if file is None and (folder / saved_parts.FOLDER).is_dir():
        found = saved_parts.Parts(folder, saved_parts.WEIGHT)  # older checkpoints
    elif file is not None and file.name.endswith(saved_parts.INDEX):
        found = saved_parts.Shards(file)
    else:
        found = read_tensors(file or folder / WHOLE)
    state = read_json(folder / STATE) if (folder / STATE).is_file() else {}
    names, fixed = state.get("names"), state.get("fixed")
    names, fixed = names if isinstance(names, dict) else {}, fixed if isinstance(fixed, list) else []
    back = {library: own for own, library in names.items() if isinstance(library, str)}
    return saved_parts.Renamed(found, {back.get(name, name): name for name in found if name not in fixed})


def fixed_of(module: nn.Module, trained: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """What of a module's state dict is not trained: buffers, frozen weights; without other names of trained ones (tied
    weights).

    Args:
        trained: by name, as `state_of` gives them.
    """
    held = {local(x).data_ptr() for x in trained.values()}
    state = module.state_dict()
    return {n: x for n, x in state.items() if n not in trained and local(x).data_ptr() not in held}


def local(tensor: Any) -> Tensor:
    """A rank's own part of a sharded tensor; a plain one itself."""
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor

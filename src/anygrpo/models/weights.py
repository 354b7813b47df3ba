"""Weights of others into a module: any common file, names mended key by key, and a report of what fitted.

Trainers nest the table of weights (`state_dict`, `params_ema`), so each table in the file is tried; the one with most
names and shapes of the module's is taken (`anygrpo.models.matching`).
"""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from anygrpo.core.hub import located
from anygrpo.core.saved import holds_weights, read_weights
from anygrpo.errors import DataError, suggestion
from anygrpo.files import json_value
from anygrpo.models.matching import LoadReport, averaged, fit
from anygrpo.models.unpickled import Husk, read_torch
from anygrpo.spoken import Text

__all__ = ["LoadReport", "load", "matched", "read", "tables"]
log = logging.getLogger("anygrpo")
TORCH = (".pt", ".pth", ".ckpt", ".bin", ".th", ".tar", ".pkl")
NAMES = ("model.safetensors", "diffusion_pytorch_model.safetensors", "pytorch_model.bin", "adapter_model.safetensors")
DEPTH = 4
MANY = 16
"""Items of the longest list in which a table is looked for."""


def load(
    module: nn.Module,
    path: str | Path,
    strict: bool = True,
    table: str | None = None,
    kept: Collection[str] = (),
    content: Any = None,
) -> LoadReport:
    """Load a checkpoint's weights into `module`: a file or folder that `read` takes.

    Args:
        strict: refuse where a tensor of the module is missing or of another shape, or the checkpoint's network has
            layers that the module lacks. Weights of other modules beside it (a loss, an optimizer) are only reported.
        table: which of the file's tables ("params_ema"); the one that fits best where not given.
        kept: names of the module that stay as they are where the checkpoint lacks them.
        content: what `read` gave of the path, where it was read before.

    Raises:
        DataError: nothing fits, or with `strict` not all; the report is in the message.
    """
    own = module.state_dict()
    state, report = matched(own, tables(read(path) if content is None else content), str(path), table)
    report = replace(report, missing=[name for name in report.missing if name not in kept])
    if report.loaded == 0 or (strict and not report.fits):
        has = ", ".join(list(own)[:3])
        cure = Text("set strict = false to load what fits", "请设 strict = false，只加载相符的部分")
        cure = cure if report.loaded else Text(f"the module has {has}", f"模块有 {has}")
        raise DataError(Text(f"{path} does not fit the network: {report}", f"{path} 与网络不符：{report}"), cure)
    module.load_state_dict({**own, **state})
    if not report.fits or report.beside:
        log.warning("%s: %s", path, report)
    elif report.prefixes:
        log.info("%s: %s", path, report)
    return report


def fill(module: nn.Module, path: str | Path) -> LoadReport:
    """As `load` with `strict`, for modules with tied weights, of which a file may hold either name or both.

    Raises:
        DataError: nothing fits, or not all; the report is in the message.
    """
    own, found = module.state_dict(), tables(read(path))
    state, report = matched(own, found, str(path))
    taken = {own[name].data_ptr() for name in state}
    lacking = [name for name in report.missing if own[name].data_ptr() not in taken]
    if not replace(report, missing=lacking).fits:
        what = str(replace(report, missing=lacking))
        raise DataError(
            Text(f"{path} does not fit the network: {what}", f"{path} 与网络不符：{what}"),
            Text(f"the network has {', '.join(list(own)[:3])}", f"网络有 {'、'.join(list(own)[:3])}"),
        )
    with torch.no_grad():
        for name, value in state.items():
            own[name].copy_(value)
    log.info("%s: %s", path, report)
    return report


def is_file(path: Path) -> bool:
    """Whether a path is a file of weights by its name."""
    return path.is_file() and path.suffix in (".safetensors", *TORCH)


# --- files -----------------------------------------------------------------------------------------------------------


def read(path: str | Path) -> Any:
    """What a file of weights holds: .safetensors, torch files (nothing in them is run), the index of files in parts; of
    a folder its one file of weights, or the newest checkpoint of a run.

    Raises:
        DataError: nothing there, or nothing that can be read.
    """
    path = located(path)
    if not path.exists():
        raise DataError(Text(f"checkpoint {path} does not exist", f"检查点 {path} 不存在"))
    if path.is_dir():
        if holds_weights(path) or (path / "checkpoints").exists():
            return read_weights(path)
        path = _of_folder(path)
    if path.name.endswith(".index.json"):
        return _in_parts(path)
    if path.suffix == ".safetensors":
        return _safetensors(path)
    if path.suffix not in TORCH:
        raise DataError(
            Text(f"{path} is no file of weights that is known", f"{path} 不是已知的权重文件"),
            Text(f"known: .safetensors {' '.join(TORCH)}", f"可用：.safetensors {' '.join(TORCH)}"),
        )
    return read_torch(path)


def _of_folder(folder: Path) -> Path:
    for name in NAMES:
        for file in (folder / name, folder / f"{name}.index.json"):
            if file.is_file():
                return file
    files = sorted(f for f in folder.iterdir() if f.suffix in (".safetensors", *TORCH))
    if not files:
        raise DataError(
            Text(f"{folder} holds no weights", f"{folder} 中没有权重"),
            Text(
                "give a run's folder (with a checkpoint), an export or a file of weights",
                "请给出运行文件夹（含检查点）、导出文件夹或权重文件",
            ),
        )
    if len(files) > 1:
        named = ", ".join(f.name for f in files[:5])
        raise DataError(
            Text(
                f"{folder} holds {len(files)} files of weights ({named})",
                f"{folder} 中有 {len(files)} 个权重文件（{named}）",
            ),
            Text("name the file itself", "请直接给出文件"),
        )
    return files[0]


def _in_parts(index: Path) -> dict[str, Tensor]:
    try:
        files = sorted(set(json_value(index.read_text())["weight_map"].values()))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(Text(f"{index} is no index of weights: {error}", f"{index} 不是权重的索引：{error}")) from error
    if outside := [f for f in files if Path(f).name != f]:
        raise DataError(
            Text(
                f"{index} names files outside of its folder: {outside[:3]}",
                f"{index} 提到它的文件夹以外的文件：{outside[:3]}",
            )
        )
    if lacking := [f for f in files if not (index.parent / f).is_file()]:
        raise DataError(
            Text(
                f"{index} names {len(lacking)} files that are not there: {', '.join(lacking[:3])}",
                f"{index} 提到 {len(lacking)} 个不存在的文件：{', '.join(lacking[:3])}",
            )
        )
    return {name: x for f in files for name, x in read(index.parent / f).items()}


def _safetensors(path: Path) -> dict[str, Tensor]:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        return load_file(path)
    except (OSError, SafetensorError) as error:
        raise DataError(Text(f"{path} cannot be read: {error}", f"{path} 无法读取：{error}")) from error


# --- tables ----------------------------------------------------------------------------------------------------------


def tables(content: Any) -> dict[str, dict[str, Tensor]]:
    """Every table of named tensors in `content` by its place ("" at the top, "state_dict", "model.net"). A whole module
    that was saved is one too."""
    return dict(_tables(content, "", DEPTH))


def _tables(content: Any, place: str, depth: int) -> Iterator[tuple[str, dict[str, Tensor]]]:
    if isinstance(content, Husk):
        found = dict(_of_module(content, ""))
        if found:
            yield place, found
            return
        content = content.state
    if isinstance(content, list | tuple) and len(content) <= MANY:
        content = {str(i): value for i, value in enumerate(content)}
    if not isinstance(content, Mapping) or depth == 0:
        return
    found = {k: x for k, x in content.items() if isinstance(k, str) and isinstance(x, Tensor)}
    if found:
        yield place, found
    for key, value in content.items():
        if isinstance(key, str) and not isinstance(value, Tensor):
            yield from _tables(value, f"{place}.{key}".lstrip("."), depth - 1)


def _of_module(husk: Husk, place: str) -> Iterator[tuple[str, Tensor]]:
    state = husk.state if isinstance(husk.state, Mapping) else {}
    for kind in ("_parameters", "_buffers"):
        for name, x in (state.get(kind) or {}).items():
            if isinstance(x, Tensor) and name not in (state.get("_non_persistent_buffers_set") or ()):
                yield place + name, x.detach()
    for name, part in (state.get("_modules") or {}).items():
        if isinstance(part, Husk):
            yield from _of_module(part, f"{place}{name}.")


def matched(
    own: Mapping[str, Tensor], found: Mapping[str, Mapping[str, Tensor]], source: str, table: str | None = None
) -> tuple[dict[str, Tensor], LoadReport]:
    """The tensors of the best table by the module's names, and the report.

    Raises:
        DataError: no table of tensors, or not the one that was asked for.
    """
    if not found:
        raise DataError(Text(f"{source} holds no state dict of tensors", f"{source} 中没有张量的 state dict"))
    if table is not None and table not in found:
        raise DataError(
            Text(f"{source} has no table {table!r}", f"{source} 中没有表 {table!r}"), suggestion(table, found)
        )
    tried = {place: fit(own, found[place]) for place in (found if table is None else [table])}
    best = max(tried, key=lambda p: (len(tried[p].taken), not averaged(p), -len(p)))
    others = sorted(p for p in found if p != best and not p.startswith("optimizer"))
    state = {new: found[best][old] for new, old in tried[best].taken.items()}
    _not_quantised(own, state, found[best], source)
    return state, tried[best].report(best, others)


def _not_quantised(
    own: Mapping[str, Tensor], state: Mapping[str, Tensor], table: Mapping[str, Tensor], source: str
) -> None:
    """Raises: DataError where numbers of a quantiser would be taken for weights: integers, or 8-bit floats with scales
    beside. 8-bit floats alone are weights that were rounded."""
    scaled = any(re.search(r"scale(_inv)?$", name.rpartition(".")[2]) for name in table)
    for name, value in state.items():
        if not own[name].is_floating_point():
            continue
        if not (value.is_floating_point() or value.is_complex()) or (value.element_size() == 1 and scaled):
            kind = str(value.dtype).removeprefix("torch.")
            ours = str(own[name].dtype).removeprefix("torch.")
            raise DataError(
                Text(
                    f"{source} is quantised: {name} holds {kind}, the network's is {ours}",
                    f"{source} 是量化的：{name} 中是 {kind}，网络的是 {ours}",
                ),
                Text("give the weights that it was quantised from", "请给出量化之前的权重"),
            )

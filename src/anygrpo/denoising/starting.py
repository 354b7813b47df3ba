"""What `policy.model` may stand for: a base (a pipeline, MDM's file), or one with trained weights added to it.

| name | becomes |
| --- | --- |
| a pipeline's folder, a file of MDM or its folder | itself |
| a name of the Hub, owner/name[@revision] | the folder of its files, which may be any of these |
| a run's folder (best, else newest checkpoint), a checkpoint, an export | its base, with its weights |
| a LoRA or PEFT adapter for a pipeline (file or folder), its denoiser's weights (.safetensors, .pt, .ckpt, a part's |
  folder); the pipeline is `policy.base`, else `base_model` in README.md beside, or PEFT's config names it | both |

Adapters are merged into the base: that is then where training starts, and what its reference is.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from anygrpo.core.hub import is_name, located
from anygrpo.core.saved import holds_weights
from anygrpo.errors import ConfigError, DataError
from anygrpo.files import json_value, read_toml
from anygrpo.models.weights import TORCH
from anygrpo.spoken import Text

LORA_FILE, ADAPTER = "pytorch_lora_weights.safetensors", "adapter_config.json"
STRENGTH = "lora_adapter_metadata"
"""Where in the file's header diffusers looks for rank and alpha; without it alpha = rank, another strength."""
_RECIPE, EXPORT = "recipe.toml", "export.json"


@dataclass(frozen=True)
class Added:
    """Weights that are put on a base. `strength`: alpha over rank of adapters, where a run's recipe says it."""

    place: Path
    strength: float | None = None


@dataclass(frozen=True)
class Start:
    """`base`: what the kind of policy loads; None: a network of the section's own sizes. `added`: in this order.
    `told`: the base as others are told it: its name on the Hub, or its whole path."""

    base: str | None
    added: tuple[Added, ...] = ()
    told: str | None = None


def start_for(config: Any) -> Start:
    """What the `model` of a [policy] section stands for; as `start_of`."""
    return start_of(getattr(config, "model", None), config.kind, getattr(config, "base", None))


def start_of(name: str | None, kind: str, under: str | None = None) -> Start:
    """What `model = name` of a policy of this kind stands for.

    Args:
        under: the base of a LoRA, an export or a run, whatever that says itself.

    Raises:
        DataError: a run of another kind, one without a checkpoint, a LoRA that does not name its base, or a base that
            is not here.
        ConfigError: `under` is given, and `name` is a base itself.
    """
    if name is None:
        return Start(None)
    path = located(name)
    told = name if is_name(name) else str(path.resolve())
    name = str(path)
    if (path / "model_index.json").is_file():
        if under is not None:
            raise _needs_none(name, under)
        return Start(name, told=told)
    for run in (path, path.parent.parent):
        if path.is_dir() and (run / "config.toml").is_file():
            return _of_recipe(run / "config.toml", _checkpoint(path), kind, under, of_run=True)
    if (path / _RECIPE).is_file() and (path / EXPORT).is_file():
        return _of_recipe(path / _RECIPE, _exported(path), kind, under, of_run=False)
    if kind == "diffusion" and (weights := _for_a_pipeline(path)) is not None:
        base = start_of(under or _must_name_its_base(weights), kind)
        return Start(base.base, (*base.added, Added(weights)), base.told)
    if under is not None:
        raise _needs_none(name, under)
    if kind == "motion" and not path.exists():
        raise DataError(
            Text(f"no weights at {path}", f"{path} 处没有权重"),
            Text(
                "train them first: anygrpo train recipes/motion/supervised.toml",
                "请先训练：anygrpo train recipes/motion/supervised.toml",
            ),
        )
    if kind == "mdm" and path.is_dir():
        files = sorted(path.glob("*.pt"))
        name = str(files[0]) if len(files) == 1 else name
    return Start(name, told=told) if kind != "motion" else Start(None, (Added(path),))


def _for_a_pipeline(path: Path) -> Path | None:
    """What of `path` is put on a pipeline: a LoRA's file, PEFT's folder, whole weights of its denoiser."""
    for folder in (path, path.parent):  # a file of PEFT's is nothing without its config
        if (folder / ADAPTER).is_file() and (folder == path or path.name.startswith("adapter_model.")):
            return folder
    if (path / LORA_FILE).is_file():
        return path / LORA_FILE
    part = (path / "config.json").is_file() and any(path.glob("diffusion_pytorch_model*"))
    return path if part or (path.is_file() and path.suffix in (".safetensors", *TORCH)) else None


def _needs_none(name: str, under: str) -> ConfigError:
    return ConfigError(
        Text(
            f"base = {under!r}, and model = {name!r} is a base itself",
            f"base = {under!r}，而 model = {name!r} 本身就是基座模型",
        ),
        Text("leave base out", "请去掉 base"),
    )


def _of_recipe(file: Path, place: Path, kind: str, given: str | None, of_run: bool) -> Start:
    policy = read_toml(file).get("policy", {})
    if policy.get("kind") != kind:
        raise DataError(
            Text(
                f"{file.parent} is of a policy of kind {policy.get('kind')!r}, this one is {kind!r}",
                f"{file.parent} 是 kind 为 {policy.get('kind')!r} 的策略，而这个是 {kind!r}",
            )
        )
    if kind == "mdm" and not of_run:  # an export of MDM's holds all of its weights, args.json beside
        return Start(str(place), told=str(place.resolve()))
    under = start_of(given, kind) if given else None if of_run else _told_base(file.parent, kind)
    under = under or start_of(policy.get("model"), kind, policy.get("base"))
    lora = policy.get("lora")
    if not of_run:  # all that was added is in it
        return Start(under.base, (Added(place),), under.told)
    if lora is None:  # all weights of the network; what lies under it may have changed a pipeline's text encoders too
        return Start(under.base, (*(under.added if kind == "diffusion" else ()), Added(place)), under.told)
    strength = float(lora.get("alpha", 64.0)) / int(lora.get("rank", 32))
    return Start(under.base, (*under.added, Added(place, strength)), under.told)


def _told_base(folder: Path, kind: str) -> Start | None:
    """The base that an export names; what was added to it before training is in the export. None where an older one
    names none.

    Raises:
        DataError: it is not here.
    """
    file = folder / EXPORT
    try:
        base = json_value(file.read_text(encoding="utf-8"))["base"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    if base is None:
        return Start(None)
    if not isinstance(base, str) or not (is_name(base) or Path(base).exists()):
        raise DataError(
            Text(f"{folder} belongs on {base!r}, which is not here", f"{folder} 需要基座模型 {base!r}，而这里没有"),
            Text(
                f"put it there, or set `base` in {file} (or policy.base in a recipe) to its place or Hub name",
                f"请把它放到那里，或把 {file} 中的 `base`（或配方中的 policy.base）设为它的位置或 Hub 名称",
            ),
        )
    return start_of(base, kind)


def _checkpoint(path: Path) -> Path:
    places = [path, path / "checkpoints" / "best", *sorted(path.glob("checkpoints/step_*"), reverse=True)]
    for place in places:
        if holds_weights(place):
            return place
    raise DataError(
        Text(f"{path} holds no checkpoint", f"{path} 中没有检查点"),
        Text("let the run write one, or name another", "请让运行写出一个，或指定另一个"),
    )


def files_of(folder: Path) -> list[str]:
    """The files that an export's own list names, relative to its folder; none where there is no such list.

    Raises:
        DataError: the list names what lies outside of the folder.
    """
    try:
        files = json_value((folder / EXPORT).read_text(encoding="utf-8"))["files"]
    except (OSError, ValueError, KeyError, TypeError):
        return []
    files = [f for f in files if isinstance(f, str)] if isinstance(files, list) else []
    for name in files:
        if Path(name).is_absolute() or ".." in Path(name).parts:
            raise _not_there(folder, name)
    return files


def _exported(folder: Path) -> Path:
    files = files_of(folder)
    found = next((f for f in files if f.endswith((".safetensors", ".pt", ".index.json"))), None)
    if found is None:
        raise DataError(
            Text(f"{folder / EXPORT} names no file of weights", f"{folder / EXPORT} 没有写明权重文件"),
            Text("export the run again", "请重新导出那次运行"),
        )
    beside = (f for f in files if Path(f).parent == Path(found).parent and f.endswith(".index.json"))
    found = next(beside, found)  # weights in several files: all of them
    if not (folder / found).is_file():
        raise _not_there(folder, found)
    return folder / found


def _not_there(folder: Path, found: str) -> DataError:
    return DataError(
        Text(
            f"{folder / EXPORT} names {found!r}, which is not there",
            f"{folder / EXPORT} 提到 {found!r}，但没有这个文件",
        ),
        Text("export the run again", "请重新导出那次运行"),
    )


def named_base(path: Path) -> str | None:
    """`base_model` in the head of the README.md beside a LoRA, or what PEFT's config names; None: not said."""
    try:
        card = _card(path).read_text(encoding="utf-8")
        found = re.search(r"^base_model:\s*(\S+)\s*$", card, re.MULTILINE)
    except (OSError, ValueError):
        found = None
    if found is not None:
        return found[1].strip("'\"")
    try:
        said = json_value((path / ADAPTER).read_text(encoding="utf-8"))["base_model_name_or_path"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return said if isinstance(said, str) and (is_name(said) or (Path(said) / "model_index.json").is_file()) else None


def _card(path: Path) -> Path:
    return (path if path.is_dir() else path.parent) / "README.md"


def _must_name_its_base(path: Path) -> str:
    if (found := named_base(path)) is None:
        raise DataError(
            Text(f"{path} does not name its base", f"{path} 没有写明它的基座模型"),
            Text(
                f"set policy.base to that pipeline, or write `base_model: FOLDER` into {_card(path)}",
                f"请把 policy.base 设为那个管线，或把 `base_model: FOLDER` 写入 {_card(path)}",
            ),
        )
    return found

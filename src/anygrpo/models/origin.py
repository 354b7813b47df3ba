"""What a model's name may stand for: a Hub name or folder, a PEFT adapter, a run's folder, one of its checkpoints."""

from __future__ import annotations

import json
import logging
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from anygrpo.core import hub
from anygrpo.core.saved import STATE, holds_weights, read_weights
from anygrpo.errors import DataError
from anygrpo.files import read_toml
from anygrpo.models.adapted import with_adapter
from anygrpo.models.weights import TORCH
from anygrpo.spoken import Text, say

log = logging.getLogger("anygrpo")

LORA, ADAPTER = ".lora_", "adapter_config.json"
PLAIN = ("pytorch_model.bin", "tf_model.h5", "flax_model.msgpack")
BESIDE = ("training_args", "optimizer", "scheduler", "rng_state", "scaler")
"""Torch files that a trainer leaves beside weights."""


@dataclass(frozen=True)
class Origin:
    """Attributes:
    kind: "plain" is loaded as it is; "adapter" and "state" are added to `base`; "file" is a file of weights beside a
        config.json, in whatever form a trainer left it.
    base: name of the model beneath; of a file, its folder.
    folder: where the adapter or the weights lie.
    lora: the run's [policy.lora], where it trained adapters.
    """

    kind: Literal["plain", "adapter", "state", "file"]
    base: str
    folder: Path = Path()
    lora: dict[str, Any] = field(default_factory=dict)


def origin(name: str) -> Origin:
    """What `name` stands for.

    Raises:
        DataError: a run without a checkpoint, or of another family; an adapter that does not name its base.
    """
    if hub.is_name(name):
        return origin(str(hub.folder(name))) if hub.holds(name, ADAPTER) else Origin("plain", name)
    folder = Path(name).expanduser()
    ours = (folder / STATE).is_file() and (folder.parent.parent / "config.toml").is_file()  # a checkpoint in its run
    if ours:
        return _of_run(folder.parent.parent, folder)
    if folder.is_file():
        return _of_file(folder)
    if folder.is_dir() and (folder / "config.json").is_file() and (file := _only_file(folder)):
        return Origin("file", str(folder), file)
    if not folder.is_dir() or (folder / "config.json").is_file():
        return Origin("plain", name)
    if (folder / ADAPTER).is_file():
        return Origin("adapter", _beneath(folder), folder)
    for run in (folder, folder.parent.parent):
        if (run / "config.toml").is_file():
            return _of_run(run, folder)
    return Origin("plain", name)


def _of_file(file: Path) -> Origin:
    """Raises: DataError where nothing beside the file says what it is of."""
    if file.suffix not in (".safetensors", *TORCH) and not file.name.endswith(".index.json"):
        raise DataError(
            Text(f"model = {str(file)!r} is no file of weights", f"model = {str(file)!r} 不是权重文件"),
            Text("name a model's folder, or its file of weights", "请给出模型文件夹，或它的权重文件"),
        )
    if (file.parent / ADAPTER).is_file():
        return origin(str(file.parent))
    if not (file.parent / "config.json").is_file():
        cure = Text(
            "put the model's config.json and its tokenizer's files beside it",
            "请把模型的 config.json 和分词器文件放在旁边",
        )
        raise DataError(
            Text(
                f"model = {str(file)!r}: no config.json beside it says which network it is of",
                f"model = {str(file)!r}：旁边没有 config.json 说明属于哪种网络",
            ),
            cure,
        )
    return Origin("file", str(file.parent), file)


def _only_file(folder: Path) -> Path | None:
    """The weights of a folder that transformers finds none in, where there is one file."""
    names = [file.name for file in folder.iterdir()]
    if any(name.endswith((".safetensors", ".index.json", ".gguf")) or name in PLAIN for name in names):
        return None
    files = [folder / name for name in names if Path(name).suffix in TORCH and not name.startswith(BESIDE)]
    return files[0] if len(files) == 1 else None


def _beneath(folder: Path) -> str:
    """The base of an adapter.

    Raises:
        DataError: it is not said, cannot be read, or is the adapter itself, by whatever way.
    """
    seen, at, first = set[Path](), folder, ""
    while (at / ADAPTER).is_file() and not (at / "config.json").is_file():
        if at.resolve() in seen:
            raise DataError(
                Text(
                    f"{folder / ADAPTER}: its base model is the adapter itself",
                    f"{folder / ADAPTER}：它的基座模型就是适配器本身",
                ),
                Text("name the model beneath", "请写明下层的模型"),
            )
        seen.add(at.resolve())
        try:
            told = json.loads((at / ADAPTER).read_text(encoding="utf-8"))
            base, revision = told.get("base_model_name_or_path"), told.get("revision")
        except (ValueError, AttributeError, RecursionError) as error:
            raise DataError(
                Text(f"{at / ADAPTER} is not valid JSON ({error})", f"{at / ADAPTER} 不是有效的 JSON（{error}）"),
                Text("copy it again", "请重新复制"),
            ) from None
        if not isinstance(base, str) or not base or base == "memory":
            raise DataError(
                Text(f"{at / ADAPTER} names no base model", f"{at / ADAPTER} 没有写明基座模型"),
                Text("write base_model_name_or_path there", "请在那里写 base_model_name_or_path"),
            )
        at = Path(base).expanduser()
        if hub.is_name(base) and isinstance(revision, str) and revision:
            base = f"{base}@{revision}"
        elif base.startswith((".", "/", "~")) and not at.exists():
            raise _moved(folder, base)
        first = first or base
    return first


def _moved(folder: Path, base: str) -> DataError:
    file = folder / ADAPTER
    return DataError(
        Text(
            f"the adapter in {folder} belongs on {base!r}, which is not here",
            f"{folder} 中的适配器需要基座模型 {base!r}，而这里没有",
        ),
        Text(
            f"put it there, or set base_model_name_or_path in {file} to its place or its Hub name",
            f"请把它放到那里，或把 {file} 中的 base_model_name_or_path 设为它的位置或 Hub 名称",
        ),
    )


def _of_run(run: Path, folder: Path) -> Origin:
    policy = read_toml(run / "config.toml").get("policy", {})
    if policy.get("kind") != "causal_lm":
        raise DataError(
            Text(
                f"{run} trained a policy of kind {policy.get('kind')!r}",
                f"{run} 训练的是 kind 为 {policy.get('kind')!r} 的策略",
            ),
            Text("name a run of a language model", "请给出语言模型的运行"),
        )
    places = [folder / "checkpoints" / "best", *sorted(folder.glob("checkpoints/step_*")), folder]
    steps = [place for place in places if holds_weights(place)]
    if not steps:
        raise DataError(
            Text(f"{folder} holds no checkpoint", f"{folder} 中没有检查点"),
            Text("let the run write one, or name another", "请让运行写出一个，或指定另一个"),
        )
    return Origin("state", policy["model"], steps[-1], {"rank": 16, "alpha": 32.0} | policy.get("lora", {}))


def added(base: nn.Module, o: Origin) -> nn.Module:
    """`base` with an adapter merged into it, or with trained weights in place of its own. What training starts from,
    and what its reference is."""
    if o.kind == "adapter":
        return _merged(with_adapter(base, o.folder, o.base), o)
    state = dict(read_weights(o.folder))
    if any(LORA in name for name in state):
        return _merged(_with_lora(base, state, o), o)
    return _loaded(base, state, o)


def _merged(adapted: Any, o: Origin) -> nn.Module:
    ids = torch.arange(3, 11, device=next(adapted.parameters()).device)[None]
    with torch.no_grad():
        before = adapted(input_ids=ids, use_cache=False).logits.float()
        model = adapted.merge_and_unload()
        after = model(input_ids=ids, use_cache=False).logits.float()
    far = float((before - after).abs().max() / before.abs().max().clamp(min=1.0))
    if not far <= (1e-4 if next(model.parameters()).dtype == torch.float32 else 5e-2):
        raise DataError(
            Text(
                f"merging the adapter of {o.folder} changes what it says by {far:.1%}: it sits on "
                "one end of tied weights",
                f"并入 {o.folder} 的适配器会使它的输出改变 {far:.1%}：它位于共享权重的一端",
            ),
            Text(
                "export that run as merged, which writes the two apart, and start from there",
                "请把那次运行导出为 merged（会把两端分开写），再从那里开始",
            ),
        )
    log.info(
        say(
            f"starting from {o.folder}: its adapter is merged into {o.base}, and that is the reference",
            f"从 {o.folder} 开始：其适配器已并入 {o.base}，结果即参考策略",
        )
    )
    return model


def _with_lora(base: nn.Module, state: dict[str, Tensor], o: Origin) -> nn.Module:
    """PEFT's model with the adapters of a checkpoint."""
    import peft

    modules = dict(base.named_modules())
    layers = sorted({n.split(LORA)[0].removeprefix("base_model.model.") for n in state if LORA in n})
    linear = all(isinstance(modules.get(n), nn.Linear | nn.Embedding) for n in layers)
    rank = next((int(t.shape[0]) for n, t in state.items() if "lora_A" in n), o.lora["rank"])
    config = peft.LoraConfig(
        r=rank if linear else o.lora["rank"],
        lora_alpha=o.lora["alpha"],
        target_modules=layers if linear else "all-linear",
        task_type="CAUSAL_LM",
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # between peft and transformers
        adapted: Any = peft.get_peft_model(base, config).eval()
    own = {n: p for n, p in adapted.named_parameters() if LORA in n}
    _fits(own, state, o)
    with torch.no_grad():
        for name, value in state.items():
            own[name].copy_(value)
        for name in own.keys() - state.keys():  # layers that the run left out
            own[name].zero_()
    return adapted


def _loaded(base: nn.Module, state: dict[str, Tensor], o: Origin) -> nn.Module:
    own = dict(base.named_parameters())
    _fits(own, state, o)
    with torch.no_grad():
        for name, value in state.items():
            own[name].copy_(value)
    log.info(
        say(
            f"starting from {o.folder}: {len(state)} of {len(own)} weights are the run's",
            f"从 {o.folder} 开始：{len(own)} 个权重中有 {len(state)} 个来自该运行",
        )
    )
    return base


def _fits(own: dict[str, Any], state: dict[str, Tensor], o: Origin) -> None:
    """Raises: DataError with what is unexpected, or of another shape."""
    unknown = sorted(state.keys() - own.keys())
    if unknown or not state:
        raise DataError(
            Text(
                f"{o.folder} holds {len(state)} weights, {len(unknown)} of which {o.base!r} has not: {unknown[:3]}",
                f"{o.folder} 中有 {len(state)} 个权重，其中 {len(unknown)} 个在 {o.base!r} 中没有：{unknown[:3]}",
            ),
            Text("the run's config names another model", "那次运行的配置写的是另一个模型"),
        )
    for name, value in state.items():
        if value.shape != own[name].shape:
            raise DataError(
                Text(
                    f"{o.folder}: {name} is {tuple(value.shape)}, the model's is {tuple(own[name].shape)}",
                    f"{o.folder}：{name} 为 {tuple(value.shape)}，模型的为 {tuple(own[name].shape)}",
                ),
                Text("give the rank and the model that the run had", "请给出那次运行的秩和模型"),
            )

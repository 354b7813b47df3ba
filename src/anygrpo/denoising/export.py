"""A trained denoiser in the files of the library that it is from, checked by loading them there.

| policy | files | loaded with |
| --- | --- | --- |
| a pipeline with adapters | pytorch_lora_weights.safetensors | pipe.load_lora_weights(folder) |
| a pipeline, all weights | transformer/ or unet/ | Kind.from_pretrained(folder / "transformer") |
| an MDM checkpoint | model*.pt, args.json | as any of MDM's |
| parts of one's own, our motion denoiser | denoiser.safetensors | load_state_dict, into the network made anew |

Names: the trained module is the library's own, so a parameter NAME is its name there. PEFT's "lora_A.default.weight" is
"COMPONENT.NAME.lora_A.weight" in diffusers' file. The strength alpha / rank is multiplied into lora_B: diffusers takes
alpha = rank where a file does not say it, and that is then right in every version and reader.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor, nn

from anygrpo.denoising.certifying import certified, loaded_anew
from anygrpo.denoising.export_page import usage
from anygrpo.denoising.files import component_of, merged_state, of_pipeline, on_more_than_a_base
from anygrpo.denoising.starting import EXPORT, LORA_FILE, files_of, start_for
from anygrpo.errors import ConfigError
from anygrpo.spoken import Text

if TYPE_CHECKING:
    from anygrpo.denoising.policy import DiffusionPolicy

STATE_FILE = "denoiser.safetensors"


def export(policy: DiffusionPolicy, folder: Path, certify: bool = True) -> list[Path]:
    """Write the policy's trained weights (their running average where it has one, which was measured) to `folder` in
    the library's own form, and export.json with what was compared. It takes the place of an earlier export there.

    Args:
        certify: load the files with the plain library in a fresh process and compare with the training pass.

    Raises:
        ConfigError: `folder` holds something else.
        TrainingError: the files, loaded, are not the policy that was trained; nothing is written then.
    """
    for left in folder.glob(".export-*"):  # of an export that was killed
        shutil.rmtree(left, ignore_errors=True)
    earlier = files_of(folder)
    if not earlier and any(f.is_file() for f in folder.rglob("*")):
        raise ConfigError(
            Text(f"{folder} is not empty", f"{folder} 不是空的"), Text("another folder", "请换一个文件夹")
        )
    folder.mkdir(parents=True, exist_ok=True)
    with policy.averaged(), tempfile.TemporaryDirectory(dir=folder, prefix=".export-") as scratch:  # on its own disk
        made = Path(scratch) / folder.resolve().name
        made.mkdir()
        written = _export(policy, made, certify)  # export.json comes last, and names what is there by then
        placed = [_moved_to(folder / file.relative_to(made), file) for file in written]
        for name in [*earlier, "README.md", "recipe.toml"] if earlier else []:
            if folder / name not in placed:
                (folder / name).unlink(missing_ok=True)
        return placed


def _moved_to(place: Path, file: Path) -> Path:
    place.parent.mkdir(parents=True, exist_ok=True)
    return file.replace(place)


def _export(policy: DiffusionPolicy, folder: Path, certify: bool) -> list[Path]:
    form = form_of(policy)
    files = _WRITERS[form](policy, folder)
    about: dict[str, Any] = {"format": form, "files": [str(f.relative_to(folder)) for f in files]}
    about |= _origin(policy)
    about["use"] = usage(policy, folder, form, about["files"][0])
    if certify:
        about["compared"] = loaded_anew(policy, files) if form == "state" else certified(policy, folder, form, files)
    (folder / EXPORT).write_text(json.dumps(about, indent=2))
    return [*files, folder / EXPORT]


def _origin(policy: DiffusionPolicy) -> dict[str, Any]:
    """The base that the files belong on (with it the export is opened again), and what was added to that before
    training, which is in the files."""
    start = start_for(policy.config)
    more = [str(one.place.resolve()) for one in start.added]
    return {"base": start.told} | ({"started_from": more} if more else {})


def form_of(policy: DiffusionPolicy) -> str:
    """Which of the four: "diffusers_lora", "diffusers_weights", "mdm", "state"."""
    if of_pipeline(policy.config):
        alone = policy.config.lora is not None and not on_more_than_a_base(policy)
        return "diffusers_lora" if alone else "diffusers_weights"
    if policy.config.__class__.__name__ == "MDMPolicyConfig" and getattr(policy.config, "model", None) is not None:
        return "mdm"
    return "state"


def lora_state(module: nn.Module, component: str) -> dict[str, Tensor]:
    """diffusers' names and tensors of a module's adapters, their strength multiplied into lora_B."""
    from peft.tuners.lora import LoraLayer

    out: dict[str, Tensor] = {}
    for name, layer in module.named_modules():
        if isinstance(layer, LoraLayer):
            a, b = (getattr(layer, part)["default"].weight for part in ("lora_A", "lora_B"))
            scale = float(layer.scaling["default"])
            out[f"{component}.{name}.lora_A.weight"] = a.detach().float().cpu().contiguous().clone()
            out[f"{component}.{name}.lora_B.weight"] = (scale * b.detach().float()).cpu().contiguous()
    return out


def _write_lora(policy: DiffusionPolicy, folder: Path) -> list[Path]:
    from safetensors.torch import save_file

    save_file(lora_state(policy.trainable(), component_of(policy)), folder / LORA_FILE, metadata={"format": "pt"})
    return [folder / LORA_FILE]


def _write_weights(policy: DiffusionPolicy, folder: Path) -> list[Path]:
    """The whole component, and text encoders that are not the base's; adapters are merged where training started from
    more than a base."""
    model: Any = policy.trainable()
    target = folder / component_of(policy)
    if policy.config.lora is not None:
        adapted, model = model, type(model).from_config(model.config)
        model.load_state_dict(merged_state(adapted))
    model.save_pretrained(target)
    for name, module in policy.parts.beside.items():
        cast(Any, module).save_pretrained(folder / name)
    places = [target, *(folder / name for name in policy.parts.beside)]
    return [f for place in places for f in sorted(place.rglob("*")) if f.is_file()]


def _write_mdm(policy: DiffusionPolicy, folder: Path) -> list[Path]:
    config: Any = policy.config
    source = Path(str(start_for(config).base))
    torch.save(merged_state(policy.trainable()), folder / source.name)
    shutil.copyfile(source.parent / "args.json", folder / "args.json")
    return [folder / source.name, folder / "args.json"]


def _write_state(policy: DiffusionPolicy, folder: Path) -> list[Path]:
    from safetensors.torch import save_file

    state = {k: v.contiguous() for k, v in merged_state(policy.trainable()).items()}
    save_file(state, folder / STATE_FILE, metadata={"format": "pt"})
    return [folder / STATE_FILE]


_WRITERS = {
    "diffusers_lora": _write_lora,
    "diffusers_weights": _write_weights,
    "mdm": _write_mdm,
    "state": _write_state,
}

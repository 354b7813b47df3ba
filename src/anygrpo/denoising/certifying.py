"""An export compared with the training pass: loaded by the plain library in a fresh process (`certificate.py`), or into
the network made anew."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from anygrpo.core.device import exactly, of_a_child
from anygrpo.denoising import anew
from anygrpo.denoising.call import record_call
from anygrpo.denoising.files import component_of, merged_state
from anygrpo.denoising.starting import start_for
from anygrpo.errors import TrainingError
from anygrpo.scratch import Scratch
from anygrpo.spoken import Text

if TYPE_CHECKING:
    from anygrpo.denoising.policy import DiffusionPolicy

TOLERANCE = 1e-4
"""Largest difference to the training pass in float32, over the largest output."""


def certified(policy: DiffusionPolicy, folder: Path, form: str, files: list[Path]) -> dict[str, float]:
    """Compare the export, loaded by the plain library in a fresh process, with the training pass.

    In half precision twice what that precision changes on the trained numbers is allowed, which are handed over apart:
    the export has no say in its own limit. As float32 it must say what these say.

    Raises:
        TrainingError: it differs by more than TOLERANCE or that, or changes nothing where training did.
    """
    moved = _moved(policy)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".export-") as place:  # the trained numbers are as large
        found = _fresh_process(policy, folder, form, files, Path(place))
    narrow = policy.config.dtype == "bfloat16"
    allowed = max(TOLERANCE * found["size"], 2 * found["dtype"] if narrow else 0.0)
    encoded = found.get("encoders", 0.0) <= max(TOLERANCE, 2 * found.get("encoders_dtype", 0.0) if narrow else 0.0)
    encoded = encoded and found.get("encoders_unrounded", 0.0) <= TOLERANCE
    right = found["to_training"] <= allowed and found["unrounded"] <= TOLERANCE * found["size"]
    if right and encoded and (found["to_base"] > 0 or not moved):
        return found
    if not encoded:
        raise TrainingError(
            Text(
                f"the exported text encoders, loaded by themselves, differ by {found['encoders']:.3g} of what they say",
                f"导出的文本编码器单独加载后，输出相差 {found['encoders']:.3g}（相对值）",
            ),
            Text("they were taken away", "已删除"),
        )
    far, wide, base, most = found["to_training"], found["unrounded"], found["to_base"], TOLERANCE * found["size"]
    raise TrainingError(
        Text(
            f"the export, loaded by itself, differs from the training pass by {far:.3g} (allowed {allowed:.3g}), as "
            f"float32 by {wide:.3g} (allowed {most:.3g}), and from its base by {base:.3g}: it was taken away",
            f"单独加载的导出与训练时相差 {far:.3g}（允许 {allowed:.3g}），按 float32 相差 {wide:.3g}（允许 "
            f"{most:.3g}），与基座模型相差 {base:.3g}：已删除",
        ),
        Text(
            "the versions of diffusers and peft here and where the policy was trained",
            "请比较此处与训练时的 diffusers 和 peft 版本",
        ),
    )


def loaded_anew(policy: DiffusionPolicy, files: list[Path]) -> dict[str, float] | str:
    """The same for a state dict: loaded into the network that the recipe's section makes, in float32. After training in
    bfloat16 a twentieth of the largest output is allowed, and no weight may differ from the trained ones.

    Raises:
        TrainingError: it does not load there, or gives other numbers.
    """
    config: Any = policy.config
    if config.kind == "diffusion" and not getattr(config, "function", None):
        return "made of parts in Python: nothing says how to make the network again"
    with Scratch("export") as place:
        found = anew.compare(policy, files[0], place)
    allowed = 0.05 if config.dtype == "bfloat16" else TOLERANCE
    same = config.dtype != "bfloat16" or (not isinstance(found, str) and found["weights"] == 0)
    if not isinstance(found, str) and found["to_training"] <= allowed * found["size"] and same:
        return found
    if isinstance(found, str):
        raise TrainingError(
            Text(f"the network made anew does not load the export: {found}", f"重新构造的网络无法加载导出：{found}"),
            Text("it was taken away", "已删除"),
        )
    raise TrainingError(
        Text(
            f"the export, loaded into the network made anew, differs by {found['to_training']:.3g} "
            f"of {found['size']:.3g}, its weights by {found['weights']:.3g}",
            f"把导出装入重新构造的网络，输出相差 {found['to_training']:.3g}（数值大小 {found['size']:.3g}），权重相差 "
            f"{found['weights']:.3g}",
        ),
        Text(
            "something beside the weights that are saved decides its output; it was taken away",
            "决定其输出的不只是所存的权重；已删除",
        ),
    )


@torch.no_grad()
def encoded(policy: DiffusionPolicy) -> dict[str, Tensor]:
    """What text encoders that leave with the export say of token ids from their whole vocabulary, and these ids."""
    made: dict[str, Tensor] = {}
    for name, module in policy.parts.beside.items():
        encoder: Any = module
        ids = torch.linspace(0, encoder.config.vocab_size - 1, 64, device=policy.device).long().view(8, 8)
        with exactly():
            said = encoder(ids)
        every = torch.cat([said[0].flatten(), said.last_hidden_state.flatten()])
        made |= {f"encoders/{name}": every.float().cpu(), f"encoder_ids/{name}": ids.cpu()}
    return made


def _moved(policy: DiffusionPolicy) -> bool:
    """Whether training has changed the output at all (fresh adapters are zero)."""
    if policy.config.lora is None:
        return False
    return any(bool(p.any()) for n, p in policy.trainable().named_parameters() if ".lora_B." in n)


def _trained(policy: DiffusionPolicy, form: str) -> dict[str, Tensor]:
    """The numbers that were trained, by the network's own names: adapters' two factors, or the whole weights."""
    from peft.tuners.lora import LoraLayer

    module: nn.Module = policy.trainable()
    if form != "diffusers_lora":
        return _copies(merged_state(module, rounded=False))
    out: dict[str, Tensor] = {}
    for name, one in module.named_modules():
        if isinstance(one, LoraLayer):
            layer: Any = one
            out[f"{name}.lora_A"] = layer.lora_A["default"].weight.float()
            out[f"{name}.lora_B"] = float(layer.scaling["default"]) * layer.lora_B["default"].weight.float()
    return _copies(out)


def _copies(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Each in memory of its own, as files want them."""
    return {name: x.detach().cpu().contiguous().clone() for name, x in state.items()}


def _fresh_process(
    policy: DiffusionPolicy, folder: Path, form: str, files: list[Path], place: Path
) -> dict[str, float]:
    from safetensors.torch import save_file

    save_file(record_call(policy) | encoded(policy), place / "call.safetensors")
    config: Any = policy.config
    job: dict[str, Any] = {
        "format": form, "folder": str(folder.resolve()), "dtype": config.dtype, "file": files[0].name,
        "call": str(place / "call.safetensors"), "trained": None, "encoders": None,
    }  # fmt: skip
    if config.dtype == "bfloat16":
        job |= {"trained": str(place / "trained.safetensors"), "encoders": str(place)}
        save_file(_trained(policy, form), job["trained"])
        for name, module in policy.parts.beside.items():
            save_file(_copies(module.state_dict()), place / f"{name}.safetensors")
    if form == "mdm":
        job["base"] = str(Path(str(start_for(config).base)).resolve())
    else:
        from anygrpo.denoising.pipelines import adapter_class, left_out

        pipeline = str(start_for(config).base)
        job |= {"pipeline": pipeline, "component": component_of(policy)}
        job["left_out"] = list(left_out(pipeline, adapter_class(pipeline)))
    (place / "job.json").write_text(json.dumps(job))
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("certificate.py")), str(place / "job.json")],
        capture_output=True, text=True, check=False, env=of_a_child(),
    )  # fmt: skip
    if done.returncode:
        said = done.stderr.strip().splitlines() or ["no output"]
        raise TrainingError(
            Text(f"the plain library does not load the export: {said[-1]}", f"原库无法加载导出：{said[-1]}"),
            Text("it was taken away", "已删除"),
        )
    return json.loads(done.stdout.strip().splitlines()[-1])

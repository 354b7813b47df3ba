"""An export as its user loads it: run in a fresh process, without anygrpo (its path is given to the interpreter).

    python plain.py JOB.json      reads what was exported and a recorded call, prints one line of JSON

Only torch, safetensors, diffusers and the standard library are imported here.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file


def main(job: dict[str, Any]) -> dict[str, float]:
    """Largest differences: of the export to the training pass and to its base; in half precision of the library's own
    output in that dtype to float32 on the trained numbers (`dtype`), and of the export, as float32, to these."""
    call = load_file(job["call"])
    part = lambda begin: {n.partition("/")[2]: call.pop(n) for n in list(call) if n.startswith(begin)}  # noqa: E731
    said, ids = part("encoders/"), part("encoder_ids/")
    expected = call.pop("output").float()
    compare = {"diffusers_lora": _diffusers, "diffusers_weights": _diffusers, "mdm": _mdm}[job["format"]]
    return compare(job, call, expected) | (_encoders(job, said, ids) if said else {})


def _arguments(call: dict[str, torch.Tensor], dtype: torch.dtype) -> dict[str, Any]:
    """The recorded arguments; "a/b" is b in the dict a. Levels, ids and guidance keep their dtype."""
    out: dict[str, Any] = {}
    for name, value in call.items():
        as_it_is = not value.is_floating_point() or name in ("timestep", "img_ids", "txt_ids", "guidance")
        group, _, key = name.rpartition("/")
        (out.setdefault(group, {}) if group else out)[key] = value if as_it_is else value.to(dtype)
    return out


@torch.no_grad()
def _diffusers(job: dict[str, Any], call: dict[str, torch.Tensor], expected: torch.Tensor) -> dict[str, float]:
    import diffusers
    from diffusers.pipelines.pipeline_utils import DiffusionPipeline

    lacking = dict.fromkeys(job["left_out"])
    outputs: dict[str, torch.Tensor] = {}
    for name, dtype in (("trained", getattr(torch, job["dtype"])), ("float32", torch.float32)):
        pipe = DiffusionPipeline.from_pretrained(job["pipeline"], local_files_only=True, torch_dtype=dtype, **lacking)
        model = getattr(pipe, job["component"]).eval()
        given = _arguments(call, dtype)
        says = lambda module, given=given: module(**given, return_dict=False)[0].float()  # noqa: E731
        outputs[f"base_{name}"] = says(model)
        if job["trained"]:
            state = load_file(job["trained"])
            outputs[f"ruler_{name}"] = _trained(model, state, says)
            if name == "float32":  # what the export may hold
                whole = job["format"] == "diffusers_weights"
                outputs["held"] = _trained(model, _rounded(state, job), says) if whole else outputs["ruler_float32"]
        if job["format"] == "diffusers_lora":
            pipe.load_lora_weights(job["folder"])
        else:
            kind = getattr(diffusers, type(model).__name__)
            model = kind.from_pretrained(Path(job["folder"]) / job["component"], torch_dtype=dtype).eval()
        outputs[name] = says(model)
    return _differences(outputs, expected)


def _trained(model: torch.nn.Module, state: dict[str, torch.Tensor], says: Any) -> torch.Tensor:
    """What the base says with the numbers that were trained, which come from the policy and not from the export: whole
    weights, or of adapters NAME.lora_A and NAME.lora_B, whose product is added to the layer and taken off again."""
    layers = {name.removesuffix(".lora_A") for name in state if name.endswith(".lora_A")}
    if not layers:
        model.load_state_dict(state)
        return says(model)
    known: dict[str, Any] = dict(model.named_modules())
    held = {name: known[name].weight.detach().clone() for name in layers}
    for name in layers:
        change = state[f"{name}.lora_B"] @ state[f"{name}.lora_A"]
        known[name].weight.copy_(held[name].float() + change.view_as(held[name]))
    said = says(model)
    for name, value in held.items():
        known[name].weight.copy_(value)
    return said


def _rounded(state: dict[str, torch.Tensor], job: dict[str, Any]) -> dict[str, torch.Tensor]:
    narrow = getattr(torch, job["dtype"])
    return {name: x.to(narrow).to(x.dtype) if x.is_floating_point() else x for name, x in state.items()}


@torch.no_grad()
def _encoders(job: dict[str, Any], said: dict[str, torch.Tensor], ids: dict[str, torch.Tensor]) -> dict[str, float]:
    """Text encoders that were written beside the denoiser, over the largest number: their differences to what they said
    in training, the dtype's own to float32 on the trained weights, and of the export to these in float32."""
    import transformers

    every = lambda made: torch.cat([made[0].flatten(), made.last_hidden_state.flatten()]).float()  # noqa: E731
    index = json.loads((Path(job["pipeline"]) / "model_index.json").read_text())
    far, own, wide = [], [], []
    for name, expected in said.items():
        kind = getattr(transformers, index[name][1])
        size = expected.float().abs().max()
        apart = lambda a, b, size=size: float((a - b).abs().max() / size)  # noqa: E731
        outputs = {}
        for dtype in (getattr(torch, job["dtype"]), torch.float32):
            encoder = kind.from_pretrained(Path(job["folder"]) / name, dtype=dtype).eval()
            outputs[dtype] = every(encoder(ids[name]))
            if job["encoders"]:
                encoder.load_state_dict(load_file(Path(job["encoders"]) / f"{name}.safetensors"))
                outputs["ruler", dtype] = every(encoder(ids[name]))
        narrow = getattr(torch, job["dtype"])
        far.append(apart(outputs[narrow], expected.float()))
        if job["encoders"]:
            own.append(apart(outputs["ruler", narrow], outputs["ruler", torch.float32]))
            wide.append(apart(outputs[torch.float32], outputs["ruler", torch.float32]))
    worst = lambda values: float(torch.tensor(values or [0.0]).max())  # noqa: E731  # NaN where there is one
    return {"encoders": worst(far), "encoders_dtype": worst(own), "encoders_unrounded": worst(wide)}


@torch.no_grad()
def _mdm(job: dict[str, Any], call: dict[str, torch.Tensor], expected: torch.Tensor) -> dict[str, float]:
    """MDM's network written with torch's own encoder, its tensors loaded by their published names."""
    arguments = json.loads((Path(job["folder"]) / "args.json").read_text())
    masked, narrow = bool(arguments.get("mask_frames")), getattr(torch, job["dtype"])
    real = call["frames"][..., None] if masked else torch.ones(1, 1, 1, dtype=torch.bool)
    files = {"trained": Path(job["folder"]) / job["file"], "base_trained": Path(job["base"])}
    states = {name: torch.load(file, map_location="cpu", weights_only=True) for name, file in files.items()}
    states = {name: state.get("model_avg", state.get("model", state)) for name, state in states.items()}
    says = lambda state, dtype: _mdm_says(state, call, arguments, dtype) * real  # noqa: E731
    outputs = {name: says(state, narrow) for name, state in states.items()}
    outputs["float32"] = says(states["trained"], torch.float32)
    if job["trained"]:
        state = load_file(job["trained"])
        outputs |= {"ruler_trained": says(state, narrow), "ruler_float32": says(state, torch.float32)}
        outputs["held"] = says(_rounded(state, job), torch.float32)
    return _differences(outputs, expected * real)


def _mdm_says(
    state: dict[str, torch.Tensor], call: dict[str, torch.Tensor], arguments: dict[str, Any], dtype: torch.dtype
) -> torch.Tensor:
    state = {name: x.to(dtype) for name, x in state.items()}
    call = {name: x.to(dtype) if x.is_floating_point() else x for name, x in call.items()}
    width = state["input_process.poseEmbedding.weight"].shape[0]
    layer = torch.nn.TransformerEncoderLayer(width, 4, 1024, 0.1, "gelu")
    encoder = torch.nn.TransformerEncoder(layer, arguments.get("layers", 8), enable_nested_tensor=False).eval()
    encoder = encoder.to(dtype)
    encoder.load_state_dict({k[16:]: v for k, v in state.items() if k.startswith("seqTransEncoder.")})
    apply = lambda key, x: torch.nn.functional.linear(x, state[key + ".weight"], state[key + ".bias"])  # noqa: E731
    half = torch.exp(torch.arange(0, width, 2).float() * (-torch.tensor(10_000.0).log() / width))
    at = torch.arange(5000)[:, None].float() * half
    table = torch.stack([at.sin(), at.cos()], -1).flatten(1).to(dtype)
    level = torch.nn.functional.silu(apply("embed_timestep.time_embed.0", table[call["timestep"].long()]))
    said = torch.where(call["dropped"][:, None], 0.0, call["text"])
    token = apply("embed_timestep.time_embed.2", level) + apply("embed_text", said)
    x = torch.cat([token[None], apply("input_process.poseEmbedding", call["x"]).transpose(0, 1)])
    hidden = None
    if arguments.get("mask_frames"):
        hidden = ~torch.cat([torch.ones_like(call["frames"][:, :1]), call["frames"]], 1)
    h = encoder(x + table[: len(x), None], src_key_padding_mask=hidden)[1:]
    return apply("output_process.poseFinal", h).transpose(0, 1).float()


def _differences(outputs: dict[str, torch.Tensor], expected: torch.Tensor) -> dict[str, float]:
    largest = lambda a, b: float((a - b).abs().max())  # noqa: E731
    return {
        "size": float(expected.abs().max()),
        "to_training": largest(outputs["trained"], expected),
        "to_base": largest(outputs["trained"], outputs["base_trained"]),
        "dtype": largest(outputs["ruler_trained"], outputs["ruler_float32"]) if "ruler_trained" in outputs else 0.0,
        "unrounded": largest(outputs["float32"], outputs["held"]) if "held" in outputs else 0.0,
    }


if __name__ == "__main__":
    print(json.dumps(main(json.loads(Path(sys.argv[1]).read_text()))))

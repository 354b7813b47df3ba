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
    """Largest differences: of the export to the training pass, of the export to its base, and of the library's own
    output in the trained dtype to that in float32."""
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
        outputs[f"base_{name}"] = model(**given, return_dict=False)[0].float()
        if job["format"] == "diffusers_lora":
            pipe.load_lora_weights(job["folder"])
        else:
            kind = getattr(diffusers, type(model).__name__)
            model = kind.from_pretrained(Path(job["folder"]) / job["component"], torch_dtype=dtype).eval()
        outputs[name] = model(**given, return_dict=False)[0].float()
    return _differences(outputs, expected)


@torch.no_grad()
def _encoders(job: dict[str, Any], said: dict[str, torch.Tensor], ids: dict[str, torch.Tensor]) -> dict[str, float]:
    """Text encoders that were written beside the denoiser: largest differences to what they said in training, and of
    their own dtype to float32, over the largest number."""
    import transformers

    far, own = [], []
    every = lambda made: torch.cat([made[0].flatten(), made.last_hidden_state.flatten()]).float()  # noqa: E731
    index = json.loads((Path(job["pipeline"]) / "model_index.json").read_text())
    for name, expected in said.items():
        kind = getattr(transformers, index[name][1])
        load = lambda dtype, kind=kind, name=name: kind.from_pretrained(Path(job["folder"]) / name, dtype=dtype).eval()  # noqa: E731
        trained, wide = (every(load(d)(ids[name])) for d in (getattr(torch, job["dtype"]), torch.float32))
        size = expected.float().abs().max()
        far.append((trained - expected.float()).abs().max() / size)
        own.append((trained - wide).abs().max() / size)
    return {"encoders": float(torch.stack(far).max()), "encoders_dtype": float(torch.stack(own).max())}


@torch.no_grad()
def _mdm(job: dict[str, Any], call: dict[str, torch.Tensor], expected: torch.Tensor) -> dict[str, float]:
    """MDM's network written with torch's own encoder, its tensors loaded by their published names."""
    arguments = json.loads((Path(job["folder"]) / "args.json").read_text())
    outputs = {}
    for name, file in (("trained", Path(job["folder"]) / job["file"]), ("base_trained", Path(job["base"]))):
        state = torch.load(file, map_location="cpu", weights_only=True)
        state = state.get("model_avg", state.get("model", state))
        width = state["input_process.poseEmbedding.weight"].shape[0]
        layer = torch.nn.TransformerEncoderLayer(width, 4, 1024, 0.1, "gelu")
        encoder = torch.nn.TransformerEncoder(layer, arguments.get("layers", 8), enable_nested_tensor=False).eval()
        encoder.load_state_dict({k[16:]: v for k, v in state.items() if k.startswith("seqTransEncoder.")})
        apply = lambda key, x, state=state: torch.nn.functional.linear(x, state[key + ".weight"], state[key + ".bias"])  # noqa: E731
        half = torch.exp(torch.arange(0, width, 2).float() * (-torch.tensor(10_000.0).log() / width))
        at = torch.arange(5000)[:, None].float() * half
        table = torch.stack([at.sin(), at.cos()], -1).flatten(1)
        level = torch.nn.functional.silu(apply("embed_timestep.time_embed.0", table[call["timestep"].long()]))
        said = torch.where(call["dropped"][:, None], 0.0, call["text"])
        token = apply("embed_timestep.time_embed.2", level) + apply("embed_text", said)
        x = torch.cat([token[None], apply("input_process.poseEmbedding", call["x"]).transpose(0, 1)])
        hidden = None
        if arguments.get("mask_frames"):
            hidden = ~torch.cat([torch.ones_like(call["frames"][:, :1]), call["frames"]], 1)
        h = encoder(x + table[: len(x), None], src_key_padding_mask=hidden)[1:]
        made = apply("output_process.poseFinal", h).transpose(0, 1)
        real = call["frames"][..., None] if hidden is not None else torch.ones(1, 1, 1, dtype=torch.bool)
        outputs[name] = made * real
    outputs["float32"], outputs["base_float32"] = outputs["trained"], outputs["base_trained"]
    return _differences(outputs, expected * real)


def _differences(outputs: dict[str, torch.Tensor], expected: torch.Tensor) -> dict[str, float]:
    largest = lambda a, b: float((a - b).abs().max())  # noqa: E731
    return {
        "size": float(expected.abs().max()),
        "to_training": largest(outputs["trained"], expected),
        "to_base": largest(outputs["trained"], outputs["base_trained"]),
        "dtype": largest(outputs["trained"], outputs["float32"]),
    }


if __name__ == "__main__":
    print(json.dumps(main(json.loads(Path(sys.argv[1]).read_text()))))

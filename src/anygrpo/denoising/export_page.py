"""The lines with which an exported denoiser is loaded, for its card."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from anygrpo.core.hub import split
from anygrpo.denoising.files import component_of
from anygrpo.denoising.starting import start_for
from anygrpo.files import one_line

if TYPE_CHECKING:
    from anygrpo.denoising.policy import DiffusionPolicy


def usage(policy: DiffusionPolicy, folder: Path, form: str, file: str) -> str:
    """Python for the form that was written ("diffusers_lora", ...); `file`: its first file."""
    here, config = f"./{folder.name}", _text
    if form == "diffusers_lora":
        base = _base(policy)
        return (
            "from diffusers import DiffusionPipeline\n"
            f"pipe = DiffusionPipeline.from_pretrained({base})\npipe.load_lora_weights({config(here)})"
        )
    if form == "diffusers_weights":
        name, model = component_of(policy), type(policy.trainable()).__name__
        parts = {name: model} | {n: type(m).__name__ for n, m in policy.parts.beside.items()}
        lines = [f"from diffusers import DiffusionPipeline, {model}"]
        encoders = sorted({kind for n, kind in parts.items() if n != name})
        lines += [f"from transformers import {', '.join(encoders)}"] if encoders else []
        lines += [f"{n} = {kind}.from_pretrained({config(f'{here}/{n}')})" for n, kind in parts.items()]
        given = ", ".join(f"{n}={n}" for n in parts)
        return "\n".join([*lines, f"pipe = DiffusionPipeline.from_pretrained({_base(policy)}, {given})"])
    own = f'import anygrpo\nanygrpo.load({config(here)}).apply("a person walks in a circle", "out")'
    if form == "mdm":
        return f"# in MDM's own repository: python -m sample.generate --model_path {config(f'{here}/{file}')}\n{own}"
    return own


def _base(policy: DiffusionPolicy) -> str:
    """Arguments of from_pretrained."""
    name, revision = split(str(start_for(policy.config).told))
    return _text(name) + (f", revision={_text(revision)}" if revision else "")


def _text(words: str) -> str:
    return json.dumps(one_line(words))

"""Pipelines, LoRAs, MDM's and our own motion models by their names of the Hub; without a network afterwards."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest
from hub_server import Hub

from anygrpo.denoising.export_page import usage
from anygrpo.denoising.pipelines import adapter_class
from anygrpo.denoising.starting import LORA_FILE, start_of
from anygrpo.errors import DataError


def card(model, folder):
    return usage(SimpleNamespace(config=SimpleNamespace(model=model, kind="diffusion")), folder, "diffusers_lora", "")


def test_each_name_of_the_hub_is_its_folder(tmp_path, monkeypatch):
    hub = Hub(tmp_path / "hub", monkeypatch)
    index = json.dumps({"_class_name": "StableDiffusionPipeline"})
    for revision in ("main", "second"):
        (hub.place("someone/pipe", revision) / "model_index.json").write_text(index)
    (hub.place("someone/lora") / LORA_FILE).write_bytes(b"")
    (hub.place("someone/lora") / "README.md").write_text("---\nbase_model: someone/pipe\n---\n")
    (hub.place("someone/mdm") / "model50.pt").write_bytes(b"x")
    (hub.place("someone/mdm") / "args.json").write_text("{}")
    (hub.place("someone/walks") / "denoiser.safetensors").write_bytes(b"x")
    for _ in ("with a network", "without"):
        pipe = start_of("someone/pipe", "diffusion").base
        assert str(pipe).startswith(str(tmp_path / "hub" / "cache"))
        assert start_of("someone/pipe@second", "diffusion").base not in (None, pipe)
        assert adapter_class("someone/pipe").__name__ == "StableDiffusion"
        lora = start_of("someone/lora", "diffusion")
        assert lora.base == pipe
        assert [added.place.name for added in lora.added] == [LORA_FILE]
        assert str(start_of("someone/mdm", "mdm").base).endswith("model50.pt")
        assert 'from_pretrained("someone/pipe")' in card("someone/pipe", tmp_path)
        assert 'from_pretrained("someone/pipe")' in card("someone/lora", tmp_path)  # a LoRA is no pipeline
        assert 'from_pretrained("someone/pipe", revision="second")' in card("someone/pipe@second", tmp_path)
        assert start_of("someone/lora", "diffusion").told == "someone/pipe"
        (added,) = start_of("someone/walks", "motion").added
        assert (added.place / "denoiser.safetensors").is_file()
        hub.close()
    with pytest.raises(DataError, match="'someone/gone' is no path here"):
        start_of("someone/gone", "motion")

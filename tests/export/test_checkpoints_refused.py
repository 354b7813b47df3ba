"""No file of a checkpoint's folder but the weights is taken for weights by a library: it refuses, and moves nothing."""

import peft
import pytest
import tiny_pipelines
import torch
from diffusers import DiffusionPipeline, UNet2DConditionModel
from golden_runs import golden, image_run, trained
from transformers import AutoModelForCausalLM

import anygrpo
from anygrpo.cli.main import main
from anygrpo.core.trained import state_of
from anygrpo.denoising.starting import LORA_FILE
from anygrpo.train import checkpoint

PIPES = {"sd15": "ddim", "sdxl": "ddim", "sd3": "flow_grpo", "flux": "flow_grpo"}


def model_of(pipe):
    return pipe.unet if hasattr(pipe, "unet") else pipe.transformer


def untouched(pipe) -> bool:
    """No adapter was put on the pipeline, and no tensor of it is without data."""
    named = list(model_of(pipe).named_parameters())
    return not any("lora" in name for name, _ in named) and not any(x.is_meta for _, x in named)


def refuses(pipe, folder, name=None) -> str:
    with pytest.raises((ValueError, OSError)) as caught:
        pipe.load_lora_weights(str(folder), weight_name=name, local_files_only=True)
    assert untouched(pipe)
    return str(caught.value)


@pytest.mark.parametrize("kind", list(PIPES))
def test_diffusers_takes_the_adapters_alone_and_a_resume_its_moments(tmp_path, kind):
    base = str(getattr(tiny_pipelines, kind)(tmp_path))
    run = image_run(tmp_path, base, PIPES[kind])
    weights, state = checkpoint.load(run / "checkpoints" / "best")
    names = {own: name for own, name in anygrpo.load(run).policy.saved_names().items() if own in weights}
    state["anchor"] = dict(weights)  # a later stage's reference: adapters again, in state.safetensors
    folder = checkpoint.save(tmp_path / "with_anchor", 2, weights, state, 2, False, names)
    pipe = DiffusionPipeline.from_pretrained(base, local_files_only=True)
    for place, name in [(run / "checkpoints" / "best", "optimizer.safetensors"), (folder, "optimizer.safetensors"),
                        (folder, "state.safetensors")]:  # fmt: skip
        assert (place / name).is_file()
        refuses(pipe, place, name)
    again = checkpoint.load(folder)[1]
    for kept in ("anchor", "updater"):
        assert again[kept].keys() == state[kept].keys()
    assert all(torch.equal(again["anchor"][n], w) for n, w in weights.items())
    moments = state["updater"]["moments"]
    assert moments.keys() == set(names.values())
    for name, one in again["updater"]["moments"].items():
        assert all(torch.equal(x, moments[name][key]) for key, x in one.items())
    pipe.load_lora_weights(str(run / "checkpoints" / "best"), local_files_only=True)
    assert any(bool(p.any()) for n, p in model_of(pipe).named_parameters() if "lora_B" in n)


@pytest.mark.parametrize("kind", ["sd15", "flux"])
def test_adapters_on_adapters_are_refused_by_diffusers_and_leave_by_an_export(tmp_path, kind):
    base = str(getattr(tiny_pipelines, kind)(tmp_path))
    first = image_run(tmp_path, base, PIPES[kind])
    (tmp_path / "next").mkdir()
    second = image_run(tmp_path / "next", str(first), PIPES[kind])
    folder = second / "checkpoints" / "best"
    pipe = DiffusionPipeline.from_pretrained(base, local_files_only=True)
    assert not (folder / LORA_FILE).exists()
    assert "Invalid LoRA checkpoint" in refuses(pipe, folder)  # whichever file it guesses
    for file in folder.glob("*.safetensors"):
        refuses(pipe, folder, file.name)
    again = anygrpo.load(folder)
    held = checkpoint.load(folder)[0]
    assert all(torch.equal(x.cpu(), held[n]) for n, x in state_of(again.policy.trainable()).items())
    assert main(["export", str(second), "--to", str(tmp_path / "out"), "--json"]) == 0


def test_all_weights_of_a_pipelines_denoiser_load_as_they_are(tmp_path):
    base = tiny_pipelines.sd15(tmp_path)
    run = image_run(tmp_path, base, "ddim", lora=None)
    folder = run / "checkpoints" / "best"
    theirs = UNet2DConditionModel.from_pretrained(str(folder), low_cpu_mem_usage=False)
    ours = {n: x.cpu() for n, x in anygrpo.load(run).policy.trainable().state_dict().items()}
    before = UNet2DConditionModel.from_pretrained(base, subfolder="unet").state_dict()
    assert theirs.state_dict().keys() == ours.keys()
    assert all(torch.equal(x, ours[name]) for name, x in theirs.state_dict().items())
    assert any(not torch.equal(x, ours[name]) for name, x in before.items())
    pipe = DiffusionPipeline.from_pretrained(base, unet=theirs, local_files_only=True)
    made = pipe("a cat", num_inference_steps=2, height=8, width=8, output_type="np").images
    assert made.shape == (1, 8, 8, 3)


def test_some_layers_alone_and_adapters_on_adapters_are_refused_by_transformers_and_peft(tmp_path):
    golden.language(tmp_path)
    case = golden.cases()["language_last_n_whitened_band"]
    run = trained(tmp_path, "language_last_n_whitened_band", policy=case["policy"] | {"train": "last_n"})
    base = anygrpo.load(run).recipe.policy.model
    folder = checkpoint.newest(run / "checkpoints")
    with pytest.raises((OSError, ValueError)):
        AutoModelForCausalLM.from_pretrained(str(folder))
    (tmp_path / "one").mkdir()
    lora = golden.cases()["language_lora_centred_k3"]["policy"] | {"model": str(base)}
    golden.language(tmp_path / "one")
    first = trained(tmp_path / "one", "language_lora_centred_k3", policy=lora)
    (tmp_path / "two").mkdir()
    golden.language(tmp_path / "two")
    second = trained(tmp_path / "two", "language_lora_centred_k3", policy=lora | {"model": str(first)})
    folder = checkpoint.newest(second / "checkpoints")
    with pytest.raises((OSError, ValueError)):
        AutoModelForCausalLM.from_pretrained(str(folder))
    with pytest.raises((OSError, ValueError)):
        peft.PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base), str(folder))

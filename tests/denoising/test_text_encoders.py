"""A LoRA that adapts text encoders too: where training starts from it, they are its, and they leave with an export."""

from __future__ import annotations

import inspect
import json
import shutil

import peft
import pytest
import torch
from diffusers import DiffusionPipeline
from peft.utils import get_peft_model_state_dict
from safetensors.torch import load_file, save_file
from tiny_pipelines import flux, sd3, sd15, sdxl

import anygrpo
from anygrpo.core.saved import library_names
from anygrpo.core.trained import state_of
from anygrpo.denoising import build as diffusion
from anygrpo.denoising import certifying
from anygrpo.denoising import export as exporting
from anygrpo.denoising.call import record_call
from anygrpo.denoising.export import export
from anygrpo.denoising.settings import DiffusionPolicyConfig
from anygrpo.errors import ConfigError, DataError, TrainingError
from anygrpo.train import checkpoint

KINDS = {"sd15": (sd15, "ddim"), "sdxl": (sdxl, "ddim"), "sd3": (sd3, "flow_grpo"), "flux": (flux, "flow_grpo")}


@pytest.fixture(params=["sd15", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("sdxl", "sd3", "flux"))])
def made(request, tmp_path):
    """(kind, base, folder of the LoRA as diffusers writes it: rank 2, alpha 5; the pipeline with it merged by PEFT)."""
    base = KINDS[request.param][0](tmp_path)
    pipe = DiffusionPipeline.from_pretrained(base, local_files_only=True)
    layers, told = {}, {}
    torch.manual_seed(3)
    settings = peft.LoraConfig(
        r=2, lora_alpha=5, target_modules=["to_q", "to_v", "q_proj", "v_proj"], init_lora_weights=False
    )
    denoiser = "transformer" if request.param in ("sd3", "flux") else "unet"
    for name in (denoiser, "text_encoder", "text_encoder_2"):
        takes = f"{name}_lora_layers" in inspect.signature(type(pipe).save_lora_weights).parameters  # Flux's T5 is none
        if takes and getattr(pipe, name, None) is not None:
            adapted = peft.get_peft_model(getattr(pipe, name), settings)
            state = get_peft_model_state_dict(adapted)
            layers[f"{name}_lora_layers"] = {n.removeprefix("base_model.model."): x for n, x in state.items()}
            adapted.merge_and_unload()
            told[f"{name}_lora_adapter_metadata"] = settings.to_dict()
    type(pipe).save_lora_weights(tmp_path / "lora", **layers, **told)
    (tmp_path / "lora" / "README.md").write_text(f"---\nbase_model: {base}\n---\n")
    return request.param, base, tmp_path / "lora", pipe


def started(kind, model, **more):
    given = {"model": str(model), "sampler": KINDS[kind][1], "steps": 4, "height": 8, "width": 8}
    return diffusion.build(DiffusionPolicyConfig(**given | more), seed=0)


def said(policy, kind):
    """What of the prompt's encoding the LoRA changes: Flux reads tokens by T5, and of CLIP its pooled vector."""
    return policy.parts.encode(["a cat"])["pooled_projections" if kind == "flux" else "encoder_hidden_states"]


def encoded(pipe, kind):
    more = {"sdxl": [], "sd3": [None, None], "sd15": ["cpu", 1, False], "flux": [None]}[kind]
    return pipe.encode_prompt("a cat", *more)[kind == "flux"]


def test_it_is_the_policys_and_goes_with_it(made, tmp_path, monkeypatch):
    kind, base, lora, pipe = made
    policy, plain = started(kind, lora, lora={"rank": 2, "alpha": 4}), started(kind, base)
    encoders = ["text_encoder", "text_encoder_2"] if kind in ("sdxl", "sd3") else ["text_encoder"]
    assert list(policy.parts.beside) == encoders
    wanted = encoded(pipe, kind)
    torch.testing.assert_close(said(policy, kind), wanted, atol=1e-5, rtol=1e-4)
    assert float((said(plain, kind) - wanted).abs().max()) > 1e-2
    with torch.no_grad():
        for p in policy.parameters():
            p.add_(0.05)
    about = json.loads(export(policy, tmp_path / "out")[-1].read_text())
    monkeypatch.chdir(tmp_path)
    lines: dict = {}
    exec(about["use"], lines)  # the card's own way to load it
    torch.testing.assert_close(encoded(lines["pipe"], kind), said(policy, kind), atol=1e-5, rtol=1e-4)
    compared = about["compared"]
    assert compared["encoders"] < 1e-4
    assert compared["to_training"] < 1e-4 * compared["size"] < compared["to_base"]
    assert (about["base"], about["started_from"]) == (base, [str(lora / "pytorch_lora_weights.safetensors")])
    (tmp_path / "out" / "recipe.toml").write_text(f'[policy]\nkind = "diffusion"\nmodel = "{lora}"\n')
    shutil.rmtree(lora)  # the export holds what it started from
    again = started(kind, tmp_path / "out")
    torch.testing.assert_close(said(again, kind), said(policy, kind), atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(record_call(again)["output"], record_call(policy)["output"], atol=1e-4, rtol=1e-3)
    told = certifying.encoded
    for wrong in (lambda x: x + 1.0, lambda x: x * float("nan")):
        monkeypatch.setattr(
            certifying, "encoded", lambda p, wrong=wrong: {n: x if "ids" in n else wrong(x) for n, x in told(p).items()}
        )
        with pytest.raises(TrainingError, match="text encoders, loaded by themselves, differ"):
            export(again, tmp_path / "other")
        assert not list((tmp_path / "other").rglob("*"))


def test_the_whole_vocabulary_is_asked(made):
    kind, _, lora, _ = made
    policy = started(kind, lora, lora={"rank": 2, "alpha": 4})
    before = certifying.encoded(policy)
    last = policy.parts.beside["text_encoder"].config.vocab_size - 1
    assert int(before["encoder_ids/text_encoder"].max()) == last
    with torch.no_grad():
        policy.parts.beside["text_encoder"].get_input_embeddings().weight[last, 0] += 5.0
    assert not torch.allclose(certifying.encoded(policy)["encoders/text_encoder"], before["encoders/text_encoder"])


def test_names_that_the_library_finds_no_place_for_are_an_error(made, tmp_path):
    """It warns, and leaves adapters that change nothing."""
    kind, _, lora, _ = made
    file = lora / "pytorch_lora_weights.safetensors"
    state = {".base_model.".join(name.split(".", 1)): x for name, x in load_file(file).items()}
    save_file(state, file)
    with pytest.raises(DataError, match="layers are not in this network"):
        started(kind, lora)


def test_a_run_of_all_weights_that_began_from_it_keeps_them(made, tmp_path):
    """A checkpoint holds the network alone; what was put on the base before it says the rest."""
    kind, _, lora, _ = made
    first = started(kind, lora)
    with torch.no_grad():
        for p in first.parameters():
            p.add_(0.05)
    names = library_names(first.saved_names(), state_of(first.trainable()))
    place, form = tmp_path / "run" / "checkpoints", first.saved_form()
    place.mkdir(parents=True)
    checkpoint.save(place, 1, state_of(first.trainable()), {"step": 1}, 1, False, names, form)
    (tmp_path / "run" / "config.toml").write_text(f'[policy]\nkind = "diffusion"\nmodel = "{lora}"\n')
    again = started(kind, tmp_path / "run")
    assert list(again.parts.beside) == list(first.parts.beside)
    torch.testing.assert_close(said(again, kind), said(first, kind))
    torch.testing.assert_close(record_call(again)["output"], record_call(first)["output"])


def test_an_export_into_the_same_folder_leaves_nothing_of_the_one_before(made, tmp_path, monkeypatch):
    kind, base, lora, _ = made
    out, recipe = tmp_path / "out", f'[policy]\nkind = "diffusion"\nmodel = "{base}"\n'
    export(started(kind, lora), out, certify=False)
    assert (out / "text_encoder" / "config.json").is_file()
    (out / "README.md").write_text("of the first")
    (out / "recipe.toml").write_text(recipe)
    (out / "text_encoder_2").mkdir(exist_ok=True)
    (out / "text_encoder_2" / "config.json").write_text("of no export: it is not in the list")
    first = {n: x.clone() for n, x in state_of(started(kind, out).trainable()).items()}
    plain = started(kind, base)

    def differs(*given):
        raise TrainingError("differs", "")

    with monkeypatch.context() as patch:
        patch.setattr(exporting, "certified", differs)
        with pytest.raises(TrainingError, match="differs"):
            export(plain, out)
    assert (out / "README.md").read_text() == "of the first"  # a failure leaves what was there
    assert not list(out.rglob(".export-*"))
    export(plain, out, certify=False)
    assert not (out / "README.md").exists()
    (out / "recipe.toml").write_text(recipe)
    again = started(kind, out)
    assert again.parts.beside == {}
    torch.testing.assert_close(said(again, kind), said(plain, kind))
    assert any(not torch.equal(x, first[n]) for n, x in state_of(again.trainable()).items())


def test_an_export_in_several_files_is_read_whole(made, tmp_path):
    kind, base, lora, _ = made
    policy, out = started(kind, lora), tmp_path / "out"
    export(policy, out, certify=False)
    name = "transformer" if kind in ("sd3", "flux") else "unet"
    (out / name / "diffusion_pytorch_model.safetensors").unlink()
    policy.trainable().save_pretrained(out / name, max_shard_size="20KB")
    files = [str(f.relative_to(out)) for f in sorted(out.rglob("*")) if f.is_file() and f.parent != out]
    assert sum(f.startswith(f"{name}/") and f.endswith(".safetensors") for f in files) > 1
    (out / "export.json").write_text(json.dumps({"files": sorted(files, key=lambda f: not f.startswith(name))}))
    (out / "recipe.toml").write_text(f'[policy]\nkind = "diffusion"\nmodel = "{base}"\n')
    again = started(kind, out)
    torch.testing.assert_close(record_call(again)["output"], record_call(policy)["output"])
    torch.testing.assert_close(said(again, kind), said(policy, kind))


@pytest.mark.slow
def test_in_bfloat16_an_export_is_as_near_as_the_type_itself(made, tmp_path):
    kind, _, lora, pipe = made
    policy = started(kind, lora, lora={"rank": 2, "alpha": 4}, dtype="bfloat16")
    wanted = encoded(pipe, kind)
    assert float((said(policy, kind).float() - wanted).abs().max()) < 0.05 * float(wanted.abs().max())
    with torch.no_grad():
        for p in policy.parameters():
            p.add_(0.05)
    compared = json.loads(export(policy, tmp_path / "out")[-1].read_text())["compared"]
    assert compared["encoders"] <= max(1e-4, 2 * compared["encoders_dtype"])
    assert 0 < compared["encoders_dtype"] < 0.05
    assert compared["to_base"] > 0
    kept = load_file(next((tmp_path / "out" / "text_encoder").glob("*.safetensors")))
    assert {x.dtype for x in kept.values()} == {torch.bfloat16}


def test_a_base_that_has_moved_or_is_not_told(made, tmp_path):
    """An export names its base, a LoRA's card may: another place is given in the recipe or in export.json."""
    kind, base, lora, _ = made
    policy = started(kind, lora)
    export(policy, tmp_path / "out", certify=False)
    (tmp_path / "out" / "recipe.toml").write_text(f'[policy]\nkind = "diffusion"\nmodel = "{lora}"\n')
    shutil.move(base, tmp_path / "moved")
    with pytest.raises(DataError, match=r"belongs on .*pipe', which is not here") as told:
        started(kind, tmp_path / "out")
    assert "policy.base" in str(told.value)
    by_recipe = started(kind, tmp_path / "out", base=str(tmp_path / "moved"))
    torch.testing.assert_close(said(by_recipe, kind), said(policy, kind), atol=1e-5, rtol=1e-4)
    about = tmp_path / "out" / "export.json"
    about.write_text(json.dumps(json.loads(about.read_text()) | {"base": str(tmp_path / "moved")}))
    assert torch.equal(said(started(kind, tmp_path / "out"), kind), said(by_recipe, kind))
    (lora / "README.md").unlink()
    with pytest.raises(DataError, match="does not name its base"):
        started(kind, lora)
    assert torch.equal(said(started(kind, lora, base=str(tmp_path / "moved")), kind), said(by_recipe, kind))
    like = DiffusionPolicyConfig(model=str(tmp_path / "moved"), sampler=KINDS[kind][1], height=8, width=8)
    theirs = anygrpo.load(lora, like=like).policy  # by its recipe's pipeline: `anygrpo evaluate LORA --task RECIPE`
    assert torch.equal(said(theirs, kind), said(by_recipe, kind))
    with pytest.raises(ConfigError, match="is a base itself"):
        started(kind, tmp_path / "moved", base=str(tmp_path / "moved"))

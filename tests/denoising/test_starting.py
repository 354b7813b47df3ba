"""One key starts from anything: the base, a run, a checkpoint, an export, a LoRA; and each opens without a recipe."""

from __future__ import annotations

import argparse
import json
import shutil

import pytest
import torch
from golden_runs import image_run
from safetensors.torch import load_file, save_file
from tiny_pipelines import sd3, sd15

import anygrpo
from anygrpo.cli.main import main
from anygrpo.core.trained import state_of
from anygrpo.denoising import build as diffusion
from anygrpo.denoising.call import record_call
from anygrpo.denoising.export import LORA_FILE, export
from anygrpo.denoising.motion import mdm, mdm_policy
from anygrpo.denoising.motion import policy as motion
from anygrpo.denoising.motion.settings import MDMPolicyConfig, MotionPolicyConfig
from anygrpo.denoising.settings import DiffusionPolicyConfig
from anygrpo.errors import DataError


@pytest.fixture(scope="module", params=[("sd15", "ddim"), ("sd3", "flow_grpo")], ids=["sd15", "sd3"])
def made(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param[0])
    pipe = str({"sd15": sd15, "sd3": sd3}[request.param[0]](folder))
    run = image_run(folder, pipe, request.param[1])
    assert main(["export", str(run), "--to", str(folder / "export")]) == 0
    return folder, pipe, run, anygrpo.load(run).policy


def output(policy):
    return record_call(policy)["output"]


def started(policy, model, **more):
    given = policy.config.model_dump(exclude_unset=True, exclude={"lora"}) | {"model": str(model)} | more
    return diffusion.build(DiffusionPolicyConfig.model_validate(given), 0)


def test_each_name_is_the_trained_policy(made, monkeypatch):
    folder, pipe, run, policy = made
    wanted, base = output(policy), output(started(policy, pipe))
    lora = folder / "lora"
    lora.mkdir()
    shutil.copyfile(run / "checkpoints" / "best" / LORA_FILE, lora / LORA_FILE)
    (lora / "README.md").write_text(f"---\nbase_model: {pipe}\n---\n")
    far = float((wanted - base).abs().max())
    card = (folder / "export" / "README.md").read_text()
    assert f"base_model: {pipe}" in card
    assert "| reward |" in card
    assert "## Fingerprints" in card
    monkeypatch.chdir(folder)
    lines: dict = {}
    exec(card.partition("```python\n")[2].partition("```")[0], lines)  # the card's own way to load it
    name = "transformer" if (folder / "pipe" / "transformer").is_dir() else "unet"
    assert any("lora_B" in n and bool(p.any()) for n, p in getattr(lines["pipe"], name).named_parameters())
    assert "data:image/png" in (run / "report.html").read_text()
    for place in (run, run / "checkpoints" / "best", folder / "export", lora, lora / LORA_FILE):
        again = started(policy, place)
        assert float((output(again) - wanted).abs().max()) < 1e-3 * far, place
        with again.reference():  # what one started from
            assert float((output(again) - wanted).abs().max()) < 1e-3 * far


def test_what_does_not_fit_is_an_error(made, tmp_path):
    _, pipe, run, policy = made
    state = load_file(run / "checkpoints" / "best" / LORA_FILE)
    save_file(state, tmp_path / "alone.safetensors")
    with pytest.raises(DataError, match="does not name its base"):
        started(policy, tmp_path / "alone.safetensors")
    (tmp_path / "README.md").write_text(f"base_model: {pipe}\n")
    started(policy, tmp_path / "alone.safetensors")
    save_file({f"other.{name}": x for name, x in state.items()}, tmp_path / "alone.safetensors")
    with pytest.raises(DataError, match="are not in this network"):
        started(policy, tmp_path / "alone.safetensors")
    save_file({"x.weight": torch.zeros(2)}, tmp_path / "alone.safetensors")
    with pytest.raises(DataError, match="does not fit the network"):
        started(policy, tmp_path / "alone.safetensors")


def test_files_of_other_trainers_go_on_the_pipeline(made, tmp_path):
    """PEFT's folder (no README.md: its config names the pipeline, or `base`), and whole weights of the denoiser as a
    part's folder, a torch file, and Lightning's with hyperparameters of a class that is not here."""
    import peft
    from diffusers import DiffusionPipeline

    _, pipe, run, policy = made
    wanted, base = output(policy), output(started(policy, pipe))
    far = float((wanted - base).abs().max())
    part = "transformer" if hasattr(DiffusionPipeline.from_pretrained(pipe), "transformer") else "unet"
    model = getattr(DiffusionPipeline.from_pretrained(pipe), part)
    state = load_file(run / "checkpoints" / "best" / LORA_FILE)
    layers = sorted({n.removeprefix(f"{part}.").partition(".lora_")[0] for n in state})
    adapted = peft.get_peft_model(model, peft.LoraConfig(r=2, lora_alpha=8, target_modules=layers))
    names = {n.replace(".default.", ".").removeprefix("base_model.model."): p for n, p in adapted.named_parameters()}
    with torch.no_grad():
        for name, value in state.items():
            names[name.removeprefix(f"{part}.")].copy_(value)
    adapted.save_pretrained(tmp_path / "peft")
    config = json.loads((tmp_path / "peft" / "adapter_config.json").read_text())
    (tmp_path / "peft" / "adapter_config.json").write_text(json.dumps(config | {"base_model_name_or_path": pipe}))
    (tmp_path / "peft" / "README.md").unlink(missing_ok=True)
    whole = adapted.merge_and_unload()
    whole.save_pretrained(tmp_path / "part")
    torch.save(whole.state_dict(), tmp_path / "w.pt")
    more = {"hyper_parameters": argparse.Namespace(lr=1e-3), "pytorch-lightning_version": "2.4"}
    torch.save({"state_dict": {f"net.{n}": x for n, x in whole.state_dict().items()}} | more, tmp_path / "last.ckpt")
    again = started(policy, tmp_path / "peft")
    assert float((output(again) - wanted).abs().max()) < 1e-3 * far
    for name in ("peft", "peft/adapter_model.safetensors", "part", "w.pt", "last.ckpt"):
        again = started(policy, tmp_path / name, base=pipe)
        assert float((output(again) - wanted).abs().max()) < 1e-3 * far, name
    with pytest.raises(DataError, match="does not name its base"):
        started(policy, tmp_path / "last.ckpt")


def test_going_on_leaves_as_whole_weights(made, tmp_path):
    _, _, run, policy = made
    again = started(policy, run, lora={"rank": 2, "alpha": 4})
    with torch.no_grad():
        for p in again.parameters():
            p.add_(0.05)
    about = json.loads(export(again, tmp_path / "out")[-1].read_text())
    assert about["format"] == "diffusers_weights"
    assert about["compared"]["to_base"] > 100 * about["compared"]["to_training"]


def test_opened_applied_and_measured_by_command(made, tmp_path, capsys):
    folder, pipe, run, _ = made
    (tmp_path / "ask.txt").write_text("a cat\na dog\n")
    pictures = {}
    for name, source in {"base": pipe, "run": run, "export": folder / "export"}.items():
        out = tmp_path / name
        words = ["apply", str(source), str(tmp_path / "ask.txt"), "--out", str(out), "--quiet"]
        if name == "base":
            like = anygrpo.load(run).recipe.policy
            anygrpo.load(pipe, like=like).apply(tmp_path / "ask.txt", out)
        else:
            assert main(words) == 0
        pictures[name] = [(out / f"0000{i}.png").read_bytes() for i in range(2)]
    assert pictures["run"] == pictures["export"]
    assert pictures["run"] != pictures["base"]
    capsys.readouterr()
    assert main(["evaluate", pipe, str(run), str(folder / "export"), "--task", str(run / "config.toml"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["gains"][0]["gain"]["mean"] == pytest.approx(found["gains"][1]["gain"]["mean"], abs=1e-5)
    alone = anygrpo.load(pipe, steps=3)
    assert alone.policy.config.evaluation == "ode"
    assert alone.policy.guidance > 1


SMALL = {"features": 47, "frames": 16, "width": 32, "layers": 1, "heads": 2, "steps": 5}


def motion_of(policy, name="walks"):
    prompt = [{"caption": name, "length": 12, "seed": 1}]
    return policy.decode(policy.greedy(prompt).samples)[0][0]


def moved(policy):
    g = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for p in policy.parameters():
            p.add_(0.05 * torch.randn(p.shape, generator=g))
    return policy


def test_our_motion_model_from_a_run_of_adapters_and_an_export(tmp_path):
    first = moved(motion.build(MotionPolicyConfig(**SMALL), 0))
    export(first, tmp_path / "first")
    run = tmp_path / "run"
    given = SMALL | {"model": str(tmp_path / "first" / "denoiser.safetensors")}
    second = moved(motion.build(MotionPolicyConfig(**given, lora={"rank": 2, "alpha": 6}), 0))
    checkpoint = run / "checkpoints" / "step_00000004"
    checkpoint.mkdir(parents=True)
    save_file({n: p.contiguous() for n, p in state_of(second.trainable()).items()}, checkpoint / "policy.safetensors")
    (run / "config.toml").write_text(
        f'[policy]\nkind = "motion"\nmodel = "{given["model"]}"\n[policy.lora]\nrank = 2\nalpha = 6.0\n'
    )
    for place in (run, checkpoint):
        again = motion.build(MotionPolicyConfig(**SMALL, model=str(place)), 3)
        assert torch.allclose(motion_of(again), motion_of(second), atol=1e-4)
    assert not torch.allclose(motion_of(first), motion_of(second), atol=1e-2)


def test_mdm_with_hyperparameters_in_its_file_and_from_a_run(tmp_path):
    from argparse import Namespace

    torch.manual_seed(0)
    net = mdm.MDM(width=32, layers=2)
    torch.save({"model": net.state_dict(), "arguments": Namespace(lr=0.1)}, tmp_path / "model50.pt")
    (tmp_path / "args.json").write_text(json.dumps({"layers": 2, "latent_dim": 32, "diffusion_steps": 10}))
    torch.save({"walk": torch.randn(512)}, tmp_path / "words.pt")
    given = {"model": str(tmp_path / "model50.pt"), "text": str(tmp_path / "words.pt"), "frames": 16, "steps": 10}
    policy = moved(mdm_policy.build(MDMPolicyConfig(**given, lora={"rank": 4, "alpha": 8}), 0))
    checkpoint = tmp_path / "run" / "checkpoints" / "best"
    checkpoint.mkdir(parents=True)
    save_file({n: p.contiguous() for n, p in state_of(policy.trainable()).items()}, checkpoint / "policy.safetensors")
    (tmp_path / "run" / "config.toml").write_text(
        f'[policy]\nkind = "mdm"\nmodel = "{given["model"]}"\n[policy.lora]\nrank = 4\nalpha = 8.0\n'
    )
    again = mdm_policy.build(MDMPolicyConfig(**(given | {"model": str(tmp_path / "run")})), 0)
    assert torch.allclose(motion_of(again, "walk"), motion_of(policy, "walk"), atol=1e-3)
    with pytest.raises(DataError, match="of kind 'mdm', this one is 'motion'"):
        motion.build(MotionPolicyConfig(**SMALL, model=str(tmp_path / "run")), 0)

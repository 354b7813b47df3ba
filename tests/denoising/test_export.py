"""Trained adapters and weights, exported, loaded by the plain library in a fresh process, and compared."""

import json
import shutil
import tempfile
from pathlib import Path

import pytest
import torch
from diffusers import DiffusionPipeline
from safetensors.torch import load_file, save_file
from tiny_pipelines import flux, sd3, sd15, sdxl

from anygrpo.denoising import build as diffusion
from anygrpo.denoising import certifying
from anygrpo.denoising import export as exporting
from anygrpo.denoising.apply import apply
from anygrpo.denoising.call import record_call
from anygrpo.denoising.export import LORA_FILE, export, form_of
from anygrpo.denoising.files import merged_state
from anygrpo.denoising.motion import mdm, mdm_policy
from anygrpo.denoising.motion import policy as motion
from anygrpo.denoising.motion.settings import MDMPolicyConfig, MotionPolicyConfig
from anygrpo.denoising.settings import DiffusionPolicyConfig
from anygrpo.errors import ConfigError, TrainingError

MAKERS = {"sd15": (sd15, "ddim"), "sdxl": (sdxl, "ddim"), "sd3": (sd3, "flow_grpo"), "flux": (flux, "flow_grpo")}


def moved(policy, scale=0.05):
    """As if it had been trained."""
    g = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for p in policy.parameters():
            p.add_(scale * torch.randn(p.shape, generator=g).to(p))
    return policy


@pytest.fixture(scope="module")
def pipes(tmp_path_factory):
    made = {}
    return lambda kind: (
        made.setdefault(kind, None) or made.update({kind: MAKERS[kind][0](tmp_path_factory.mktemp(kind))}) or made[kind]
    )


def policy_of(pipes, kind, **more):
    given = {"model": pipes(kind), "sampler": MAKERS[kind][1], "steps": 4, "height": 8, "width": 8}
    return diffusion.build(DiffusionPolicyConfig(**(given | {"lora": {"rank": 4, "alpha": 8}} | more)), seed=0)


@pytest.mark.parametrize("kind", list(MAKERS))
def test_a_lora_loads_in_diffusers_at_its_trained_strength(pipes, kind, tmp_path):
    policy = moved(policy_of(pipes, kind))
    files = export(policy, tmp_path / "out")
    assert [f.name for f in files] == [LORA_FILE, "export.json"]
    compared = json.loads(files[-1].read_text())["compared"]
    assert compared["to_training"] <= 1e-4 * compared["size"]
    assert compared["to_base"] > 100 * compared["to_training"]
    pipe = DiffusionPipeline.from_pretrained(pipes(kind), local_files_only=True)
    pipe.load_lora_weights(tmp_path / "out")
    model = pipe.unet if kind.startswith("sd1") or kind == "sdxl" else pipe.transformer
    call = record_call(policy)
    assert sum("lora_B" in n for n, _ in model.named_parameters()) == len(load_file(files[0])) // 2
    assert call["output"].shape[0] == 1


def test_half_the_strength_is_noticed(pipes, tmp_path, monkeypatch):
    """The fault of a file without alpha: certification refuses it and takes it away."""
    policy = moved(policy_of(pipes, "sd3"))
    right = exporting.lora_state
    halved = lambda *a: {k: v / 2 if "lora_B" in k else v for k, v in right(*a).items()}  # noqa: E731
    monkeypatch.setattr(exporting, "lora_state", halved)
    with pytest.raises(TrainingError, match="differs from the training pass"):
        export(policy, tmp_path / "out")
    assert not (tmp_path / "out" / LORA_FILE).exists()


def test_bfloat16_is_measured_by_its_own_noise(pipes, tmp_path):
    policy = moved(policy_of(pipes, "sd3", dtype="bfloat16"))
    compared = json.loads(export(policy, tmp_path / "out")[-1].read_text())["compared"]
    assert compared["to_training"] <= max(1e-4 * compared["size"], 2 * compared["dtype"])


def spoil(file, damage, was):
    """Training gone, at half its strength, or a weight of it under another key."""
    state = torch.load(file, weights_only=True) if file.suffix == ".pt" else load_file(file)
    alone = any("lora_B" in n for n in state)
    names = [n for n in state if ("lora_B" in n if alone else n in was and not torch.equal(state[n], was[n]))]
    part = {"gone": 0.0, "half": 0.5, "key": 1.0}[damage]
    for name in names:
        start = torch.zeros_like(state[name]) if alone else was[name].to(state[name].dtype)
        state[name] = (start.float() + part * (state[name].float() - start.float())).to(state[name].dtype)
    if damage == "key":
        state[f"{names[0]}x"] = state.pop(names[0])
    torch.save(state, file) if file.suffix == ".pt" else save_file(state, file, metadata={"format": "pt"})


@pytest.mark.parametrize(("form", "damages"), [
    ("diffusers_lora", ["half"]),
    *(pytest.param(form, ["gone", "half", "key"], marks=pytest.mark.slow)
      for form in ("diffusers_lora", "diffusers_weights", "mdm")),
])  # fmt: skip
def test_in_bfloat16_an_export_without_the_training_is_refused(pipes, tmp_path, form, damages):
    """The training is small: in bfloat16 alone it is not seen. Folders of no training pass the same limit by itself."""
    if form == "mdm":
        policy = mdm_of(tmp_path, dtype="bfloat16")
    else:
        start = pipes("sd3")
        if form == "diffusers_weights":
            export(moved(policy_of(pipes, "sd3")), tmp_path / "lora")
            (tmp_path / "lora" / "README.md").write_text(f"base_model: {start}\n")
            start = str(tmp_path / "lora")
        policy = policy_of(pipes, "sd3", dtype="bfloat16", model=start)
    was = {n: x.clone() for n, x in merged_state(policy.trainable()).items()}
    written = export(moved(policy, 0.01), tmp_path / "out")
    compared = json.loads(written[-1].read_text())["compared"]
    assert compared["unrounded"] <= 1e-4 * compared["size"]
    assert compared["dtype"] > 0
    for damage in damages:
        shutil.copytree(tmp_path / "out", tmp_path / damage)
        places = [tmp_path / damage / f.relative_to(tmp_path / "out") for f in written]
        file = next(f for f in places if f.suffix in (".safetensors", ".pt"))
        spoil(file, damage, was)
        with pytest.raises(TrainingError, match=r"differs from the training pass|does not load the export"):
            certifying.certified(policy, tmp_path / damage, form, [file])
    assert not list(tmp_path.glob(".export-*"))


def test_all_weights_load_as_the_pipelines_own_part(pipes, tmp_path):
    policy = moved(policy_of(pipes, "sd15", lora=None), 0.01)
    assert form_of(policy) == "diffusers_weights"
    files = export(policy, tmp_path / "out")
    assert (tmp_path / "out" / "unet" / "diffusion_pytorch_model.safetensors") in files


def test_a_folder_on_another_disk_takes_an_export_and_the_next_one(pipes, tmp_path):
    """Between disks nothing can be renamed: what is made is made there."""
    shared = Path("/dev/shm")
    if not shared.is_dir() or shared.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("one disk only")
    policy = policy_of(pipes, "sd15")
    with tempfile.TemporaryDirectory(dir=shared) as there:
        (tmp_path / "out").symlink_to(there)
        (Path(there) / ".export-killed").mkdir()
        (Path(there) / ".export-killed" / "half.safetensors").write_bytes(b"half")
        for _ in range(2):
            export(policy, tmp_path / "out", certify=False)
            assert sorted(p.name for p in Path(there).iterdir()) == ["export.json", LORA_FILE]


def mdm_of(tmp_path, **more):
    torch.manual_seed(0)
    net = mdm.MDM(width=32, layers=2)
    torch.save(net.state_dict(), tmp_path / "model000000050.pt")
    (tmp_path / "args.json").write_text(json.dumps({"layers": 2, "latent_dim": 32, "diffusion_steps": 10}))
    torch.save({"walk": torch.randn(512)}, tmp_path / "words.pt")
    given = {
        "model": str(tmp_path / "model000000050.pt"),
        "text": str(tmp_path / "words.pt"),
        "frames": 16,
        "steps": 10,
    }
    return mdm_policy.build(MDMPolicyConfig(**given | {"lora": {"rank": 4, "alpha": 8}} | more), 0)


def test_mdm_comes_back_as_it_came(tmp_path):
    policy = moved(mdm_of(tmp_path))
    files = export(policy, tmp_path / "out")
    assert [f.name for f in files] == ["model000000050.pt", "args.json", "export.json"]
    again = mdm_of(tmp_path, model=str(files[0]), lora=None)
    prompt = [{"caption": "walk", "length": 12, "seed": 1}]
    one, two = (p.decode(p.greedy(prompt).samples)[0][0] for p in (policy, again))
    assert torch.allclose(one, two, atol=1e-3)
    assert set(torch.load(files[0], weights_only=True)) == set(mdm.MDM(width=32, layers=2).state_dict())


def test_a_denoiser_of_ours_trained_in_bfloat16_leaves_and_half_of_it_does_not(tmp_path):
    small = {"features": 47, "frames": 16, "width": 32, "layers": 1, "heads": 2, "steps": 5, "dtype": "bfloat16"}
    policy = motion.build(MotionPolicyConfig(**small, lora={"rank": 2, "alpha": 4}), 0)
    was = merged_state(policy.trainable())
    files = export(moved(policy, 0.01), tmp_path / "out")
    assert json.loads(files[-1].read_text())["compared"]["weights"] == 0
    spoil(files[0], "half", was)
    with pytest.raises(TrainingError, match="its weights by"):
        certifying.loaded_anew(policy, files)


def test_a_denoiser_of_ours_is_a_state_dict(tmp_path):
    small = {"features": 47, "frames": 16, "width": 32, "layers": 1, "heads": 2, "steps": 5}
    policy = moved(motion.build(MotionPolicyConfig(**small, lora={"rank": 2, "alpha": 4}), 0))
    files = export(policy, tmp_path / "out")
    compared = json.loads((tmp_path / "out" / "export.json").read_text())["compared"]
    assert compared["to_training"] <= 1e-4 * compared["size"]
    again = motion.build(MotionPolicyConfig(**small, model=str(files[0])), 1)
    prompt = [{"caption": "walks", "length": 12, "seed": 1}]
    one, two = (p.decode(p.greedy(prompt).samples)[0][0] for p in (policy, again))
    assert torch.allclose(one, two, atol=1e-4)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").write_text("x")
    with pytest.raises(ConfigError, match="not empty"):
        export(policy, tmp_path / "full")


def test_a_state_dict_that_gives_other_numbers_does_not_leave(tmp_path, monkeypatch):
    small = {"features": 47, "frames": 16, "width": 32, "layers": 1, "heads": 2, "steps": 5}
    policy = moved(motion.build(MotionPolicyConfig(**small, lora={"rank": 2, "alpha": 4}), 0))
    whole = exporting.merged_state
    monkeypatch.setattr(exporting, "merged_state", lambda m: {k: 1.2 * v for k, v in whole(m).items()})
    with pytest.raises(TrainingError, match="made anew, differs"):
        export(policy, tmp_path / "out")
    assert not (tmp_path / "out" / "denoiser.safetensors").exists()


def test_an_error_of_the_machine_leaves_no_export_that_was_not_compared(tmp_path, monkeypatch):
    small = {"features": 47, "frames": 16, "width": 32, "layers": 1, "heads": 2, "steps": 5}
    policy = motion.build(MotionPolicyConfig(**small), 0)

    def fails(*given):
        raise OSError("no room")

    monkeypatch.setattr(certifying.anew, "compare", fails)
    with pytest.raises(OSError, match="no room"):
        export(policy, tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []


def test_prompts_become_png_and_an_interrupted_call_goes_on(pipes, tmp_path):
    policy = policy_of(pipes, "sd15")
    seen = []
    rows = apply(
        policy, ["a cat", {"prompt": "a dog", "seed": 9}], tmp_path / "out", seed=3, progress=lambda *x: seen.append(x)
    )
    assert seen == [(2, 2)]
    assert [r["seed"] for r in rows] == [3, 9]
    first = (tmp_path / "out" / "00000.png").read_bytes()
    (tmp_path / "out" / "00001.png").unlink()
    calls = []
    real = policy.greedy
    policy.greedy = lambda prompts: calls.append(prompts) or real(prompts)
    again = apply(policy, ["a cat", {"prompt": "a dog", "seed": 9}, "a bird"], tmp_path / "out", seed=3)
    assert [[p["prompt"] for p in c] for c in calls] == [["a dog", "a bird"]]
    assert (tmp_path / "out" / "00000.png").read_bytes() == first
    assert [r["files"] for r in again] == [["00000.png"], ["00001.png"], ["00002.png"]]


def test_motions_become_npy_bvh_and_gif(tmp_path):
    from anygrpo.denoising.motion import bvh, humanml
    from anygrpo.denoising.motion.features import LAYOUTS
    from anygrpo.denoising.motion.skeleton import JOINTS, axis_matrix, forward_kinematics

    rotations = torch.eye(3).repeat(17, 22, 1, 1)
    rotations[:, 1] = axis_matrix(2, 0.4 * torch.sin(torch.arange(17.0)))
    places = humanml.standing(forward_kinematics(rotations, torch.rand(17, 3) * 0.1))

    class Task:
        fps, bones = 20.0, LAYOUTS["humanml"].bones

        def places(self, motion):
            return dict(zip(JOINTS, places[: len(motion)].unbind(1)))

    small = {"features": 263, "frames": 16, "width": 32, "layers": 1, "heads": 2, "steps": 5}
    policy = motion.build(MotionPolicyConfig(**small), 0)
    row = apply(policy, ["a person walks"], tmp_path / "out", task=Task())[0]
    assert row["files"] == ["00000.npy", "00000.bvh", "00000.gif", "00000.png"]
    nodes, numbers, fps = bvh.parse((tmp_path / "out" / "00000.bvh").read_text())
    back = bvh.positions(nodes, numbers)
    assert fps == pytest.approx(20.0)
    assert max(float((back[j] - places[:16, i]).abs().max()) for i, j in enumerate(JOINTS)) < 1e-3
    alone = apply(policy, ["a person walks"], tmp_path / "alone")[0]
    assert alone["files"] == ["00000.npy"]

"""The memory that --dry-run works out, against what really is kept."""

import math
import re

import pytest
import torch
from published_form import mdm_folder
from tiny_pipelines import flux, sd3, sdxl, wan

from anygrpo.cli.main import main
from anygrpo.core.build import build_policy
from anygrpo.core.tree import tree_map
from anygrpo.denoising import memory
from anygrpo.denoising.gaussian import REDUCTIONS
from anygrpo.denoising.memory import report
from anygrpo.denoising.motion.mdm_policy import targeted
from anygrpo.denoising.settings import OWN_CLIPS
from anygrpo.recipe.load import parse_recipe

LORA = {"rank": 4, "alpha": 8}
PIPES = {
    "sd3": (sd3, {"sampler": "flow_grpo", "guidance": 4.5}),
    "flux": (flux, {"sampler": "flow_grpo", "guidance": 3.5}),
    "sdxl": (sdxl, {"sampler": "ddim", "guidance": 1.0}),
    "wan": (wan, {"sampler": "cps", "noise_level": 0.8, "guidance": 2.0, "frames": 5}),
}
ALGORITHM = {"prompts_per_step": 1, "group_size": 2, "minibatches": 1}


def recipe_of(policy, **more):
    task = {"kind": "images", "path": "p.txt", "rewards": [{"kind": "compressibility"}]}
    if policy["kind"] != "diffusion":
        task = {"kind": "humanml3d", "path": "x", "rewards": [{"kind": "floor"}]}
    return parse_recipe({"policy": policy, "task": task, "algorithm": ALGORITHM, **more})


def really_kept(recipe):
    """Bytes that autograd keeps of one scored step of all rows, weights not counted; each storage once."""
    policy = build_policy(recipe.policy, 0)
    own = {p.untyped_storage().data_ptr() for p in policy.denoiser.parameters()}
    own |= {b.untyped_storage().data_ptr() for b in policy.denoiser.buffers()}
    rollout = policy.sample([{"prompt": "a cat", "caption": "a", "length": 16}], 2, seed=0)
    rows = tree_map(lambda x: x.flatten(0, 1), rollout.samples)
    kept = {}

    def keep(x):
        storage = x.untyped_storage()
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = (storage, storage.nbytes())
        return x

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x), policy.mode():
        step = rows["steps"][:, 0]
        condition = rows["condition"]
        policy.predict(rows["latents"][:, 0], step, condition)
    return sum(size for _, size in kept.values()), policy


@pytest.mark.parametrize("kind", list(PIPES))
def test_a_pipelines_activations_and_weights(kind, tmp_path):
    make, settings = PIPES[kind]
    folder = str(make(tmp_path))
    policy = {"kind": "diffusion", "model": folder, "steps": 4, "height": 8, "width": 8, "lora": LORA, **settings}
    recipe = recipe_of(policy)
    assert report(recipe, 1)["memory_gb_per_rank"]["peak"] > 0
    kept, real = really_kept(recipe)
    network, shape, blank, beside = memory._network(recipe.policy)
    parts = memory.estimate(recipe, network, shape, blank)
    assert parts["activations"] == pytest.approx(kept, rel=0.1)
    trained = sum(p.numel() for p in real.parameters() if p.requires_grad)
    assert parts["trained"] == 16 * trained
    assert parts["weights"] == 4 * sum(p.numel() for n, p in real.denoiser.named_parameters() if ".lora_" not in n)
    latent = torch.Size(shape).numel()
    assert parts["trajectory"] == 4 * 2 * latent * (4 + 3)  # 3 stochastic steps, centred: noise is kept
    assert beside > 0


@pytest.mark.parametrize("kind", ["mdm", "motion"])
def test_a_motion_networks(kind, tmp_path):
    mdm_folder(tmp_path / "mdm", 4)
    torch.save({"a": torch.randn(512)}, tmp_path / "words.pt")
    own = {"mdm": {"model": str(tmp_path / "mdm/model000000050.pt"), "text": str(tmp_path / "words.pt")}}
    policy = {"kind": kind, "steps": 4, "frames": 16, "guidance": 2.5} | own.get(kind, {"width": 32, "layers": 2})
    recipe = recipe_of(policy | {"lora": LORA})
    kept, _ = really_kept(recipe)
    if kind == "mdm":
        recipe = recipe.model_copy(update={"policy": targeted(recipe.policy)})
    network, shape, blank, _ = memory._network(recipe.policy)
    assert memory.estimate(recipe, network, shape, blank)["activations"] == pytest.approx(kept, rel=0.1)


def test_the_dry_run_prints_it_or_says_why_not(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    mdm_folder(tmp_path / "mdm", 10)
    text = """
[policy]
kind = "mdm"
model = "MODEL"
text = "w.pt"
steps = 10
frames = 48
[policy.lora]
[task]
kind = "humanml3d"
path = "x"
rewards = [{ kind = "floor" }]
"""
    (tmp_path / "r.toml").write_text(text.replace("MODEL", "mdm/model000000050.pt"))
    assert main(["train", "r.toml", "--dry-run"]) == 0
    out = capsys.readouterr().out
    assert "ratios, by the policy type's own (0.025)" in out
    assert "TRL" not in out  # it has no such policies
    peak = re.search(r"memory of a rank, worked out: ([\d.]+) GB at the peak \(", out.splitlines()[-1])
    assert peak
    assert float(peak[1]) > 0
    (tmp_path / "r.toml").write_text(text.replace("MODEL", "nothing/model.pt"))
    assert main(["train", "r.toml", "--dry-run"]) == 0
    assert "not estimated" in capsys.readouterr().out


def test_the_words_for_the_clip_are_its_numbers():
    for name, reduction in REDUCTIONS.items():
        said = eval(OWN_CLIPS[name], {"sqrt": math.sqrt, "D": 1846})
        assert reduction.clip(1846).high == pytest.approx(said)

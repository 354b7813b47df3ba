"""Saved pipelines in the shapes of known models: ODE sampling is the pipeline's; the unknown is refused."""

import json
import math

import pytest
import torch
from diffusers import DDIMScheduler, DiffusionPipeline, FluxTransformer2DModel
from tiny_pipelines import flux, sd3, sd15, sdxl, wan

from anygrpo.core.tree import tree_map
from anygrpo.denoising import build as diffusion
from anygrpo.denoising.adapters.flux import pack, unpack
from anygrpo.denoising.pipelines import adapter_class, from_pipeline
from anygrpo.denoising.settings import DiffusionPolicyConfig
from anygrpo.errors import ConfigError, DataError

MAKERS = {
    "sd15": sd15, "sd3": sd3, "sd3_without_t5": lambda p: sd3(p, with_t5=False), "flux": flux, "sdxl": sdxl, "wan": wan,
}  # fmt: skip
SETTINGS = {
    "sd15": {"sampler": "ddim", "guidance": 7.5},
    "sd3": {"sampler": "flow_grpo", "guidance": 4.5},
    "sd3_without_t5": {"sampler": "cps", "noise_level": 0.8, "guidance": 1.0},
    "flux": {"sampler": "flow_grpo", "guidance": 3.5},
    "sdxl": {"sampler": "ddim", "guidance": 5.0},
    "wan": {"sampler": "dance_grpo", "noise_level": 0.3, "guidance": 4.0, "frames": 5},
}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    made = {}

    def folder(kind):
        if kind not in made:
            made[kind] = MAKERS[kind](tmp_path_factory.mktemp(kind))
        return made[kind]

    return folder


def config_of(folder, kind, **more):
    given = {"model": folder, "steps": 4, "height": 8, "width": 8} | SETTINGS[kind] | more
    return DiffusionPolicyConfig(**given)


@pytest.mark.parametrize("kind", list(MAKERS))
def test_the_noise_free_way_is_the_pipelines_own(folders, kind):
    """From the same start latent to the same picture as `pipeline(...)` makes, guidance, packing and shift included."""
    config = config_of(folders(kind), kind, evaluation="ode")
    policy = diffusion.build(config, seed=0)
    prompt = {"prompt": "a photo of a cat", "seed": 3}
    ours = policy.decode(policy.greedy([prompt]).samples)[0][0]
    start = torch.randn(policy.parts.shape, generator=torch.Generator().manual_seed(3))[None]
    lacking = {"text_encoder_3": None, "tokenizer_3": None} if kind == "sd3_without_t5" else {}
    pipe = DiffusionPipeline.from_pretrained(config.model, local_files_only=True, **lacking)
    factor = 2
    more = {"height": 8 * factor, "width": 8 * factor}
    if kind in ("sd15", "sdxl"):
        pipe.scheduler = DDIMScheduler.from_config(pipe.scheduler.config)
    if kind == "wan":
        pipe.scheduler = policy.parts.scheduler
        more["num_frames"] = 5
    if kind == "flux":
        start = pack(start)
    made = pipe(
        "a photo of a cat",
        num_inference_steps=4,
        guidance_scale=config.guidance,
        latents=start,
        output_type="pt",
        **more,
    )
    theirs = (made.frames if kind == "wan" else made.images)[0]
    assert ours.shape == theirs.shape
    assert float((ours - theirs).abs().max()) < 2e-5, float((ours - theirs).abs().max())
    assert float(ours.std()) > 1e-3


@pytest.mark.parametrize("kind", list(MAKERS))
def test_scoring_is_sampling(folders, kind):
    policy = diffusion.build(config_of(folders(kind), kind, event_reduction="mean"), seed=0)
    rollout = policy.sample(["a cat", "a dog"], 2, seed=3)
    flat = tree_map(lambda x: x.flatten(0, 1), rollout.samples)
    again = policy.evaluate(flat, slice(0, rollout.shape[2]))
    assert torch.allclose(again.log_probs, rollout.log_probs.flatten(0, 1), atol=1e-5)
    z2, n = policy.z2(rollout.samples)
    assert abs(z2 - 1) < 6 * math.sqrt(2 / n)


def test_flux_is_told_its_level_between_0_and_1(folders, monkeypatch):
    seen, original = [], FluxTransformer2DModel.forward

    def noted(self, *args, timestep=None, guidance=None, **kwargs):
        seen.append((float(timestep.max()), float(guidance.max())))
        return original(self, *args, timestep=timestep, guidance=guidance, **kwargs)

    policy = diffusion.build(config_of(folders("flux"), "flux"), seed=0)
    monkeypatch.setattr(FluxTransformer2DModel, "forward", noted)
    policy.sample(["a photo of a cat"], 2, seed=1)
    assert seen[0] == (1.0, 3.5)
    levels = [level for level, _ in seen[:4]]
    assert levels == sorted(levels, reverse=True)  # one pass a step: its guidance is embedded
    assert [level for level, _ in seen[4:]] == [1.0, 1.0]  # the first decision under the policy and its reference
    assert all(0 < level <= 1 for level, _ in seen)


def test_packing_is_the_pipelines(folders):
    from diffusers import FluxPipeline

    x = torch.randn(2, 16, 4, 6)
    theirs = FluxPipeline._pack_latents(x, 2, 16, 4, 6)
    assert torch.equal(pack(x), theirs)
    assert torch.equal(unpack(pack(x), 4, 6), x)


def test_prompts_are_encoded_once_and_alone(folders):
    parts = from_pipeline(config_of(folders("sd3"), "sd3"))
    calls = []
    parts.encode.encode = (lambda real: lambda text: calls.append(text) or real(text))(parts.encode.encode)
    first = parts.encode(["a cat", {"prompt": "dog"}, "a cat"])
    again = parts.encode(["dog"])
    assert calls == ["a cat", "dog"]
    assert torch.equal(first["encoder_hidden_states"][1], again["encoder_hidden_states"][0])
    assert torch.equal(first["pooled_projections"][0], first["pooled_projections"][2])


def test_bfloat16_reaches_encoders_and_vae_but_not_one_that_overflows(folders):
    lora = {"rank": 2, "alpha": 4}
    policy = diffusion.build(config_of(folders("sd3"), "sd3", dtype="bfloat16", lora=lora), seed=0)
    rollout = policy.sample(["a cat"], 2, seed=0)
    assert rollout.samples["condition"]["encoder_hidden_states"].dtype == torch.bfloat16
    assert bool(rollout.valid.all())
    image = policy.decode(rollout.samples)[0][0]
    assert image.dtype == torch.float32
    xl = diffusion.build(config_of(folders("sdxl"), "sdxl", dtype="bfloat16", lora=lora), seed=0)
    assert xl.decode(xl.sample(["a cat"], 2, seed=0).samples)[0][0].shape == (3, 16, 16)


def test_tensors_bear_the_librarys_names(folders):
    pipe = DiffusionPipeline.from_pretrained(folders("sd3"), local_files_only=True)
    policy = diffusion.build(config_of(folders("sd3"), "sd3"), seed=0)
    assert set(policy.trainable().state_dict()) == set(pipe.transformer.state_dict())


@pytest.mark.parametrize(("error", "cure"), [
    (ModuleNotFoundError("No module named 'somewhere'", name="somewhere.deep"), r"brings somewhere\.deep"),
    (ImportError("T5Tokenizer requires the SomePiece library"), "package or version that is named"),
    (ImportError("diffusers is too old", name="diffusers"), r"'anygrpo\[diffusion\]'"),
    (ValueError("a broken file"), "save_pretrained wrote"),
])  # fmt: skip
def test_a_package_that_a_pipeline_lacks_is_cured_by_installing_it(folders, monkeypatch, error, cure):
    def fails(*_, **__):
        raise error

    monkeypatch.setattr(DiffusionPipeline, "from_pretrained", fails)
    with pytest.raises(DataError, match=cure) as told:
        diffusion.build(config_of(folders("sd3"), "sd3"), seed=0)
    assert ("save_pretrained" in str(told.value)) == isinstance(error, ValueError)


def test_what_is_not_known_is_refused_by_name(folders, tmp_path):
    (tmp_path / "model_index.json").write_text(json.dumps({"_class_name": "LuminaPipeline"}))
    with pytest.raises(ConfigError, match="LuminaPipeline"):
        adapter_class(str(tmp_path))
    with pytest.raises(DataError, match="no saved pipeline"):
        adapter_class(str(tmp_path / "nothing"))
    with pytest.raises(ConfigError, match="is a flow model"):
        diffusion.build(config_of(folders("sd3"), "sd3", sampler="ddim"), seed=0)
    with pytest.raises(ConfigError, match="is a diffusion model"):
        diffusion.build(config_of(folders("sdxl"), "sdxl", sampler="flow_grpo"), seed=0)
    with pytest.raises(ConfigError, match="cannot be packed"):
        diffusion.build(config_of(folders("flux"), "flux", height=7), seed=0)
    for kind in ("sd3", "wan"):
        with pytest.raises(ConfigError, match="8 x 9 cannot be cut in patches of 2"):
            diffusion.build(config_of(folders(kind), kind, width=9), seed=0)
    for kind in ("sd3", "sdxl", "wan"):
        with pytest.raises(ConfigError, match=r"takes guidance = 0\.5 for none"):
            diffusion.build(config_of(folders(kind), kind, guidance=0.5), seed=0)
    with pytest.raises(ConfigError, match=r"frames = 6"):
        diffusion.build(config_of(folders("wan"), "wan", frames=6), seed=0)

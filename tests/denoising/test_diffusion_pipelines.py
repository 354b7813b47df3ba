"""Diffusers' own models as policies: tiny random ones, in the shapes of Stable Diffusion and its third version."""

import json
import math
from pathlib import Path

import pytest
import torch
from diffusers import (
    AutoencoderKL,
    DDPMScheduler,
    FlowMatchEulerDiscreteScheduler,
    SD3Transformer2DModel,
    StableDiffusionPipeline,
    UNet2DConditionModel,
)
from safetensors.torch import load_file
from tiny_pipelines import flux, sd3
from transformers import CLIPTextConfig, CLIPTextModel, CLIPTokenizer

from anygrpo.core.task import Stored
from anygrpo.core.trained import state_of
from anygrpo.core.tree import tree_map
from anygrpo.denoising import build as diffusion
from anygrpo.denoising.denoiser import DiffusersDenoiser
from anygrpo.denoising.export import export
from anygrpo.denoising.settings import DiffusionPolicyConfig, LoraConfig
from anygrpo.errors import ConfigError, DataError
from anygrpo.export.opened import load
from anygrpo.recipe.load import load_recipe
from anygrpo.train.build import new_run
from anygrpo.train.loop import train


def unet():
    return UNet2DConditionModel(
        sample_size=8,
        in_channels=4,
        out_channels=4,
        layers_per_block=1,
        block_out_channels=(8, 16),
        down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
        cross_attention_dim=16,
        attention_head_dim=4,
        norm_num_groups=4,
    )


def sd3_parts(seed):
    """A transformer in the shape of SD3's: 16-channel latents, joint attention, pooled projections, flow matching."""
    torch.manual_seed(seed)
    model = SD3Transformer2DModel(
        sample_size=8,
        patch_size=2,
        in_channels=16,
        num_layers=2,
        attention_head_dim=8,
        num_attention_heads=2,
        joint_attention_dim=16,
        caption_projection_dim=16,
        pooled_projection_dim=24,
        out_channels=16,
    )

    def encode(prompts):
        g = [torch.Generator().manual_seed(len(p)) for p in prompts]
        return {
            "encoder_hidden_states": torch.stack([torch.randn(5, 16, generator=x) for x in g]),
            "pooled_projections": torch.stack([torch.randn(24, generator=x) for x in g]),
        }

    return diffusion.Parts(
        denoiser=DiffusersDenoiser(model),
        scheduler=FlowMatchEulerDiscreteScheduler(shift=3.0),
        shape=(16, 8, 8),
        encode=encode,
        decode=lambda latents, condition: list(latents),
        to_latent=lambda latent: latent,
        null=encode([""]),
    )


def broken(seed):
    return seed


def rows(rollout):
    return tree_map(lambda x: x.flatten(0, 1), rollout.samples)


@pytest.mark.parametrize("lora", [None, LoraConfig(rank=2, alpha=4)])
def test_an_sd3_like_transformer_by_factory(lora):
    config = DiffusionPolicyConfig(
        function=f"{__file__}:sd3_parts",
        steps=6,
        sampler="flow_grpo",
        window=2,
        window_starts=(1, 2),
        guidance=4.5,
        lora=lora,
        gradient_checkpointing=True,
    )
    policy = diffusion.build(config, seed=0)
    rollout = policy.sample(["a cat", "a blue dog"], 2, seed=3)
    assert rollout.samples["latents"].shape == (2, 2, 3, 16, 8, 8)
    out = policy.evaluate(rows(rollout), slice(0, 2), frozenset({"kl"}))
    assert float(out.log_probs.detach().abs().max()) < 1e-4
    z2, n = policy.z2(rollout.samples)
    assert n == 4 * 2 * 1024
    assert abs(z2 - 1) < 6 * math.sqrt(2 / n)
    out.log_probs.sum().backward()
    trained = [p for p in policy.parameters() if p.grad is not None and float(p.grad.abs().sum()) > 0]
    assert trained
    supervised = policy.replay(["a cat"], Stored([[torch.zeros(16, 8, 8)]]), seed=0)
    loss = policy.evaluate(rows(supervised), slice(0, 1), frozenset({"supervised"})).losses["supervised"]
    assert loss.shape == (1,)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A whole Stable Diffusion pipeline, saved: tokenizer of single letters, random weights."""
    path = tmp_path_factory.mktemp("pipeline")
    letters = [*"abcdefghijklmnopqrstuvwxyz", *(c + "</w>" for c in "abcdefghijklmnopqrstuvwxyz")]
    vocabulary = {w: i for i, w in enumerate([*letters, "<|startoftext|>", "<|endoftext|>"])}
    (path / "vocab.json").write_text(json.dumps(vocabulary))
    (path / "merges.txt").write_text("#version: 0.2\n")
    torch.manual_seed(0)
    size = len(vocabulary)
    text = CLIPTextConfig(
        vocab_size=size, hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2,
        bos_token_id=size - 2, eos_token_id=size - 1, pad_token_id=size - 1, max_position_embeddings=77,
    )  # fmt: skip
    vae = AutoencoderKL(block_out_channels=(8, 8), down_block_types=("DownEncoderBlock2D",) * 2,
                        up_block_types=("UpDecoderBlock2D",) * 2, norm_num_groups=4, latent_channels=4)  # fmt: skip
    pipe = StableDiffusionPipeline(
        vae=vae,
        text_encoder=CLIPTextModel(text),
        tokenizer=CLIPTokenizer(str(path / "vocab.json"), str(path / "merges.txt"), model_max_length=77),
        unet=unet(),
        scheduler=DDPMScheduler(beta_schedule="scaled_linear", clip_sample=False, steps_offset=1),
        safety_checker=None,
        feature_extractor=None,
        requires_safety_checker=False,
    )
    pipe.save_pretrained(path / "pipe")
    return str(path / "pipe")


@pytest.mark.parametrize("sampler", ["ddpm", "ddim"])
def test_a_saved_stable_diffusion_pipeline(folder, sampler):
    config = DiffusionPolicyConfig(model=folder, steps=5, sampler=sampler, guidance=3.0, height=8, width=8)
    policy = diffusion.build(config, seed=0)
    rollout = policy.sample(["a cat", {"prompt": "dog"}], 2, seed=3)
    out = policy.evaluate(rows(rollout), slice(0, rollout.shape[2]))
    assert torch.allclose(out.log_probs, rollout.log_probs.flatten(0, 1), atol=1e-4)
    image = policy.decode(rollout.samples)[1][0]
    assert image.shape == (3, 16, 16)
    assert 0 <= float(image.min()) < float(image.max()) <= 1
    replayed = policy.replay(["a cat"], Stored([[image]]), seed=0)
    assert replayed.samples["clean"].shape == (1, 1, 4, 8, 8)
    assert {n for n, p in policy.trainable().named_parameters() if p.requires_grad} == set(unet().state_dict())


RECIPES = Path(__file__).parents[2] / "recipes"
TINY = {
    "policy.height": 8, "policy.width": 8, "policy.device": "cpu", "policy.dtype": "float32", "policy.lora.rank": 2,
    "policy.gradient-checkpointing": "false", "algorithm.prompts-per-step": 2, "algorithm.group-size": 4,
    "training.steps": 2, "evaluation.at-start": "false",
}  # fmt: skip


@pytest.mark.parametrize(("name", "maker"), [("sd3", sd3), ("flux", flux), ("nft", sd3)])
def test_the_recipes_train_a_tiny_pipeline(name, maker, tmp_path, monkeypatch):
    """recipes/diffusion/*.toml with their pipelines replaced: two steps of the real loop."""
    monkeypatch.chdir(RECIPES.parent)
    flags = TINY | {"folder": tmp_path / "run", "policy.model": maker(tmp_path)}
    recipe = load_recipe(
        str(RECIPES / "diffusion" / f"{name}.toml"), [w for k, v in flags.items() for w in (f"--{k}", str(v))]
    )
    run = new_run(recipe)
    rows = []
    run.observers.append(lambda row, run: rows.append(row))
    train(run)
    run.close()
    assert [row["step"] for row in rows] == [0, 1]
    assert all(row["invalid/share"] == 0 and math.isfinite(row["loss/total"]) for row in rows)
    assert rows[0]["log_ratio/abs_max"] < 0.5
    assert run.version >= 2
    assert any(bool(p.any()) for n, p in run.policy.trainable().named_parameters() if "lora_B" in n)


def test_a_run_is_used_and_exported_with_the_averaged_weights_that_were_measured(tmp_path, monkeypatch):
    monkeypatch.chdir(RECIPES.parent)
    flags = TINY | {"folder": tmp_path / "run", "policy.model": sd3(tmp_path)}
    words = [w for k, v in flags.items() for w in (f"--{k}", str(v))]
    run = new_run(load_recipe(str(RECIPES / "diffusion/sd3.toml"), words))
    train(run)
    run.close()
    with run.policy.averaged():
        measured = {k: v.clone() for k, v in state_of(run.policy.trainable()).items()}
    last = state_of(run.policy.trainable())
    assert any(not torch.equal(x, last[k]) for k, x in measured.items())
    opened = load(tmp_path / "run", "last").policy
    assert all(torch.equal(x, last[k]) for k, x in state_of(opened.trainable()).items())
    with opened.averaged():
        assert all(torch.equal(x, measured[k]) for k, x in state_of(opened.trainable()).items())
    export(opened, tmp_path / "out", certify=False)
    written = load_file(tmp_path / "out" / "pytorch_lora_weights.safetensors")
    assert all(torch.equal(x, last[k]) for k, x in state_of(opened.trainable()).items())
    name = next(k for k in measured if k.endswith("lora_A.default.weight"))
    key = "transformer." + name.replace(".default", "")
    assert torch.equal(written[key], measured[name])
    assert not torch.equal(written[key], last[name])


def test_errors_name_the_cure(folder):
    with pytest.raises(ValueError, match="exactly one"):
        DiffusionPolicyConfig()
    with pytest.raises(DataError, match="nowhere"):
        diffusion.build(DiffusionPolicyConfig(model="/nowhere/at/all"), 0)
    with pytest.raises(ConfigError, match="no_such"):
        diffusion.build(DiffusionPolicyConfig(function=f"{__file__}:no_such"), 0)
    with pytest.raises(ConfigError, match="returned int"):
        diffusion.build(DiffusionPolicyConfig(function=f"{__file__}:broken"), 0)
    with pytest.raises(ConfigError, match="not a diffusers denoiser"):
        DiffusersDenoiser(torch.nn.Linear(2, 2))


@pytest.mark.parametrize(("variable", "shown"), [("1", False), ("0", True)])
def test_loading_is_silent_unless_the_libraries_own_variable_asks(variable, shown, monkeypatch):
    from diffusers.utils import logging

    from anygrpo.denoising.pipelines import quiet_loading

    monkeypatch.setenv("HF_HUB_DISABLE_PROGRESS_BARS", variable)
    logging.enable_progress_bar()
    with quiet_loading():
        assert logging.is_progress_bar_enabled() is shown
    assert logging.is_progress_bar_enabled()

"""Tiny random pipelines in the shapes of known models, saved to a folder with diffusers' own `save_pretrained`."""

import json

import torch
from diffusers import (
    AutoencoderKL,
    AutoencoderKLWan,
    DDPMScheduler,
    EulerDiscreteScheduler,
    FlowMatchEulerDiscreteScheduler,
    FluxPipeline,
    FluxTransformer2DModel,
    SD3Transformer2DModel,
    StableDiffusion3Pipeline,
    StableDiffusionPipeline,
    StableDiffusionXLPipeline,
    UNet2DConditionModel,
    UniPCMultistepScheduler,
    WanPipeline,
    WanTransformer3DModel,
)
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    CLIPTextConfig,
    CLIPTextModel,
    CLIPTextModelWithProjection,
    CLIPTokenizer,
    PreTrainedTokenizerFast,
    T5Config,
    T5EncoderModel,
    UMT5Config,
    UMT5EncoderModel,
)

LETTERS = "abcdefghijklmnopqrstuvwxyz"
VOCABULARY = [*LETTERS, *(c + "</w>" for c in LETTERS), "<|startoftext|>", "<|endoftext|>"]


def clip(kind=CLIPTextModelWithProjection):
    n = len(VOCABULARY)
    ends = {"bos_token_id": n - 2, "eos_token_id": n - 1, "pad_token_id": n - 1, "max_position_embeddings": 77}
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
    return kind(CLIPTextConfig(vocab_size=n, projection_dim=16, **sizes, **ends)).eval()


def clip_words(folder):
    folder.mkdir(exist_ok=True)
    (folder / "vocab.json").write_text(json.dumps({w: i for i, w in enumerate(VOCABULARY)}))
    (folder / "merges.txt").write_text("#version: 0.2\n")
    return CLIPTokenizer(str(folder / "vocab.json"), str(folder / "merges.txt"), model_max_length=77)


def t5(kind=T5EncoderModel, config=T5Config):
    table = {w: i for i, w in enumerate(["<pad>", "</s>", "<unk>", *["a", "photo", "of", "the", "cat", "dog"]])}
    made = Tokenizer(models.WordLevel(table, unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    special = {"pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>", "model_max_length": 512}
    sizes = {"vocab_size": 16, "d_model": 32, "d_kv": 8, "d_ff": 32, "num_layers": 1, "num_heads": 2}
    return kind(config(**sizes)).eval(), PreTrainedTokenizerFast(tokenizer_object=made, **special)


def vae(channels):
    blocks = {"down_block_types": ("DownEncoderBlock2D",) * 2, "up_block_types": ("UpDecoderBlock2D",) * 2}
    old = channels == 4
    return AutoencoderKL(
        **blocks, block_out_channels=(8, 8), norm_num_groups=4, latent_channels=channels, scaling_factor=1.5,
        shift_factor=None if old else 0.06, use_quant_conv=old, use_post_quant_conv=old,
    )  # fmt: skip


def unet(**more):
    down, up = ("DownBlock2D", "CrossAttnDownBlock2D"), ("CrossAttnUpBlock2D", "UpBlock2D")
    return UNet2DConditionModel(
        sample_size=8, in_channels=4, out_channels=4, layers_per_block=1, block_out_channels=(8, 16),
        down_block_types=down, up_block_types=up, attention_head_dim=4, norm_num_groups=4, **more,
    )  # fmt: skip


def saved(pipe, folder):
    pipe.save_pretrained(folder / "pipe")
    return str(folder / "pipe")


def sd15(folder):
    torch.manual_seed(1)
    pipe = StableDiffusionPipeline(
        vae=vae(4), text_encoder=clip(CLIPTextModel), tokenizer=clip_words(folder / "words"),
        unet=unet(cross_attention_dim=16), safety_checker=None, feature_extractor=None, requires_safety_checker=False,
        scheduler=DDPMScheduler(beta_schedule="scaled_linear", clip_sample=False, steps_offset=1),
    )  # fmt: skip
    return saved(pipe, folder)


def sdxl(folder):
    torch.manual_seed(1)
    net = unet(
        cross_attention_dim=32, addition_embed_type="text_time", addition_time_embed_dim=8,
        projection_class_embeddings_input_dim=64, transformer_layers_per_block=(1, 1),
    )  # fmt: skip
    betas = {"beta_start": 0.00085, "beta_end": 0.012, "beta_schedule": "scaled_linear"}
    steps = EulerDiscreteScheduler(**betas, steps_offset=1, timestep_spacing="leading")
    words = clip_words(folder / "words")
    encoders = {"text_encoder": clip(CLIPTextModel), "text_encoder_2": clip(), "tokenizer": words, "tokenizer_2": words}
    return saved(StableDiffusionXLPipeline(vae=vae(4), unet=net, scheduler=steps, **encoders), folder)


def sd3(folder, with_t5=True):
    torch.manual_seed(1)
    encoder, tokens = t5() if with_t5 else (None, None)
    net = SD3Transformer2DModel(
        sample_size=8, patch_size=2, in_channels=16, out_channels=16, num_layers=2, attention_head_dim=8,
        num_attention_heads=2, joint_attention_dim=32, caption_projection_dim=16, pooled_projection_dim=32,
    )  # fmt: skip
    words = clip_words(folder / "words")
    pipe = StableDiffusion3Pipeline(
        transformer=net, scheduler=FlowMatchEulerDiscreteScheduler(shift=3.0), vae=vae(16), text_encoder=clip(),
        tokenizer=words, text_encoder_2=clip(), tokenizer_2=words, text_encoder_3=encoder, tokenizer_3=tokens,
    )  # fmt: skip
    return saved(pipe, folder)


def flux(folder):
    torch.manual_seed(1)
    encoder, tokens = t5()
    net = FluxTransformer2DModel(
        patch_size=1, in_channels=64, num_layers=1, num_single_layers=1, attention_head_dim=16, num_attention_heads=2,
        joint_attention_dim=32, pooled_projection_dim=16, axes_dims_rope=(4, 4, 8), guidance_embeds=True,
    )  # fmt: skip
    pipe = FluxPipeline(
        transformer=net, scheduler=FlowMatchEulerDiscreteScheduler(shift=3.0, use_dynamic_shifting=True), vae=vae(16),
        text_encoder=clip(CLIPTextModel), tokenizer=clip_words(folder / "words"), text_encoder_2=encoder,
        tokenizer_2=tokens,
    )  # fmt: skip
    return saved(pipe, folder)


def wan(folder):
    torch.manual_seed(1)
    encoder, tokens = t5(UMT5EncoderModel, UMT5Config)
    net = WanTransformer3DModel(
        patch_size=(1, 2, 2), num_attention_heads=2, attention_head_dim=12, in_channels=16, out_channels=16,
        text_dim=32, freq_dim=32, ffn_dim=32, num_layers=2, rope_max_seq_len=32,
    )  # fmt: skip
    codes = AutoencoderKLWan(
        base_dim=3, z_dim=16, dim_mult=[1, 1], num_res_blocks=1, temperal_downsample=[True],
        scale_factor_spatial=2, scale_factor_temporal=2,
    )  # fmt: skip
    steps = UniPCMultistepScheduler(prediction_type="flow_prediction", use_flow_sigmas=True, flow_shift=3.0)
    return saved(
        WanPipeline(tokenizer=tokens, text_encoder=encoder, vae=codes, scheduler=steps, transformer=net), folder
    )

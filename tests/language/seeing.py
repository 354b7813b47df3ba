"""Tiny vision-language models with random weights, and their processors, of four families."""

from typing import Any

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

WORDS = ["<eos>", "<pad>", *(f"w{i}" for i in range(60)), "What", "is", "this?", "red", "blue"]
TEXT: dict[str, Any] = {
    "hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 512, "bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 1,
}  # fmt: skip
EYES: dict[str, Any] = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2}


def tokenizer(special: list[str]) -> Any:
    inner = Tokenizer(models.WordLevel({w: i for i, w in enumerate(WORDS)}, unk_token="<pad>"))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    made = PreTrainedTokenizerFast(tokenizer_object=inner, eos_token="<eos>", pad_token="<pad>")
    made.add_special_tokens({"additional_special_tokens": special})
    return made


def template(picture: str) -> str:
    return (
        "{% for m in messages %}{% for c in m['content'] %}{% if c['type'] == 'image' %}" + picture + " "
        "{% else %}{{ c['text'] }} {% endif %}{% endfor %}{% endfor %}"
    )


def llava() -> tuple[Any, Any]:
    from transformers import CLIPImageProcessorPil, CLIPVisionConfig, LlamaConfig, LlavaConfig, LlavaProcessor
    from transformers import LlavaForConditionalGeneration as Llava

    words = tokenizer(["<image>"])
    token = words.convert_tokens_to_ids("<image>")
    config = LlavaConfig(
        vision_config=CLIPVisionConfig(**EYES, image_size=16, patch_size=8),
        text_config=LlamaConfig(**TEXT, vocab_size=len(words)), image_token_id=token, image_seq_length=4,
    )  # fmt: skip
    torch.manual_seed(0)
    reader = CLIPImageProcessorPil(size={"shortest_edge": 16}, crop_size={"height": 16, "width": 16})
    processor = LlavaProcessor(
        image_processor=reader, tokenizer=words, patch_size=8, vision_feature_select_strategy="default",
        image_token="<image>", num_additional_image_tokens=1,
    )  # fmt: skip
    return Llava(config).eval(), processor


def idefics3() -> tuple[Any, Any]:
    """A picture is cut into tiles, each with places of its own."""
    from transformers import Idefics3Config, Idefics3ForConditionalGeneration, Idefics3Processor
    from transformers.models.idefics3.image_processing_pil_idefics3 import Idefics3ImageProcessorPil

    rows = [f"<row_{i}_col_{j}>" for i in range(1, 4) for j in range(1, 4)]
    words = tokenizer(["<image>", "<fake_token_around_image>", "<end_of_utterance>", "<global-img>", *rows])
    config = Idefics3Config(
        image_token_id=words.convert_tokens_to_ids("<image>"), scale_factor=2, pad_token_id=1,
        vision_config={**EYES, "image_size": 16, "patch_size": 4},
        text_config={**TEXT, "model_type": "llama", "vocab_size": len(words)},
    )  # fmt: skip
    torch.manual_seed(0)
    reader = Idefics3ImageProcessorPil(size={"longest_edge": 32}, max_image_size={"longest_edge": 16})
    words.image_token = "<image>"
    return Idefics3ForConditionalGeneration(config).eval(), Idefics3Processor(reader, words, image_seq_len=4)


def qwen2_vl() -> tuple[Any, Any]:
    """Positions of several axes. The processor is put together by hand: its video half needs torchvision."""
    from transformers import Qwen2VLConfig, Qwen2VLForConditionalGeneration, Qwen2VLProcessor
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

    words = tokenizer(["<|image_pad|>", "<|vision_start|>", "<|vision_end|>", "<|video_pad|>"])
    token = words.convert_tokens_to_ids
    config = Qwen2VLConfig(
        vision_config={
            "depth": 2, "embed_dim": 16, "hidden_size": 24, "num_heads": 2, "mlp_ratio": 2, "patch_size": 4,
            "spatial_merge_size": 2, "temporal_patch_size": 2,
        },
        text_config={
            **TEXT, "vocab_size": len(words),
            "rope_parameters": {"rope_type": "default", "mrope_section": [1, 1, 1], "rope_theta": 10000.0},
        },
        image_token_id=token("<|image_pad|>"), video_token_id=token("<|video_pad|>"),
        vision_start_token_id=token("<|vision_start|>"), vision_end_token_id=token("<|vision_end|>"),
    )  # fmt: skip
    torch.manual_seed(0)
    made = Qwen2VLProcessor.__new__(Qwen2VLProcessor)
    made.image_processor = Qwen2VLImageProcessorPil(patch_size=4, merge_size=2, min_pixels=64, max_pixels=256)
    made.tokenizer, made.video_processor, made.chat_template = words, None, None
    made.image_token, made.video_token = "<|image_pad|>", "<|video_pad|>"
    made.image_token_id, made.video_token_id = token("<|image_pad|>"), token("<|video_pad|>")
    made.image_ids, made.video_ids, made.audio_ids = [made.image_token_id], [made.video_token_id], []
    words.chat_template = template("<|vision_start|> <|image_pad|> <|vision_end|>")
    return Qwen2VLForConditionalGeneration(config).eval(), made


def gemma3() -> tuple[Any, Any]:
    """Tokens of a picture see each other both ways."""
    from transformers import Gemma3Config, Gemma3ForConditionalGeneration, Gemma3Processor
    from transformers.models.gemma3.image_processing_pil_gemma3 import Gemma3ImageProcessorPil

    words = tokenizer(["<image_soft_token>", "<start_of_image>", "<end_of_image>"])
    token = words.convert_tokens_to_ids
    words.image_token, words.boi_token, words.eoi_token = "<image_soft_token>", "<start_of_image>", "<end_of_image>"
    words.image_token_id, words.boi_token_id = token("<image_soft_token>"), token("<start_of_image>")
    words.eoi_token_id = token("<end_of_image>")
    config = Gemma3Config(
        image_token_index=token("<image_soft_token>"), boi_token_index=token("<start_of_image>"),
        eoi_token_index=token("<end_of_image>"), mm_tokens_per_image=4,
        vision_config={**EYES, "image_size": 16, "patch_size": 4, "vision_use_head": False},
        text_config={**TEXT, "vocab_size": len(words), "head_dim": 8, "sliding_window": 64},
    )  # fmt: skip
    torch.manual_seed(0)
    model = Gemma3ForConditionalGeneration(config).eval()
    with torch.no_grad():  # zeros at birth: nothing that is seen would be told
        model.model.multi_modal_projector.mm_input_projection_weight.normal_(0, 0.2)
    reader = Gemma3ImageProcessorPil(size={"height": 16, "width": 16}, do_pan_and_scan=False)
    words.chat_template = template("<start_of_image>")
    return model, Gemma3Processor(reader, words, image_seq_length=4)


FAMILIES = {"llava": llava, "idefics3": idefics3, "qwen2_vl": qwen2_vl, "gemma3": gemma3}

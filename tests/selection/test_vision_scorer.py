"""A vision-language model as the judge: what it says depends on the pictures of the query and of the demonstrations."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from anygrpo.errors import DataError
from anygrpo.selection.scorer_settings import ModelScorerConfig
from anygrpo.selection.scorers.build import build
from anygrpo.selection.scorers.scorer import Shown

WORDS = ["<eos>", "<pad>", "What", "color", "?", "red", "blue", "green", "Question:", "Answer:"]


def tokenizer(extra: list[str]) -> Any:
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    made = Tokenizer(models.WordLevel({w: i for i, w in enumerate(WORDS)}, unk_token="<pad>"))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    fast = PreTrainedTokenizerFast(tokenizer_object=made, eos_token="<eos>", pad_token="<pad>")
    fast.add_special_tokens({"additional_special_tokens": extra})
    return fast


TEXT = {"hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 2, "num_attention_heads": 4}
TEXT |= {"num_key_value_heads": 2, "max_position_embeddings": 512, "bos_token_id": 0, "eos_token_id": 0}
SIGHT = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2, "image_size": 16}


def llava() -> tuple[Any, Any]:
    from transformers import (
        CLIPImageProcessorPil,
        CLIPVisionConfig,
        LlamaConfig,
        LlavaConfig,
        LlavaForConditionalGeneration,
        LlavaProcessor,
    )

    words = tokenizer(["<image>"])
    mark = words.convert_tokens_to_ids("<image>")
    config = LlavaConfig(
        vision_config=CLIPVisionConfig(**SIGHT, patch_size=8, projection_dim=16),
        text_config=LlamaConfig(vocab_size=len(words), **TEXT),
        image_token_index=mark,
        image_seq_length=4,
    )
    pictures = CLIPImageProcessorPil(size={"shortest_edge": 16}, crop_size={"height": 16, "width": 16})
    given = {"patch_size": 8, "vision_feature_select_strategy": "default", "num_additional_image_tokens": 1}
    processor = LlavaProcessor(image_processor=pictures, tokenizer=words, image_token="<image>", **given)
    return LlavaForConditionalGeneration(config), processor


def idefics() -> tuple[Any, Any]:
    from transformers import Idefics3Config, Idefics3ForConditionalGeneration, Idefics3Processor
    from transformers.models.idefics3.image_processing_pil_idefics3 import Idefics3ImageProcessorPil

    places = [f"<row_{i}_col_{j}>" for i in range(1, 4) for j in range(1, 4)]
    words = tokenizer(["<image>", "<fake_token_around_image>", "<end_of_utterance>", "<global-img>", *places])
    words.image_token = "<image>"
    text = {"model_type": "llama", "vocab_size": len(words), **TEXT, "pad_token_id": 1}
    mark = words.convert_tokens_to_ids("<image>")
    config = Idefics3Config(
        image_token_id=mark, scale_factor=2, vision_config=SIGHT | {"patch_size": 4}, text_config=text, pad_token_id=1
    )
    pictures = Idefics3ImageProcessorPil(size={"longest_edge": 32}, max_image_size={"longest_edge": 16})
    processor = Idefics3Processor(image_processor=pictures, tokenizer=words, image_seq_len=4)
    return Idefics3ForConditionalGeneration(config), processor


@pytest.fixture(scope="module", params=[llava, idefics], ids=["llava", "idefics3"])
def model(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("judge")
    with torch.random.fork_rng():
        torch.manual_seed(0)
        made, processor = request.param()
    made.save_pretrained(folder)
    processor.save_pretrained(folder)
    return folder


@pytest.fixture
def pictures(tmp_path):
    from PIL import Image

    names = {}
    for name, colour in (("red", (255, 0, 0)), ("blue", (0, 0, 255)), ("green", (0, 255, 0))):
        Image.new("RGB", (20, 12), colour).save(tmp_path / f"{name}.png")
        names[name] = str(tmp_path / f"{name}.png")
    return names


def row(picture: str, colour: str) -> dict[str, Any]:
    return {"id": picture, "question": "What color ?", "image": picture, "answer": colour}


def shown(pictures, *colours: str) -> Shown:
    *before, asked = [row(pictures[c], c) for c in colours]
    return Shown(asked, tuple(before))


def scorer(model, tmp_path, **given):
    config = ModelScorerConfig(kind="model", model=str(model), vision=True, labels=("red", "blue", "green"), **given)
    return build(config, tmp_path / "j.sqlite")


@pytest.mark.parametrize("method", ["labels", "answer", "generation"])
def test_pictures_of_query_and_demonstrations_are_seen(model, tmp_path, pictures, method):
    judge = scorer(model, tmp_path, method=method, batch_size=2)
    found = judge.judge([shown(pictures, "red", "blue", "red"), shown(pictures, "red"), shown(pictures, "blue", "red")])
    assert all(isinstance(one, dict) and one["correct"] in (0, 1) for one in found), found
    if method != "generation":
        assert len({one["gt_prob"] for one in found}) == 3
        other = row(pictures["green"], "red")  # the same words beside another picture
        query = row(pictures["red"], "red")
        same, swapped, before = judge.judge(
            [
                Shown(query, (query,)),
                Shown(other, (query,)),
                Shown(query, (other,)),
            ]
        )
        assert len({same["gt_prob"], swapped["gt_prob"], before["gt_prob"]}) == 3
    assert judge.computed == (6 if method != "generation" else 3)


def test_batches_change_nothing(model, tmp_path, pictures):
    asked = [shown(pictures, "red"), shown(pictures, "blue", "green", "red"), shown(pictures, "green", "blue")]
    one, many = (
        scorer(model, tmp_path, batch_size=n, cache=str(tmp_path / f"{n}.sqlite")).judge(asked) for n in (1, 3)
    )
    for a, b in zip(one, many, strict=True):
        assert a["gt_prob"] == pytest.approx(b["gt_prob"], abs=1e-5)


def test_a_missing_picture_is_named(model, tmp_path, pictures):
    with pytest.raises(DataError, match=r"no picture at nowhere\.png"):
        scorer(model, tmp_path).judge([Shown(row("nowhere.png", "red"), ())])

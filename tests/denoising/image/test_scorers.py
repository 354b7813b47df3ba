"""Scorers that look with a network: CLIP, the aesthetic predictor's head, letters."""

import importlib.util
import json
import sys

import pytest
import torch
from PIL import Image, ImageDraw, ImageFont
from tiny_pipelines import clip_words
from torch.nn.functional import cosine_similarity, normalize
from transformers import CLIPConfig, CLIPImageProcessor, CLIPModel, CLIPProcessor

from anygrpo.core.build import build_task
from anygrpo.core.tensor_files import write_tensors
from anygrpo.denoising.image.scorers import distance, head_of, likeness, wanted
from anygrpo.errors import ConfigError, DataError
from anygrpo.recipe.load import parse_recipe

PROMPTS = [{"prompt": f'a sign that says "stop {i}"', "word": f"stop {i}"} for i in range(12)]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("clip")
    words = clip_words(folder / "words")
    n = len(words)
    text = {"vocab_size": n, "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "eos_token_id": n - 1,
            "num_attention_heads": 2, "projection_dim": 8}  # fmt: skip
    vision = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2,
              "image_size": 16, "patch_size": 8, "projection_dim": 8}  # fmt: skip
    torch.manual_seed(0)
    config = CLIPConfig(text_config=text, vision_config=vision, projection_dim=8)
    CLIPModel(config).save_pretrained(folder)
    pictures = CLIPImageProcessor(size={"shortest_edge": 16}, crop_size={"height": 16, "width": 16})
    CLIPProcessor(pictures, words).save_pretrained(folder)
    return folder


def task_of(tmp_path, reward, prompts=PROMPTS):
    (tmp_path / "p.jsonl").write_text("".join(json.dumps(r) + "\n" for r in prompts))
    table = {"kind": "images", "path": str(tmp_path / "p.jsonl"), "held_out_share": 0.3, "rewards": [reward]}
    policy = {"kind": "diffusion", "model": "x", "sampler": "flow_grpo"}
    return build_task(parse_recipe({"policy": policy, "task": table}).task, seed=0)


def pictures(prompts):
    generator = torch.Generator().manual_seed(1)
    return [[torch.rand(3, 20, 20, generator=generator) for _ in range(2)] for _ in prompts]


def embedded(model, image):
    net, processor = CLIPModel.from_pretrained(model).eval(), CLIPProcessor.from_pretrained(model)
    array = (image * 255).round().byte().permute(1, 2, 0).numpy()
    return net, processor, processor(images=array, return_tensors="pt")["pixel_values"]


@torch.no_grad()
def test_clip_is_the_scaled_cosine_of_picture_and_prompt(model, tmp_path):
    task = task_of(tmp_path, {"kind": "clip", "model": str(model), "divide_by": 26.0})
    prompts = task.prompts(0, 2)
    made = pictures(prompts)
    rewards = task.score(prompts, made).rewards
    for p, prompt in enumerate(prompts):
        net, processor, given = embedded(model, made[p][1])
        words = processor(text=[prompt["prompt"]], return_tensors="pt")
        image = net.visual_projection(net.vision_model(given).pooler_output)
        text = net.text_projection(net.text_model(**words).pooler_output)
        expected = net.logit_scale.exp() * cosine_similarity(image, text) / 26
        assert float(rewards[p, 1]) == pytest.approx(float(expected), abs=1e-5)
    assert float(rewards.std()) > 0
    with pytest.raises(DataError, match="the clip reward's model"):
        task_of(tmp_path, {"kind": "clip", "model": str(tmp_path)})


@torch.no_grad()
@pytest.mark.parametrize("name", ["head.pth", "head.safetensors"])
def test_the_aesthetic_head_is_applied_to_an_embedding_of_length_one(model, tmp_path, name):
    """Layers 0 and 2, as published with dropouts between them; worked out by matrix products."""
    generator = torch.Generator().manual_seed(3)
    draw = lambda *size: torch.randn(*size, generator=generator)  # noqa: E731
    head = {
        "layers.0.weight": draw(4, 8),
        "layers.0.bias": draw(4),
        "layers.2.weight": draw(1, 4),
        "layers.2.bias": draw(1),
    }
    file = tmp_path / name
    torch.save(head, file) if name.endswith("pth") else write_tensors(file, head)
    task = task_of(tmp_path, {"kind": "aesthetic", "model": str(model), "head": str(file)})
    prompts = task.prompts(0, 1)
    made = pictures(prompts)
    net, _, given = embedded(model, made[0][0])
    x = normalize(net.visual_projection(net.vision_model(given).pooler_output), dim=-1)[0]
    expected = head["layers.2.weight"] @ (head["layers.0.weight"] @ x + head["layers.0.bias"]) + head["layers.2.bias"]
    assert float(task.score(prompts, made).rewards[0, 0]) == pytest.approx(float(expected) / 10, abs=1e-5)


def test_a_head_of_another_model_is_named(tmp_path):
    torch.save({"layers.0.weight": torch.ones(1, 768), "layers.0.bias": torch.ones(1)}, tmp_path / "h.pth")
    with pytest.raises(DataError, match="do not lead from the model's 8 numbers to one"):
        head_of(str(tmp_path / "h.pth"), 8)
    with pytest.raises(DataError, match="the aesthetic reward's head"):
        head_of(str(tmp_path / "none.pth"), 8)
    (tmp_path / "text.pth").write_text("no tensors")
    with pytest.raises(DataError, match="the aesthetic reward's head"):
        head_of(str(tmp_path / "text.pth"), 8)


def test_a_head_that_a_trainer_nested_is_read_and_a_broken_one_refused(tmp_path):
    layers = {"module.layers.0.weight": torch.ones(2, 3), "module.layers.0.bias": torch.zeros(2)}
    layers |= {"module.layers.1.weight": torch.tensor([[1.0, 2.0]]), "module.layers.1.bias": torch.ones(1)}
    torch.save({"epoch": 3, "state_dict": layers}, tmp_path / "nested.ckpt")
    assert head_of(str(tmp_path / "nested.ckpt"), 3)(torch.tensor([1.0, 0.0, 1.0])).tolist() == [7.0]
    (tmp_path / "cut.safetensors").write_bytes(b"\xff" * 40)
    layers["module.layers.1.bias"] = torch.ones(2)
    torch.save(layers, tmp_path / "long.pth")
    (tmp_path / "cut.pth").write_bytes((tmp_path / "nested.ckpt").read_bytes()[:300])
    torch.save({"layers.0.weight": torch.ones(3)}, tmp_path / "half.pth")
    torch.save([1, 2], tmp_path / "list.pth")
    for name in ("cut.safetensors", "cut.pth", "half.pth", "list.pth", "long.pth"):
        with pytest.raises(DataError, match=name):
            head_of(str(tmp_path / name), 3)


def test_a_reader_that_is_not_installed_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "rapidocr", None)
    with pytest.raises(DataError, match=r"pip install 'anygrpo\[ocr\]'"):
        task_of(tmp_path, {"kind": "ocr"})


def test_letters_by_hand():
    assert distance("kitten", "sitting") == 3
    assert distance("", "abc") == distance("abc", "") == 3
    assert likeness("Open 24", "the OPEN\n24 sign") == 1.0  # held, without spaces and case
    assert likeness("open", "opon") == 0.75
    assert likeness("open", "") == 0.0
    assert likeness("ab", "zzzzzzz") == 0.0  # never below
    assert wanted('a shop, "Open" and "shut"', True) == "Open"
    assert wanted("牌子上写着“开门”", True) == "开门"
    assert wanted("no quotes", True) == ""
    assert wanted(24, False) == "24"


def test_what_cannot_be_read_is_refused_at_the_start(tmp_path):
    with pytest.raises(ConfigError, match="did you mean 'word'"):
        task_of(tmp_path, {"kind": "ocr", "column": "words"})
    with pytest.raises(DataError, match="has no text between double quotes"):
        task_of(tmp_path, {"kind": "ocr"}, [*PROMPTS, {"prompt": "a blank sign"}])


@pytest.mark.skipif(importlib.util.find_spec("rapidocr") is None, reason="the extra ocr is not installed")
@pytest.mark.parametrize("column", [None, "word"])
def test_a_written_word_earns_more_than_another(tmp_path, column):
    task = task_of(tmp_path, {"kind": "ocr"} | ({} if column is None else {"column": column}))
    (prompt,) = task.prompts(0, 1)

    def written(text):
        image = Image.new("RGB", (256, 96), "white")
        ImageDraw.Draw(image).text((20, 25), text, fill="black", font=ImageFont.load_default(40))
        return torch.frombuffer(bytearray(image.tobytes()), dtype=torch.uint8).view(96, 256, 3).permute(2, 0, 1) / 255

    made = [[written(prompt["word"].upper()), written("BANANA"), torch.full((3, 96, 256), 0.5)]]
    right, wrong, empty = task.score([prompt], made).rewards[0].tolist()
    assert right == 1.0
    assert wrong < 0.5
    assert empty == 0.0

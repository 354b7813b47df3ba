"""Pictures in prompts: what the policy computes is what the library computes, whatever way is taken."""

import base64
import copy
import io
import json
import random
from pathlib import Path

import pytest
import seeing
import tiny
import torch
from PIL import Image

from anygrpo.core.readable import question_of
from anygrpo.errors import DataError, TrainingError
from anygrpo.language.build import from_model
from anygrpo.language.compute.layout import opening_of
from anygrpo.language.compute.passes import prefill
from anygrpo.language.compute.pictures import FIRST, Pictures
from anygrpo.language.prompt_fields import words_of
from anygrpo.language.prompts import Prompts
from anygrpo.language.settings import CausalLMConfig
from anygrpo.language.task_settings import JsonlTaskConfig
from anygrpo.language.tasks import jsonl
from anygrpo.language.tasks.data import read_rows
from anygrpo.language.tasks.messages import clean_prompt
from anygrpo.language.tasks.pictures import example, opened, reference, with_pictures
from anygrpo.models import loading
from anygrpo.recipe.load import parse_recipe
from anygrpo.train.build import new_run
from anygrpo.train.loop import train


def picture(color="red", size=(20, 14)):
    return Image.new("RGB", size, color)


def asked(color="red", text="What is this?"):
    shown = {"type": "image", "image": reference(picture(color), "here")}
    return {"prompt": [{"role": "user", "content": [shown, {"type": "text", "text": text}]}]}


def policy_of(family, **settings):
    model, processor = seeing.FAMILIES[family]()
    config = {"kind": "causal_lm", "model": "memory", "dtype": "float32", "device": "cpu", "max_new_tokens": 5}
    settings = {"vision": {}, "lora": {"rank": 2}} | settings
    return from_model(model, processor, CausalLMConfig.model_validate(config | settings)), model, processor


def own_log_probs(policy, processor, prompt, row):
    """By the library alone: its processor's inputs, its forward."""
    pictures = policy.prompts.pictures
    shown, words = prompt["prompt"][0]["content"]
    text = policy.prompts.rendered(prompt) if policy.prompts.chat else pictures.mark + words["text"]
    image = opened(shown["image"])
    made = processor(text=[text], images=[[image]], add_special_tokens=False, return_tensors="pt")
    ids, count = made["input_ids"], len(row)
    given = {name: x for name, x in made.items() if name not in ("input_ids", "attention_mask")}
    for name, x in given.items():
        if x.shape == ids.shape:
            given[name] = torch.cat([x, x.new_zeros(1, count)], 1)
    whole = torch.cat([ids, torch.tensor([row])], 1)
    with torch.no_grad():
        logits = policy.weights.training_model()(input_ids=whole, **given).logits[0]
    logits[:, pictures.token] = float("-inf")
    place = slice(ids.shape[1] - 1, whole.shape[1] - 1)
    return logits[place].log_softmax(-1).gather(1, torch.tensor(row)[:, None])[:, 0]


@pytest.mark.parametrize("family", seeing.FAMILIES)
def test_sampled_and_scored_log_probs_are_the_librarys_own(family):
    policy, _, processor = policy_of(family)
    prompts = [asked("red"), asked("blue", "w1 w2"), {"prompt": "w3 w4 w5"}]
    rollout = policy.sample(prompts, 3, seed=1)
    assert policy.parity < 1e-4
    rows = {name: x.flatten(0, 1) for name, x in rollout.samples.items()}
    scored = policy.evaluate(rows, slice(0, 5)).log_probs.view_as(rollout.log_probs).detach()
    for p in (0, 1):
        for g in range(3):
            n = int(rollout.samples["completion_lengths"][p, g])
            row = rollout.samples["completion_ids"][p, g, :n].tolist()
            own = own_log_probs(policy, processor, prompts[p], row)
            assert torch.allclose(rollout.log_probs[p, g, :n], own, atol=1e-4)
            assert torch.allclose(scored[p, g, :n], own, atol=1e-4)


@pytest.mark.parametrize("family", ["llava", "idefics3"])
def test_where_attention_is_plain_a_groups_pictures_are_computed_once(family):
    policy, _, _ = policy_of(family)
    assert policy.scorer.paths.exact, policy.scorer.paths.notes


def test_the_picture_is_looked_at():
    """The same words with another picture: another distribution, another group."""
    policy, _, processor = policy_of("llava", vision={"train": "both"})
    rollout = policy.sample([asked("red"), asked("blue")], 2, seed=0)
    first = rollout.samples["prompt_ids"][:, 0]
    assert (first >= FIRST).sum(1).tolist() == [4, 4]
    assert len(set(first[first >= FIRST].tolist())) == 2
    assert len(set(rollout.samples["group"][:, 0].tolist())) == 2
    row = rollout.samples["completion_ids"][0, 0, :1].tolist()
    red, blue = (own_log_probs(policy, processor, asked(c), row) for c in ("red", "blue"))
    assert (red - blue).abs() > 1e-6


def test_no_answer_holds_the_place_of_a_picture():
    policy, _, _ = policy_of("llava")
    token = policy.prompts.pictures.token
    assert policy.support.never == (token,)
    with torch.no_grad():
        policy.weights.base.get_output_embeddings().weight[token] += 3.0
    rollout = policy.sample([asked()] * 4, 8, seed=0)
    assert not (rollout.samples["completion_ids"] == token).any()


@pytest.mark.parametrize("part", ["language", "vision", "both"])
@pytest.mark.parametrize("train", ["lora", "all"])
def test_what_trains_is_what_the_recipe_says(part, train):
    policy, _, _ = policy_of("llava", train=train, vision={"train": part})
    rollout = policy.sample([asked()], 2, seed=0)
    rows = {name: x.flatten(0, 1) for name, x in rollout.samples.items()}
    for p in policy.trainable().parameters():  # adapters begin at nothing
        if p.requires_grad and not p.any():
            p.data.normal_(0, 0.05)
    policy.evaluate(rows, slice(0, 5)).log_probs.sum().backward()
    moved = {n for n, p in policy.trainable().named_parameters() if p.grad is not None and bool(p.grad.any())}
    sees = {n for n in moved if "vision_tower" in n or "projector" in n}
    reads = moved - sees
    assert bool(sees) == (part != "language")
    assert bool(reads) == (part != "vision")


def test_weights_that_leave_are_certified_on_a_picture(tmp_path, monkeypatch):
    model, processor = seeing.llava()
    model.save_pretrained(tmp_path / "start")
    processor.save_pretrained(tmp_path / "start")
    from anygrpo.language.build import build
    from anygrpo.language.export import export

    table = {"kind": "causal_lm", "model": str(tmp_path / "start"), "dtype": "float32", "device": "cpu",
             "max_new_tokens": 4, "vision": {"train": "both"}, "lora": {"rank": 2}}  # fmt: skip
    policy = build(CausalLMConfig.model_validate(table), 0)
    with torch.no_grad():
        for p in policy.weights.parameters():
            p.add_(0.05 * torch.randn(p.shape, generator=torch.Generator().manual_seed(0)))
    for form in ("peft", "merged"):
        export(policy, tmp_path / form, form)
        told = json.loads((tmp_path / form / "export.json").read_text())
        assert told["certified"]
        assert told["prompts"] == 5
        assert told["max_log_prob_gap"] < 1e-4
        # What the card tells to type, typed.
        card = (tmp_path / form / "README.md").read_text()
        lines = card.partition("```\n")[2].partition("\n```")[0].splitlines()
        monkeypatch.chdir(tmp_path)
        typed: dict = {}
        exec("\n".join(x for x in lines if x and not x.startswith("vllm ")), typed)
        assert any(type(part).__name__ == "LlavaForConditionalGeneration" for part in typed["model"].modules())
        assert hasattr(typed["processor"], "image_processor")
    again = build(CausalLMConfig.model_validate(table | {"model": str(tmp_path / "merged")}), 0)
    ids = policy.prompts.encode([example()], 4)
    assert again.prompts.encode([example()], 4) == ids
    before, after = (torch.tensor(p.next_log_probs(ids, [[3, 4]])) for p in (policy, again))
    assert torch.allclose(before, after, atol=1e-4)


def test_pictures_of_a_policy_that_sees_none_are_refused_by_name():
    prompts = Prompts(tiny.tokenizer(), CausalLMConfig(kind="causal_lm", model="x"), None, (0,))
    with pytest.raises(DataError, match="sees none"):
        prompts.encode([asked()], 4)


def test_pixels_that_made_room_are_read_again_and_strangers_are_told():
    model, processor = seeing.llava()
    colors = []
    pictures = Pictures(processor, model.config.image_token_id, hold=1, read=lambda c: colors.append(c) or picture(c))
    first = pictures.encode("<image> w1", ["red"])
    own, more = pictures.shown(torch.tensor([first]))
    assert own.tolist()[0][:4] == [model.config.image_token_id] * 4
    assert more["pixel_values"].shape == (1, 3, 16, 16)
    pictures.encode("<image> w1", ["blue"])
    again = pictures.shown(torch.tensor([first]))[1]["pixel_values"]
    assert torch.equal(again, more["pixel_values"])
    assert colors == ["red", "blue", "red"]
    resumed = Pictures(processor, model.config.image_token_id, read=picture)
    with pytest.raises(TrainingError, match="not known here"):
        resumed.shown(torch.tensor([first]))
    resumed.resumed(json.loads(json.dumps(pictures.carried())))
    assert torch.equal(resumed.shown(torch.tensor([first]))[1]["pixel_values"], again)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(
    ("family", "why"), [("qwen2_vl", "several axes"), ("gemma3", "both ways"), ("llava", ""), ("idefics3", "")]
)
def test_what_is_more_than_a_sequence_is_never_shared(family, why, dtype):
    """In bfloat16, and with small weights, a wrong place of a picture is within rounding: it is not told by numbers."""
    policy, _, _ = policy_of(family, dtype=dtype)
    paths = policy.scorer.paths
    assert paths.ability.shared == (not why), paths
    assert not why or (paths.sampling != "padded" and any(why in note for note in paths.notes))


def test_a_checkpoint_carries_the_pictures_that_were_used_last(monkeypatch):
    model, processor = seeing.llava()
    monkeypatch.setattr("anygrpo.language.compute.pictures.CARRIED", 2)
    pictures = Pictures(processor, model.config.image_token_id, read=picture)
    first, _, last = (pictures.encode("<image> w1", [color])[0] for color in ("red", "blue", "green"))
    assert pictures.encode("<image> w1", ["red"])[0] == first
    assert set(pictures.carried()) == {str(first), str(last)}


def test_a_picture_in_a_row_is_no_words_of_its_prompt():
    assert words_of(asked("red")) == "What is this?"


def test_a_copy_of_the_policys_prompts_sees_the_same_pictures():
    policy, _, _ = policy_of("llava")
    assert copy.deepcopy(policy.prompts).pictures is policy.prompts.pictures


def test_a_place_without_a_picture_is_refused():
    policy, _, _ = policy_of("llava")
    with pytest.raises(DataError, match="a place for a picture, and no picture"):
        policy.prompts.encode([{"prompt": "<image> What is this?"}], 4)


def test_last_blocks_are_the_text_models():
    policy, _, _ = policy_of("llava", train="last_n", last_n_layers=1)
    trained = {n for n, p in policy.trainable().named_parameters() if p.requires_grad}
    assert trained
    assert all("language_model" in name for name in trained)


def test_a_folder_with_one_file_of_weights_has_a_processor(tmp_path):
    model, processor = seeing.llava()
    model.config.save_pretrained(tmp_path)
    processor.save_pretrained(tmp_path)
    torch.save(model.state_dict(), tmp_path / "weights.pt")
    assert loading.load_processor(str(tmp_path)).image_processor is not None


def test_a_prompt_twice_in_a_packed_row_shows_its_pictures_twice():
    model, processor = seeing.llava()
    pictures = Pictures(processor, model.config.image_token_id)
    ids = pictures.encode("<image> w1", [picture()])
    _, more = pictures.shown(torch.tensor([ids + ids]))
    assert more["pixel_values"].shape == (2, 3, 16, 16)


@pytest.mark.parametrize(("ends", "opening"), [("<image>", 17), ("<image> w2", 21), ("<image> w2 <image>", 17)])
def test_an_opening_never_parts_the_pictures_of_a_prompt(ends, opening):
    """Two equal prompts: all but the last token is common, which may be a place of a picture."""
    policy, _, _ = policy_of("llava")
    words = " ".join(f"w{i}" for i in range(17))
    ids = policy.prompts.pictures.encode(f"{words} {ends}", [reference(picture(), "here")] * ends.count("<image>"))
    assert opening_of([ids, ids]) == opening
    with torch.no_grad():
        both, alone = (prefill(policy.weights.training_model(), [ids] * n, [1] * n, 4)[1] for n in (2, 1))
    torch.testing.assert_close(both, alone.expand(2, -1), atol=1e-5, rtol=0)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"engine": "vllm"}, "pictures need engine"),
        ({"train": "last_n", "vision": {"train": "vision"}}, "last blocks are the text model's"),
    ],
)
def test_settings_that_do_not_go_together(wrong, said):
    with pytest.raises(ValueError, match=said):
        CausalLMConfig.model_validate({"kind": "causal_lm", "model": "x", "vision": {}} | wrong)


# -- data ------------------------------------------------------------------------------------------------------------


def as_bytes(image):
    held = io.BytesIO()
    image.save(held, "PNG")
    return held.getvalue()


@pytest.mark.parametrize("form", ["path", "bytes", "datasets", "url", "pil", "openai"])
def test_pictures_are_read_in_the_forms_people_have(form, tmp_path):
    image = picture("blue")
    image.save(tmp_path / "a.png")
    url = "data:image/png;base64," + base64.b64encode(as_bytes(image)).decode()
    saved = as_bytes(image)
    value = {"path": "a.png", "bytes": saved, "datasets": {"bytes": saved, "path": None}, "url": url, "pil": image,
             "openai": {"url": url}}[form]  # fmt: skip
    made = opened(reference(value, "here", tmp_path))
    assert made.size == (20, 14)
    assert made.getpixel((3, 3)) == (0, 0, 255)


def test_pictures_are_turned_upright_and_put_on_white(tmp_path):
    wide = picture("red", (30, 10))
    exif = Image.Exif()
    exif[0x0112] = 6  # turned by a quarter
    wide.save(tmp_path / "turned.jpg", exif=exif)
    assert opened(str(tmp_path / "turned.jpg")).size == (10, 30)
    Image.new("RGBA", (4, 4), (0, 0, 0, 0)).save(tmp_path / "clear.png")
    assert opened(str(tmp_path / "clear.png")).getpixel((0, 0)) == (255, 255, 255)


def test_what_is_no_picture_is_one_clear_error(tmp_path):
    (tmp_path / "a.png").write_bytes(b"no picture")
    with pytest.raises(DataError, match=r"no picture at .*a\.png"):
        opened(str(tmp_path / "a.png"))
    with pytest.raises(DataError, match=r"no picture at .*b\.png"):
        reference("b.png", "row 1", tmp_path)
    with pytest.raises(DataError, match="download it"):
        reference("https://example.org/a.png", "row 1")
    with pytest.raises(DataError, match="a picture is '3'"):
        reference(3, "row 1")


def test_rows_put_their_pictures_where_the_prompt_has_a_place(tmp_path):
    for name in ("a", "b"):
        picture().save(tmp_path / f"{name}.png")
    rows = [
        {"prompt": "Compare <image> and <image>, please", "images": ["a.png", "b.png"]},
        {"prompt": "What is this?", "images": "a.png"},
        {"prompt": [{"role": "user", "content": ["x", {"type": "image"}]}], "images": ["b.png"]},
    ]
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    made = [row["prompt"][0]["content"] for _, row in read_rows(str(file), "prompt", pictures=("images",))]
    a, b = str(tmp_path / "a.png"), str(tmp_path / "b.png")
    text = lambda words: {"type": "text", "text": words}  # noqa: E731
    shown = lambda path: {"type": "image", "image": path}  # noqa: E731
    assert made[0] == [text("Compare "), shown(a), text(" and "), shown(b), text(", please")]
    assert made[1] == [shown(a), text("What is this?")]
    assert made[2] == [text("x"), shown(b)]
    file.write_text(json.dumps({"prompt": "<image> <image>", "images": ["a.png"]}) + "\n")
    with pytest.raises(DataError, match="2 places for pictures, 1 pictures"):
        read_rows(str(file), "prompt", pictures=("images",))
    file.write_text(json.dumps({"prompt": [{"role": "user", "content": [{"type": "image"}]}]}) + "\n")
    with pytest.raises(DataError, match=r"1 places for pictures, 0 pictures") as error:
        read_rows(str(file), "prompt")
    assert "task.pictures" in str(error.value)
    with pytest.raises(DataError, match="no column 'image'"):
        read_rows(str(file), "prompt", pictures=("image",))


def test_texts_stay_texts():
    assert clean_prompt([{"role": "user", "content": [{"type": "text", "text": "a"}, "b"]}], "x")[0]["content"] == "ab"
    assert with_pictures("a text with no picture", [], "x") == "a text with no picture"
    with pytest.raises(DataError, match="type 'input_audio'"):
        clean_prompt([{"role": "user", "content": [{"type": "input_audio", "text": None}]}], "x")


def test_a_model_that_names_no_picture_token_is_refused():
    model, processor = seeing.llava()
    from transformers import LlamaConfig, LlamaForCausalLM

    blind = LlamaForCausalLM(LlamaConfig(**seeing.TEXT, vocab_size=64))
    processor.image_token_id = None
    with pytest.raises(DataError, match="names no token of a picture"):
        Pictures.of(processor, blind, opened)
    assert Pictures.of(processor, model, opened).token == model.config.image_token_id


def saved(tmp_path, answers, shuffled=False, seed=0):
    """A folder of pictures with a colour each, and the rows that ask for it."""
    rng = random.Random(seed)
    colors = {"red": (220, 40, 40), "blue": (40, 40, 220), "w7": (40, 200, 40), "w8": (210, 210, 60)}
    rows = []
    for i in range(answers):
        name = rng.choice(list(colors))
        image = Image.new("RGB", (16, 16), tuple(rng.randint(0, 255) for _ in range(3)))
        left, top = rng.randint(0, 4), rng.randint(0, 4)
        shade = tuple(max(0, min(255, c + rng.randint(-40, 40))) for c in colors[name])
        image.paste(shade, (left, top, 12 + rng.randint(0, 4), 12 + rng.randint(0, 4)))
        image.save(tmp_path / f"{i}.png")
        rows.append({"prompt": "What is this?", "image": f"{i}.png", "answer": name})
    shown = [row["image"] for row in rows]
    if shuffled:
        rng.shuffle(shown)
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(json.dumps(row | {"image": name}) + "\n" for row, name in zip(rows, shown)))
    return file


def recipe_of(tmp_path, rows, seed):
    model, processor = seeing.llava()
    model.save_pretrained(tmp_path / "model")
    processor.save_pretrained(tmp_path / "model")
    table = {
        "name": "see", "seed": seed,
        "policy": {"kind": "causal_lm", "model": str(tmp_path / "model"), "dtype": "float32", "device": "cpu",
                   "max_new_tokens": 2, "train": "all", "vision": {"train": "both"}},
        "task": {"kind": "data", "path": str(rows), "pictures": "image", "held_out_share": 0.3,
                 "rewards": [{"kind": "exact", "column": "answer"}]},
        "stages": [{"name": "shown", "method": "supervised", "steps": 40},
                   {"name": "grpo", "method": "grpo", "steps": 500}],
        "optimizer": {"learning_rate": 2e-3}, "algorithm": {"prompts_per_step": 8, "group_size": 8},
        "evaluation": {"every": 540}, "folder": str(tmp_path / "run"),
    }  # fmt: skip
    return table


def test_rows_with_pictures_that_no_prompt_shows_are_refused(tmp_path):
    policy, _, _ = policy_of("llava")
    with pytest.raises(DataError, match="column 'image' that no prompt shows"):
        policy.check_prompts([{"prompt": "What is this?", "image": "a.png"}])


def test_apply_finds_the_pictures_of_rows(tmp_path):
    from anygrpo.language.apply import apply

    policy, _, _ = policy_of("llava")
    rows = saved(tmp_path, 3)
    made = apply(policy, rows)
    assert [row["prompt"][0]["content"][0]["image"] for row in made] == [str(tmp_path / f"{i}.png") for i in range(3)]
    recipe = parse_recipe(recipe_of(tmp_path, rows, 0))
    assert [row["prompt"] for row in apply(policy, rows, recipe=recipe)] == [row["prompt"] for row in made]
    assert apply(policy, "w1 w2", recipe=recipe)[0]["prompt"] == "w1 w2"
    in_python = apply(policy, [{"prompt": "What is this?", "photo": picture("red")}], pictures="photo")
    mixed = apply(policy, [{"prompt": "w1", "id": 3}, {"prompt": "w2", "image": picture("red")}], recipe=recipe)
    assert mixed[0]["prompt"] == "w1"
    assert mixed[1]["prompt"][0]["content"][0]["type"] == "image"
    assert in_python[0]["prompt"][0]["content"][0]["image"].startswith("data:image/")


def test_a_reader_sees_which_picture_was_asked_about():
    content = [{"type": "image", "image": "a.png"}, {"type": "text", "text": "What?"}]
    assert question_of({"prompt": [{"role": "user", "content": content}]}) == "<image a.png> What?"
    content[0]["image"] = "data:image/png;base64,AAAA"
    assert question_of({"prompt": [{"role": "user", "content": content}]}) == "<image> What?"


def test_where_the_data_lies_moves_no_row_to_the_other_side(tmp_path):
    sides = []
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
        table = recipe_of(tmp_path / name, saved(tmp_path / name, 40), 0)["task"]
        task = jsonl.build(JsonlTaskConfig.model_validate(table), 0)
        sides.append([Path(row["prompt"][0]["content"][0]["image"]).name for row in task.held_out()])
        task.close()
    assert sides[0] == sides[1]
    assert 4 < len(sides[0]) < 20


def test_the_first_prompts_are_shown_with_their_pictures(tmp_path):
    from anygrpo.core.thumbnails import SHOWN, thumbnail

    policy, _, _ = policy_of("llava")
    prompts = [asked("red"), asked("blue"), {"prompt": "no picture"}, *[asked()] * SHOWN]
    shown = policy.show(prompts, [["x"]] * len(prompts))
    assert [row.get("pictures") for row in shown[:3]] == [[thumbnail(picture(c))] for c in ("red", "blue")] + [None]
    assert "pictures" not in shown[SHOWN]
    picture().save(tmp_path / "gone.png")
    gone = {"prompt": [{"role": "user", "content": [{"type": "image", "image": str(tmp_path / "gone.png")}]}]}
    (tmp_path / "gone.png").unlink()
    assert "pictures" not in policy.show([gone], [["x"]])[0]


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_it_learns_to_see_and_nothing_where_pictures_are_shuffled(tmp_path, seed):
    told = {}
    for name in ("seeing", "blind"):
        folder = tmp_path / name
        folder.mkdir()
        table = recipe_of(folder, saved(folder, 240, shuffled=name == "blind"), seed)
        run = new_run(parse_recipe(table))
        train(run)
        run.close()
        rows = [json.loads(line) for line in (folder / "run" / "metrics.jsonl").read_text().splitlines()]
        told[name] = [row["eval/accuracy"] for row in rows if "eval/accuracy" in row][-1]
    assert told["seeing"] >= 0.6
    assert told["blind"] <= 0.45

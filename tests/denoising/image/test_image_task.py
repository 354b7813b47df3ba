"""Prompt files, rewards that see pictures, and what is shown of them."""

import base64
import io
import json
import math

import numpy as np
import pytest
import torch
from PIL import Image
from tiny_pipelines import sd15

from anygrpo.cli.main import main
from anygrpo.core.build import build_task
from anygrpo.denoising.image.pictures import grid, inline, to_image
from anygrpo.denoising.image.rewards import jpeg_kilobytes
from anygrpo.denoising.image.task import read_prompts
from anygrpo.errors import ConfigError, DataError
from anygrpo.recipe.load import parse_recipe

POLICY = {"kind": "diffusion", "model": "x", "sampler": "flow_grpo"}


@pytest.fixture
def files(tmp_path):
    rows = [{"prompt": f"a photo of cat {i}", "target": i / 40} for i in range(40)]
    (tmp_path / "p.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    (tmp_path / "r.py").write_text(
        "def bright(images, prompts, target, scale=1.0):\n"
        "    return [scale * (1 - abs(float(x.mean()) - t)) for x, t in zip(images, target)]\n"
        "def fussy(images, prompts):\n"
        "    if any(float(x.mean()) > 0.9 for x in images):\n"
        "        raise ValueError('too bright')\n"
        "    return [None if float(x.mean()) < 0.1 else 1.0 for x in images]\n"
        "def short(images, prompts):\n    return [1.0]\n"
        "def deaf(prompts):\n    return [1.0 for _ in prompts]\n"
        "def wants(images, prompts, nothing):\n    return [1.0 for _ in prompts]\n"
    )
    return tmp_path


def task_of(files, *rewards, **more):
    table = {"kind": "images", "path": str(files / "p.jsonl"), "held_out_share": 0.25, "rewards": list(rewards), **more}
    return build_task(parse_recipe({"policy": POLICY, "task": table}).task, seed=0)


def reward(files, name, **more):
    return {"function": f"{files}/r.py:{name}", **more}


def test_rewards_see_pictures_prompts_and_columns(files):
    task = task_of(files, reward(files, "bright", arguments={"scale": 2.0}), {"kind": "compressibility", "weight": 0.5})
    prompts = task.prompts(0, 2)
    pictures = [[torch.full((3, 8, 8), 0.25), torch.full((3, 8, 8), 0.75)] for _ in prompts]
    scores = task.score(prompts, pictures)
    for p, prompt in enumerate(prompts):
        for g, value in enumerate((0.25, 0.75)):
            own = 2 * (1 - abs(value - prompt["target"]))
            size = -jpeg_kilobytes(pictures[p][g])
            assert scores.components["bright"][p, g].item() == pytest.approx(own, rel=1e-4)
            assert scores.components["compressibility"][p, g].item() == pytest.approx(size)
            assert scores.rewards[p, g].item() == pytest.approx(own + 0.5 * size, rel=1e-4)
    assert bool(scores.valid.all())


def test_a_column_is_one_that_the_training_prompts_have(files):
    """One of the held-out file alone would be None in every training step."""
    (files / "held.jsonl").write_text(json.dumps({"prompt": "a dog", "target": 0.1, "nothing": 1}) + "\n")
    held = {"held_out_path": str(files / "held.jsonl")}
    assert task_of(files, reward(files, "bright"), **held).prompts(0, 1)
    with pytest.raises(ConfigError, match="wants 'nothing', which is neither a column"):
        task_of(files, reward(files, "wants"), **held)


def test_a_bad_picture_costs_only_itself(files):
    task = task_of(files, reward(files, "fussy"))
    prompts = task.prompts(0, 1)
    level = lambda x: torch.full((3, 8, 8), x)  # noqa: E731
    scores = task.score(prompts, [[level(0.5), level(0.95), level(0.05), level(math.nan), torch.zeros(3)]])
    assert scores.valid.tolist() == [[True, False, False, False, False]]
    assert "too bright" in scores.reasons[(0, 1)]
    assert scores.reasons[(0, 2)] == "fussy: no score"
    assert scores.reasons[(0, 3)] == "not finite"
    assert "not a picture" in scores.reasons[(0, 4)]
    short = task_of(files, reward(files, "short"))
    with pytest.raises(ConfigError, match="'short' returned 1 numbers for 2 outputs"):
        short.score(prompts, [[level(0.5), level(0.4)]])


def test_training_and_evaluation_share_no_prompt(files):
    task = task_of(files, reward(files, "bright"), held_out_repeats=3)
    kept = {p["prompt"] for p in task.held_out()}
    seen = {p["prompt"] for step in range(task.size) for p in task.prompts(step, 4)}
    assert not kept & seen
    assert len(kept) + len(seen) == 40
    assert len(task.held_out()) == 3 * len(kept)
    assert {p["seed"] for p in task.held_out()} == {0, 1, 2}


def test_what_cannot_work_is_refused_at_the_start(files, tmp_path):
    with pytest.raises(ConfigError, match="wants 'nothing'"):
        task_of(files, reward(files, "wants"))
    with pytest.raises(ConfigError, match="does not take 'images'"):
        task_of(files, reward(files, "deaf"))
    with pytest.raises(ConfigError, match="two rewards"):
        task_of(files, reward(files, "bright"), reward(files, "bright"))
    with pytest.raises(ConfigError, match="also a column"):
        task_of(files, reward(files, "bright", arguments={"target": 1}))
    with pytest.raises(DataError, match="no prompt file"):
        task_of(files, reward(files, "bright"), path="nowhere.jsonl")
    with pytest.raises(DataError, match="the clip reward's model"):
        task_of(files, {"kind": "clip", "model": str(tmp_path)})
    (tmp_path / "bad.jsonl").write_text('{"prompt": "a"}\n{"text": "b"}\n')
    with pytest.raises(DataError, match="line 2"):
        read_prompts(str(tmp_path / "bad.jsonl"), "prompt")
    (tmp_path / "plain.txt").write_text("a cat\n\na dog\na cat\n")
    assert [r["prompt"] for r in read_prompts(str(tmp_path / "plain.txt"), "prompt")] == ["a cat", "a dog"]


def test_compressibility_is_the_size_of_the_file():
    noise = torch.rand(3, 32, 32, generator=torch.Generator().manual_seed(0))
    buffer = io.BytesIO()
    Image.fromarray((noise * 255).round().byte().permute(1, 2, 0).numpy()).save(buffer, "JPEG", quality=95)
    assert jpeg_kilobytes(noise) == len(buffer.getvalue()) / 1000
    assert jpeg_kilobytes(torch.zeros(3, 32, 32)) < 0.5 * jpeg_kilobytes(noise)
    assert jpeg_kilobytes(noise.expand(2, -1, -1, -1)) == jpeg_kilobytes(noise)


def test_thumbnails_and_grids():
    picture = torch.zeros(3, 4, 8)
    picture[0] = 1.0
    raw = base64.b64decode(inline(picture).split(",", 1)[1])
    assert np.asarray(Image.open(io.BytesIO(raw)))[0, 0].tolist() == [255, 0, 0]
    sheet = grid([[picture, picture], [picture, 0 * picture]], ["one", "two"])
    assert np.asarray(sheet)[-10, 5].tolist() == [255, 0, 0]
    assert np.asarray(sheet)[-10, -10].tolist() == [0, 0, 0]
    assert to_image(torch.rand(5, 3, 6, 6)).size == (6, 6)
    headed = grid([[picture, picture], [picture, 0 * picture]], ["one\nseed 0", "two\nseed 1"], ("before", "after"))
    assert (headed.width - sheet.width, headed.height - sheet.height) == (56, 18)
    left = np.asarray(headed)[:, :56]
    assert left[36:84].min() < 128  # a word before each row of 48 pixels
    assert left[88:].min() < 128
    assert np.asarray(headed)[18:36, 56:].min() < 128  # the second line over the columns


def test_train_shows_pictures_in_samples_and_report(files, tmp_path, capsys):
    """A tiny Stable Diffusion for two steps: samples hold PNG, and the report shows them, before and after."""
    folder = sd15(tmp_path)
    (files / "r.toml").write_text(f"""
[policy]
kind = "diffusion"
model = "{folder}"
sampler = "ddim"
steps = 4
height = 8
width = 8
lora.rank = 2
[task]
kind = "images"
path = "{files}/p.jsonl"
held_out_share = 0.2
held_out_repeats = 1
rewards = [{{ kind = "compressibility" }}, {{ function = "{files}/r.py:bright" }}]
[algorithm]
prompts_per_step = 2
group_size = 3
[optimizer]
learning_rate = 1e-3
[training]
steps = 2
threads = 1
samples_every = 1
[evaluation]
prompts = 2
[doctor]
mode = "off"
""")
    run = files / "run"
    assert main(["train", str(files / "r.toml"), "--folder", str(run), "--quiet"]) == 0, capsys.readouterr().err
    row = json.loads(sorted((run / "samples").glob("*.jsonl"))[0].read_text().splitlines()[0])
    assert all(x.startswith("data:image/png;base64,") for x in row["outputs"])
    assert set(row["components"]) == {"compressibility", "bright"}
    assert (run / "pictures" / "before_above_after.png").is_file()
    assert main(["report", str(run)]) == 0
    page = (run / "report.html").read_text()
    assert page.count("data:image/png;base64,") >= 5
    assert page.count('<img alt="" src="data:image/png') == 4

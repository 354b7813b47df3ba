"""examples/eyes.py: no picture is on two sides, the blind rows show other pictures, words name what is seen."""

import io
import json
import zipfile

import pytest
from PIL import Image

from examples import eyes


def wheel(path):
    asked = {"train": [], "test": []}
    with zipfile.ZipFile(path, "w") as file:
        for split, count in (("train", 430), ("test", 5)):
            for i in range(count):
                held = io.BytesIO()
                Image.new("RGB", (64, 64), (i % 256, 0, 0)).save(held, "PNG")
                file.writestr(f"easy_vqa/data/{split}/images/{i}.png", held.getvalue())
                asked[split] += [["what color is the circle?", "red", i], ["is there not a teal shape?", "yes", i]]
            file.writestr(f"easy_vqa/data/{split}/questions.json", json.dumps(asked[split]))
    return str(path)


@pytest.fixture
def made(tmp_path, capsys):
    eyes.questions(wheel(tmp_path / "a.whl"), str(tmp_path / "data"))
    read = lambda name: [json.loads(x) for x in (tmp_path / "data" / f"{name}.jsonl").read_text().splitlines()]  # noqa: E731
    return tmp_path / "data", {name: read(name) for name in ("train", "validation", "test", "blind")}


def test_no_picture_is_on_two_sides(made):
    folder, rows = made
    sides = [{row["image"] for row in rows[name]} for name in ("train", "validation", "test")]
    assert [len(side) for side in sides] == [30, 400, 5]
    assert sum(len(side) for side in sides) == len(set.union(*sides))
    assert all((folder / name).is_file() for side in sides for name in side)


def test_the_blind_rows_are_the_same_questions_with_other_pictures(made):
    _, rows = made
    plain = [{k: row[k] for k in ("prompt", "answer")} for row in rows["train"]]
    assert plain == [{k: row[k] for k in ("prompt", "answer")} for row in rows["blind"]]
    assert sorted(row["image"] for row in rows["train"]) == sorted(row["image"] for row in rows["blind"])
    moved = sum(a["image"] != b["image"] for a, b in zip(rows["train"], rows["blind"]))
    assert moved > 0.8 * len(plain)


def test_colour_and_shape_are_read_from_questions_and_answers(made):
    names, labels = eyes.told(made[0])
    assert len(names) == 30
    assert labels.tolist() == [[eyes.WORDS[0].index("red"), eyes.WORDS[1].index("circle")]] * 30

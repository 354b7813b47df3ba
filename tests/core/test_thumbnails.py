"""Pictures in lines of JSON: their size, their colours, and what a page may embed."""

import base64
import io

import pytest
import torch
from PIL import Image

from anygrpo.core.thumbnails import is_thumbnail, looks_like_a_picture, of_tensor, thumbnail


def back(text):
    return Image.open(io.BytesIO(base64.b64decode(text.partition(",")[2])))


def test_a_picture_keeps_its_sides_ratio_and_its_colours():
    small = back(thumbnail(Image.new("RGB", (512, 256), (10, 200, 30))))
    assert small.size == (128, 64)
    assert small.getpixel((5, 5)) == (10, 200, 30)


def test_a_tensor_is_the_picture_that_its_numbers_are():
    picture = torch.zeros(3, 8, 10)
    picture[0], picture[1, 0, 0], picture[2] = 1.0, float("nan"), 2.0
    seen = back(of_tensor(picture))
    assert seen.size == (10, 8)
    assert seen.getpixel((0, 0)) == (255, 0, 255)
    assert back(of_tensor(torch.full((1, 8, 8), 0.5))).getpixel((0, 0)) == (128, 128, 128)


@pytest.mark.parametrize(
    ("shape", "is_one"),
    [((3, 8, 8), True), ((1, 64, 9), True), ((2, 8, 8), False), ((3, 7, 9), False), ((8, 8), False)],
)
def test_what_looks_like_a_picture(shape, is_one):
    assert looks_like_a_picture(torch.zeros(shape)) is is_one


@pytest.mark.parametrize("text", ['data:image/png;base64," onerror=x', "data:image/svg+xml;base64,AAAA", 3, None, ""])
def test_only_a_png_is_embedded(text):
    assert not is_thumbnail(text)
    assert is_thumbnail("data:image/png;base64,AAAA")

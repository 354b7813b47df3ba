"""Names of files: templates, and the layouts of public sets."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anygrpo.errors import DataError
from anygrpo.gates.restoration.listing import LAYOUTS, Form, _regex, entries, forms_of, found

SETS: dict[str, tuple[list[str], set[tuple[str, str, int, str]]]] = {
    # files -> (name, scene, degraded versions, part)
    "bsd": (["images/train/8.jpg", "images/test/9.jpg"], {("8", "8", 0, "train"), ("9", "9", 0, "test")}),
    "wed": (["00001.bmp", "notes.txt"], {("00001", "00001", 0, "split")}),
    "rain100l": (["norain-1.png", "rainy/rain-1.png"], {("1", "1", 1, "split")}),
    "rain100l ": (
        ["rain_data_train_Light/norain/norain-7.png", "rain_data_train_Light/rain/norain-7x2.png"],
        {("7", "7", 1, "train")},
    ),
    "rain100l  ": (["norain-001.png", "rain-001.png"], {("001", "001", 1, "split")}),
    "sots": (
        ["outdoor/gt/0001.png", "outdoor/hazy/0001_0.8_0.2.jpg", "outdoor/hazy/0001_0.9_0.1.jpg"],
        {("0001", "0001", 2, "test")},
    ),
    "gopro": (
        [f"{part}/GOPR{n}/{kind}/0001.png" for part, n in (("train", 1), ("test", 2)) for kind in ("sharp", "blur")],
        {("GOPR1/0001", "GOPR1", 1, "train"), ("GOPR2/0001", "GOPR2", 1, "test")},
    ),
    "gopro ": (
        [f"{kind}/GOPR1_11-00000{i}.png" for kind in ("input", "target") for i in (1, 2)],
        {("GOPR1_11-000001", "GOPR1_11", 1, "split"), ("GOPR1_11-000002", "GOPR1_11", 1, "split")},
    ),
    "rain100l   ": (["norain/norain-001.png", "rainy/rain-001.png"], {("001", "001", 1, "split")}),
    "sots ": (["clear/1400.png", "hazy/1400_1.png", "hazy/1400_2.png"], {("1400", "1400", 2, "split")}),
    "gopro  ": (
        [f"{part}/{kind}/GOPR1_11-1.png" for part in ("train", "test") for kind in ("input", "target")],
        {("GOPR1_11-1", "GOPR1_11", 1, "train"), ("GOPR1_11-1", "GOPR1_11", 1, "test")},
    ),
    "bsd ": (["original_png/0001.png", "noisy25/0001.png"], {("0001", "0001", 0, "split")}),
    "rain100l    ": (["norain/norain-001.png", "rain-001.png"], {("001", "001", 1, "split")}),
    "rain100l     ": (["norain/norain-1.png", "rainy/norain-1x2.png"], {("1", "1", 1, "split")}),
    "rain100l      ": (["norain/norain-1.png", "rain/X2/norain-1x2.png"], {("1", "1", 1, "split")}),
    "sots  ": (
        ["original/0001.jpg", "synthetic/part1/0001_0.8_0.2.jpg", "synthetic/part2/0001_1_0.2.jpg"],
        {("0001", "0001", 2, "split")},
    ),
    "sots   ": (["clear/0001.jpg", "haze/0001_0.8_0.2.jpg"], {("0001", "0001", 1, "split")}),
    "lol ": (
        [f"{p}/{k}0{n}.png" for p, n in (("Train", 1), ("Test", 690)) for k in ("Normal/normal", "Low/low")],
        {("01", "01", 1, "train"), ("0690", "0690", 1, "test")},
    ),
    "lol": (
        ["our485/high/2.png", "our485/low/2.png", "eval15/high/1.png", "eval15/low/1.png"],
        {("2", "2", 1, "train"), ("1", "1", 1, "test")},
    ),
    "div2k": (
        ["DIV2K_train_HR/0001.png", "DIV2K_valid_HR/0801.png"],
        {("0001", "0001", 0, "train"), ("0801", "0801", 0, "test")},
    ),
}


def laid(root: Path, files: list[str]) -> Path:
    for file in files:
        (root / file).parent.mkdir(parents=True, exist_ok=True)
        (root / file).touch()
    return root


@pytest.mark.parametrize("layout", SETS)
def test_a_layout_is_found_with_pairs_scenes_and_sides(layout: str, tmp_path: Path) -> None:
    files, expected = SETS[layout]
    laid(tmp_path, files)
    listed = [e for form in forms_of(layout.strip(), tmp_path) for e in entries(tmp_path, form)]
    assert {(e.name, e.scene, len(e.degraded), e.part) for e in listed} == expected


def test_div2k_with_a_scale_is_pairs(tmp_path: Path) -> None:
    laid(tmp_path, ["DIV2K_train_HR/0001.png", "DIV2K_train_LR_bicubic/X2/0001x2.png"])
    (form,) = forms_of("div2k", tmp_path, scale=2)
    assert [e.degraded[0].name for e in entries(tmp_path, form)] == ["0001x2.png"]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_folder_of_something_else_is_refused_with_what_was_looked_for(layout: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=f"does not look like {layout}"):
        forms_of(layout, tmp_path)


def test_a_layout_in_a_folder_of_its_archive_is_found_and_two_are_told_apart(tmp_path: Path) -> None:
    laid(tmp_path, ["BSR/BSDS500/data/images/train/8.jpg", "BSR/BSDS500/data/images/test/9.jpg", "BSR/bench/a.png"])
    listed = [e for form in forms_of("bsd", tmp_path) for e in entries(tmp_path, form)]
    assert {(e.name, e.part) for e in listed} == {("8", "train"), ("9", "test")}
    laid(tmp_path, ["copy/images/train/8.jpg"])
    with pytest.raises(DataError, match="in 2 folders: BSR/BSDS500/data, copy"):
        forms_of("bsd", tmp_path)
    laid(tmp_path, ["images/train/8.jpg"])
    assert [f.clean for f in forms_of("bsd", tmp_path)] == ["images/train/{id}.*"]  # the root itself goes first


def test_lonely_and_twofold_names_are_errors(tmp_path: Path) -> None:
    laid(tmp_path, ["a/1.png", "a/2.png", "b/1.png"])
    with pytest.raises(DataError, match="no partner: 2"):
        entries(tmp_path, Form("a/{id}.*", "b/{id}.*"))
    laid(tmp_path, ["a/1.jpg"])
    with pytest.raises(DataError, match="two pictures of one name"):
        entries(tmp_path, Form("a/{id}.*"))


def test_templates_by_hand() -> None:
    match = lambda template, path: (m := _regex(template).fullmatch(path)) and m.groupdict()  # noqa: E731
    assert match("hazy/{id}_*.*", "hazy/12_0.8_0.2.jpg") == {"id": "12"}
    assert match("{scene}/blur/{id}.*", "a.b/blur/x.y.png") == {"scene": "a.b", "id": "x.y"}
    assert match("{id}/{id}.png", "3/3.png") == {"id": "3"}
    assert match("{id}/{id}.png", "3/4.png") is None
    assert match("{id}.png", "a/b.png") is None
    assert match("x(1)/{id}.png", "x(1)/b.png") == {"id": "b"}


@given(st.lists(st.from_regex(r"[a-z0-9]{1,6}", fullmatch=True), min_size=1, max_size=5, unique=True))
def test_ids_come_back_from_names_made_of_them(ids: list[str]) -> None:
    pattern = _regex("rain/{id}x2.*")
    assert [pattern.fullmatch(f"rain/{i}x2.png")["id"] for i in ids] == ids


def test_an_absolute_template_leaves_the_root_out(tmp_path: Path) -> None:
    laid(tmp_path, ["a/1.png", "a/.2.png", "a/3.txt"])
    assert list(found(Path("/nowhere"), f"{tmp_path}/a/{{id}}.*")) == [("1", "")]


@pytest.mark.parametrize(
    ("clean", "degraded", "said"),
    [
        (["norain-1", "norain-2", "norain-10"], ["rain-1", "rain-2", "rain-10"],
         'write clean = "gt/norain-{id}.*", degraded = "in/rain-{id}.*"'),
        (["0001", "0002", "0013"], ["0001x2", "0002x2", "0013x2"],
         'write clean = "gt/{id}.*", degraded = "in/{id}x2.*"'),
        (["a", "b", "c"], ["x1", "x2", "x3"], "name both by templates"),
    ],
)  # fmt: skip
def test_names_that_pair_but_for_what_they_share_are_answered_with_their_templates(clean, degraded, said, tmp_path):
    for folder, names in (("gt", clean), ("in", degraded)):
        (tmp_path / folder).mkdir()
        for name in names:
            (tmp_path / folder / f"{name}.png").touch()
    with pytest.raises(DataError) as caught:
        entries(tmp_path, Form("gt/{id}.*", "in/{id}.*"))
    assert said in str(caught.value.cure)

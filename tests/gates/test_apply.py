"""Restoring files: tiles, kinds of files, resuming, draws."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import tifffile
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageCms
from torch import Tensor, nn
from torch.distributions import Beta, OneHotCategorical

from anygrpo.errors import ConfigError, DataError
from anygrpo.gates.apply import RECORD, apply
from anygrpo.gates.build import StochasticPolicy, gate
from anygrpo.gates.restoration.reading import Pixels, load
from anygrpo.gates.restoration.writing import like, save
from anygrpo.gates.tiles import decide, places, ramp, restore, starts


class Small(nn.Module):
    """Reaches 2 pixels far; one gate of the whole picture, and with `maps` one of every 8 x 8 patch."""

    def __init__(self, scale: int = 1, maps: bool = False) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.scale, self.maps = scale, maps
        self.body = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 3, 3, padding=1))

    def forward(self, x: Tensor) -> Tensor:
        m = x.mean((1, 2, 3)).clamp(0.1, 0.9)
        y = x + gate("g", Beta(1 + 9 * m, 1 + 9 * (1 - m)))[:, None, None, None] * self.body(x)
        if self.maps:
            p = nn.functional.avg_pool2d(x.mean(1), 8)
            pick = gate("map", OneHotCategorical(logits=torch.stack([p, 1 - p], -1)), per="element")
            y = y + 0.01 * pick[..., 0].repeat_interleave(8, 1).repeat_interleave(8, 2)[:, None]
        return y.repeat_interleave(self.scale, 2).repeat_interleave(self.scale, 3)


def policy(**given: object) -> StochasticPolicy:
    return StochasticPolicy(Small(**given))  # type: ignore[arg-type]


def picture(h: int = 40, w: int = 56) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (h, w, 3)).astype(np.uint8)


# --- tiles -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [(40, 100), (97, 33), (64, 64), (20, 200)])
@pytest.mark.parametrize("scale", [1, 2])
def test_tiles_give_what_the_whole_picture_gives(size: tuple[int, int], scale: int) -> None:
    p, x = policy(scale=scale), torch.rand(1, 3, *size)
    decided = decide(p, x, drawn=False)
    whole = restore(p, x, decided, tile=1000)
    torch.testing.assert_close(restore(p, x, decided, tile=32, overlap=12), whole, atol=1e-5, rtol=0)
    assert torch.equal(whole, p.decode(p.greedy([{"degraded": x[0]}]).samples)[0][0][None])


def test_a_gate_of_the_picture_is_one_for_all_tiles_and_a_map_is_each_tiles_own() -> None:
    p = policy(maps=True)
    x = torch.cat([torch.full((1, 3, 32, 64), 0.1), torch.full((1, 3, 32, 64), 0.9)], 3)
    seen: list[float] = []
    decided = decide(p, x, drawn=False)
    run, p.run = p.run, lambda rows, choose: _noted(run(rows, choose), seen)  # type: ignore[method-assign]
    assert restore(p, x, decided, tile=32, overlap=8).shape == x.shape
    assert len(seen) > 4
    assert len(set(seen)) == 1


def _noted(made, seen: list[float]):
    seen.append(float(made[1].sites["g"].value))
    return made


def test_beyond_the_whole_gates_are_the_mean_over_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    from anygrpo.gates import tiles

    monkeypatch.setattr(tiles, "WHOLE", 0)
    x = torch.cat([torch.full((1, 3, 32, 32), 0.2), torch.full((1, 3, 32, 32), 0.6)], 3)
    value = tiles.decide(policy(), x, drawn=False, tile=32).values["g"]
    means = [(1 + 9 * m) / 11 for m in (0.2, 0.6)]
    assert float(value) == pytest.approx(sum(means) / 2, abs=1e-6)


@settings(deadline=None)
@given(st.integers(1, 300), st.integers(8, 64), st.integers(0, 7))
def test_tiles_cover_everything_and_weigh_every_pixel(length: int, tile: int, overlap: int) -> None:
    at = starts(length, tile, overlap)
    total = torch.zeros(length)
    for start in at:
        size = min(tile, length)
        assert 0 <= start <= length - size
        total[start : start + size] += ramp(start, size, length, overlap)
    assert total.min() > 0
    assert len(list(places(length, length, tile, overlap))) == len(at) ** 2


# --- files -----------------------------------------------------------------------------------------------------------

EXIF = Image.Exif()
EXIF[0x010E] = "a cat"
PROFILE = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
RGBA = np.dstack([picture(), np.tile(np.arange(56, dtype=np.uint8), (40, 1))])
KINDS = {
    "rgb.png": lambda p: Image.fromarray(picture()).save(p, exif=EXIF, icc_profile=PROFILE),
    "grey.png": lambda p: Image.fromarray(picture()[..., 0]).save(p),
    "grey_alpha.png": lambda p: Image.fromarray(np.ascontiguousarray(RGBA[..., 2:]), "LA").save(p),
    "alpha.png": lambda p: Image.fromarray(RGBA).save(p),
    "photo.jpg": lambda p: Image.fromarray(picture()).save(p, exif=EXIF, icc_profile=PROFILE),
    "sixteen.png": lambda p: save(Pixels(picture().astype(np.uint16) * 250, None, 16, {}), p),
    "sixteen.tif": lambda p: tifffile.imwrite(p, picture().astype(np.uint16) * 250, photometric="rgb"),
    "float.tif": lambda p: tifffile.imwrite(p, picture().astype(np.float32) / 255, photometric="rgb"),
    "layers.tif": lambda p: tifffile.imwrite(p, RGBA, photometric="rgb", extrasamples=["unassalpha"]),
}


@pytest.mark.parametrize("name", KINDS)
def test_a_result_is_of_its_pictures_kind(name: str, tmp_path: Path) -> None:
    file = tmp_path / name
    KINDS[name](file)
    p = policy()
    (row,) = apply(p, [file], tmp_path / "out", seed=0)
    assert row["status"] == "made"
    before, after = load(file), load(Path(row["output"]))
    assert Path(row["output"]).suffix == (".tif" if name.endswith("tif") else ".png")
    assert (after.bits, after.values.shape, after.values.dtype) == (
        before.bits,
        before.values.shape,
        before.values.dtype,
    )
    assert after.values.shape[2] == (1 if name.startswith("grey") else 3)
    assert np.array_equal(after.alpha, before.alpha) if before.alpha is not None else after.alpha is None
    assert after.info.get("icc_profile") == before.info.get("icc_profile")
    if "exif" in before.info:
        with Image.open(row["output"]) as image:
            assert image.getexif()[0x010E] == "a cat"
    expected = p.decode(p.greedy([{"degraded": before.tensor()}]).samples)[0][0]
    error = (like(expected, before).values.astype(float) - after.values.astype(float)).__abs__().max()
    assert error <= (1e-6 if before.bits == 32 else 1)
    if before.bits == 16:
        assert len(np.unique(after.values)) > 300  # not 8 bits in 16


def test_a_picture_that_lies_on_its_side_is_upright_afterwards(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.fromarray(picture(20, 30)).save(tmp_path / "x.png", exif=exif)
    (row,) = apply(policy(), [tmp_path / "x.png"], tmp_path / "out")
    with Image.open(row["output"]) as image:
        assert (image.size, image.getexif().get(0x0112, 1)) == ((20, 30), 1)


def test_super_resolution_enlarges_the_transparency_too(tmp_path: Path) -> None:
    Image.fromarray(RGBA).save(tmp_path / "x.png")
    (row,) = apply(policy(scale=2), [tmp_path / "x.png"], tmp_path / "out", tile=32, overlap=8)
    with Image.open(row["output"]) as image:
        assert (image.size, image.mode) == ((112, 80), "RGBA")


# --- folders ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "in" / "deep").mkdir(parents=True)
    Image.fromarray(picture()).save(tmp_path / "in" / "a.png")
    Image.fromarray(picture()).save(tmp_path / "in" / "a.jpg")
    Image.fromarray(picture()).save(tmp_path / "in" / "deep" / "b.bmp")
    (tmp_path / "in" / "broken.png").write_text("no picture")
    (tmp_path / "in" / "notes.txt").write_text("no picture either")
    return tmp_path / "in"


def test_a_folder_is_restored_with_its_folders_and_a_bad_file_is_a_row(folder: Path, tmp_path: Path) -> None:
    seen: list[tuple[int, int, str]] = []
    rows = apply(
        policy(), [folder], tmp_path / "out", progress=lambda done, of, row: seen.append((done, of, row["status"]))
    )
    assert [Path(r["output"]).relative_to(tmp_path / "out").as_posix() for r in rows if r["status"] == "made"] == [
        "a.jpg.png",
        "a.png.png",
        "deep/b.png",
    ]
    (bad,) = [r for r in rows if r["status"] == "failed"]
    assert "broken.png" in bad["input"]
    assert "cannot be read" in bad["reason"]
    assert [s[:2] for s in seen] == [(1, 4), (2, 4), (3, 4), (4, 4)]
    assert not list((tmp_path / "out").rglob("*.part"))


def test_what_is_there_stays_and_what_changed_is_made_again(folder: Path, tmp_path: Path) -> None:
    out, p = tmp_path / "out", policy()
    status = lambda p=p, **given: [r["status"] for r in apply(p, [folder], out, **given)]  # noqa: E731
    assert status().count("made") == 3
    assert status().count("there") == 3
    (out / "a.png.png").unlink()
    Image.fromarray(picture()[::-1]).save(folder / "deep" / "b.bmp")
    assert sorted(status()) == ["failed", "made", "made", "there"]
    with (out / RECORD).open("a") as file:
        file.write('{"input": "cut o')
    assert status().count("there") == 3
    with torch.no_grad():
        p.network.body[0].bias.add_(0.1)
    assert status().count("made") == 3
    assert all(json.loads(line)["status"] for line in (out / RECORD).read_text().splitlines() if line.endswith("}"))


def test_results_inside_of_the_folder_are_not_restored_again(folder: Path) -> None:
    assert len(apply(policy(), [folder], folder / "out")) == 4
    assert len(apply(policy(), [folder], folder / "out")) == 4


def test_draws_follow_the_seed_and_the_name_and_not_the_order(folder: Path, tmp_path: Path) -> None:
    p = policy()
    both = apply(p, [folder / "a.png", folder / "deep"], tmp_path / "x", seed=1, draws=2)
    alone = apply(p, [folder / "deep"], tmp_path / "y", seed=1, draws=2)
    other = apply(p, [folder / "deep"], tmp_path / "z", seed=2, draws=2)
    gates = lambda rows: [r["gates"]["g"] for r in rows]  # noqa: E731
    assert gates(both)[2:] == gates(alone)
    assert len(set(gates(both) + gates(other))) == 6
    assert [Path(r["output"]).name for r in alone] == ["b_0.png", "b_1.png"]


def test_what_cannot_be_meant_is_refused(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="does not exist"):
        apply(policy(), [folder / "nowhere"], tmp_path / "out")
    with pytest.raises(DataError, match="no pictures"):
        apply(policy(), [_empty(tmp_path)], tmp_path / "out")
    with pytest.raises(ConfigError, match="overlap = 64"):
        apply(policy(), [folder], tmp_path / "out", tile=64, overlap=64)
    with pytest.raises(ConfigError, match="one input"):
        apply(StochasticPolicy(Small(), inputs=("degraded", "mask")), [folder], tmp_path / "out")


def _empty(tmp_path: Path) -> Path:
    (tmp_path / "empty").mkdir()
    return tmp_path / "empty"

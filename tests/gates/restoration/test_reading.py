"""Picture files: read right, or refused by name."""

from __future__ import annotations

import logging
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
import tifffile
import torch
from PIL import Image

from anygrpo.errors import DataError
from anygrpo.gates.restoration.reading import load, read, reduced, size_of


def png16(x: np.ndarray, kind: int) -> bytes:
    """A 16-bit PNG by its definition (Pillow writes none in colour): signature, header, unfiltered rows, end."""
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in x)
    head = struct.pack(">IIBBBBB", x.shape[1], x.shape[0], 16, kind, 0, 0, 0)
    chunk = lambda name, data: struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))  # noqa: E731
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


NUMBERS = np.random.default_rng(0).integers(0, 65536, (9, 7, 4)).astype(np.uint16)
RAMP = np.tile(np.linspace(0, 255, 24).round().astype(np.uint8), (16, 1))


@pytest.mark.parametrize(("kind", "channels"), [(0, 1), (2, 3)])
def test_every_bit_of_a_16_bit_png_is_kept(kind: int, channels: int, tmp_path: Path) -> None:
    file = tmp_path / "x.png"
    file.write_bytes(png16(NUMBERS[..., :channels], kind))
    x = read(file)
    assert x.shape == (3, 9, 7)
    expected = torch.from_numpy(NUMBERS[..., :channels].astype(np.float32) / 65535).permute(2, 0, 1).expand(3, -1, -1)
    assert torch.equal(x, expected)
    assert size_of(file) == (9, 7)


def test_16_and_8_bits_of_one_ramp_are_one_picture(tmp_path: Path) -> None:
    Image.fromarray(RAMP).save(tmp_path / "8.png")
    Image.fromarray(RAMP.astype(np.uint16) * 257).save(tmp_path / "16.png")
    tifffile.imwrite(tmp_path / "16.tif", RAMP.astype(np.uint16) * 257)
    tifffile.imwrite(tmp_path / "32.tif", RAMP.astype(np.float32) / 255)
    tifffile.imwrite(tmp_path / "white.tif", 255 - RAMP, photometric="miniswhite")
    tifffile.imwrite(tmp_path / "planes.tif", np.stack([RAMP] * 3), photometric="rgb", planarconfig="separate")
    for other in ("16.png", "16.tif", "32.tif", "white.tif", "planes.tif"):
        torch.testing.assert_close(read(tmp_path / other), read(tmp_path / "8.png"), atol=1e-6, rtol=0)


def test_a_palette_and_one_bit_are_colours(tmp_path: Path) -> None:
    colours = np.zeros((16, 16, 3), np.uint8)
    colours[:, :8] = (255, 0, 0)
    Image.fromarray(colours).quantize(4).save(tmp_path / "p.png")
    assert read(tmp_path / "p.png")[:, 0, 0].tolist() == [1.0, 0.0, 0.0]
    Image.fromarray(RAMP > 127).save(tmp_path / "1.png")
    assert read(tmp_path / "1.png").unique().tolist() == [0.0, 1.0]


@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_turns_a_picture_upright(orientation: int, tmp_path: Path) -> None:
    """Against Pillow's own turning, for both decoders."""
    from PIL import ImageOps

    x = NUMBERS[..., :3] // 257
    exif = Image.Exif()
    exif[0x0112] = orientation
    file = tmp_path / "x.png"
    Image.fromarray(x.astype(np.uint8)).save(file, exif=exif)
    with Image.open(file) as image:
        expected = np.asarray(ImageOps.exif_transpose(image))
    assert np.array_equal(load(file).values, expected)
    assert size_of(file) == expected.shape[:2]
    tifffile.imwrite(tmp_path / "x.tif", x.astype(np.uint8), extratags=[(274, "H", 1, orientation, True)])
    assert np.array_equal(load(tmp_path / "x.tif").values, expected)
    assert size_of(tmp_path / "x.tif") == expected.shape[:2]


def test_an_opaque_alpha_goes_and_a_transparent_one_is_refused(tmp_path: Path) -> None:
    x = np.full((16, 16, 4), 255, np.uint8)
    Image.fromarray(x).save(tmp_path / "opaque.png")
    assert read(tmp_path / "opaque.png").min() == 1
    x[0, 0, 3] = 254
    Image.fromarray(x).save(tmp_path / "clear.png")
    with pytest.raises(DataError, match=r"clear\.png is transparent"):
        read(tmp_path / "clear.png")
    assert load(tmp_path / "clear.png").alpha[0, 0] == 254


def test_the_bytes_say_what_a_file_is_and_its_name_does_not(tmp_path: Path) -> None:
    x = NUMBERS[..., :3]
    tifffile.imwrite(tmp_path / "x.png", x, photometric="rgb")
    assert np.array_equal(load(tmp_path / "x.png").values, x)
    assert size_of(tmp_path / "x.png") == (9, 7)
    (tmp_path / "x.tif").write_bytes(png16(x, 2))
    assert np.array_equal(load(tmp_path / "x.tif").values, x)


@pytest.mark.parametrize(("kind", "channels"), [(b"P5", 1), (b"P6", 3)])
@pytest.mark.parametrize("top", [65535, 1023])
def test_netpbm_of_more_than_8_bits_keeps_them(kind: bytes, channels: int, top: int, tmp_path: Path) -> None:
    x = NUMBERS[..., :channels].astype(np.int64) * top // 65535
    file = tmp_path / "x.ppm"
    file.write_bytes(kind + b"\n# made by hand\n7 9\n%d\n" % top + x.astype(">u2").tobytes())
    assert np.array_equal(load(file).values, np.rint(x * (65535 / top)).astype(np.uint16))
    file.write_bytes(file.read_bytes()[:-2])
    with pytest.raises(DataError, match="cannot be read"):
        load(file)


@pytest.mark.parametrize("after", [1, 2, 3])
@pytest.mark.parametrize(("kind", "channels"), [(b"P2", 1), (b"P3", 3), (b"P5", 1), (b"P6", 3)])
def test_netpbm_as_text_and_with_comments_anywhere_in_the_head(
    kind: bytes, channels: int, after: int, tmp_path: Path
) -> None:
    x = NUMBERS[..., :channels]
    words = [kind, b"7", b"9", b"65535"]
    words[after] = b"# made 12 by\n#" + b" hand" * 60 + b"\n" + words[after]
    text = b" ".join(b"%d" % n for n in x.reshape(-1).tolist()).replace(b" ", b" # 3 of many\n", 1)
    file = tmp_path / "x.ppm"
    file.write_bytes(b"\n".join(words) + b"\n" + (text if kind in (b"P2", b"P3") else x.astype(">u2").tobytes()))
    assert (load(file).bits, size_of(file)) == (16, (9, 7))
    assert np.array_equal(load(file).values, x)


@pytest.mark.parametrize(("numbers", "why"), [
    ("0 300 1001 5", "outside of 0 to its maximum 1000"),
    ("0 300 -1 5", "outside of 0 to its maximum 1000"),
    ("0 300 5", "cannot be read"),
    ("0 300 x 5", "cannot be read"),
])  # fmt: skip
def test_a_netpbm_text_with_a_fault_is_refused(numbers: str, why: str, tmp_path: Path) -> None:
    (tmp_path / "x.pgm").write_text(f"P2 2 2 1000\n{numbers}\n")
    with pytest.raises(DataError, match=why):
        load(tmp_path / "x.pgm")


@pytest.mark.parametrize("packing", ["tiff_lzw", "packbits", "jpeg"])
def test_a_packed_tiff_of_8_bits_is_read_without_a_further_package(packing: str, tmp_path: Path) -> None:
    x = np.stack([RAMP, RAMP[:, ::-1], RAMP], -1)
    Image.fromarray(x).save(tmp_path / "x.tif", compression=packing, **({"quality": 98} if packing == "jpeg" else {}))
    assert np.abs(load(tmp_path / "x.tif").values.astype(int) - x).max() <= (12 if packing == "jpeg" else 0)
    Image.fromarray(RAMP.astype(np.uint16) * 257).save(tmp_path / "16.tif", compression="tiff_lzw")
    assert np.array_equal(load(tmp_path / "16.tif").values[..., 0], RAMP.astype(np.uint16) * 257)
    Image.fromarray(x).quantize(8).save(tmp_path / "p.tif")
    assert load(tmp_path / "p.tif").values.shape == (16, 24, 3)


def test_twelve_bits_in_sixteen_are_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("anygrpo.gates.restoration.reading._DARK", set())
    monkeypatch.setattr(logging.getLogger("anygrpo"), "propagate", True)
    for name in ("a.tif", "b.tif"):
        tifffile.imwrite(tmp_path / name, RAMP.astype(np.uint16) * 16)
        load(tmp_path / name)
    tifffile.imwrite(tmp_path / "c.tif", RAMP.astype(np.uint16) * 257)
    load(tmp_path / "c.tif")
    (line,) = [r.getMessage() for r in caplog.records]
    assert "no number above 4080" in line or "大于 4080" in line


def _animated(path: Path) -> None:
    frames = [Image.fromarray(RAMP), Image.fromarray(RAMP[:, ::-1])]
    frames[0].save(path, save_all=True, append_images=frames[1:])


REFUSED = {
    "pages.tif": (lambda p: tifffile.imwrite(p, np.stack([RAMP, RAMP]), photometric="minisblack"), "2 pictures"),
    "moving.webp": (_animated, "2 pictures"),
    "cmyk.jpg": (lambda p: Image.fromarray(RAMP).convert("CMYK").save(p), "CMYK"),
    "float.tif": (lambda p: tifffile.imwrite(p, RAMP.astype(np.float32)), r"0 to 255, not in \[0, 1\]"),
    "nan.tif": (lambda p: tifffile.imwrite(p, np.full((16, 16), np.nan, np.float32)), "nan"),
    "int32.tif": (lambda p: tifffile.imwrite(p, RAMP.astype(np.int32)), "int32"),
    "five.tif": (
        lambda p: tifffile.imwrite(p, np.zeros((16, 16, 5), np.uint8), photometric="minisblack"),
        "channels|pict",
    ),
    "greyalpha.png": (lambda p: p.write_bytes(png16(NUMBERS[..., :2], 4)), "16 bits"),
    "ycc.tif": (lambda p: Image.fromarray(np.stack([RAMP] * 3, -1)).convert("YCbCr").save(p), "YCbCr"),
    "text.png": (lambda p: p.write_text("no picture"), "cannot be read"),
    "cut.png": (lambda p: p.write_bytes(png16(NUMBERS, 6)[:60]), "cannot be read"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_read_right_is_refused_by_name(name: str, tmp_path: Path) -> None:
    make, why = REFUSED[name]
    make(tmp_path / name)
    with pytest.raises(DataError, match=why) as told:
        read(tmp_path / name)
    assert name in str(told.value)


def test_reducing_keeps_the_shape_and_never_enlarges(tmp_path: Path) -> None:
    assert reduced(100, 50, 0) == (100, 50)
    assert reduced(100, 50, 200) == (100, 50)
    assert reduced(1000, 500, 100) == (100, 50)
    assert reduced(1000, 50, 100) == (100, 16)
    Image.fromarray(RAMP).save(tmp_path / "x.png")
    assert read(tmp_path / "x.png", 18).shape == (3, 16, 18)

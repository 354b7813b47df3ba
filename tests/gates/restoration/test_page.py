"""The table of gains by degradation: paired, intervals over pictures, nothing where there are no pictures."""

from __future__ import annotations

import re

from anygrpo.gates.restoration.page import gains


def row(degradation: str, picture: str, psnr: float, ssim: float, valid: bool = True) -> dict:
    parts = {"psnr": psnr, "ssim": ssim}
    return {"text": {"degradation": degradation, "picture": picture}, "components": parts, "valid": valid}


def cells(table: str) -> list[list[str]]:
    return [re.findall(r"<t[dh]>(.*?)</t[dh]>", line) for line in re.findall(r"<tr>(.*?)</tr>", table)]


def table(before: list[dict], after: list[dict], language: str = "en") -> str:
    made = gains(before, after, language)
    assert made is not None
    return made[1]


def test_gains_by_hand() -> None:
    before = [row(d, p, 20.0, 0.5) for d in ("noise", "haze") for p in ("cat", "moon")]
    after = [row("noise", "cat", 21.0, 0.6), row("noise", "moon", 23.0, 0.6), *before[2:]]
    got = cells(table(before, after))
    assert got[0][:5] == ["degradation", "pictures", "PSNR before", "PSNR after", "PSNR gain"]
    assert got[1] == [
        "noise",
        "2",
        "20.00",
        "22.00",
        "+2.00 [-10.71, +14.71]",
        "0.500",
        "0.600",
        "+0.100 [+0.016, +0.184]",
    ]
    assert got[2][4] == "+0.00"
    assert got[3][:5] == ["all", "4", "20.00", "21.00", "+1.00 [-5.35, +7.35]"]


def test_invalid_rows_are_left_out_and_one_picture_has_no_interval() -> None:
    before = [row("noise", "cat", 20.0, 0.5), row("noise", "moon", 20.0, 0.5)]
    after = [row("noise", "cat", 21.0, 0.5), row("noise", "moon", 99.0, 0.5, valid=False)]
    assert cells(table(before, after))[1][:5] == ["noise", "1", "20.00", "21.00", "+1.00"]


def test_texts_get_no_table() -> None:
    text = {"text": "6 x 7?", "components": {}, "valid": True}
    other = {"text": {"degradation": "noise", "picture": "cat"}, "components": {"length": 1.0}, "valid": True}
    assert gains([text, other], [text, other], "en") is None

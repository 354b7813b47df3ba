"""Pairs that are not of one thing at one place are found, and the field's degradations are not taken for that."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from PIL import Image

from anygrpo.errors import DataError
from anygrpo.gates.restoration.alignment import agreement, complaint
from anygrpo.gates.restoration.build import build
from anygrpo.gates.restoration.degradations import degrade
from anygrpo.gates.restoration.settings import STRENGTHS, FolderConfig, RestorationConfig


def photograph(seed: int = 0, side: int = 96) -> torch.Tensor:
    g = torch.Generator().manual_seed(seed)
    coarse = torch.nn.functional.interpolate(torch.rand(1, 3, 9, 9, generator=g), side, mode="bicubic")[0]
    fine = torch.nn.functional.interpolate(torch.rand(1, 3, 40, 40, generator=g), side, mode="bicubic")[0]
    return (0.7 * coarse + 0.3 * fine).clamp(0, 1)


@pytest.mark.parametrize("shift", [(1, 0), (0, -2), (5, 7), (-16, 16)])
def test_a_shift_is_found_and_named(shift: tuple[int, int]) -> None:
    x = photograph()
    moved = torch.roll(x, shift, (1, 2))
    here, best, found = agreement(x, moved)
    assert found == shift
    assert best > here + 0.1
    said = complaint(x, moved)
    assert said is not None
    assert f"{shift[0]:+d} down, {shift[1]:+d} right" in said


@pytest.mark.parametrize("name", STRENGTHS)
@pytest.mark.parametrize("end", ["low", "high"])
def test_degradations_are_no_shift(name: str, end: str) -> None:
    for seed in range(8):
        x = photograph(seed)
        assert complaint(x, degrade(x, name, getattr(STRENGTHS[name], end), seed)) is None


def test_two_different_pictures_are_no_pair_and_flat_ones_are_not_judged() -> None:
    assert "two different things" in (complaint(photograph(0), photograph(1)) or "")
    flat = torch.full((3, 96, 96), 0.5)
    assert complaint(flat, degrade(flat, "noise", 25.0, 0)) is None
    assert agreement(flat, flat) == (0.0, 0.0, (0, 0))


def test_exchanged_colours_and_an_empty_picture_are_no_pair_and_slivers_are_not_judged() -> None:
    x = photograph()
    assert "red and blue exchanged" in (complaint(x, degrade(x.flip(0), "noise", 10.0, 0)) or "")
    grey = x.mean(0, keepdim=True).expand(3, -1, -1)
    assert complaint(grey, degrade(grey, "noise", 10.0, 0)) is None
    assert "of one colour" in (complaint(x, torch.zeros_like(x)) or "")
    assert complaint(x[..., :1], x[..., :1] / 2) is None


def test_pairs_that_are_all_equal_are_one_folder_named_twice(tmp_path: Path) -> None:
    for i in range(3):
        Image.fromarray((photograph(i) * 255).byte().permute(1, 2, 0).numpy()).save(tmp_path / f"{i}.png")
    config = RestorationConfig(folder=FolderConfig(root=str(tmp_path), clean=".", degraded="."))
    with pytest.raises(DataError, match="both pictures are equal in all 3 pairs"):
        build(config, 0)


@pytest.mark.parametrize("trust", [False, True])
def test_one_shifted_pair_of_many_stops_the_task_unless_it_is_trusted(trust: bool, tmp_path: Path) -> None:
    for side in ("clean", "noisy"):
        (tmp_path / side).mkdir()
        for i in range(6):
            x = photograph(i) if side == "clean" else degrade(photograph(i), "noise", 20.0, i)
            x = torch.roll(x, 3, 2) if (side, i) == ("noisy", 4) else x
            Image.fromarray((x * 255).byte().permute(1, 2, 0).numpy()).save(tmp_path / side / f"{i}.png")
    folder = FolderConfig(root=str(tmp_path), clean="clean", degraded="noisy", aligned="trust" if trust else "check")
    section = RestorationConfig(folder=folder)
    if trust:
        assert len(build(section, 0).train) == 4
    else:
        with pytest.raises(DataError, match=r"pair '4'.*\+3 right"):
            build(section, 0)

"""Photographs split by scene, cut, and a test set that opens once."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest
from PIL import Image

FILE = Path(__file__).parents[2] / "scripts" / "photographs.py"
spec = importlib.util.spec_from_file_location("photographs_script", FILE)
assert spec is not None
assert spec.loader is not None
script = importlib.util.module_from_spec(spec)
spec.loader.exec_module(script)


@pytest.fixture
def unpacked(tmp_path: Path) -> Path:
    """What dpkg would have left: one photograph each of three packages, in two sizes where they come so."""
    root = tmp_path / "packages"
    for place, size in (
        ("mate-backgrounds/usr/share/backgrounds/mate/nature/Dune.jpg", (1680, 1050)),
        ("plasma-workspace-wallpapers/usr/share/wallpapers/Path/contents/images/2560x1600.jpg", (800, 500)),
        ("plasma-workspace-wallpapers/usr/share/wallpapers/Path/contents/images/320x200.jpg", (320, 200)),
        ("lomiri-wallpapers-20.04/usr/share/backgrounds/Kleiber_by_Lukas_Baubkus.jpg", (300, 700)),
    ):
        (root / place).parent.mkdir(parents=True, exist_ok=True)
        Image.effect_noise(size, 50).convert("RGB").save(root / place)
    return root


def test_scenes_crops_and_the_largest_file_of_each(unpacked: Path) -> None:
    found = script.photographs(unpacked)
    assert sorted(found) == ["Dune", "Kleiber", "Path"]
    assert found["Path"].stem == "2560x1600"
    for file in found.values():
        assert [crop.size for crop in script.cut(file, 4)] == [(256, 256)] * 4


def test_crops_lie_on_the_diagonal_of_a_reduced_photograph(tmp_path: Path) -> None:
    ramp = Image.linear_gradient("L").resize((512, 384)).convert("RGB")  # darker above, brighter below
    ramp.save(tmp_path / "ramp.png")
    (middle,) = script.cut(tmp_path / "ramp.png")
    upper, lower = script.cut(tmp_path / "ramp.png", 2)
    rows = [crop.getpixel((128, 128))[0] for crop in (upper, middle, lower)]
    # 384 x 288 after reduction: crops begin 8, 16 and 24 rows down, so their middles lie at 136, 144 and 152 of 288
    assert rows == pytest.approx([255 * y / 288 for y in (136, 144, 152)], abs=2)


def test_the_list_names_111_scenes_once() -> None:
    names = [script.scene(p, n) for p, (_, names) in script.PACKAGES.items() for n in names.split()]
    assert len(names) == len(set(names)) == 111
    wallpapers = [script.scene(p, n) for p in script.WALLPAPERS for n in script.PACKAGES[p][1].split()]
    sides = script.split(names, wallpapers)
    assert {k: len(v) for k, v in sides.items()} == {"validation": 12, "train": 51, "test": 48}
    assert sorted(name for side in sides.values() for name in side) == sorted(names)
    assert set(sides["validation"]) <= set(wallpapers)
    assert script.split(names[::-1], wallpapers) == sides


def test_a_test_set_opens_once_and_says_what_for(
    unpacked: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(script, "VALIDATION", 1)
    monkeypatch.setattr(script, "TEST", 1)
    to = tmp_path / "photographs"
    sides = script.write(script.photographs(unpacked), to)
    assert len(list((to / "validation").iterdir())) == 1
    assert len(sides["test"]) == 1
    assert len(list((to / "train").iterdir())) == 3
    assert not (to / "test").exists()
    weights = tmp_path / "policy.safetensors"
    weights.write_bytes(b"weights")
    with pytest.raises(SystemExit, match="name the weights"):
        script.open_once(to, [], "abc")
    folder = script.open_once(to, [weights], "abc")
    assert {f.name.rsplit("-", 1)[0] for f in folder.iterdir()} == set(sides["test"])
    told = json.loads((to / "opened.json").read_text())
    assert (told["commit"], len(told["weights"][str(weights)])) == ("abc", 64)
    with pytest.raises(SystemExit, match="opened before"):
        script.open_once(to, [weights], "abc")
    with pytest.raises(SystemExit, match="there already"):
        script.write(script.photographs(unpacked), to)

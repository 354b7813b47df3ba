"""Samples: shares of sets, flips, margins, super-resolution, and files read when they are asked for."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from pydantic import ValidationError

from anygrpo.errors import ConfigError, DataError
from anygrpo.gates.restoration.build import build
from anygrpo.gates.restoration.degradations import enlarged, reduced, turned
from anygrpo.gates.restoration.photographs import Picture, split
from anygrpo.gates.restoration.pool import DRAWS, mixed
from anygrpo.gates.restoration.recent import Recent
from anygrpo.gates.restoration.settings import DegradationConfig, FolderConfig, RestorationConfig
from tests.gates.restoration.test_alignment import photograph

NOISE = [DegradationConfig(name="noise", low=10, high=20)]


def written(folder: Path, count: int, side: int = 64, change=lambda x: x, name: str = "{}.png") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for i in range(count):
        x = change(photograph(i, side))
        Image.fromarray((x * 255).round().byte().permute(1, 2, 0).numpy()).save(folder / name.format(i))
    return folder


# --- sets ------------------------------------------------------------------------------------------------------------


def test_sets_are_drawn_by_their_shares_and_each_in_its_own_epochs(tmp_path: Path) -> None:
    sets = [
        FolderConfig(clean=str(written(tmp_path / "a", 5)), share=3, degradations=NOISE),
        FolderConfig(clean=str(written(tmp_path / "b", 20)), share=1, name="b"),
    ]
    task = build(
        RestorationConfig(
            sets=sets, patch=16, crops=1, degradations=[DegradationConfig(name="haze", low=0.4, high=0.6)]
        ),
        0,
    )
    names = [p["degradation"] for step in range(100) for p in task.prompts(step, 10)]
    assert names.count("noise") == 750
    assert names.count("haze") == 250
    assert names[:100].count("noise") == pytest.approx(75, abs=15)  # mixed, not one after another
    assert [p["picture"] for p in task.prompts(7, 10)] == [p["picture"] for p in task.prompts(7, 10)]


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 9), st.integers(1, 9), st.integers(1, 7))
def test_no_sample_of_a_set_repeats_before_all_were_seen(a: int, b: int, count: int) -> None:
    groups = {0: list(range(10)), 1: list(range(10, 50))}
    steps = -(-DRAWS // count)
    drawn = [i for step in range(steps) for i in mixed(groups, {0: a, 1: b}, step, count, 3)][:DRAWS]
    times = {i: drawn.count(i) for group in groups.values() for i in group}
    assert set(times) >= set(drawn)
    assert sum(times[i] for i in groups[0]) == round(DRAWS * a / (a + b))
    for group in groups.values():
        assert max(times[i] for i in group) - min(times[i] for i in group) <= 2


def test_a_test_set_is_tested_on_and_the_rest_trained_on(tmp_path: Path) -> None:
    sets = [
        FolderConfig(clean=str(written(tmp_path / "a", 5))),
        FolderConfig(clean=str(written(tmp_path / "b", 3, change=lambda x: x * 0.9)), part="test"),  # others than of a
    ]
    task = build(RestorationConfig(sets=sets, patch=16, degradations=NOISE), 0)
    assert (len(task.train), len(task.test), len(task.held_out())) == (5, 3, 3)
    with pytest.raises(ConfigError, match="leaves none to train on"):
        build(RestorationConfig(sets=sets[1:], patch=16), 0)


def test_frames_of_one_clip_stay_together(tmp_path: Path) -> None:
    for n, clip in enumerate("abcd"):
        written(tmp_path / "clips" / clip, 3, change=lambda x, n=n: x * (1 - n / 8))
    section = RestorationConfig(folder=FolderConfig(root=str(tmp_path), clean="clips/{scene}/{id}.png"), patch=16)
    task = build(section, 0)
    sides = [{p.name.split("/")[0] for p in side} for side in (task.train, task.test)]
    assert sides[0].isdisjoint(sides[1])
    assert len(sides[0]) + len(sides[1]) == 4
    assert task.held_out()[0]["scene"].endswith(task.held_out()[0]["picture"].split("/")[0])


def test_one_folder_named_by_two_sets_is_split_in_one_way(tmp_path: Path) -> None:
    clean = str(written(tmp_path / "a", 10))
    sets = [FolderConfig(clean=clean, degradations=NOISE), FolderConfig(clean=clean, name="again")]
    task = build(RestorationConfig(sets=sets, patch=16), 0)
    assert {p.name for p in task.train}.isdisjoint({p.name for p in task.test})


def test_a_clean_picture_may_have_several_degraded_ones(tmp_path: Path) -> None:
    written(tmp_path / "gt", 4)
    for level in (0.2, 0.4):
        written(tmp_path / "hazy", 4, change=lambda x: x * (1 - level) + level, name=f"{{}}_{level}.png")  # noqa: B023
    folder = FolderConfig(root=str(tmp_path), clean="gt/{id}.png", degraded="hazy/{id}_*.png", name="haze")
    task = build(RestorationConfig(folder=folder, patch=16, crops=1, held_out_share=0.5), 0)
    assert (task.size, len(task.held_out())) == (4, 4)
    assert {p["degradation"] for p in task.held_out()} == {"haze"}


# --- crops -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("augment", ["flips", "all"])
def test_both_pictures_of_a_pair_are_turned_alike(augment: str, tmp_path: Path) -> None:
    written(tmp_path / "a", 4)
    written(tmp_path / "b", 4, change=lambda x: x / 2)
    folder = FolderConfig(root=str(tmp_path), clean="a", degraded="b")
    plain, turning = (
        build(RestorationConfig(folder=folder, patch=24, crops=20, augment=how), 0) for how in ("none", augment)
    )
    ways = set()
    for i in turning.pool:
        x = turning.sample(i)
        torch.testing.assert_close(x["degraded"], x["clean"] / 2, atol=0.004, rtol=0)
        ways |= {w for w in range(8) if torch.equal(turned(plain.sample(i)["clean"], w), x["clean"])}
    assert ways == set(range(4 if augment == "flips" else 8))


@pytest.mark.parametrize("augment", ["none", "all"])
def test_with_a_margin_a_crop_is_cut_from_a_degraded_surrounding(augment: str, tmp_path: Path) -> None:
    """A blurred crop equals the crop of the blurred picture where the margin is wider than the blur."""
    from anygrpo.gates.restoration.degradations import gaussian_blur

    blur = [DegradationConfig(name="gaussian_blur", low=2.0, high=2.0)]
    folder = FolderConfig(clean=str(written(tmp_path / "a", 3)))
    off = {}
    for margin in (0, 8):
        section = RestorationConfig(
            folder=folder, patch=24, crops=16, margin=margin, degradations=blur, augment=augment
        )
        task = build(section, 0)
        wholes = {p.name: gaussian_blur(p.read(), 2.0, torch.Generator()) for p in task.train}
        cleans = {p.name: p.read() for p in task.train}
        worst = 0.0
        for i in task.pool:
            x = task.sample(i)
            best = min(_distance(x, cleans[x["picture"]], wholes[x["picture"]], way) for way in range(8))
            worst = max(worst, best)
        off[margin] = worst
    assert off[8] < 0.003  # 8 bits
    assert off[0] > 0.01


def _distance(sample: dict, clean: torch.Tensor, blurred: torch.Tensor, way: int) -> float:
    """Largest difference to the same crop of the blurred picture; inf where this way of turning is not the one."""
    whole, side = turned(clean, way), sample["clean"].shape[1]
    windows = whole.unfold(1, side, 1).unfold(2, side, 1).permute(1, 2, 0, 3, 4)
    places = (windows == sample["clean"]).flatten(2).all(2).nonzero().tolist()
    if not places:
        return float("inf")
    y, x = places[0]
    return float((turned(blurred, way)[:, y : y + side, x : x + side] - sample["degraded"]).abs().max())


def test_super_resolution_samples_are_smaller_and_pairs_must_be_exactly_so(tmp_path: Path) -> None:
    written(tmp_path / "hr", 4, 66)
    section = RestorationConfig(folder=FolderConfig(clean=str(tmp_path / "hr")), patch=32, scale=2, degradations=NOISE)
    task = build(section, 0)
    assert (task.sample(0)["degraded"].shape, task.sample(0)["clean"].shape) == ((3, 16, 16), (3, 32, 32))
    assert task.held_out()[0]["degraded"].shape == (3, 33, 33)
    written(tmp_path / "lr", 4, 66, change=lambda x: reduced(x, 2))
    pairs = FolderConfig(root=str(tmp_path), clean="hr", degraded="lr", name="x2")
    task = build(RestorationConfig(folder=pairs, patch=32, scale=2, relative=True), 0)
    x = task.sample(3)
    assert (enlarged(x["degraded"], 2) - x["clean"]).abs().mean() < 0.05
    scores = task.score([x], [[enlarged(x["degraded"], 2), x["clean"], x["degraded"]]])
    assert scores.valid.tolist() == [[True, True, False]]
    assert scores.rewards[0, 0] == pytest.approx(0.0, abs=1e-6)
    with pytest.raises(DataError, match="times scale 4"):
        build(RestorationConfig(folder=pairs, patch=32, scale=4), 0)


# --- reading ---------------------------------------------------------------------------------------------------------


def test_files_are_read_when_they_are_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from anygrpo.gates.restoration import photographs

    seen: list[Path] = []
    whole = photographs.read
    monkeypatch.setattr(photographs, "read", lambda path, longest: seen.append(path) or whole(path, longest))
    task = build(RestorationConfig(folder=FolderConfig(clean=str(written(tmp_path / "a", 8))), patch=16), 0)
    assert seen == []
    task.prompts(0, 1)
    assert len(seen) == 1
    task.held_out()[:1]
    assert len(seen) == 2


def test_recent_keeps_what_was_used_last_within_its_bytes() -> None:
    kept, made = Recent(3 * 40), []
    for key in "abcadb":
        kept(key, lambda key=key: made.append(key) or {"x": torch.zeros(10), "n": 3})
    assert made == ["a", "b", "c", "d", "b"]  # d put b out, because a was used since
    assert (len(kept), kept.bytes) == (3, 120)
    assert kept("large", lambda: torch.zeros(1000)).numel() == 1000
    assert len(kept) == 3


def test_split_by_hand() -> None:
    pictures = [Picture(str(i), torch.zeros(3, 8, 8), scene=str(i // 2)) for i in range(8)]
    train, test = split(pictures, 0.25, 0)
    assert (len(train), len(test)) == (6, 2)
    assert test[0].scene == test[1].scene


WRONG = {
    "picture_size": {"folder": {"clean": "a", "degraded": "b"}, "picture_size": 128},
    "either a layout": {"folder": {"layout": "bsd", "clean": "a"}},
    r"no \{id\}": {"folder": {"clean": "{name}.png"}},
    "give every set a share": {"sets": [{"clean": "a", "share": 1}, {"clean": "b"}]},
    "not both": {"folder": {"clean": "a"}, "sets": [{"clean": "b"}]},
    "multiple of scale": {"patch": 50, "scale": 4},
    "25.5..51 in /255": {"degradations": [{"name": "noise", "low": 0.1, "high": 0.2}]},
    "quality": {"degradations": [{"name": "jpeg", "low": 0, "high": 50}]},
}


@pytest.mark.parametrize("why", WRONG)
def test_sections_refuse_what_cannot_be_meant(why: str) -> None:
    with pytest.raises(ValidationError, match=why):
        RestorationConfig.model_validate(WRONG[why])


# --- one picture under two names, layouts of one side, borders -----------------------------------------------------


def test_equal_pictures_and_all_of_their_clips_stay_on_one_side(tmp_path: Path) -> None:
    for clip, seeds in {"a": (0, 1), "b": (1, 2), "c": (3, 4), "d": (5, 6), "e": (7, 8)}.items():
        for i, seed in enumerate(seeds):
            written(tmp_path, 1, change=lambda x, seed=seed: photograph(seed, 64), name=f"{clip}-{i}.png")
    task = build(RestorationConfig(folder=FolderConfig(clean=str(tmp_path), scene="{scene}-*"), patch=16), 0)
    sides = [{p.name[0] for p in side} for side in (task.train, task.test)]
    assert not sides[0] & sides[1]
    assert {"a", "b"} <= sides[0] or {"a", "b"} <= sides[1]  # they share a frame


def test_sets_that_train_and_test_on_one_picture_are_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger("anygrpo"), "propagate", True)
    written(tmp_path / "images" / "train", 3)
    written(tmp_path / "images" / "test", 1)
    task = build(RestorationConfig(folder=FolderConfig(layout="bsd", root=str(tmp_path)), patch=16), 0)
    assert (len(task.train), len(task.test)) == (3, 1)
    assert any("train/0.png" in r.getMessage() for r in caplog.records)


def test_a_layout_that_has_no_test_pictures_is_split_by_scene(tmp_path: Path) -> None:
    for k, kind in enumerate(("sharp", "blur")):
        for clip in range(3):
            written(
                tmp_path / "train" / f"clip{clip}" / kind,
                2,
                change=lambda x, c=clip, k=k: (x if c == 0 else x.roll(30 * c, 1)) * (1 - 0.1 * k),
            )
    task = build(RestorationConfig(folder=FolderConfig(layout="gopro", root=str(tmp_path)), patch=16), 0)
    sides = [{p.name.split("/")[0] for p in side} for side in (task.train, task.test)]
    assert sides[0] | sides[1] == {"clip0", "clip1", "clip2"}
    assert not sides[0] & sides[1]
    only = FolderConfig(layout="gopro", root=str(tmp_path), part="train")
    with pytest.raises(ConfigError, match="to train on, which leaves none to hold out"):
        build(RestorationConfig(folder=only, patch=16), 0)


def test_the_indoor_pictures_of_sots_lose_the_border_that_their_hazy_ones_lack(tmp_path: Path) -> None:
    written(tmp_path / "gt", 3, side=96)
    written(tmp_path / "hazy", 3, side=96, change=lambda x: x[:, 10:-10, 10:-10] * 0.6 + 0.3, name="{}_1.png")
    task = build(RestorationConfig(folder=FolderConfig(layout="sots", root=str(tmp_path)), patch=32), 0)
    one = task.held_out()[0]
    assert one["clean"].shape == one["degraded"].shape == (3, 76, 76)
    assert (one["clean"] * 0.6 + 0.3 - one["degraded"]).abs().max() < 0.02
    own = FolderConfig(root=str(tmp_path), clean="gt", degraded="hazy/{id}_1.png")
    with pytest.raises(DataError, match="sizes"):
        build(RestorationConfig(folder=own.model_copy(update={"clean": "gt/{id}.png"}), patch=32), 0)

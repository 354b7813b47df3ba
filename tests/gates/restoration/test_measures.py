"""Measures: one number for each picture, or refused; luma; pyiqa where it is."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from anygrpo.cli.main import main
from anygrpo.errors import ConfigError
from anygrpo.gates.restoration.build import build
from anygrpo.gates.restoration.quality import Quality, luma, psnr
from anygrpo.gates.restoration.settings import PerceptualConfig, RestorationConfig

FUNCTIONS = {
    "pooled": ("-(x - y).abs().mean()", r"shape \[\] for 2 pictures"),
    "spread_over_the_batch": ("-(x - y).abs().mean().expand(len(x))", "another number beside others"),
    "normalised_by_the_batch": ("(x - y).abs().flatten(1).mean(1) / (x - y).abs().mean()", "another number beside"),
    "per_pixel": ("-(x - y).abs().mean(1)", r"shape \[2, 16, 16\]"),
    "broken": ("x.no_such_thing()", "fails"),
    "not_finite": ("(x - y).flatten(1).mean(1) / 0", "for two ordinary pictures"),
    "complex": ("(x - y).flatten(1).mean(1) * 1j", "for two ordinary pictures"),
    "right": ("-(x - y).abs().flatten(1).mean(1)", ""),
    "column": ("-(x - y).abs().flatten(1).mean(1, keepdim=True)", ""),
}


def section(folder: Path, body: str, **given: object) -> RestorationConfig:
    (folder / "m.py").write_text(f"def measure(x, y):\n    return {body}\n")
    term = PerceptualConfig(name="mine", weight=1.0, function=f"{folder / 'm.py'}:measure")
    return RestorationConfig(perceptual=[term], crops=1, patch=16, picture_size=32, **given)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_measure_gives_each_picture_its_own_number(name: str, tmp_path: Path) -> None:
    body, why = FUNCTIONS[name]
    if why:
        with pytest.raises(ConfigError, match=why):
            build(section(tmp_path, body), 0)
        return
    task = build(section(tmp_path, body, w_psnr=0.0, w_ssim=0.0), 0)
    prompts = task.prompts(0, 1)
    rewards = task.score(prompts, [[(prompts[0]["clean"] - s).clamp(0, 1) for s in (0.0, 0.1, 0.2)]]).rewards[0]
    assert rewards[0] > rewards[1] > rewards[2]


LATER = {
    "raises": ("raise RuntimeError('lost')", r"'mine' .*fails: RuntimeError: lost \(m\.py:\d+\)"),
    "nothing": ("return None", r"'mine' .*fails: "),
    "too_few": ("return -(x - y).abs().flatten(1).mean(1)[:1]", r"'mine' .*returns shape \[1\] for \d+ pictures"),
}


@pytest.mark.parametrize("name", LATER)
def test_a_measure_that_fails_after_its_trial_ends_the_run_by_name(name: str, tmp_path: Path, capsys) -> None:
    """Two steps of `anygrpo train`: the trial asks three times, so the fault is met in the run."""
    last, why = LATER[name]
    (tmp_path / "m.py").write_text(
        f"asked = 0\n\n\ndef measure(x, y):\n    global asked\n    asked += 1\n    if asked > 3:\n        {last}\n"
        "    return -(x - y).abs().flatten(1).mean(1)\n"
    )
    (tmp_path / "r.toml").write_text(f"""
policy = {{ kind = "restorer", width = 4 }}
algorithm = {{ group_size = 2, prompts_per_step = 2 }}
training = {{ steps = 2, threads = 1 }}
doctor = {{ mode = "off" }}

[task]
kind = "restoration"
crops = 1
patch = 16
picture_size = 32
perceptual = [{{ name = "mine", weight = 1.0, function = "{tmp_path}/m.py:measure" }}]
""")
    assert main(["train", str(tmp_path / "r.toml"), "--folder", str(tmp_path / "run"), "--quiet"]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert re.search(why, said), said
    assert "one number for each picture" in said


def test_a_loss_in_place_of_a_measure_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    build(section(tmp_path, "(x - y).abs().flatten(1).mean(1)"), 0)
    assert "is its sign right" in caplog.text


def test_luma_by_hand_and_psnr_of_it() -> None:
    x = torch.tensor([0.0, 1.0])[:, None, None, None].expand(2, 3, 16, 16)
    torch.testing.assert_close(luma(x)[:, 0, 0, 0] * 255, torch.tensor([16.0, 235.0]))
    green = torch.zeros(1, 3, 16, 16)
    green[:, 1] = 1.0
    assert float(luma(green)[0, 0, 0, 0]) * 255 == pytest.approx(16 + 128.553, abs=1e-3)
    quality = Quality(1, 0, 0, 100, {}, channel="y")
    clean = torch.full((1, 3, 16, 16), 128 / 255)
    off = clean + torch.tensor([0.0, 0.0, 51 / 255])[:, None, None]
    expected = -20 * torch.log10(torch.tensor(24.966 * 0.2 / 255))  # blue alone is 51/255 away
    measured = quality.measures(off, clean)["psnr"]
    assert float(measured) == pytest.approx(float(expected), abs=1e-3)


def test_shaved_borders_do_not_count() -> None:
    y = torch.rand(1, 3, 32, 32)
    y = (y * 255).round() / 255
    x = y.clone()
    x[..., :4, :] = 0
    assert Quality(1, 0, 0, 100, {}, shave=4).measures(x, y)["psnr"].isinf()
    assert Quality(1, 0, 0, 100, {}, shave=3).measures(x, y)["psnr"] < psnr(y, y)


class Fake:
    """A metric as pyiqa's: better when lower, of one picture alone."""

    lower_better, metric_mode = True, "NR"

    def to(self, device: object) -> Fake:
        return self

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return x.mean().reshape(1, 1)


def test_a_metric_of_pyiqa_enters_with_its_direction_and_is_shown_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = SimpleNamespace(list_models=lambda: ["dark"], create_metric=lambda name: Fake())
    monkeypatch.setitem(sys.modules, "pyiqa", fake)
    term = PerceptualConfig(name="dark", weight=0.5, metric="dark")
    task = build(RestorationConfig(perceptual=[term], w_psnr=0, w_ssim=0, crops=1, patch=16, picture_size=32), 0)
    held = task.held_out()[:2]
    outputs = [[torch.full_like(p["clean"], 0.2)] for p in held]
    assert task.score(held, outputs).rewards.flatten().tolist() == pytest.approx([-0.1, -0.1])
    assert task.measure(held, outputs)["eval/measure/dark"] == pytest.approx(0.2)
    with pytest.raises(ConfigError, match="did you mean 'dark'"):
        build(RestorationConfig(perceptual=[term.model_copy(update={"metric": "darc"})], patch=16), 0)


def test_without_pyiqa_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyiqa", None)
    with pytest.raises(ConfigError, match=r"anygrpo\[pyiqa\]"):
        build(RestorationConfig(perceptual=[PerceptualConfig(name="x", weight=1, metric="lpips")], patch=16), 0)


def test_a_term_has_one_source_and_its_own_name() -> None:
    with pytest.raises(ValueError, match="either a function or a metric"):
        PerceptualConfig(name="x", weight=1)
    with pytest.raises(ValueError, match="there already"):
        PerceptualConfig(name="psnr", weight=1, metric="lpips")


def test_what_is_only_reported_is_not_asked_about_crops(tmp_path: Path) -> None:
    """Some measures need larger pictures than training's crops."""
    (tmp_path / "m.py").write_text(
        "def large(x, y):\n    assert x.shape[-1] >= 32, 'too small'\n    return x.flatten(1).mean(1)\n"
    )
    term = PerceptualConfig(name="large", weight=0.0, function=f"{tmp_path / 'm.py'}:large")
    given = {"w_psnr": 1.0, "crops": 1, "patch": 16, "picture_size": 32}
    task = build(RestorationConfig(perceptual=[term], **given), 0)  # type: ignore[arg-type]
    prompts = task.prompts(0, 2)
    assert "large" not in task.score(prompts, [[p["clean"]] for p in prompts]).components
    held = task.held_out()[:2]
    expected = sum(float(p["clean"].mean()) for p in held) / 2
    assert task.measure(held, [[p["clean"]] for p in held])["eval/measure/large"] == pytest.approx(expected, rel=1e-4)
    with pytest.raises(ConfigError, match="too small"):
        build(RestorationConfig(perceptual=[term.model_copy(update={"weight": 0.1})], **given), 0)  # type: ignore[arg-type]

"""Pictures, degradations, rewards, split, curriculum."""

from __future__ import annotations

import json
import logging
import math
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from anygrpo.errors import ConfigError, DataError
from anygrpo.gates.restoration.build import build
from anygrpo.gates.restoration.degradations import DEGRADATIONS, degrade, line
from anygrpo.gates.restoration.photographs import Picture, split
from anygrpo.gates.restoration.quality import Quality, psnr, ssim
from anygrpo.gates.restoration.task import LOOKS
from anygrpo.gates.restoration.worst import worst_of
from anygrpo.gates.settings import (
    DegradationConfig,
    FolderConfig,
    PerceptualConfig,
    RestorationConfig,
    WorstConfig,
)

STRENGTH = {
    "noise": 25.5,
    "gaussian_blur": 1.5,
    "motion_blur": 7.0,
    "jpeg": 15.0,
    "rain": 0.6,
    "haze": 0.5,
    "low_light": 0.4,
}


def picture(size: int = 32) -> torch.Tensor:
    y, x = torch.meshgrid(torch.linspace(0, 1, size), torch.linspace(0, 1, size), indexing="ij")
    return torch.stack([x, y, ((8 * x).floor() + (8 * y).floor()) % 2 * 0.8 + 0.1])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for kind in ("clean", "degraded"):
        (tmp_path / kind).mkdir()
        for i in range(5):
            pixels = (picture(40 + i) * (0.5 if kind == "degraded" else 1) * 255).byte().permute(1, 2, 0).numpy()
            Image.fromarray(pixels).save(tmp_path / kind / f"p{i}.png")
    return tmp_path


def task_of(folder: Path, pairs: bool = False, **given):
    where = FolderConfig(clean=str(folder / "clean"), degraded=str(folder / "degraded") if pairs else None)
    given = {"folder": where, "patch": 32, "crops": 2, "held_out_share": 0.4} | given
    return build(RestorationConfig(**given), 0)


# --- degradations ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", list(DEGRADATIONS))
def test_degradation_is_seeded_bounded_8_bit_and_does_something(name: str) -> None:
    x = picture()
    a, b = (degrade(x, name, STRENGTH[name], seed=s) for s in (1, 1))
    assert torch.equal(a, b)
    assert a.shape == x.shape
    assert 0 <= a.min() <= a.max() <= 1
    torch.testing.assert_close(a * 255, (a * 255).round(), atol=1e-4, rtol=0)
    assert (a - x).abs().mean() > 0.005
    if name not in ("gaussian_blur", "jpeg"):
        assert not torch.equal(a, degrade(x, name, STRENGTH[name], seed=2))


def test_noise_has_the_stated_sigma_and_haze_the_stated_veil() -> None:
    grey = torch.full((3, 128, 128), 0.5)
    assert degrade(grey, "noise", 25.5, 0).std().item() == pytest.approx(0.1, rel=0.02)
    hazy = degrade(torch.zeros(3, 64, 64), "haze", 0.5, 0)  # black shows A (1 - t), t in [0.375, 0.5], A in [.8, 1]
    assert 0.4 - 0.01 <= hazy.min() <= hazy.max() <= 0.625 + 0.01


def test_blur_kernels() -> None:
    for angle in (0.0, 1.0, math.pi / 2):
        kernel = line(7.0, angle)
        assert kernel.sum().item() == pytest.approx(1, abs=1e-5)
        assert kernel.shape[0] % 2 == 1
        torch.testing.assert_close(kernel, kernel.flip(0, 1), atol=1e-5, rtol=0)  # centred: no shift of the picture
    assert (line(7.0, 0.0).sum(1) > 1e-6).sum() == 1
    flat = torch.full((3, 20, 20), 0.4)
    torch.testing.assert_close(degrade(flat, "gaussian_blur", 2.0, 0), flat, atol=1e-6, rtol=0)


def test_unknown_degradation_is_refused_with_a_suggestion() -> None:
    with pytest.raises(ConfigError, match="noise"):
        degrade(picture(), "niose", 25.5, 0)


# --- quality ---------------------------------------------------------------------------------------------------------


def test_psnr_by_hand_and_per_picture() -> None:
    y = torch.full((2, 3, 16, 16), 0.5)
    x = y + torch.tensor([0.1, 0.01])[:, None, None, None]
    torch.testing.assert_close(psnr(x, y), torch.tensor([20.0, 40.0]), atol=1e-3, rtol=0)
    assert psnr(y, y).tolist() == [math.inf, math.inf]


def test_ssim_agrees_with_scikit_images_map() -> None:
    """Over the whole picture, borders included (scikit-image's own mean leaves out 5 pixels at each side)."""
    from skimage.metrics import structural_similarity

    y = picture(48)
    x = y.clone()
    x[:, 8:-8, 8:-8] = degrade(y, "noise", 25.5, 0)[
        :, 8:-8, 8:-8
    ]  # the same at the borders: their padding is no matter
    as_in_the_paper = {"gaussian_weights": True, "sigma": 1.5, "use_sample_covariance": False}
    _, full = structural_similarity(
        x.double().numpy(), y.double().numpy(), channel_axis=0, data_range=1.0, full=True, **as_in_the_paper
    )
    assert ssim(x[None], y[None]).item() == pytest.approx(full.mean(), abs=1e-4)


def test_reward_is_linear_over_the_range_and_reports_what_lies_outside() -> None:
    quality = Quality(0.5, 0.25, 10.0, 40.0, {"bright": (2.0, lambda x, y: x.mean((1, 2, 3)))})
    values = {"psnr": torch.tensor([25.0, 55.0]), "ssim": torch.tensor([0.8, 1.0]), "bright": torch.tensor([0.1, 0.2])}
    torch.testing.assert_close(quality.reward(values), torch.tensor([0.25 + 0.2 + 0.2, 0.5 + 0.25 + 0.4]))
    assert quality.outside(values).tolist() == [False, True]


# --- pictures and split ----------------------------------------------------------------------------------------------


def test_shipped_photographs_split_by_scene() -> None:
    task = build(RestorationConfig(picture_size=64, patch=32), 0)
    train, test = {p.name for p in task.train}, {p.name for p in task.test}
    assert len(train | test) == 20
    assert not train & test
    assert len({"motorcycle_left", "motorcycle_right"} & test) in (0, 2)
    assert len(task.held_out()) == 7 * len(test)
    assert all(max(p.size) == max(p.read().shape[1:]) == 64 for p in task.train + task.test)
    other = build(RestorationConfig(picture_size=64, patch=32), 5)
    assert {p.name for p in other.test} == test


def test_held_out_pictures_are_degraded_anew_as_often_as_asked() -> None:
    once, thrice = (
        build(RestorationConfig(picture_size=64, patch=32, held_out_repeats=n), 0).held_out() for n in (1, 3)
    )
    assert len(thrice) == 3 * len(once)
    for i, first in enumerate(once):
        draws = thrice[i :: len(once)]
        assert torch.equal(draws[0]["degraded"], first["degraded"])
        assert {(p["picture"], p["degradation"]) for p in draws} == {(first["picture"], first["degradation"])}
        assert len({p["strength"] for p in draws}) == 3


def test_split_leaves_someone_to_train_on() -> None:
    pictures = [Picture("motorcycle_left", picture()), Picture("motorcycle_right", picture())]
    with pytest.raises(ConfigError, match="leaves none"):
        split(pictures, 0.9, 0)


def test_prompts_are_a_function_of_seed_and_step(folder: Path) -> None:
    a, b = task_of(folder), task_of(folder)
    first, again, other = a.prompts(3, 4), b.prompts(3, 4), a.prompts(4, 4)
    for x, y in zip(first, again):
        assert torch.equal(x["degraded"], y["degraded"])
        assert (x["picture"], x["degradation"], x["strength"]) == (y["picture"], y["degradation"], y["strength"])
    assert [x["degradation"] + x["picture"] for x in first] != [x["degradation"] + x["picture"] for x in other]
    assert a.size == 3 * 7 * 2
    epoch = [p for step in range(6) for p in a.prompts(step, 7)]
    assert {(p["picture"], p["degradation"], p["crop"]) for p in epoch} == {
        (p.name, d, c) for p in a.train for d in DEGRADATIONS for c in (0, 1)
    }


def test_held_out_pictures_are_whole_and_never_trained_on(folder: Path) -> None:
    task = task_of(folder)
    held = task.held_out()
    assert {p["picture"] for p in held}.isdisjoint({task.sample(i)["picture"] for i in task.pool})
    assert all(tuple(p["clean"].shape[1:]) == tuple(p["degraded"].shape[1:]) for p in held)
    assert {p["clean"].shape[1] for p in held} <= {40, 41, 42, 43, 44}


def test_pairs_come_from_the_two_folders(folder: Path) -> None:
    task = task_of(folder, pairs=True)
    assert task.size == 3 * 2
    prompt = task.prompts(0, 1)[0]
    assert prompt["degradation"] == "pairs"
    torch.testing.assert_close(prompt["degraded"], prompt["clean"] * 0.5, atol=0.005, rtol=0)
    (folder / "degraded" / "p3.png").unlink()
    with pytest.raises(DataError, match="p3"):
        task_of(folder, pairs=True)


def test_bad_folders_and_patches_are_refused(folder: Path) -> None:
    with pytest.raises(DataError, match="does not exist"):
        task_of(folder / "nowhere")
    with pytest.raises(ConfigError, match="patch = 64"):
        task_of(folder, patch=64)
    (folder / "clean" / "bad.png").write_text("no picture")
    with pytest.raises(DataError, match=r"bad\.png"):
        task_of(folder)


# --- scores ----------------------------------------------------------------------------------------------------------


def test_score_per_picture_components_and_invalid_samples(folder: Path) -> None:
    task = task_of(folder)
    prompts = task.prompts(0, 2)
    clean = [p["clean"] for p in prompts]
    outputs = [
        [clean[0], (clean[0] - 0.1).abs(), clean[0][:, :4]],
        [clean[1] + math.nan, clean[1] * 0.9, prompts[1]["degraded"]],
    ]
    scores = task.score(prompts, outputs)
    assert scores.valid.tolist() == [[True, True, False], [False, True, True]]
    assert scores.reasons == {(0, 2): "shape differs from the clean picture", (1, 0): "non-finite pixel"}
    assert scores.rewards[0, 0].item() == pytest.approx(1.0)  # 0.5 x (40 dB or more) + 0.5 x SSIM 1
    expected = psnr((prompts[1]["degraded"])[None], clean[1][None]).item()
    assert scores.components["psnr"][1, 2].item() == pytest.approx(expected, abs=1e-3)


def test_a_range_beyond_pictures_is_told_once_and_the_first_outputs_alone_are_looked_at(
    folder: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger("anygrpo"), "propagate", True)
    loud, quiet = task_of(folder), task_of(folder)
    prompts = loud.prompts(0, 1)
    good, wide = [[prompts[0]["clean"]]], [[255 * prompts[0]["clean"]]]
    loud.score(prompts, good)
    for _ in range(2):
        loud.score(prompts, wide)
    (line,) = [r.getMessage() for r in caplog.records]
    assert "0 to 255" in line or "0 至 255" in line
    for _ in range(LOOKS):
        quiet.score(prompts, good)
    for task in (loud, quiet):
        task._range(torch.zeros(1, device="meta"))  # has no numbers: looking at it would raise


def test_relative_reward_of_the_input_itself_is_zero(folder: Path) -> None:
    task = task_of(folder, relative=True)
    prompts = task.prompts(0, 3)
    scores = task.score(prompts, [[p["degraded"], p["clean"]] for p in prompts])
    torch.testing.assert_close(scores.rewards[:, 0], torch.zeros(3))
    assert (scores.rewards[:, 1] > 0).all()


def test_measure_names_every_degradation(folder: Path) -> None:
    task = task_of(folder)
    prompts = task.held_out()
    numbers = task.measure(prompts, [[p["degraded"]] for p in prompts])
    assert {f"eval/psnr/{name}" for name in DEGRADATIONS} < numbers.keys()
    parts = [numbers[f"eval/ssim/{name}"] for name in DEGRADATIONS]
    assert numbers["eval/ssim"] == pytest.approx(sum(parts) / len(parts))
    rain = torch.tensor(
        [float(psnr(p["degraded"][None], p["clean"][None])) for p in prompts if p["degradation"] == "rain"]
    )
    assert numbers["eval/psnr/rain"] == pytest.approx(float(rain.mean()), rel=1e-5)
    assert numbers["eval/psnr_se/rain"] == pytest.approx(float(rain.std() / len(rain) ** 0.5), rel=1e-4)


def test_perceptual_plugin_is_weighted_into_the_reward(folder: Path) -> None:
    (folder / "term.py").write_text("def darkness(x, y):\n    return 1 - x.mean((1, 2, 3))\n")
    term = PerceptualConfig(name="darkness", weight=3.0, function=f"{folder / 'term.py'}:darkness")
    task, plain = task_of(folder, perceptual=[term]), task_of(folder)
    prompts = task.prompts(0, 1)
    outputs = [[prompts[0]["degraded"]]]
    more = task.score(prompts, outputs)
    assert (more.rewards - plain.score(prompts, outputs).rewards).item() == pytest.approx(
        3 * more.components["darkness"].item(), rel=1e-5
    )


def test_the_perceptual_example_ranks_and_names_what_lpips_needs(folder: Path) -> None:
    file = Path(__file__).parents[3] / "examples" / "perceptual.py"
    term = PerceptualConfig(name="edges", weight=1.0, function=f"{file}:edges")
    task = task_of(folder, w_psnr=0.0, w_ssim=0.0, perceptual=[term])
    prompts = [p for p in task.held_out() if p["degradation"] == "gaussian_blur"][:1]
    rewards = task.score(prompts, [[prompts[0]["clean"], prompts[0]["degraded"]]]).rewards[0]
    assert rewards[0] == pytest.approx(1.0, abs=1e-4)
    assert rewards[1] < 0.98
    if find_spec("torchvision") is None:
        with pytest.raises(ConfigError, match="perceptual"):
            task_of(folder, perceptual=[term.model_copy(update={"function": f"{file}:lpips"})])


def test_stored_actions_are_the_clean_pictures(folder: Path) -> None:
    task = task_of(folder)
    prompts = task.prompts(0, 2)
    assert [a[0] is p["clean"] for a, p in zip(task.stored(prompts).actions, prompts)] == [True, True]


# --- curriculum, pictures, config ------------------------------------------------------------------------------------


def test_worst_share_is_taken_within_each_degradation() -> None:
    rewards = [0.9, 0.1, 0.5, 0.7, 0.2, 0.3, 0.95]
    kinds = ["noise"] * 4 + ["haze"] * 3
    assert worst_of(rewards, kinds, 0.5) == [1, 2, 4, 5]
    assert worst_of(rewards, kinds, 0.01) == [1, 4]


def test_curriculum_ranks_by_the_start_model_and_survives_a_resume(folder: Path, tmp_path: Path) -> None:
    task = task_of(folder, worst=WorstConfig(share=0.5))
    before = task.size
    rewards = {i: task.score([task.sample(i)], [[task.sample(i)["degraded"]]]).rewards.item() for i in task.pool}
    task.prepare(lambda prompts: [[p["degraded"]] for p in prompts], tmp_path)
    assert task.size == pytest.approx(before / 2, abs=4)
    assert {p["degradation"] for p in task.prompts(0, task.size)} == set(DEGRADATIONS)
    kinds = [task.sample(i)["degradation"] for i in task.pool]
    assert task.kept == worst_of([rewards[i] for i in task.pool], kinds, 0.5)
    resumed = task_of(folder, worst=WorstConfig(share=0.5))
    resumed.prepare(lambda prompts: pytest.fail("ranked again"), tmp_path)
    assert resumed.kept == task.kept
    file = tmp_path / "worst_samples.json"
    assert task_of(folder, worst=WorstConfig(file=str(file))).kept == task.kept
    with pytest.raises(DataError, match="pool"):
        task_of(folder, crops=3, worst=WorstConfig(file=str(file)))
    file.write_text(json.dumps({"kept": [1]}))
    with pytest.raises(DataError, match="ranking"):
        task_of(folder, worst=WorstConfig(file=str(file)))


def test_strips_are_written_per_degradation(folder: Path, tmp_path: Path) -> None:
    task = task_of(folder)
    prompts = task.held_out()
    before, after = [[p["degraded"]] for p in prompts], [[p["clean"] * 0.99] for p in prompts]
    paths = task.pictures(prompts, before, after, tmp_path / "pictures")
    assert len(paths) == 7
    assert all("+" in p.name for p in paths)
    sheet = np.array(Image.open(paths[0]))
    first = (prompts[0]["degraded"] * 255).round().byte().permute(1, 2, 0).numpy()
    times = -(-96 // first.shape[1])  # small pictures are shown larger
    first = first.repeat(times, 0).repeat(times, 1)
    height, width = first.shape[:2]
    assert np.array_equal(sheet[22 : 22 + height, :width], first)
    columns = [sheet[:18, i * (width + 4) : i * (width + 4) + width] for i in range(4)]
    assert all(column.min() < 128 for column in columns)  # input, before, after, target
    assert len({column.tobytes() for column in columns}) == 4


def test_a_slider_is_written_beside_and_a_sets_name_stays_in_the_folder(folder: Path, tmp_path: Path) -> None:
    task = task_of(folder)
    prompts = [p | {"degradation": "../rain/heavy"} for p in task.held_out()[:2]]
    after = [[p["clean"]] for p in prompts]
    (path,) = task.pictures(prompts, after, after, tmp_path / "run" / "pictures")
    assert path.parent == tmp_path / "run" / "pictures"
    shown = {f.name: np.array(Image.open(f)) for f in (tmp_path / "run" / "pictures" / "_rain_heavy").iterdir()}
    for name, x in (("1_input.png", prompts[0]["degraded"]), ("2_after.png", prompts[0]["clean"])):
        assert np.array_equal(shown[name], (x * 255).round().byte().permute(1, 2, 0).numpy())


def test_config_refuses_what_cannot_be_meant() -> None:
    with pytest.raises(ValueError, match="above high"):
        DegradationConfig(name="noise", low=30, high=10)
    with pytest.raises(ValueError, match="twice"):
        RestorationConfig(degradations=[DegradationConfig(name="noise", low=10, high=20)] * 2)
    with pytest.raises(ValueError, match="below psnr_high"):
        RestorationConfig(psnr_low=40.0)

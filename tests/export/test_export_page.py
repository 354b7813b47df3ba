"""The model card's numbers: the intervals that `anygrpo evaluate` gives, of the weights that were exported."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from anygrpo.export.exporting import _measured


def card(folder, rows, step=10, results=None, judge=None):
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "evaluations").mkdir()
    for number, rewards in (results or {}).items():
        lines = [
            json.dumps({"prompt": i, **r} if isinstance(r, dict) else {"reward": r}) for i, r in enumerate(rewards)
        ]
        (folder / "evaluations" / f"step_{number:08d}.jsonl").write_text("\n".join(lines) + "\n")
    rule = SimpleNamespace(evaluation=SimpleNamespace(success=SimpleNamespace(component=judge))) if judge else None
    opened = SimpleNamespace(source=f"{folder} (step_{step:08d})", step=step, recipe=rule)
    return {line.split(" | ")[0].removeprefix("| "): line.split(" | ")[1:] for line in _measured(opened) if "|" in line}


def test_right_and_wrong_answers_have_the_exact_interval(tmp_path):
    """Clopper-Pearson by hand: 0 of 4 is [0, 1 - .025^(1/4)] = [0, .6024], 4 of 4 is [.3976, 1]. The results of the
    evaluation in row `step` lie under step + 1, those before the first step (row -1) under 0."""
    rows = [{"step": -1, "eval/reward": 0.0, "eval/prompts": 4.0}, {"step": 9, "eval/reward": 1.0, "eval/prompts": 4.0}]
    rows.append({"step": 19, "eval/reward": 0.5, "eval/prompts": 4.0})
    results = {0: [0, 0, 0, 0], 10: [1, 1, 1, 1], 9: [0, 0, 0, 0], 20: [1, 0, 1, 0]}
    found = card(tmp_path, rows, results=results, judge="reward")
    assert found["reward"] == ["0 [0, 0.6024]", "1 [0.3976, 1] |"]


def test_other_rewards_have_students_interval(tmp_path):
    """Of -1 and 3: mean 1, standard error 2, t(1) = 12.7062. A fault of the machine is not among them."""
    rows = [{"step": 9, "eval/reward": 1.0, "eval/reward_se": 9.0, "eval/prompts": 3.0}]
    results = {10: [-1.0, 3.0, {"reward": 50.0, "fault": True}]}
    assert card(tmp_path, rows, results=results)["reward"] == ["1 [-24.41, 26.41]", "1 [-24.41, 26.41] |"]


def test_a_part_of_the_score_has_the_interval_of_its_own_values(tmp_path):
    """PSNR of two pictures, 28 and 32: mean 30, standard error 2, t(1) = 12.7062. What is no number, and a fault, is
    not among them; ssim has another mean than the row's, so its values are of another evaluation."""
    rows = [{"step": 9, "eval/psnr": 30.0, "eval/ssim": 0.5, "eval/prompts": 4.0}]
    parts = [{"psnr": 28.0, "ssim": 0.1}, {"psnr": 32.0, "ssim": 0.1}, {"psnr": None}]
    results = {10: [{"reward": 1.0, "components": x} for x in parts]}
    results[10].append({"reward": 1.0, "fault": True, "components": {"psnr": 99.0}})
    found = card(tmp_path, rows, results=results)
    assert found["psnr"] == ["30 [4.588, 55.41]", "30 [4.588, 55.41] |"]
    assert found["ssim"] == ["0.5", "0.5 |"]


def test_one_prompt_has_no_interval(tmp_path):
    """Neither an endless one: it says nothing of other prompts."""
    rows = [{"step": 9, "eval/reward": 0.25, "eval/reward_se": 0.0, "eval/prompts": 1.0}]
    assert card(tmp_path, rows, results={10: [0.25]})["reward"] == ["0.25", "0.25 |"]


@pytest.mark.parametrize(
    ("row", "shown"),
    [
        ({"eval/psnr": 30.0, "eval/psnr_se": 2.0, "eval/prompts": 2.0}, "30 [4.588, 55.41]"),  # t(1)
        ({"eval/psnr": 30.0, "eval/psnr_se": 2.0, "eval/prompts": 4.0, "eval/faults": 0.5}, "30 [4.588, 55.41]"),
        ({"eval/psnr": 30.0, "eval/psnr_se": 2.0, "eval/prompts": 1.0}, "30"),
        ({"eval/psnr": 30.0, "eval/prompts": 9.0}, "30"),
    ],
)
def test_measures_with_a_standard_error_have_students_interval(tmp_path, row, shown):
    assert card(tmp_path, [{"step": 9, **row}])["psnr"] == [shown, f"{shown} |"]


def test_a_part_shows_its_standard_error(tmp_path):
    """How many pictures have rain is not in the row: no interval is made up."""
    found = card(tmp_path, [{"step": 9, "eval/psnr/rain": 25.0, "eval/psnr_se/rain": 0.5, "eval/prompts": 30.0}])
    assert found["psnr/rain"][0] == "25 (standard error 0.5)"
    assert "psnr_se/rain" not in found


def test_a_part_of_a_kind_has_the_interval_of_its_scenes(tmp_path):
    """Rain on two scenes, of 28 and 32: mean 30, standard error 2, t(1) = 12.7062; two crops of each scene say no more.
    Snow is on one scene, which says nothing of others."""
    rows = [{"step": 9, "eval/psnr/rain": 30.0, "eval/psnr_se/rain": 1.0, "eval/psnr/snow": 20.0, "eval/prompts": 6.0}]
    told = [("rain", "a", 28.0), ("rain", "a", 28.0), ("rain", "b", 32.0), ("rain", "b", 32.0), ("snow", "a", 20.0)]
    results = [
        {"reward": 1.0, "components": {"psnr": x}, "text": {"degradation": kind, "picture": f"{i}", "scene": scene}}
        for i, (kind, scene, x) in enumerate(told)
    ]
    results.append(results[0] | {"fault": True, "components": {"psnr": 99.0}})
    found = card(tmp_path, rows, results={10: results})
    assert found["psnr/rain"][0] == "30 [4.588, 55.41]"
    assert found["psnr/snow"][0] == "20"


def test_results_of_another_evaluation_are_not_taken(tmp_path):
    rows = [{"step": 9, "eval/reward": 0.75, "eval/reward_se": 0.0, "eval/prompts": 2.0}]
    assert card(tmp_path, rows, results={10: [0.0, 0.0]})["reward"][0] == "0.75"

"""`anygrpo compare` on real runs: equal ones, different ones, an inert knob, and what cannot be compared."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from anygrpo.cli.main import main
from anygrpo.files import run_of
from anygrpo.probes import compare
from anygrpo.recipe.load import parse_recipe
from anygrpo.train.build import new_run
from anygrpo.train.loop import train

LETTERS = Path(__file__).parents[2] / "bench" / "faults" / "letters.py"


def trained(folder, seed=0, rate=1e-2, steps=8, width=16, checkpoint_every=100, evaluation=None, **options):
    run = new_run(
        parse_recipe(
            {
                "folder": str(folder),
                "seed": seed,
                "policy": {"kind": "python", "function": f"{LETTERS}:build", "arguments": {"width": width, **options}},
                "task": {"kind": "python", "function": f"{LETTERS}:Letters"},
                "algorithm": {"prompts_per_step": 8, "group_size": 8},
                "optimizer": {"learning_rate": rate},
                "training": {"steps": steps, "threads": 1, "checkpoint_every": checkpoint_every},
                "evaluation": evaluation or {},
            }
        )
    )
    run.evaluate_start()
    train(run)
    run.close()
    return str(folder)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    root = tmp_path_factory.mktemp("runs")
    return {
        "a": trained(root / "a"),
        "inert": trained(root / "inert", unread_option=1),
        "other": trained(root / "other", rate=3e-2, steps=20),
        "seed": trained(root / "seed", seed=1),
        "wide": trained(root / "wide", width=24, steps=2),
    }


def compared(capsys, *arguments):
    assert main(["compare", *arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_a_knob_that_is_not_wired_is_found(runs, capsys):
    report = compared(capsys, runs["a"], runs["inert"])
    assert [r["setting"] for r in report["settings"]] == ["policy.arguments.unread_option"]
    assert report["no_effect"]["rule"] == "no_effect"
    assert report["agreement"]["a_to_b"]["same"] == 1.0
    assert report["results"]["reward"]["difference"] == 0.0
    assert report["policy"]["kl_a_to_b"]["exact_per_decision"] == pytest.approx(0.0, abs=1e-9)
    assert all(r["between"] == 0.0 for r in report["policy"]["modules"])


def test_different_runs(runs, capsys):
    report = compared(capsys, runs["a"], runs["other"], "--noise", runs["seed"])
    assert report["no_effect"] is None
    assert {r["setting"] for r in report["settings"]} == {"optimizer.learning_rate", "training.steps"}
    for way in ("kl_a_to_b", "kl_b_to_a"):
        kl = report["policy"][way]
        assert kl["exact_per_decision"] > 0.01
        assert kl["own_samples"]
        assert kl["per_sample_high"] > kl["per_sample"] > kl["per_sample_low"] > 0
    moved = {r["module"]: r for r in report["policy"]["modules"]}
    assert moved["head"]["b"] > moved["head"]["a"] > 0
    assert set(report["agreement"]) == {"a_start_to_end", "b_start_to_end", "a_to_b", "a_to_second_seed"}
    assert 0.0 <= report["policy"]["cannot_flip"]["decisions"] <= 1.0
    assert report["results"]["reward"]["n"] == 8


def test_choices_that_provably_kept_are_indeed_kept(runs, capsys):
    """The proof is a lower bound: prompts proven the same can't outnumber prompts whose greedy answers are the same."""
    for other in ("other", "seed"):
        report = compared(capsys, runs["a"], runs[other])
        assert report["policy"]["cannot_flip"]["prompts"] <= report["agreement"]["a_to_b"]["same"] + 1e-9
    assert compared(capsys, runs["a"], runs["inert"])["policy"]["cannot_flip"]["largest_change"] < 1e-6


def test_another_model_is_compared_by_its_answers_alone(runs, capsys):
    report = compared(capsys, runs["a"], runs["wide"])
    assert "another model" in report["left_out"]["policy"]
    assert report["results"]["reward"]["n"] == 8


def test_words_in_both_languages(runs, capsys):
    assert main(["compare", runs["a"], runs["other"]]) == 0
    english = capsys.readouterr().out
    assert "settings that differ" in english
    assert "KL(A || B)" in english
    assert "smallest difference these prompts could show" in english
    assert main(["compare", runs["a"], runs["other"], "--lang", "zh"]) == 0
    assert "贪心回答一致率" in capsys.readouterr().out


def test_two_checkpoints_of_one_run(tmp_path, capsys):
    run = Path(trained(tmp_path / "r", rate=3e-2, steps=8, checkpoint_every=4, evaluation={"every": 4}))
    early, late = (str(run / "checkpoints" / f"step_0000000{n}") for n in (4, 8))
    report = compared(capsys, early, late)
    assert (report["settings"], report["left_out"]) == ([], {})
    assert (report["results"]["step_a"], report["results"]["step_b"]) == (4, 8)
    assert report["agreement"]["a_start_to_end"] != report["agreement"]["b_start_to_end"]
    assert report["policy"]["kl_a_to_b"]["exact_per_decision"] > 1e-3
    whole = compared(capsys, early, str(run))  # a run is its newest checkpoint
    assert whole["policy"]["kl_a_to_b"] == report["policy"]["kl_a_to_b"]
    assert whole["results"]["reward"] == report["results"]["reward"]
    assert main(["compare", early, late]) == 0
    assert "the interval covers prompts, not seeds" in capsys.readouterr().out
    assert main(["compare", early, late, "--weights", "best"]) == 2
    assert "a checkpoint is given, and --weights best asks for one of its run" in capsys.readouterr().err
    (run / "evaluations" / "step_00000004.jsonl").unlink()
    unknown = compared(capsys, early, late)["left_out"]
    assert set(unknown) == {"results", "agreement"}
    assert unknown["results"].endswith("step_00000004 was not evaluated at its step 4; the run was at 0, 8")


def test_checkpoints_of_one_run_are_no_seeds(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("ANYGRPO_LANG", "en")
    names = [f"step_0000000{n}" for n in (2, 4)]
    for arm, rate in (("a", 0.1), ("b", 0.2)):
        for name in names:
            (tmp_path / arm / "checkpoints" / name).mkdir(parents=True)
        (tmp_path / arm / "config.toml").write_text(f"seed = 1\n[optimizer]\nlearning_rate = {rate}\n")
    every = [str(tmp_path / arm / "checkpoints" / name) for arm in "ab" for name in names]
    assert main(["compare", *every]) == 2
    assert "are of one run" in capsys.readouterr().err
    assert main(["compare", *every, "--lang", "zh"]) == 2
    assert "属于同一次运行" in capsys.readouterr().err
    monkeypatch.setenv("ANYGRPO_LANG", "en")
    monkeypatch.chdir(tmp_path / "a" / "checkpoints")
    assert run_of(Path(names[0])) == tmp_path / "a"
    assert main(["compare", *names, *every[2:]]) == 2
    assert "are of one run" in capsys.readouterr().err


def test_recipes_over_ten_seeds_have_a_bootstrap_beside(tmp_path, capsys):
    """Files as runs leave them: ten seeds of each recipe, eight prompts."""
    folders = []
    for name, up in (("a", 0.0), ("b", 0.5)):
        for seed in range(10):
            folder = tmp_path / f"{name}{seed}"
            (folder / "evaluations").mkdir(parents=True)
            (folder / "config.toml").write_text(f"seed = {seed}\n[optimizer]\nlearning_rate = {up + 1}\n")
            (folder / "metrics.jsonl").write_text("")
            rows = [
                {"prompt": i, "text": f"q{i}", "output": "", "reward": up + math.sin(7 * seed + i), "components": {},
                 "valid": True}
                for i in range(8)
            ]  # fmt: skip
            text = "".join(json.dumps(row) + "\n" for row in rows)
            (folder / "evaluations" / "step_00000004.jsonl").write_text(text)
            folders.append(str(folder))
    (found,) = compared(capsys, *folders)["results"].values()
    assert found["bootstrap"][0] < found["difference"] < found["bootstrap"][1]
    assert main(["compare", *folders]) == 0
    said = capsys.readouterr().out
    assert "reward (10 + 10 seeds, 8 prompts)" in said
    assert f"bootstrap over seeds and prompts: [{found['bootstrap'][0]:+.4f}, {found['bootstrap'][1]:+.4f}]" in said


def test_a_seed_counts_once_and_what_a_comparison_rests_on_is_told(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("ANYGRPO_LANG", "en")

    def run(name, seed, rate, prompts=8, step=4):
        folder = tmp_path / name
        (folder / "evaluations").mkdir(parents=True)
        (folder / "config.toml").write_text(f"seed = {seed}\n[optimizer]\nlearning_rate = {rate}\n")
        (folder / "metrics.jsonl").write_text("")
        rows = [{"prompt": i, "text": f"q{i}", "output": "", "reward": math.sin(7 * seed + i + rate), "components": {},
                 "valid": True} for i in range(prompts)]  # fmt: skip
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (folder / "evaluations" / f"step_{step:08d}.jsonl").write_text(text)
        return str(folder)

    a, b = ([run(f"{name}{seed}", seed, rate) for seed in range(2)] for name, rate in (("a", 0.1), ("b", 0.2)))
    assert main(["compare", *a, *b]) == 0
    assert "step" not in capsys.readouterr().out  # all alike: nothing to tell
    copied = run("copy", 1, 0.1)
    assert main(["compare", *a, copied, *b]) == 2
    said = capsys.readouterr().err
    assert "a1 and " in said
    assert "the same recipe and the same seed" in said
    assert main(["compare", *a, copied, *b, "--lang", "zh"]) == 2
    assert "不是两个种子" in capsys.readouterr().err
    monkeypatch.setenv("ANYGRPO_LANG", "en")
    short = run("b2", 2, 0.2, prompts=5, step=2)
    assert main(["compare", *a, *b, short]) == 0
    said = capsys.readouterr().out
    assert "(2 + 3 seeds, 5 prompts)" in said
    assert "3 held-out prompts are not in all of these evaluations and were left out" in said
    assert f"last evaluated at different steps: {a[0]} 4, " in said
    assert f"{short} 2" in said
    read: list[Path] = []
    kept = compare._answers
    monkeypatch.setattr(compare, "_answers", lambda file: read.append(file) or kept(file))
    assert compared(capsys, *a, *b, short)["compared"]["prompts_left_out"] == 3
    assert len(read) == len(set(read)) == 5  # each evaluation once
    assert compared(capsys, b[0], short)["results"]["prompts_left_out"] == 3
    assert main(["compare", b[0], short, "--weights", "none", "--lang", "zh"]) == 0
    assert "最后一次评测的步数不同：A 4, B 2" in capsys.readouterr().out


def test_a_folder_without_a_run_is_a_data_error(runs, tmp_path, capsys):
    assert main(["compare", runs["a"], str(tmp_path)]) == 3
    assert "holds no run" in capsys.readouterr().err


def test_accuracy_of_a_yes_or_no_reward_gets_mcnemar(tmp_path, capsys):
    for name, wins in (("x", [1, 1, 1, 0, 0, 0]), ("y", [0, 0, 0, 0, 0, 1])):
        folder = tmp_path / name / "evaluations"
        folder.mkdir(parents=True)
        (tmp_path / name / "config.toml").write_text("seed = 0\n")
        (tmp_path / name / "metrics.jsonl").write_text('{"step": 0, "reward/mean": 0.5}\n')
        lines = [
            {
                "prompt": i,
                "text": f"p{i}",
                "output": "o",
                "reward": 0.1 * w,
                "components": {"correct": w},
                "valid": True,
            }
            for i, w in enumerate(wins)
        ]
        (folder / "step_00000004.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    report = compared(capsys, str(tmp_path / "x"), str(tmp_path / "y"), "--weights", "none")
    accuracy = report["results"]["accuracy"]
    assert accuracy["measure"] == "correct"
    assert accuracy["mcnemar"] == {"only_a": 3, "only_b": 1, "p": 2 * (1 + 4) / 16}
    assert math.isclose(accuracy["difference"], -1 / 3)

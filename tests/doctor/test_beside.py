"""Settings that a framework recorded beside its log."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from anygrpo.doctor import diagnose_log, read
from anygrpo.doctor.configs import read_settings
from anygrpo.doctor.prescriptions import advice
from anygrpo.doctor.words.tell import book

ARGS = {"rlhf_type": "grpo", "learning_rate": 1e-6, "beta": 0.04, "num_generations": 8, "max_completion_length": 512,
        "num_iterations": 1, "steps_per_generation": 4, "gradient_accumulation_steps": 2, "seed": 42}  # fmt: skip


def swift(folder: Path) -> Path:
    """An output folder as ms-swift writes it: a counter in words, and a last line with the whole history."""
    folder.mkdir(parents=True)
    rows = [
        {"loss": 0.0, "reward": 0.2 + 0.01 * (i % 3), "reward_std": 0.3, "kl": 0.001, "learning_rate": 1e-6,
         "completions/clipped_ratio": 0.6, "global_step/max_steps": f"{i}/40", "elapsed_time": "1m 2s",
         "train_speed(s/it)": 12.1}
        for i in range(1, 41)
    ]  # fmt: skip
    (folder / "args.json").write_text(json.dumps(ARGS))
    last = json.dumps({"global_step": 40, "log_history": rows})
    (folder / "logging.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n" + last + "\n")
    (folder / "checkpoint-40").mkdir()
    state = {"log_history": [row | {"step": i} for i, row in enumerate(rows, 1)], "max_steps": 40}
    (folder / "checkpoint-40" / "trainer_state.json").write_text(json.dumps(state))
    return folder


@pytest.mark.parametrize("place", ["", "logging.jsonl", "checkpoint-40", "checkpoint-40/trainer_state.json", ".."])
def test_swifts_arguments_are_read_wherever_its_log_is_given(tmp_path: Path, place: str) -> None:
    folder = swift(tmp_path / "out" / "v0")
    found = diagnose_log(read(folder / place))
    assert (found.run.rows, found.run.framework) == (40, "ms-swift")
    assert found.run.steps_per_row == 1
    assert max(found.run.steps.values()) == 40
    assert found.run.settings["beta"] == 0.04
    assert found.run.settings["seed"] == 42
    assert any("args.json" in note for note in found.run.notes)
    assert found.first is not None
    assert found.first.rule == "truncation"
    assert "`--max_completion_length` to 1024 (now 512)" in " ".join(advice(found.first, found.run, book("en").advice))


def test_a_rollout_that_lasts_for_two_updates_is_two(tmp_path: Path) -> None:
    """steps_per_generation 4 at 2 accumulated batches an update; with one of them alone the number is not known."""
    path = tmp_path / "args.json"
    path.write_text(json.dumps(ARGS))
    assert read_settings(path)["updates_per_batch"] == 2
    path.write_text(json.dumps({k: v for k, v in ARGS.items() if k != "gradient_accumulation_steps"}))
    assert "updates_per_batch" not in read_settings(path)
    path.write_text(json.dumps({k: v for k, v in ARGS.items() if k != "steps_per_generation"} | {"num_iterations": 3}))
    assert read_settings(path)["updates_per_batch"] == 3


def test_hydras_configuration_and_no_other_files(tmp_path: Path) -> None:
    (tmp_path / ".hydra").mkdir()
    yaml = "actor_rollout_ref:\n  actor:\n    kl_loss_coef: 0.001\n    optim:\n      lr: 1e-6\n"
    (tmp_path / ".hydra" / "config.yaml").write_text(yaml)
    (tmp_path / "train.log").write_text(
        "\n".join(f"step:{i} - critic/score/mean:0.5 - actor/lr:1e-6" for i in range(9))
    )
    assert read(tmp_path).settings["beta"] == 0.001
    assert read(tmp_path / "train.log").settings == {}  # a file is not taken to be the run's only one
    (tmp_path / "args.json").write_text(json.dumps(ARGS))
    (tmp_path / "other.jsonl").write_text(json.dumps({"step": 1, "reward": 0.5}))
    assert read(tmp_path / "other.jsonl").settings == {}

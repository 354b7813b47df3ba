"""`anygrpo verify`: what is whole is said so, what is damaged is named, what is not the run's is left alone."""

from __future__ import annotations

import json
import shutil

import pytest
from runs import run_of, train

from anygrpo.cli.main import main


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("v") / "run"
    run = run_of(folder, training={"steps": 4, "checkpoint_every": 2}, evaluation={"every": 2})
    train(run)
    run.close()
    return folder


def said(folder, capsys):
    code = main(["verify", str(folder), "--json"])
    answer = json.loads(capsys.readouterr().out)
    return code, {p["name"]: p for p in answer["parts"]}, answer["resumes_at"]


def test_a_whole_run(made, capsys):
    code, parts, at = said(made, capsys)
    assert (code, at) == (0, 4)
    assert {p["state"] for p in parts.values()} == {"whole"}
    assert {"config.toml", "metrics.jsonl", "fingerprints.json", "checkpoints/step_00000004", "checkpoints/best"} <= {
        *parts
    }
    assert main(["verify", str(made / "checkpoints" / "best")]) == 0


def test_damage_is_named_and_the_step_to_go_on_from_is_the_sound_one(made, tmp_path, capsys):
    run = tmp_path / "run"
    shutil.copytree(made, run)
    last = run / "checkpoints" / "step_00000004"
    (last / "policy.safetensors").write_bytes((last / "policy.safetensors").read_bytes()[:-1])
    (run / "metrics.jsonl").open("a").write('{"st')
    shutil.copytree(last, run / "checkpoints" / "step_00000001.bak")
    code, parts, at = said(run, capsys)
    assert (code, at) == (3, 2)
    assert parts["checkpoints/step_00000004"]["state"] == "damaged"
    assert "policy.safetensors has" in parts["checkpoints/step_00000004"]["why"]
    assert parts["metrics.jsonl"]["why"] == "1 of 5 lines cannot be read"
    assert parts["checkpoints/step_00000001.bak"]["state"] == "other"
    assert main(["verify", str(run), "--lang", "zh"]) == 3
    assert "--resume 将从第 2 步继续" in capsys.readouterr().out


def test_no_run_is_said(tmp_path):
    assert main(["verify", str(tmp_path)]) == 3
    assert main(["verify", str(tmp_path / "nothing")]) == 3

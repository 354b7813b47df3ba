"""`anygrpo chaos`: blows that land, and a verdict that can be no."""

from __future__ import annotations

import json

import pytest
from runs import run_of, toml_of, train

from anygrpo.cli import chaos
from anygrpo.cli.main import main


def made(folder, **extra):
    run = run_of(folder, **({"training": {"steps": 4, "checkpoint_every": 2}} | extra))
    train(run)
    run.close()
    return folder


def test_the_outcome_is_of_numbers_and_weights_not_of_seconds(tmp_path):
    a, b = made(tmp_path / "a"), made(tmp_path / "b")
    assert chaos.outcome(a) == chaos.outcome(b)
    other = made(tmp_path / "c", optimizer={"learning_rate": 0.0200001})
    assert chaos.outcome(other)[1] != chaos.outcome(a)[1]
    with (b / "metrics.jsonl").open("a") as file:
        file.write('{"step": 4}\n')
    assert chaos.outcome(b)[0] != chaos.outcome(a)[0]
    assert chaos.outcome(tmp_path / "nothing")[1] == ""


def test_what_is_said():
    assert chaos.sentence(chaos.Result("SIGKILL", -9, True), "en") == "SIGKILL (exit -9): equal, bit for bit"
    assert "NOT EQUAL" in chaos.sentence(chaos.Result("SIGKILL", -9, False), "en")
    assert "未试" in chaos.sentence(chaos.Result("SIGKILL", None, None, "x"), "zh")


def dealt(tmp_path, monkeypatch, capsys, blows):
    monkeypatch.delenv("PYTHONPATH", raising=False)
    monkeypatch.setattr(chaos, "BLOWS", blows)
    monkeypatch.setattr(chaos, "_SHORT", 0.3)
    recipe = toml_of(tmp_path / "run", tmp_path / "r.toml")
    assert main(["chaos", str(recipe), "--json"]) == 0
    results = json.loads(capsys.readouterr().out)["results"]
    assert all(r["equal"] for r in results), results
    assert not (tmp_path / "run").exists()
    return {r["blow"]: r["ended"] for r in results}


def test_a_blow_to_a_recipe(tmp_path, monkeypatch, capsys):
    assert dealt(tmp_path, monkeypatch, capsys, ("SIGKILL",))["SIGKILL"] in (-9, 0)


@pytest.mark.slow
@pytest.mark.timeout(1800)  # some twenty starts of Python, on a machine with much to do
def test_all_blows_to_a_recipe(tmp_path, monkeypatch, capsys):
    ended = dealt(tmp_path, monkeypatch, capsys, chaos.BLOWS)
    assert ended["disk full"] == 4
    assert ended["SIGTERM"] == ended["SIGHUP"] == 130


def test_a_recipe_that_does_not_repeat_is_found_out(tmp_path, monkeypatch, capsys):
    monkeypatch.delenv("PYTHONPATH", raising=False)  # toys is found as this process finds it
    monkeypatch.chdir(tmp_path)
    (tmp_path / "random.py").write_text("raise ImportError('of the folder that the user happens to be in')")
    monkeypatch.setattr(chaos, "BLOWS", ("again",))
    monkeypatch.setattr(chaos, "_SHORT", 0.0)
    (tmp_path / "t.py").write_text(
        "import os\nfrom toys import BestArm\n"
        "class T(BestArm):\n    def __init__(self, **k):\n        super().__init__(seed=os.getpid())\n"
    )
    recipe = toml_of(tmp_path / "run", tmp_path / "r.toml", task={"kind": "python", "function": f"{tmp_path}/t.py:T"})
    assert main(["chaos", str(recipe)]) == 4
    assert "does not repeat itself even undisturbed" in capsys.readouterr().out


def test_a_run_that_does_not_repeat_itself_is_refused(tmp_path, capsys):
    recipe = toml_of(tmp_path / "run", tmp_path / "recipe.toml", training={"steps": 4, "max_staleness": 1})
    assert main(["chaos", str(recipe)]) == 2
    assert "does not repeat itself" in capsys.readouterr().err

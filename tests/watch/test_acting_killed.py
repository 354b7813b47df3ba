"""The doctor's levers survive a kill: a run that ends in the middle of an act, resumed, is as one never killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from cut_acts import MOMENTS, alert, deal, explosive, outcome

from anygrpo.errors import DataError
from anygrpo.train.build import new_run, resumed_run
from anygrpo.train.run import Run
from anygrpo.watch import live
from anygrpo.watch.acting import Actor
from anygrpo.watch.levers import Setting, ShadowLevers
from anygrpo.watch.live import attach_doctor
from anygrpo.watch.session import go


class PowerCut(BaseException):
    pass


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory) -> tuple:
    folder = tmp_path_factory.mktemp("whole") / "run"
    with pytest.MonkeyPatch.context() as patch:
        alert(patch)
        go(new_run(explosive(folder)), quiet=True)
    made = outcome(folder)
    first = made[2][0]
    assert (first["kind"], first["rule"]) == ("roll_back", "log_ratio_explosion")
    assert first["step"] == 6
    assert first["checkpoint"] == "step_00000004"
    assert "relax" in [one["kind"] for one in made[2]]
    return made


@pytest.mark.parametrize("moment", MOMENTS)
def test_cut_in_the_middle_of_an_act(moment, undisturbed, tmp_path, monkeypatch):
    def cut() -> None:
        raise PowerCut

    alert(monkeypatch)
    run = new_run(explosive(tmp_path / "run"))
    with monkeypatch.context() as patch:
        deal(moment, cut, patch)
        with pytest.raises(PowerCut):
            go(run, quiet=True)
    go(resumed_run(tmp_path / "run"), quiet=True)
    assert outcome(tmp_path / "run") == undisturbed


@pytest.mark.parametrize("after", [*range(1, 24, 2)])
def test_cut_after_any_row(after, undisturbed, tmp_path, monkeypatch):
    """Before the act, after it, while it holds: what was done, and what may still be done, are as if never cut."""
    alert(monkeypatch)
    rows = 0

    def cut(*_: Any) -> None:
        nonlocal rows
        rows += 1
        if rows == after:
            raise PowerCut

    run = new_run(explosive(tmp_path / "run"))
    run.sinks.append(type("Cut", (), {"write": cut, "close": lambda self: None})())
    with pytest.raises(PowerCut):
        go(run, quiet=True)
    go(resumed_run(tmp_path / "run"), quiet=True)
    assert outcome(tmp_path / "run") == undisturbed


def in_modes(folder: Path, *parts: tuple[str, int]) -> tuple[Run, dict[str, Any]]:
    """A run in parts, each in its mode and for so many rows (those taken back among them), with its doctor.json."""
    for number, (mode, rows) in enumerate(parts):
        if number:
            run = resumed_run(folder, [f"--doctor.mode={mode}"])
        else:
            recipe = explosive(folder)
            run = new_run(recipe.model_copy(update={"doctor": recipe.doctor.model_copy(update={"mode": mode})}))
        if number < len(parts) - 1:
            left = iter(range(rows - 1, -1, -1))
            run.observers.append(lambda _, run, left=left: None if next(left) else run.stop("cut"))
        go(run, quiet=True)
    return run, json.loads((folder / "doctor.json").read_text())


def test_what_a_shadow_would_have_done_is_not_done(undisturbed, tmp_path, monkeypatch, capsys):
    alert(monkeypatch)
    run, told = in_modes(tmp_path / "late", ("shadow", 8), ("act", 0))
    assert "would have: doctor turn (log_ratio_explosion)" in capsys.readouterr().err
    assert told["shadow"] is False
    assert told["actions"] == []  # nothing was turned, so that nothing is to be taken back
    assert vars(run.controls) == vars(Setting())
    in_modes(tmp_path / "early", ("shadow", 7), ("act", 0))
    assert outcome(tmp_path / "early") == undisturbed  # what a shadow has seen is what an actor would have


def test_what_was_done_is_no_shadows(tmp_path, monkeypatch, capsys):
    """Acts, goes on as a shadow, then acts again: the record is apart, the setting and the budget stay."""
    alert(monkeypatch)
    run, told = in_modes(tmp_path / "run", ("act", 9), ("shadow", 0))
    assert told["shadow"] is True
    assert [one["kind"] for one in told["acted"]] == ["roll_back"]
    assert {one["kind"] for one in told["actions"]} == {"relax"}
    assert told["in_force"] == told["acted"][0]["after"] == vars(run.controls)
    assert "stays in force: learning_rate 0.01, beta_at_least 2, clip 0.5" in capsys.readouterr().err


@pytest.mark.parametrize("between", ["shadow", "watch"])
def test_who_acts_again_goes_on_from_what_was_done(between, tmp_path, monkeypatch):
    alert(monkeypatch)
    run, told = in_modes(tmp_path / "run", ("act", 9), (between, 3), ("act", 0))
    assert [one["kind"] for one in told["actions"]][:2] == ["roll_back", "relax"]
    assert told["actions"][1]["before"] == told["actions"][0]["after"]
    assert "acted" not in told
    assert vars(run.controls) == told["actions"][-1]["after"]


SCRIPT = """
import os, signal, sys
from pathlib import Path
import pytest
from cut_acts import alert, deal, explosive
from anygrpo.train.build import new_run
from anygrpo.watch import session
alert(patch := pytest.MonkeyPatch())
deal(sys.argv[1], lambda: os.kill(os.getpid(), signal.SIGKILL), patch)
session.go(new_run(explosive(Path(sys.argv[2]))), quiet=True)
"""


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("moment", MOMENTS)
def test_killed_in_the_middle_of_an_act(moment, undisturbed, tmp_path, monkeypatch):
    words = [sys.executable, "-c", SCRIPT, moment, str(tmp_path / "run")]
    done = subprocess.run(words, env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)})
    assert done.returncode == -signal.SIGKILL
    alert(monkeypatch)
    go(resumed_run(tmp_path / "run"), quiet=True)
    assert outcome(tmp_path / "run") == undisturbed


def test_what_is_kept_is_what_decides():
    """An actor that goes on from another's state decides as that one would have."""
    whole, row = Actor(ShadowLevers(), 3, belief=None), {"log_ratio/abs_max": 7.0}
    whole.consider({"step": 1} | row, [])
    again = Actor(ShadowLevers(), 3, belief=None)
    again.load(json.loads(json.dumps(whole.state())))
    assert again.state() == whole.state()
    assert again.setting.learning_rate == 0.1
    fresh = Actor(ShadowLevers(), 3, belief=None)
    assert again.consider({"step": 2} | row, []) is None  # it waits, as it would have
    assert fresh.consider({"step": 2} | row, []) is not None


@pytest.mark.parametrize("bad", ["x", None, -1.0, float("nan"), float("inf"), True])
def test_a_factor_that_is_none_is_told(bad):
    state = Actor(ShadowLevers(), 3).state()
    for key, value in (("setting", {"beta": bad}), ("undo", [{"clip": bad}])):
        with pytest.raises((TypeError, ValueError)):
            Actor(ShadowLevers(), 3).load(state | {key: value})


@pytest.mark.parametrize("bad", [{"actor": {}}, {"doctor": None}, {"seconds": ["x"]}, {"waiting": None}])
def test_a_state_that_is_none_is_told(bad, tmp_path):
    run = new_run(explosive(tmp_path / "run"))
    run.watched = live.LiveWatch(run).state() | bad
    with pytest.raises(DataError, match="does not fit this run"):
        attach_doctor(run)
    run.close()

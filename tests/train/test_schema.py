"""state.json that is JSON and agrees with its manifest, and holds other things than a run writes."""

from __future__ import annotations

import copy
import json
import random
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from runs import toml_of

from anygrpo.algorithm.allocation import Seen
from anygrpo.algorithm.statistics import PromptHistory, RunningState
from anygrpo.cli.main import main
from anygrpo.core.rollout import Rollout
from anygrpo.errors import DataError
from anygrpo.train import checkpoint, schema
from anygrpo.train.spread import PromptBook, number_of

VALUES: list[Any] = [None, [], {}, "x", -1, 10**30, 1e308, [[[]]], {"tensor": "none"}, True, "DELETE", {"float": "nan"}]


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    """With running statistics, a KL controller and a rollout sampled ahead."""
    place = tmp_path_factory.mktemp("made")
    algorithm = {"prompts_per_step": 4, "group_size": 4, "advantage": "running", "beta": 0.1}
    toml_of(place / "run", place / "r.toml", evaluation={"every": 2},
            training={"steps": 6, "checkpoint_every": 4, "off_policy_steps": 1},
            algorithm=algorithm | {"kl_controller": "proportional"})  # fmt: skip
    assert main(["train", str(place / "r.toml"), "--quiet"]) == 0
    shutil.rmtree(place / "run" / "checkpoints" / "step_00000006")  # at step 4 a rollout was ahead
    shutil.rmtree(place / "run" / "checkpoints" / "best")
    shutil.copytree(place / "run" / "checkpoints" / "step_00000004", place / "run" / "checkpoints" / "best")
    return place / "run"


def state_of(run: Path) -> dict:
    return json.loads((run / "checkpoints" / "step_00000004" / "state.json").read_text())


def places(node: Any, path: tuple = ()) -> list[tuple]:
    if path[-1:] == ("samples",):  # the policy's own
        return []
    pairs = list(node.items() if isinstance(node, dict) else enumerate(node[:3]) if isinstance(node, list) else ())
    return [path] * bool(path) + [place for key, value in pairs for place in places(value, (*path, key))]


def changed(state: dict, place: tuple, value: Any) -> dict:
    state = copy.deepcopy(state)
    holder = state
    for key in place[:-1]:
        holder = holder[key]
    if value == "DELETE":
        del holder[place[-1]]
    else:
        holder[place[-1]] = value
    return state


def ends(made: Path, folder: Path, state: dict) -> list[int]:
    run = folder / "run"
    shutil.rmtree(run, ignore_errors=True)
    shutil.copytree(made, run)
    for one in (run / "checkpoints").iterdir():
        (one / "state.json").write_text(json.dumps(state))
        (one / "manifest.json").unlink()
        checkpoint._seal(one)
    return [main(["train", "--resume", str(run), "--training.steps", "6", "--quiet"]), main(["evaluate", str(run)])]


def tried(made: Path, folder: Path, these: slice, capsys) -> None:
    state = state_of(made)
    assert state["state"]["ahead"]["record"] == "Rollout"
    todo = [(place, value) for place in places(state) for value in VALUES]
    random.Random(3).shuffle(todo)
    for place, value in todo[these]:
        codes = ends(made, folder, changed(state, place, value))
        assert set(codes) <= {0, 2, 3, 4}, (place, value, capsys.readouterr().err)


def test_some(made, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(checkpoint, "flush", lambda path: None)
    tried(made, tmp_path, slice(12), capsys)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("part", range(8))
def test_every_value_replaced_by_another(made, tmp_path, monkeypatch, capsys, part):
    monkeypatch.setattr(checkpoint, "flush", lambda path: None)
    tried(made, tmp_path, slice(part, None, 8), capsys)


@pytest.mark.parametrize(
    ("key", "bad"),
    [("step", -1), ("step", True), ("version", 1e9), ("beta", -0.1), ("beta", float("nan")), ("best", (0.1, 2)),
     ("controls", {"learning_rate": 1.0}), ("draws", [0]), ("updater", {}), ("ahead", {}), ("anchor", {"w": 1}),
     ("adaptive", {"temperature": "hot"}), ("queue", {"begun": []}), ("policy", None), ("running", "x")],
)  # fmt: skip
def test_what_is_not_of_its_form_is_named(key, bad):
    with pytest.raises(DataError, match=f"does not fit this run: {key} = "):
        schema.check({key: bad}, Path("c"))


def test_any_prompts_number_is_of_its_form():
    book = PromptBook({number_of("a prompt"): Seen(1.0, 0.5, 0.25)}, 0.0, 1.0)
    assert max(book.seen) > 2**53  # else it would prove nothing
    state = {"temperature": 1.0, "ahead": None, "rewards": (0.0, 1.0), "book": book.state()}
    schema.check({"adaptive": state}, Path("c"))
    with pytest.raises(DataError):
        schema.check({"adaptive": state | {"book": [0.0, 1.0, [[2**63, 1.0, 1.0, 1.0]]]}}, Path("c"))


def test_what_a_run_writes_is_of_its_form(made):
    _, state = checkpoint.load(made / "checkpoints" / "step_00000004")
    assert set(schema.FORMS) == set(state)
    schema.check(state, made)
    schema.check(dict.fromkeys(("running", "beta", "updater", "anchor", "ahead", "queue")), made)


def test_the_end_of_memory_is_no_fault_of_the_checkpoints(tmp_path):
    for error in (torch.OutOfMemoryError("CUDA out of memory"), RuntimeError("[enforce fail] can't allocate memory")):
        with pytest.raises(type(error), match="memory"), schema.fitting(tmp_path):
            raise error
    with pytest.raises(DataError, match="does not fit this run"), schema.fitting(tmp_path):
        raise RuntimeError("size mismatch")


def test_what_no_run_writes_is_refused_by_its_form():
    sound = RunningState(mean=-1.0, variance=2.0, weight=0.5)
    assert schema._memory(sound)
    assert not schema._memory(replace(sound, variance=-1.0))
    assert not schema._memory(replace(sound, weight=-0.5))
    assert schema._memory(PromptHistory({3: (0.5,)}, size=1))
    for wrong in (PromptHistory({"3": (0.5,)}), PromptHistory({3: ("x",)}), PromptHistory({3: (0.5,)}, size=0)):
        assert not schema._memory(wrong)
    assert not schema._updater([])
    assert not schema._adaptive([])
    assert schema._whole(2**53)
    assert not schema._whole(2**53 + 1)


def test_a_rollout_of_a_checkpoint_has_reasons_and_turns_rewards_of_its_samples():
    sound = Rollout.of({}, torch.zeros(2, 3, 1), torch.ones(2, 3, 1, dtype=torch.bool), reasons={(0, 1): "late"})
    assert schema._rollout(sound)
    for wrong in (
        {"reasons": [1]},
        {"reasons": {(0, 1): 3}},
        {"turn_rewards": torch.zeros(3, 3, 1)},
        {"turn_rewards": 1},
    ):
        assert not schema._rollout(replace(sound, **wrong))

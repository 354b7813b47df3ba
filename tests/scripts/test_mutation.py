"""What scripts/mutation.py remembers between runs: which verdicts stand, which mutants are to be judged."""

import importlib.util
import json
from pathlib import Path

import pytest

pytest.importorskip("mutmut", reason="mutmut is part of the extra dev")
SCRIPT = Path(__file__).parents[2] / "scripts/mutation.py"
spec = importlib.util.spec_from_file_location("mutation", SCRIPT)
mutation = importlib.util.module_from_spec(spec)
spec.loader.exec_module(mutation)

SOURCES = {"anygrpo.room.__init__": "0", "anygrpo.room.a": "1", "anygrpo.room.b": "2"}
A1, A2, A3, B1 = (f"anygrpo.room.{m}.x_f__mutmut_{i}" for m, i in [("a", 1), ("a", 2), ("a", 3), ("b", 1)])


def states(modules):
    return {name: mutant["state"] for module in modules.values() for name, mutant in module["mutants"].items()}


def first_run():
    return mutation.merged({}, {A1: "killed", A2: "survived", A3: "not checked", B1: "timeout"}, SOURCES)


def test_the_first_run_judges_every_module():
    assert mutation.pending({}, SOURCES) == ["anygrpo.room.x*", "anygrpo.room.a.x*", "anygrpo.room.b.x*"]


def test_later_runs_judge_survivors_and_what_was_not_reached():
    assert mutation.pending(first_run(), SOURCES) == [A2, A3]


def test_verdicts_stand_until_judged_again():
    again = {A1: "not checked", A2: "killed", A3: "survived", B1: "not checked"}
    expected = {A1: "killed", A2: "killed", A3: "survived", B1: "timeout"}
    assert states(mutation.merged(first_run(), again, SOURCES)) == expected


def test_a_changed_module_is_judged_anew(tmp_path):
    mutation.save(tmp_path / "results.json", first_run())
    changed = SOURCES | {"anygrpo.room.a": "9"}
    known = mutation.load(tmp_path / "results.json", changed)
    assert states(known) == {B1: "timeout"}
    assert mutation.pending(known, changed) == ["anygrpo.room.a.x*"]
    assert mutation.load(tmp_path / "none.json", SOURCES) == {}


def test_mutants_of_a_package_file_belong_to_it():
    name = "anygrpo.room.x_f__mutmut_1"
    modules = mutation.merged({}, {name: "survived"}, SOURCES)
    assert list(modules["anygrpo.room.__init__"]["mutants"]) == [name]


def test_states_are_read_from_what_mutmut_writes(tmp_path):
    meta = tmp_path / "mutants/src/a.py.meta"
    meta.parent.mkdir(parents=True)
    meta.write_text(json.dumps({"exit_code_by_key": {A1: 1, A2: 0, A3: None, B1: 36}}))
    expected = {A1: "killed", A2: "survived", A3: "not checked", B1: "timeout"}
    assert mutation.judged(tmp_path) == expected


def test_the_score_counts_judged_mutants(capsys):
    mutation.report("room", first_run())
    assert "room: 2 of 3 judged mutants killed (66.7%); 4 in all" in capsys.readouterr().out


def test_own_sources_do_not_hide_the_mutants(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", f"{mutation.ROOT / 'src'}:/elsewhere")
    assert mutation.search_path() == "/elsewhere"

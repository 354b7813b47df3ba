"""The mutator: which changes it makes, which tests judge them, what counts as killed."""

import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[2] / "scripts"


@pytest.fixture(scope="module")
def mutation():
    sys.path.insert(0, str(SCRIPTS))
    try:
        yield importlib.import_module("mutation")
    finally:
        sys.path.remove(str(SCRIPTS))


def lines(mutation, source: str) -> set[str]:
    """Every mutant's changed line."""
    found = mutation.mutants("room/a.py", source.encode())
    texts = [m.apply(source.encode()).decode() for m in found]
    before = source.splitlines()
    return {after.strip() for t in texts for after in t.splitlines() if after not in before}


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("y = a < b", {"y = (a <= b)"}),
        ("y = a + b * c", {"y = (a - b * c)", "y = a + (b / c)"}),
        ("y = a and not b", {"y = (a or not b)", "y = a and (b)"}),
        ("y = f(a, b=True)", {"y = (f(a))", "y = f(a, b=False)"}),
        ("y += 2", {"y -= 2", "pass", "y += (3)"}),
        ("return a", {"return None"}),
        ("a.b = c", {"pass"}),
        ("if a: f()", {"if (not a): f()", "if a: pass"}),
        ("raise ValueError(1 + 2)", set()),
        ("y: Literal[1] = a", set()),
        ("y = x.any(-1)", {"y = x.any(-(2))"}),  # not (1), which is the same axis of two
        ("y = f'{a + 1}'", set()),
    ],
)
def test_one_change_at_a_time(mutation, line, expected):
    assert lines(mutation, f"def g(a, b, c, x, y):\n    {line}\n") == expected


def test_docstrings_and_what_type_checkers_read_stay(mutation):
    source = '"""One."""\nif TYPE_CHECKING:\n    n = 1\n\n\nclass A:\n    """Two."""\n'
    assert mutation.mutants("room/a.py", source.encode()) == []


def test_the_tests_that_touch_the_line_judge_its_own_room_first(mutation):
    mutant = mutation.Mutant("room/a.py", "f", "constant", (3, 4), (0, 1), "2")
    tests = {
        "tests/other/test_b.py::quick": {"seconds": 0.1, "lines": {"room/a.py": [4]}},
        "tests/room/test_a.py::slow": {"seconds": 5.0, "lines": {"room/a.py": [3, 9]}},
        "tests/room/test_a.py::elsewhere": {"seconds": 0.1, "lines": {"room/a.py": [9]}},
    }
    touching = ["tests/room/test_a.py::slow", "tests/room/test_c.py::quick", "tests/other/test_b.py::quick"]
    tests["tests/room/test_c.py::quick"] = tests["tests/other/test_b.py::quick"]
    assert mutation.judges(mutant, tests, 60) == [*touching, "tests/room/test_a.py::elsewhere"]
    unseen = mutation.Mutant("room/a.py", "f", "constant", (1, 1), (0, 1), "2")
    assert len(mutation.judges(unseen, tests, 60)) == 4
    assert mutation.judges(unseen, tests, 60)[0] == "tests/room/test_a.py::elsewhere"  # of its module


def test_exit_codes_of_pytest(mutation):
    codes = {0: "survived", 1: "killed", 2: "killed", -11: "killed", None: "timeout", 4: "not judged", 5: "not judged"}
    assert {code: mutation.verdict(code) for code in codes} == codes


def test_survivors_that_are_explained_are_counted_apart(mutation, tmp_path, capsys):
    (tmp_path / "e.toml").write_text(
        '[["room/a.py"]]\nline = "return a < b"\ntext = "(a <= b)"\nwhy = "equal is as good"\n'
    )
    reasons, source = mutation.explained(tmp_path / "e.toml"), b"def f(a, b):\n    return a < b\n"
    verdicts = {
        m.text: mutation.with_reason("survived", m, source, reasons) for m in mutation.mutants("room/a.py", source)
    }
    assert verdicts == {"(a <= b)": "explained", "return None": "survived"}
    same = mutation.mutants("room/a.py", source)
    assert [mutation.with_reason("killed", m, source, reasons) for m in same] == ["killed", "killed"]
    rows = [{"file": "room/a.py", "verdict": v} for v in ("killed", "explained", "survived", "not judged")]
    mutation.report(rows, 4)
    said = capsys.readouterr().out
    assert "1 of 3 judged mutants killed (33.3%)" in said
    assert "without 1 explained survivors: 1 of 2 (50.0%)" in said


def test_an_explanation_goes_stale_with_its_line(mutation, tmp_path):
    (tmp_path / "a.py").write_text("def f(a, b):\n    return a < b\n")
    fits = mutation.Explained("a.py", "return a < b", "why")
    others = [
        mutation.Explained("a.py", "return a < c", "why"),
        mutation.Explained("a.py", "return a < b", "why", "(a > b)"),
        mutation.Explained("gone.py", "return a < b", "why"),
    ]
    assert mutation.stale([fits, *others], tmp_path) == others


def test_no_explanation_is_stale(mutation):
    entries = mutation.explained(mutation.EXPLAINED)
    assert entries
    assert all(len(entry.why) > 20 for entry in entries)
    assert mutation.stale(entries, mutation.ROOT / mutation.SOURCE) == []


@pytest.mark.slow
def test_a_real_mutant_dies_and_an_untested_one_lives(tmp_path):
    """In the real tree: a flipped bound of a schedule is noticed by its tests, and by no test of something else."""
    verdicts = {}
    for tests in ("tests/algorithm/test_schedules.py", "tests/scripts/test_audit.py"):
        command = [sys.executable, "scripts/mutation.py", "algorithm/schedules.py", "--mutants", "2", "--tests", tests]
        subprocess.run([*command, "--results", tmp_path / "r.json"], cwd=SCRIPTS.parent, check=True, timeout=300)
        verdicts[tests] = {r["verdict"] for r in json.loads((tmp_path / "r.json").read_text())}
    assert "killed" in verdicts["tests/algorithm/test_schedules.py"]
    assert verdicts["tests/scripts/test_audit.py"] == {"survived"}

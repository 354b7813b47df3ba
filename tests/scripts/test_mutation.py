"""The mutator: which changes it makes, which tests judge them, what counts as killed."""

import importlib
import json
import subprocess
import sys
import time
from dataclasses import asdict
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
    codes[mutation.CUT] = "unfinished"
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
    verdicts = ("killed", "explained", "survived", "unfinished", "not judged")
    mutation.report([{"file": "room/a.py", "verdict": v} for v in verdicts], 9)
    said = capsys.readouterr().out
    assert "1 of 4 judged mutants killed (25.0%, 95% interval 4.6% to 69.9%); 9 exist" in said
    assert "without 1 explained survivors: 1 of 3 (33.3%" in said


def test_survivors_are_found_again_by_what_they_change(mutation, tmp_path):
    """Of all statements that could be taken out of one function, the one that was."""
    file = "train/shown.py"
    source = (mutation.ROOT / mutation.SOURCE / file).read_bytes()
    every = mutation.mutants(file, source)
    rows = [asdict(m) | {"verdict": "killed", "diff": mutation.difference(m, source)} for m in every]
    rows[2]["verdict"] = "survived"
    (tmp_path / "r.json").write_text(json.dumps(rows))
    assert mutation.survivors(tmp_path / "r.json") == [every[2]]


def test_the_interval_is_wilsons(mutation):
    assert mutation.wilson(81, 263) == pytest.approx((0.2553, 0.3662), abs=5e-5)  # Newcombe 1998, method 3
    assert mutation.wilson(20, 20) == pytest.approx((0.8389, 1.0), abs=5e-5)


def test_mutants_of_all_modules_come_in_one_order_of_the_seed(mutation):
    files = ["train/shown.py", "train/trackers.py", "train/pictures.py"]
    first, again, other = (mutation.drawn(files, seed) for seed in (1, 1, 2))
    assert first == again != other
    assert set(first) == set(other)
    assert len(set(first)) == len(first)
    assert len({m.file for m in first[:12]}) > 1  # not a module after the other


def test_what_is_under_way_when_time_is_up_is_told(mutation, tmp_path):
    """Nothing begins in the rest; who still runs at the end has neither passed nor failed."""
    told = []

    def job(name: str) -> object:
        body = lambda folder: (["--co", "-p", "no:cacheprovider", str(tmp_path / name)], Slow)  # noqa: E731
        return mutation.Job(body, lambda folder, code: told.append((name, code)), limit=60.0)

    class Slow:
        def pytest_configure(self, config) -> None:
            time.sleep(30)

    (tmp_path / "copy").mkdir()
    end = time.monotonic() + 1.5
    mutation.work(iter([job("first"), job("second")]), [tmp_path / "copy"], end, rest=1.0)
    assert told == [("first", mutation.CUT)]
    assert time.monotonic() < end + 10


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

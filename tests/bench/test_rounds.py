"""What all comparisons share: runs in turn, the same work or a refusal, records by hand, gradients apart."""

from __future__ import annotations

import json
import sys

import pytest
import torch

from anygrpo.bench import rounds
from anygrpo.bench.rounds import Worker
from anygrpo.errors import DataError, TrainingError


def run(step: float, decisions: int = 8, peak: float = 1.0, parameters: int = 5) -> rounds.Run:
    steps = [{"phases": {"step": [s, s / 2], "train": [s / 4, s / 8]}, "decisions": decisions} for s in (99.0, step)]
    return {"steps": steps, "peak_gb": peak, "parameters": parameters}


def test_a_record_by_hand():
    row = rounds.record("c", {"anygrpo": [run(2.0), run(4.0)], "p": [run(8.0, parameters=7), run(4.0, peak=3.0)]}, 2)
    assert (row["ours_s"], row["peer_s"], row["ours_cpu_s"], row["peer_cpu_s"]) == (3.0, 6.0, 1.5, 3.0)
    assert (row["ratio"], row["ratio_min"], row["ratio_max"]) == (2.5, 1.0, 4.0)
    assert (row["ours_peak_gb"], row["peer_peak_gb"]) == (1.0, 3.0)
    assert row["phases"]["ours"] == {"train": {"s": 0.75, "cpu_s": 0.375}}
    assert (row["decisions"], row["decisions_per_s"]) == (8, 8 / 3.0)
    assert row["parameters"] == {"ours": 5, "peer": 7}


def test_without_a_peer_there_is_no_ratio():
    row = rounds.record("c", {"anygrpo": [run(2.0)]}, 1)
    assert row["ours_s"] == 2.0
    assert "ratio" not in row


def test_unequal_work_is_refused():
    with pytest.raises(TrainingError, match=r"not the same work.*8.*7"):
        rounds.record("c", {"anygrpo": [run(2.0)], "p": [run(2.0, decisions=7)]}, 1)


def test_relative_distance_by_hand():
    ours = {"a": torch.tensor([3.0, 4.0]), "b": torch.tensor([1.0])}
    theirs = {"a": torch.tensor([3.0, 4.0]), "b": torch.tensor([0.0])}
    assert rounds.relative_distance(ours, theirs) == {"gradient_relative_difference": 0.2, "gradient_norm": 5.0}
    with pytest.raises(TrainingError, match=r"different parameters.*c"):
        rounds.relative_distance(ours, theirs | {"c": torch.ones(1)})


def test_sides_run_in_turn_and_only_the_first_saves(monkeypatch):
    seen = []

    def fake(self, arguments, threads, case):
        seen.append((self.name, [a for a in arguments if a in ("--save", "--check")], threads))
        return {"gradient_relative_difference": 0.5} if "--check" in arguments else run(1.0)

    monkeypatch.setattr(Worker, "run", fake)
    workers = {"anygrpo": Worker("anygrpo", "x"), "p": Worker("p", "y")}
    sides, agreement = rounds.alternate("c", {"name": "c"}, workers, 2, 3, 4, gradient=True)
    assert [name for name, _, _ in seen] == ["anygrpo", "p", "anygrpo", "p", "p"]
    assert [flags for _, flags, _ in seen] == [["--save"], [], [], [], ["--check"]]
    assert {threads for _, _, threads in seen} == {4}
    assert agreement == {"gradient_relative_difference": 0.5}
    assert {name: len(runs) for name, runs in sides.items()} == {"anygrpo": 2, "p": 2}


def test_a_worker_gives_its_last_line_or_its_complaint(tmp_path, monkeypatch):
    (tmp_path / "fine.py").write_text("import json, sys\nprint('{noise')\nprint(json.dumps({'args': sys.argv[1:]}))\n")
    (tmp_path / "bad.py").write_text("raise ValueError('out of luck')\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert Worker("w", "fine").run(["--x", json.dumps(1)], 3, "c")["args"] == ["--x", "1", "--threads", "3"]
    with pytest.raises(TrainingError, match=r"(?s)the w process of case c failed.*out of luck"):
        Worker("w", "bad").run([], 1, "c")


def test_what_a_peer_lacks_is_named():
    Worker("p", "x").need(("json",), "cure")
    with pytest.raises(DataError, match="the peer p needs nosuchpackage, not installed here") as caught:
        Worker("p", "x").need(("json", "nosuchpackage"), "pip install it")
    assert caught.value.cure == "pip install it"
    with pytest.raises(DataError, match=r"needs nosuchpackage\.part"):
        Worker("p", "x").need(("nosuchpackage.part",), "cure")
    with pytest.raises(DataError, match="no interpreter"):
        Worker("p", "x", "/nowhere/python").need(("json",), "cure")


def test_another_environment_is_asked_itself(tmp_path):
    link = tmp_path / "python"
    link.symlink_to(sys.executable)
    other = Worker("p", "x", str(link))
    other.need(("json",), "cure")
    with pytest.raises(DataError, match="'s environment"):
        other.need(("nosuchpackage",), "cure")

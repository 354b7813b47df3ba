"""Two commands from a user's files to picks, whatever the layout; a portable folder that loads in one line."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from anygrpo.cli.main import main
from anygrpo.errors import ConfigError, DataError
from anygrpo.selection.apply import apply
from anygrpo.selection.build import build
from anygrpo.selection.export import about, export, load
from anygrpo.selection.layouts import write_stored
from anygrpo.selection.settings import SelectorConfig
from anygrpo.selection.stored_query import Candidate, StoredQuery

KINDS, WIDTH, ITEMS = 4, 8, 24


@pytest.fixture
def files(tmp_path):
    """120 queries over one pool of 24; a selection is right if it holds an item of the query's kind."""
    draw = np.random.default_rng(0)
    centres = draw.normal(size=(KINDS, WIDTH))
    of_item, of_query = draw.integers(KINDS, size=ITEMS), draw.integers(KINDS, size=120)
    for name, kinds in (("queries", of_query), ("candidates", of_item)):
        table = centres[kinds] + 0.7 * draw.normal(size=(len(kinds), WIDTH))
        np.savez(tmp_path / f"{name}.npz", ids=np.arange(len(kinds)) + 100, embeddings=table)
    queries = []
    for q, kind in enumerate(of_query):
        rows = []
        for _ in range(8):
            at = tuple(int(i) for i in draw.choice(ITEMS, 2, replace=False))
            right = float(any(of_item[i] == kind for i in at))
            parts = {"correct": right, "accuracy_score": right, "gt_prob": 0.1 + 0.7 * right}
            rows.append(Candidate(at, "random", parts, -6.3))
        queries.append(StoredQuery(str(q + 100), tuple(range(100, 100 + ITEMS)), tuple(rows)))
    return tmp_path, queries, of_item, of_query


def rewritten(path, layout):
    """As writers of other years would have left it."""
    table = json.loads(path.read_text())
    for entry in table.values() if layout in ("stale", "bare", "mixed") else ():
        for i, row in enumerate(entry["pointer_candidates"]):
            if layout == "stale":
                ids, at = row["pointer"], row["pointer_pos"]
                row |= {"pointer": at, "pointer_global": ids, "pointer_pos": ids}
            elif layout == "bare" or i % 2:
                del row["pointer_pos"]
            if i == 7:
                row["vqa_eval_mode"] = "fallback"
    if layout != "legacy":
        table["_meta"] = {"created_at": "2025"}
    path.write_text(json.dumps(table))


@pytest.mark.parametrize("layout", ["pool", "fixed", "legacy", "stale", "bare", "mixed"])
def test_fit_then_pick_on_each_layout(files, layout, capsys):
    folder, queries, of_item, of_query = files
    write_stored(folder / "c.json", queries, layout if layout in ("fixed", "legacy") else "pool")
    rewritten(folder / "c.json", layout)
    tables = ["--queries", str(folder / "queries.npz"), "--candidates", str(folder / "candidates.npz")]
    out = ["--out", str(folder / "out")]
    assert main(["select", "fit", str(folder / "c.json"), *tables, *out, "--json", "--policy.hidden", "32"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["mode"] == ("info_score" if layout == "legacy" else "hard01_plus_gtprob")
    picks = folder / "picks.jsonl"
    arguments = ["select", "pick", str(folder / "out" / "selector"), *tables, "--pool", "0", "--out", str(picks)]
    assert main(arguments) == 0
    rows = [json.loads(line) for line in picks.read_text().splitlines()]
    assert [row["query"] for row in rows] == [str(q + 100) for q in range(120)]
    right = [any(of_item[int(i) - 100] == kind for i in row["picks"]) for row, kind in zip(rows, of_query)]
    # Two random items are right in .44 of the queries. The legacy layout has no pools but what candidates hold.
    assert np.mean(right) > (0.5 if layout == "legacy" else 0.75)
    assert all(0 < p <= 1 for row in rows for p in (*row["probabilities"], row["probability"]))


def test_fit_reports_quality_and_a_comparison(files, capsys):
    folder, queries, *_ = files
    write_stored(folder / "c.json", queries)
    rewritten(folder / "c.json", "stale")
    tables = ["--queries", str(folder / "queries.npz"), "--candidates", str(folder / "candidates.npz")]
    assert main(["select", "fit", str(folder / "c.json"), *tables, "--out", str(folder / "out")]) == 0
    said = capsys.readouterr().out
    for words in (
        "reward hard01_plus_gtprob",
        "Pointer_pos is stale",
        "120 of 960 candidates are left out",
        "policy - nearest",
        "value on support",
        "anygrpo select pick",
    ):
        assert words in said, words


def test_fit_with_a_scorer_goes_on_online(files, capsys):
    folder, queries, of_item, of_query = files
    write_stored(folder / "c.json", queries)
    for name, kinds in (("queries", of_query), ("candidates", of_item)):
        words = ("one", "two", "three", "four")
        rows = [
            {"id": str(i + 100), "text": f"{words[k]} thing number {i}", "answer": int(k)} for i, k in enumerate(kinds)
        ]
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    (folder / "own.py").write_text(
        "def judge(query, demonstrations):\n"
        "    n = sum(d['answer'] == query['answer'] for d in demonstrations)\n"
        "    return {'correct': float(n > 0), 'accuracy_score': float(n > 0), 'gt_prob': n / 2}\n"
    )
    tables = ["--queries", str(folder / "queries.jsonl"), "--candidates", str(folder / "candidates.jsonl")]
    scorer = ["--scorer", f"{folder}/own.py:judge", "--embedding", "ngrams", "--stages.1.steps", "5"]
    assert main(["select", "fit", str(folder / "c.json"), *tables, "--out", str(folder / "out"), *scorer]) == 0
    assert "policy - zero_shot" in capsys.readouterr().out
    assert about(folder / "out" / "selector") == {"pool": ITEMS, "ids": "two", "embedding": "ngrams"}
    npz = ["--queries", str(folder / "queries.npz"), "--candidates", str(folder / "candidates.npz")]
    assert main(["select", "fit", str(folder / "c.json"), *npz, "--out", str(folder / "o2"), *scorer[:2]]) == 2
    assert "not both JSONL" in capsys.readouterr().err


# --- the folder ----------------------------------------------------------------------------------------------


def test_what_was_exported_picks_the_same(files, tmp_path):
    folder, *_ = files
    config = {"kind": "selector", "features": WIDTH, "width": 16, "shots": 3, "stop": True, "min_shots": 1}
    policy = build(SelectorConfig(**config), 3)
    written = export(policy, tmp_path / "s", pool=5)
    assert [f.name for f in written] == ["selector.safetensors", "selector.json", "export.json"]
    inputs = {"queries": folder / "queries.npz", "candidates": folder / "candidates.npz", "pool": 5}
    seen = []
    rows = apply(load(tmp_path / "s"), inputs, progress=lambda done, n: seen.append((done, n)))
    assert rows == apply(policy, inputs, tmp_path / "out.jsonl")
    assert [json.loads(x) for x in (tmp_path / "out.jsonl").read_text().splitlines()] == rows
    assert seen == [(64, 120), (120, 120)]
    drawn = apply(policy, inputs, seed=1)
    assert drawn == apply(policy, inputs, seed=1)
    assert drawn != apply(policy, inputs, seed=2)


def test_probabilities_are_of_each_pick_given_those_before(tmp_path):
    torch.manual_seed(0)
    np.savez(tmp_path / "q.npz", ids=np.array(["q"]), embeddings=np.ones((1, 4)))
    np.save(tmp_path / "c.npy", np.eye(4)[:2])
    policy = build(SelectorConfig(kind="selector", features=4, width=8, shots=2), 0)
    (row,) = apply(policy, {"queries": tmp_path / "q.npz", "candidates": tmp_path / "c.npy"})
    assert row["probabilities"][1] == 1.0  # one is left
    assert row["probability"] == row["probabilities"][0]
    np.savez(tmp_path / "q.npz", ids=np.array(["0"]), embeddings=np.ones((1, 4)))
    with pytest.raises(DataError, match="2 picks from a pool of 1"):
        apply(policy, {"queries": tmp_path / "q.npz", "candidates": tmp_path / "c.npy", "ids": "one"})


def test_mistakes_are_sentences(files, tmp_path):
    folder, *_ = files
    policy = build(SelectorConfig(kind="selector", features=3, width=8), 0)
    inputs = {"queries": folder / "queries.npz", "candidates": folder / "candidates.npz"}
    with pytest.raises(ConfigError, match="queries have 8 features, the selector was trained on 3"):
        apply(policy, inputs)
    with pytest.raises(ConfigError, match=r"unknown .'quieries'., missing .'queries'."):
        apply(policy, {"quieries": 1, "candidates": 2})
    with pytest.raises(DataError, match="holds no selector"):
        load(tmp_path)
    export(policy, tmp_path / "s")
    settings = tmp_path / "s" / "selector.json"
    table = json.loads(settings.read_text())
    for change, message in (({"version": 99}, "is of version 99"), ({"policy": 1}, "no selector's settings")):
        settings.write_text(json.dumps(table | change))
        with pytest.raises(DataError, match=message):
            load(tmp_path / "s")


def test_tables_that_are_exchanged_are_told(tmp_path, capsys):
    for name, letter in (("q.npz", "q"), ("c.npz", "c")):
        np.savez(tmp_path / name, ids=[f"{letter}{i}" for i in range(9)], embeddings=np.eye(9, dtype=np.float32))
    rows = {
        f"q{i}": {"id_list": [["c1", "c2", f"q{i}"], ["c3", "c1", f"q{i}"]], "score_list": [0.1, 0.9]} for i in range(9)
    }
    (tmp_path / "c.json").write_text(json.dumps(rows))
    given = [
        "--queries",
        str(tmp_path / "c.npz"),
        "--candidates",
        str(tmp_path / "q.npz"),
        "--out",
        str(tmp_path / "o"),
    ]
    assert main(["select", "fit", str(tmp_path / "c.json"), *given]) == 3
    assert "the tables of queries and of candidates are exchanged" in capsys.readouterr().err

"""`anygrpo select` from end to end on a small selector."""

from __future__ import annotations

import json

import pytest

from anygrpo.cli.main import main

RECIPE = """
[policy]
kind = "selector"
features = 448
width = 8
shots = 2
[task]
kind = "digits_vqa"
embedding = "ngrams"
pool = 8
queries = 40
held_out = 20
[algorithm]
prompts_per_step = 4
group_size = 4
[optimizer]
learning_rate = 1e-2
[training]
steps = 3
threads = 1
"""

OFFLINE = RECIPE.replace(
    'kind = "digits_vqa"', 'kind = "stored_candidates"\npath = "{file}"\n[task.live]\nkind = "digits_vqa"'
)


@pytest.fixture
def recipe(tmp_path):
    (tmp_path / "r.toml").write_text(RECIPE)
    return tmp_path / "r.toml"


def test_generate_inspect_train_offline_and_evaluate(recipe, tmp_path, capsys):
    stored = tmp_path / "c.json"
    assert (
        main(["select", "generate", str(recipe), "--out", str(stored), "--queries", "12", "--policy.width", "16"]) == 0
    )
    capsys.readouterr()
    assert main(["select", "inspect", str(stored), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["queries"], report["layout"], report["pointer_is"]) == (12, "pool", "global")
    assert set(report["methods"]) == {"beam", "sample", "random", "retrieval"}
    assert report["propensities"]["deterministic"] == report["methods"]["beam"] + report["methods"]["retrieval"]

    (tmp_path / "offline.toml").write_text(
        OFFLINE.format(file=stored) + '[[stages]]\nname = "grpo"\nsource = "stored"\nsteps = 2\n'
    )
    for seed in (0, 1):
        run = str(tmp_path / f"run{seed}")
        assert main(["train", str(tmp_path / "offline.toml"), "--quiet", "--folder", run, "--seed", str(seed)]) == 0
    capsys.readouterr()
    assert (
        main(["select", "evaluate", str(tmp_path / "run0"), str(tmp_path / "run1"), "--queries", "16", "--json"]) == 0
    )
    report = json.loads(capsys.readouterr().out)
    assert (report["queries"], report["runs"], report["shots"]) == (16, 2, [1, 2])
    assert set(report["accuracy"]) == {"policy", "start", "nearest", "random", "zero_shot", "oracle"}
    assert all(
        best >= max(row[k] for row in report["accuracy"].values())
        for k, best in enumerate(report["accuracy"]["oracle"])
    )
    assert "1: all" in report["oracle"]
    for name, row in report["paired"].items():
        runs = [run["difference"] for run in report["paired_by_run"][name]]
        assert sum(runs) / 2 == pytest.approx(row["difference"])
    one, two = report["accuracy"]["policy"]
    assert report["more_shots"]["2 shots - 1"]["difference"] == pytest.approx(two - one)
    assert report["change"]["exact KL to the start (nats)"] > 0
    row = json.loads((tmp_path / "run0" / "metrics.jsonl").read_text().splitlines()[-1])
    assert 0 < row["offline/coverage"] <= 1


def test_mistakes_are_sentences(recipe, tmp_path, capsys):
    assert main(["select", "inspect", str(tmp_path / "none.json")]) == 3
    assert main(["select", "generate", str(recipe), "--out", str(tmp_path / "x"), "--samples", "hot"]) == 2
    (tmp_path / "m.json").write_text(
        json.dumps({"q": {"pointer_candidates": [{"pointer": [1]}], "candidate_pool_ids": [1]}})
    )
    assert main(["select", "inspect", str(tmp_path / "m.json"), "--mode", "hard_plus_sotf"]) == 2
    assert "did you mean 'hard_plus_soft'?" in capsys.readouterr().err


def test_what_a_task_does_not_hold_out_is_refused(recipe, tmp_path, capsys):
    run = str(tmp_path / "run")
    assert main(["train", str(recipe), "--quiet", "--folder", run, "--training.steps", "1"]) == 0
    assert main(["select", "evaluate", run, "--split", "test"]) == 2
    assert "has one held-out set" in capsys.readouterr().err


def test_a_file_alone_cannot_judge_new_selections(recipe, tmp_path, capsys):
    import numpy as np

    stored = tmp_path / "c.json"
    assert main(["select", "generate", str(recipe), "--out", str(stored), "--queries", "2", "--beams", "1"]) == 0
    table = json.loads(stored.read_text())
    ids = [i for q in table.values() for i in q["candidate_pool_ids"]] + list(table)
    np.savez(tmp_path / "f.npz", ids=np.array(ids), embeddings=np.eye(len(ids), 448))
    text = RECIPE[: RECIPE.index("[task]")] + f'[task]\nkind = "stored_candidates"\npath = "{stored}"\n'
    (tmp_path / "s.toml").write_text(text + f'features = "{tmp_path / "f.npz"}"\n')
    assert main(["select", "generate", str(tmp_path / "s.toml"), "--out", str(tmp_path / "x.json")]) == 2
    assert "cannot judge new selections" in capsys.readouterr().err
    stage = 'held_out_share = 0.0\n[[stages]]\nname = "rce"\nmethod = "rce"\nsteps = 1\n'
    (tmp_path / "lone.toml").write_text((tmp_path / "s.toml").read_text() + stage)
    lone = str(tmp_path / "lone")
    assert main(["train", str(tmp_path / "lone.toml"), "--quiet", "--folder", lone]) == 0
    for flags, code, message in (([], 3, "holds no query out"), (["--queries", "9"], 2, "a fixed number of queries")):
        assert main(["select", "evaluate", lone, *flags]) == code
        assert message in capsys.readouterr().err


def test_runs_on_subsets_of_the_queries_make_one_table(recipe, tmp_path, capsys):
    """Shots 1 to 3, though training used 2; the larger subset holds the smaller."""
    runs = []
    for count in (10, 20):
        run = str(tmp_path / f"run{count}")
        assert main(["train", str(recipe), "--quiet", "--folder", run, "--task.queries", str(count)]) == 0
        runs.append(run)
    capsys.readouterr()
    assert main(["select", "evaluate", *runs, "--shots", "3", "--oracle-sets", "0", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    rows = report["by_training_queries"]["rows"]
    assert [row["training_queries"] for row in rows] == [10, 20]
    assert report["shots"] == [1, 2, 3]
    assert rows[1]["accuracy"] == report["accuracy"]["policy"]
    assert all(len(row["accuracy"]) == 3 and len(row["paired"]) == 2 for row in rows)
    assert main(["select", "evaluate", *runs, "--oracle-sets", "0"]) == 0
    assert "training queries" in capsys.readouterr().out

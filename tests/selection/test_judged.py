"""One's own queries, candidates and scorer: every verb and every stage takes them."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from anygrpo.cli.main import main
from anygrpo.core.build import build_task as build
from anygrpo.errors import DataError
from anygrpo.selection.file_settings import JudgedConfig
from anygrpo.selection.layouts import read_stored

SCORER = """
def judge(query, demonstrations):
    if query["id"].endswith("7"):
        return None
    right = [d["answer"] == query["answer"] for d in demonstrations]
    return {"correct": float(any(right)), "gt_prob": (1 + sum(right)) / (2 + len(right))}
"""


@pytest.fixture
def files(tmp_path):
    """40 queries and 12 candidates of 4 kinds; embeddings say the kind."""
    draw = np.random.default_rng(0)
    kinds = np.eye(4, 6)
    for name, count in (("q", 40), ("c", 12)):
        of = [i % 4 for i in range(count)]
        rows = [{"id": f"{name}{i}", "question": f"number {i}", "answer": str(k)} for i, k in enumerate(of)]
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
        table = kinds[of] + 0.05 * draw.normal(size=(count, 6))
        np.savez(tmp_path / f"{name}.npz", ids=np.array([r["id"] for r in rows]), embeddings=table)
    (tmp_path / "own.py").write_text(SCORER)
    return tmp_path


def section(files, **changes):
    return {
        "kind": "judged",
        "queries": f"{files}/q.jsonl",
        "candidates": f"{files}/c.jsonl",
        "query_features": f"{files}/q.npz",
        "candidate_features": f"{files}/c.npz",
        "pool": 6,
        "scorer": {"kind": "python", "function": f"{files}/own.py:judge", "cache": f"{files}/j.sqlite"},
        "reward": {"mode": "hard01_plus_gtprob"},
    } | changes


def task(files, **changes):
    return build(JudgedConfig(**section(files, **changes)), 0)


def test_a_pool_is_the_nearest_candidates_and_a_selection_is_judged(files):
    t = task(files)
    prompt = t.prompt("q5")
    assert {int(i[1:]) % 4 for i in prompt["ids"]} >= {1}
    assert {"c1", "c5", "c9"} <= set(prompt["ids"])
    right, wrong = prompt["ids"].index("c1"), next(i for i, c in enumerate(prompt["ids"]) if int(c[1:]) % 4 != 1)
    parts = t.judge([prompt], [[(right,), (wrong, right), (wrong,), ()]])
    assert parts["correct"].tolist() == [[1, 1, 0, 0]]
    assert parts["gt_prob"].tolist() == [pytest.approx([2 / 3, 1 / 2, 1 / 3, 1 / 2])]
    assert len(task(files, pool=0).prompt("q5")["ids"]) == 12


def test_what_the_scorer_cannot_judge_is_invalid_with_its_reason(files):
    t = task(files)
    scores = t.score([t.prompt("q7"), t.prompt("q4")], [[(0, 1)], [(0, 1)]])
    assert scores.valid.tolist() == [[False], [True]]
    assert scores.reasons == {(0, 0): "the judge returned None"}
    assert torch.isfinite(scores.rewards).all()


def test_what_is_not_judged_is_unknown_and_counts_as_nothing(files):
    t = task(files, held_out_share=1 / 4)
    prompts = [t.prompt(f"q{i}") for i in range(28)]
    outputs = [[(0, 1)] for _ in prompts]
    scores = t.score(prompts, outputs)
    assert scores.faults.sum() == 3  # q7, q17, q27: no fault of the selection's
    assert torch.equal(scores.faults, ~scores.valid)
    correct = t.judge(prompts, outputs)["correct"]
    row = t.measure(prompts, outputs)
    assert row["eval/accuracy"] == pytest.approx(correct[~scores.faults].mean().item())
    assert (row["eval/judged"], row["eval/in_support"], row["eval/decides"]) == (25, 25 / 28, 0)
    more = prompts + [t.prompt(f"q{i}") for i in range(28, 36)]
    assert t.measure(more, [[(0, 1)] for _ in more])["eval/decides"] == 1
    whole = [t.prompt("q1"), t.prompt("q2")]
    assert t.score(whole, outputs[:2]).faults is None
    assert "eval/judged" not in t.measure(whole, outputs[:2])


def test_a_spent_budget_ends_no_run_and_is_no_wrong_answer(files, capsys):
    scorer = {"kind": "python", "function": f"{files}/own.py:judge", "cache": f"{files}/b.sqlite", "budget": 40}
    (files / "r.toml").write_text(POLICY + toml(section(files, scorer=scorer)))
    run = files / "run"
    assert main(["train", str(files / "r.toml"), "--folder", str(run), "--quiet"]) == 0
    assert "the budget of 40 scorer calls is spent" in capsys.readouterr().err
    last = json.loads((run / "metrics.jsonl").read_text().splitlines()[-1])
    assert "eval/reward" not in last or last["eval/faults"] < 1
    assert last["eval/faults"] > 0
    assert not (run / "checkpoints" / "best").exists()


def test_texts_are_embedded_where_there_are_no_tables(files):
    t = task(files, query_features=None, candidate_features=None, embedding="ngrams")
    assert t.prompt("q1")["query"].shape == (384,)


def test_faults_of_rows_are_sentences(files):
    for text, message in (
        ('{"id": 1}\n{"id": 1}\n', "holds id '1' twice"),
        ("[1]", "row 0 is no object"),
        ("{", "neither JSONL nor"),
        ("", "holds no rows"),
    ):
        (files / "q.jsonl").write_text(text)
        with pytest.raises(DataError, match=message):
            task(files)
    with pytest.raises(DataError, match="no rows at"):
        task(files, queries="none.jsonl")


POLICY = """
[policy]
kind = "selector"
features = 6
width = 16
shots = 2
[algorithm]
prompts_per_step = 8
group_size = 8
[optimizer]
learning_rate = 1e-2
[training]
threads = 1
steps = 3
[evaluation]
metric = "eval/accuracy"
"""


def toml(table, name="task"):
    inner = {k: v for k, v in table.items() if isinstance(v, dict)}
    lines = [f"[{name}]"] + [f"{k} = {json.dumps(v)}" for k, v in table.items() if k not in inner]
    return "\n".join(lines) + "\n" + "".join(toml(v, f"{name}.{k}") for k, v in inner.items())


def test_rce_from_a_file_then_online_grpo_with_one_s_own_scorer_is_one_recipe(files, capsys):
    (files / "online.toml").write_text(POLICY + toml(section(files)))
    stored = files / "c.json"
    assert main(["select", "generate", str(files / "online.toml"), "--out", str(stored), "--queries", "24"]) == 0
    failed = {q.id for q in read_stored(stored).queries if all(c.failed for c in q.candidates)}
    assert failed
    assert all(name.endswith("7") for name in failed)
    live = section(files)
    both = {"kind": "stored_candidates", "path": str(stored), "live": live, "reward": live["reward"]}
    stages = '[[stages]]\nname = "rce"\nmethod = "rce"\nsteps = 20\n[[stages]]\nname = "grpo"\nsteps = 10\n'
    (files / "both.toml").write_text(stages + POLICY.replace("steps = 3\n", "") + toml(both))
    run = str(files / "run")
    assert main(["train", str(files / "both.toml"), "--folder", run, "--quiet"]) == 0
    capsys.readouterr()
    assert main(["select", "evaluate", run, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["judged"]["policy"] == report["judged"]["random"]  # whatever is picked, but for what it cannot judge
    assert 0 < report["judged"]["policy"][0] <= report["queries"]
    assert report["accuracy"]["policy"][-1] > report["accuracy"]["random"][-1]
    rows = [json.loads(line) for line in (files / "run" / "metrics.jsonl").read_text().splitlines()]
    assert rows[-1]["eval/accuracy"] >= rows[0]["eval/accuracy"]


OWN_TASK = """
import torch
from anygrpo.core.rollout import Scores
from anygrpo.core.task import Task
class Mine(Task):
    def __init__(self, seed):
        self.size, self.table = 30, torch.randn(60, 6, generator=torch.Generator().manual_seed(0))
    def _prompt(self, q):
        return {"id": str(q), "query": self.table[q], "candidates": self.table[40:], "ids": list(range(40, 60)), "q": q}
    def prompts(self, step, count):
        return [self._prompt((step * count + i) % 30) for i in range(count)]
    def held_out(self):
        return [self._prompt(q) for q in range(30, 40)]
    def score(self, prompts, outputs):
        table, pool = self.table, [p["candidates"] for p in prompts]
        near = [[max(float(table[p["q"]] @ c[i]) for i in o) for o in row] for p, c, row in zip(prompts, pool, outputs)]
        return Scores(torch.tensor(near))
"""


def test_a_task_of_one_s_own_with_score_alone_passes_every_verb(files, capsys):
    """Its score is graded and has no answer to no demonstrations."""
    (files / "mine.py").write_text(OWN_TASK)
    (files / "mine.toml").write_text(
        POLICY.replace("accuracy", "reward") + f'[task]\nkind = "python"\nfunction = "{files}/mine.py:Mine"\n'
    )
    run = str(files / "run")
    assert main(["train", str(files / "mine.toml"), "--folder", run, "--quiet"]) == 0
    capsys.readouterr()
    assert main(["select", "evaluate", run, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["measure"] == "reward"
    assert report["accuracy"]["oracle"][1] >= report["accuracy"]["policy"][1]
    assert report["unknown"] == ["zero_shot"]
    assert "no demonstrations: ValueError" in report["notes"][0]
    stored = str(files / "c.json")
    assert main(["select", "generate", run, "--out", stored, "--queries", "30"]) == 0
    file = read_stored(stored)
    assert len(file.queries) == 30
    assert all(c.parts.keys() >= {"score"} for q in file.queries for c in q.candidates)
    capsys.readouterr()
    assert main(["select", "inspect", stored, "--mode", "score"]) == 0
    assert main(["select", "plan", run, "--against", "nearest"]) == 0
    assert "held-out queries" in capsys.readouterr().out


def test_a_task_that_fails_says_on_which_query(files, capsys):
    (files / "mine.py").write_text(OWN_TASK.replace("for i in o)", 'for i in o) / (p["q"] != 35)'))
    (files / "mine.toml").write_text(
        POLICY.replace("accuracy", "reward") + f'[task]\nkind = "python"\nfunction = "{files}/mine.py:Mine"\n'
    )
    assert main(["select", "evaluate", str(files / "mine.toml")]) == 3
    assert "Mine failed to judge selections (query '30' ...): ZeroDivisionError" in capsys.readouterr().err

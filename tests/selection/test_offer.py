"""What a query is offered travels with the selector: its picks are the run's, with nothing said by hand."""

from __future__ import annotations

import json

import numpy as np
import pytest

from anygrpo.cli.main import main
from anygrpo.core.build import build_task
from anygrpo.errors import DataError
from anygrpo.export import opened
from anygrpo.selection.apply import apply
from anygrpo.selection.build import build
from anygrpo.selection.export import about, export, load
from anygrpo.selection.layouts import write_stored
from anygrpo.selection.offer import Offer, offer_of
from anygrpo.selection.settings import SelectorConfig
from anygrpo.selection.stored_query import Candidate, StoredQuery

ITEMS, WIDTH, POOL = 90, 6, 5
HEAD = f"""[policy]
kind = "selector"
features = {WIDTH}
width = 16
shots = 2
evaluation_shots = 3
device = "cpu"
[algorithm]
prompts_per_step = 4
group_size = 4
[training]
steps = 2
threads = 1
"""


@pytest.fixture
def place(tmp_path):
    """90 items, each a query too."""
    rows = np.random.default_rng(0).normal(size=(ITEMS, WIDTH)).astype(np.float32)
    np.savez(tmp_path / "t.npz", ids=np.arange(ITEMS), embeddings=rows)
    lines = [json.dumps({"id": str(i), "text": f"item {i}", "answer": i % 3}) for i in range(ITEMS)]
    (tmp_path / "t.jsonl").write_text("\n".join(lines))
    (tmp_path / "own.py").write_text(
        "def judge(query, shown):\n    return float(shown[0]['answer'] == query['answer'])\n"
    )
    return tmp_path, rows


def stored(rows, own):
    """Each query's pool: its nearest others (and itself, where `own`)."""
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    queries = []
    for i, likeness in enumerate(unit @ unit.T):
        near = [int(j) for j in np.argsort(-likeness) if own or j != i][:POOL]
        at = [a for a in ((0, 1), (1, 2), (3, 4), (2, 3)) if i not in (near[a[0]], near[a[1]])]
        found = tuple(Candidate(a, "random", {"correct": float(k % 2)}, None) for k, a in enumerate(at))
        queries.append(StoredQuery(str(i), tuple(near), found))
    return queries


def the_runs_own(run):
    """Greedy picks over the run's own pools, as its evaluation makes them."""
    one = opened.load(run)
    task = build_task(one.recipe.resolved_stages()[-1].task, 0)
    prompts = [task.prompt(str(i)) for i in range(ITEMS)]
    chosen = one.policy.decode(one.policy.greedy(prompts).samples)
    return [[str(p["ids"][i]) for i in row[0]] for p, row in zip(prompts, chosen)]


def by_hand(selector, table, **more):
    return [row["picks"] for row in apply(load(selector), {"queries": table, "candidates": table, **more})]


@pytest.mark.parametrize("kind", ["live", "stored", "stored with itself"])
def test_an_export_picks_as_its_run(place, kind):
    folder, rows = place
    table, run, out = folder / "t.npz", folder / "run", folder / "s"
    task = f'[task]\nkind = "stored_candidates"\npath = "{folder}/c.json"\nfeatures = "{table}"\n'
    if kind == "live":
        task = f'[task]\nkind = "judged"\nqueries = "{folder}/t.jsonl"\ncandidates = "{folder}/t.jsonl"\nids = "one"\n'
        task += f'pool = {POOL}\nquery_features = "{table}"\ncandidate_features = "{table}"\n'
        task += f'[task.reward]\nmode = "score"\n[task.scorer]\nkind = "python"\nfunction = "{folder}/own.py:judge"\n'
    else:
        write_stored(folder / "c.json", stored(rows, kind == "stored with itself"))
    source = "" if kind == "live" else '[[stages]]\nname = "rce"\nmethod = "rce"\nsteps = 2\n'
    (folder / "r.toml").write_text(HEAD.replace("steps = 2\n", "" if source else "steps = 2\n") + task + source)
    assert main(["train", str(folder / "r.toml"), "--folder", str(run)]) == 0
    assert main(["export", str(run), "--to", str(out)]) == 0
    expected = the_runs_own(run)
    assert by_hand(out, table) == expected
    assert by_hand(out, table, pool=64, ids="two") != expected  # the offer is what decides
    for words in (["select", "pick", str(out), "--queries"], ["apply", str(run)], ["apply", str(out)]):
        file = folder / f"{len(words)}{words[-1][-3:]}.jsonl"
        assert main([*words, str(table), "--candidates", str(table), "--out", str(file)]) == 0
        assert [json.loads(line)["picks"] for line in file.read_text().splitlines()] == expected
    one = opened.load(run)
    told = offer_of(one.policy, one.recipe)
    assert (told.pool, told.ids, told.own_place) == (POOL, "one", kind != "stored")
    one.policy.offered = Offer()  # a run of before: its recipe and its file say the same
    assert offer_of(one.policy, one.recipe) == told
    compared = json.loads((out / "export.json").read_text())["compared"]
    assert compared["candidates"] > POOL + 3


def test_fit_and_the_export_of_its_run_pick_the_same(place):
    folder, rows = place
    write_stored(folder / "c.json", stored(rows, False))
    given = ["--queries", str(folder / "t.npz"), "--candidates", str(folder / "t.npz"), "--out", str(folder / "o")]
    assert main(["select", "fit", str(folder / "c.json"), *given, "--stages.0.epochs", "1"]) == 0
    assert main(["export", str(folder / "o" / "run"), "--to", str(folder / "s")]) == 0
    told = {"pool": POOL, "ids": "two"}
    assert about(folder / "s") == about(folder / "o" / "selector") == told
    assert by_hand(folder / "s", folder / "t.npz") == by_hand(folder / "o" / "selector", folder / "t.npz")


def test_an_older_export_loads_and_says_what_is_assumed(place, capfd):
    folder, _ = place
    export(build(SelectorConfig(kind="selector", features=WIDTH, width=16, device="cpu"), 0), folder / "s", pool=POOL)
    file, table = folder / "s" / "selector.json", folder / "t.npz"
    settings = json.loads(file.read_text())
    by_hand(folder / "s", table, ids="two")
    assert "assumed" not in capfd.readouterr().err
    file.write_text(json.dumps(settings | {"about": {}}))
    assert by_hand(folder / "s", table) == by_hand(folder / "s", table, pool=64, ids="two")
    said = capfd.readouterr().err
    assert "assumed: the 64 nearest candidates (--pool); equal ids are not the same item (--ids two)" in said
    file.write_text(json.dumps(settings | {"about": {"pool": "many"}}))
    with pytest.raises(DataError, match="pool = 'many'"):
        load(folder / "s")


def test_the_largest_pool_that_training_met_counts():
    prompts = [{"id": "7", "ids": [3, 7], "candidates": [0, 0], "excluded": [1]}, {"id": "8", "candidates": [0] * 3}]
    assert Offer().seen(prompts) == Offer(3, "one", True)
    assert Offer(4).seen(prompts[1:]) == Offer(4, None, False)

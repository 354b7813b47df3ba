"""Offline numbers: what a file does not hold is unknown, in no accuracy and no comparison."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from anygrpo.cli.main import main
from anygrpo.selection.evaluation import difference
from anygrpo.selection.known_outcomes import KnownOutcomes, difference_bounds, judged_row, paired_where_known
from anygrpo.selection.layouts import read_stored, write_stored
from anygrpo.selection.off_policy import doubly_robust, on_support, self_normalised
from anygrpo.selection.plan import plan
from anygrpo.selection.stored_query import Candidate, StoredQuery

NAN = math.nan


def test_unknown_is_neither_right_nor_wrong():
    found = KnownOutcomes.of(torch.tensor([1.0, 0.0, 1.0, NAN, NAN]))
    assert (found.n, found.known, found.mean) == (5, 3, pytest.approx(2 / 3))
    assert (found.low, found.high) == (0.4, 0.8)
    assert found.sentence == "0.667 (3 of 5 judged; over all 0.400 to 0.800)"
    assert KnownOutcomes.of(torch.tensor([NAN])).sentence == "unknown (0 of 1 judged)"


@given(st.lists(st.sampled_from([0.0, 1.0, NAN]), min_size=1, max_size=12), st.randoms())
def test_the_bounds_hold_for_every_way_to_fill_in(values, draw):
    found = KnownOutcomes.of(torch.tensor(values))
    filled = [x if math.isfinite(x) else float(draw.random() < 0.5) for x in values]
    assert found.low - 1e-6 <= sum(filled) / len(filled) <= found.high + 1e-6


def test_a_comparison_is_on_what_both_sides_have():
    """Zero-filling says b is better by .4 here; where both are judged a wins one of two."""
    a, b = torch.tensor([1.0, NAN, NAN, 1.0, NAN]), torch.tensor([0.0, 1.0, 1.0, 1.0, 1.0])
    result = paired_where_known(a, b)
    assert (result.n, result.difference, result.wins, result.losses) == (2, 0.5, 1, 0)
    assert difference_bounds(a, b) == (pytest.approx((1 - 1 - 1 + 0 - 1) / 5), pytest.approx(1 / 5))
    row = difference(a, b)
    assert row["n"] == 2
    assert "judged on both sides: 2 of 5" in row["verdict"]
    assert "no query of 1 on which both" in difference(torch.tensor([NAN]), torch.tensor([1.0]))["verdict"]


def test_a_thin_statistic_does_not_decide():
    correct, start = torch.tensor([1.0, NAN, 1.0]), torch.tensor([0.0, 0.0, NAN])
    row = judged_row(correct, start, least=3)
    assert (row["eval/judged"], row["eval/accuracy"], row["eval/decides"]) == (2.0, 1.0, 0.0)
    assert (row["eval/gain_on_support"], row["eval/gain_n"]) == (1.0, 1.0)
    assert judged_row(correct, start, least=2)["eval/decides"] == 1.0
    assert "eval/accuracy" not in judged_row(torch.tensor([NAN]), torch.tensor([NAN]), 1)


# --- estimates from propensities -----------------------------------------------------------------------------


def test_estimates_by_hand():
    # one query: weights 2 and .5 for rewards 1 and 0; a second: weight 1, reward 1
    pi, mu = [[math.log(0.4), math.log(0.2)], [math.log(0.3)]], [[math.log(0.2), math.log(0.4)], [math.log(0.3)]]
    rewards = [[1.0, 0.0], [1.0]]
    assert self_normalised(pi, mu, rewards).value == pytest.approx(3 / 3.5)
    # baselines: the other selection's reward (0, 1), and the mean of all others (.5)
    first, second = ((0 + 2 * (1 - 0)) + (1 + 0.5 * (0 - 1))) / 2, 0.5 + 1 * (1 - 0.5)
    assert doubly_robust(pi, mu, rewards).value == pytest.approx((first + second) / 2)
    assert "not usable: the weights amount to 2.3" in self_normalised(pi, mu, rewards).verdict
    coverage, value = on_support(pi, rewards)
    assert coverage.tolist() == [pytest.approx(0.6), pytest.approx(0.3)]
    assert value.tolist() == [pytest.approx(0.4 / 0.6), 1.0]


def test_estimates_find_the_value_of_another_policy():
    """Logged uniformly over 4 actions of reward 0, 0, 1, 1; the policy takes the last two with .9."""
    draw, pi = np.random.default_rng(0), np.log([0.05, 0.05, 0.45, 0.45])
    actions = draw.integers(4, size=(2000, 3))
    logs = [[float(pi[a]) for a in row] for row in actions], [[math.log(0.25)] * 3] * len(actions)
    rewards = [[float(a > 1) for a in row] for row in actions]
    for estimate in (self_normalised, doubly_robust):
        found = estimate(*logs, rewards)
        assert abs(found.value - 0.9) < 4 * found.se < 0.1


# --- what to score next --------------------------------------------------------------------------------------


def test_equal_picks_need_no_call():
    picks = [(0, 1)] * 50
    made = plan((picks, picks), (torch.full((50,), NAN),) * 2, ("policy", "start"), 0.05)
    assert (made.same, made.known, made.asks) == (50, 50, ())


def test_a_plan_says_how_many_calls_decide():
    n = 400
    mine, other = [(0, 1)] * n, [(0, 1)] * (n // 2) + [(2, 3)] * (n // 2)
    outcomes = torch.full((2, n), NAN)
    outcomes[1] = 1.0  # the other side is all judged
    made = plan((mine, other), (outcomes[0], outcomes[1]), ("policy", "start"), 0.08)
    assert (made.same, len(made.asks), made.assumed) == (200, 200, True)
    # spread sqrt(.5 / 2) = .5; (2.8 * .5 / .08)^2 = 306.25, so 307 queries, of which 200 are equal
    assert made.decides == 107
    assert "107 calls decide whether they differ by 0.080" in made.sentence
    assert plan((mine, other), (outcomes[0], outcomes[1]), ("p", "s"), 0.01).decides is None
    assert {ask.by for ask in made.asks} == {"policy"}


# --- from end to end -----------------------------------------------------------------------------------------

RECIPE = """
[policy]
kind = "selector"
features = 6
width = 8
shots = 2
[task]
kind = "stored_candidates"
path = "{folder}/c.json"
features = "{folder}/f.npz"
held_out_share = 0.5
min_judged = 20
[[stages]]
name = "rce"
method = "rce"
epochs = 1
[algorithm]
prompts_per_step = 8
group_size = 8
[training]
threads = 1
[evaluation]
metric = "eval/accuracy"
patience = 1
every = 1
"""


@pytest.fixture
def run(tmp_path):
    """A run on a file that holds two of the 30 pairs of each query."""
    draw = np.random.default_rng(0)
    queries = []
    for q in range(40):
        pairs = [tuple(map(int, draw.choice(6, 2, replace=False))) for _ in range(2)]
        rows = tuple(Candidate(p, "sample", {"correct": float(i)}, -3.4) for i, p in enumerate(dict.fromkeys(pairs)))
        queries.append(StoredQuery(f"q{q}", tuple(f"i{k}" for k in range(6)), rows))
    write_stored(tmp_path / "c.json", queries)
    names = [*(f"i{k}" for k in range(6)), *(f"q{i}" for i in range(40))]
    np.savez(tmp_path / "f.npz", ids=np.array(names), embeddings=draw.normal(size=(46, 6)))
    (tmp_path / "r.toml").write_text(RECIPE.format(folder=tmp_path))
    assert main(["train", str(tmp_path / "r.toml"), "--quiet", "--folder", str(tmp_path / "run")]) == 0
    return tmp_path / "run"


def test_evaluate_says_what_is_judged_and_a_plan_fills_the_gap(run, capsys):
    capsys.readouterr()
    assert main(["select", "evaluate", str(run), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["shots"] == [2]
    assert report["judged"]["policy"][0] < report["queries"] == 20
    assert "zero_shot" in report["unknown"]
    assert report["judged"]["oracle"] == [20]
    assert 0 < report["offline"]["coverage"] < 0.5
    assert {"self-normalised", "doubly robust"} <= report["offline"].keys()
    assert main(["select", "evaluate", str(run)]) == 0
    assert "judged:" in capsys.readouterr().out

    assert not (run / "checkpoints" / "best").exists()  # too little is judged to call one the best, or to stop early
    last = json.loads((run / "metrics.jsonl").read_text().splitlines()[-1])
    assert (last["eval/decides"], last["eval/judged"]) == (0.0, float(report["judged"]["policy"][0]))

    out = run.parent / "plan.json"
    arguments = ["select", "plan", str(run), "--against", "nearest", "--out", str(out), "--calls", "9999", "--json"]
    assert main(arguments) == 0
    unknown = json.loads(capsys.readouterr().out)["unknown"]
    table = json.loads(out.read_text())
    assert sum(len(q.get("pointer_candidates", [])) for q in table.values()) == unknown > 0
    for entry in table.values():
        for row in entry.get("pointer_candidates", []):
            row["vqa_correct"] = 1
    out.write_text(json.dumps(table))
    config = run / "config.toml"
    config.write_text(config.read_text().replace("more_files = []", f'more_files = ["{out}"]'))
    assert main(["select", "evaluate", str(run), "--json"]) == 0
    after = json.loads(capsys.readouterr().out)
    assert after["judged"]["policy"] == after["judged"]["nearest"] == [20]


def test_a_plan_that_nobody_scored_adds_nothing(run):
    out = run.parent / "plan.json"
    assert main(["select", "plan", str(run), "--against", "nearest", "--out", str(out)]) == 0
    candidates = [c for q in read_stored(out).queries for c in q.candidates]
    assert candidates
    assert all(c.parts == {} and c.method == "planned" for c in candidates)

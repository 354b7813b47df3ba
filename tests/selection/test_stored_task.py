"""Stored candidates: rewards, what a file can teach, and the task that feeds them to training."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from anygrpo.core.build import build_task as build
from anygrpo.errors import ConfigError, DataError
from anygrpo.selection.file_settings import StoredCandidatesConfig
from anygrpo.selection.layouts import read_stored, write_stored
from anygrpo.selection.quality import inspect, live, top_k, zscore
from anygrpo.selection.rewards import MODES, equivalent_modes, reward
from anygrpo.selection.settings import RewardConfig
from anygrpo.selection.stored_query import Candidate, StoredFile, StoredQuery


def candidate(selection, correct, method="sample", log_prob=-1.0, **parts):
    known = {"correct": float(correct), "accuracy_score": float(correct), "gt_prob": 0.1 + 0.5 * correct} | parts
    return Candidate(selection, method, known, log_prob)


# --- rewards -------------------------------------------------------------------------------------------------


def test_reward_modes_by_hand():
    parts = {
        "correct": torch.tensor([1.0, 0.0]),
        "accuracy_score": torch.tensor([0.6, 0.3]),
        "gt_prob": torch.tensor([0.5, 0.2]),
        "relevance": torch.tensor([0.9, 0.8]),
        "beam_score": torch.tensor([-1.0, -2.0]),
        "info_score": torch.tensor([-0.4, 0.3]),
        "score": torch.tensor([7.0, -7.0]),
    }
    expected = {
        "hard_plus_soft": [1.6, 0.3],
        "hard_plus_soft_v2": [2.6, 0.3],
        "separated": [2.6, 0.3],
        "hard_only": [1.0, 0.0],
        "soft_only": [0.6, 0.3],
        "hard01_plus_gtprob": [1.5, 0.2],
        "hard01_plus_gtprob_separated": [2.5, 0.2],
        "hard_plus_gtprob_plus_rel": [1.25, 0.1 + 0.3 * 0.8],
        "legacy": [0.8, -0.4],
        "legacy_pm1": [0.8, -1.4],
        "info_score": [-0.4, 0.3],
        "score": [7.0, -7.0],
        "hard_plus_gtprob": [1.5, 0.2],
    }
    assert expected.keys() == MODES.keys()
    for mode, values in expected.items():
        assert reward(parts, RewardConfig(mode=mode)).tolist() == pytest.approx(values), mode


def test_every_mode_the_recipe_accepts_exists_and_others_are_refused():
    for mode in RewardConfig.model_fields["mode"].annotation.__args__:
        assert mode in MODES
    with pytest.raises(ConfigError, match="unknown reward mode"):
        reward({}, RewardConfig.model_construct(mode="hard_plus_sotf"))
    with pytest.raises(ConfigError, match=r"needs .'gt_prob'.*carry .'correct'."):
        reward({"correct": torch.zeros(1)}, RewardConfig(mode="hard01_plus_gtprob"))


def test_with_two_levels_hard_and_soft_modes_cannot_differ():
    h = torch.tensor([[1.0, 0.0, 0.0], [0.0, 1.0, 1.0]])
    parts = {"correct": h, "accuracy_score": 0.3 + 0.4 * h, "gt_prob": torch.rand(2, 3)}
    classes = equivalent_modes(parts, torch.ones(2, 3, dtype=torch.bool))
    assert classes[0] == ["hard_plus_soft", "hard_plus_soft_v2", "hard_only", "soft_only", "separated"]
    parts["accuracy_score"] = torch.rand(2, 3)
    assert equivalent_modes(parts, torch.ones(2, 3, dtype=torch.bool))[0] == ["hard_plus_soft_v2", "separated"]


# --- the faults that kept a run flat -------------------------------------------------------------------------


def flat_file(queries=640, live_queries=4):
    """Queries whose 12 candidates hold 3 correct ones; in a few only 2, so that a top-3 keeps some spread there."""
    out = []
    for i in range(queries):
        wins = 2 if i < live_queries else 3
        row = tuple(candidate((k,), k < wins, "beam" if k < 5 else "sample", -1.0 - k) for k in range(12))
        out.append(StoredQuery(f"q{i}", tuple(range(12)), row))
    return StoredFile("pool", "global", tuple(out))


def test_top_k_by_reward_makes_groups_homogeneous_and_inspect_names_it():
    report = inspect(flat_file(), RewardConfig())
    assert report["groups"]["all"]["live_groups"] == 640
    assert report["groups"]["top_3_by_reward"]["live_groups"] == 4
    assert any("top_3_by_reward leaves 4 of 640 groups" in f for f in report["findings"])
    assert report["groups"]["top_3_by_reward"]["advantage_std"] < 0.09


def test_four_live_groups_of_640_give_the_flat_runs_advantage_spread():
    rewards = torch.ones(640, 5)
    rewards[:4, 4] = 1 - 0.0072  # spread far below the floor of .1
    advantages = zscore(rewards, torch.ones(640, 5, dtype=torch.bool), floor=0.1)
    assert live(rewards, torch.ones_like(rewards).bool()).sum() == 4
    assert advantages.abs().max() < 0.1
    assert advantages.std() < 0.01


def test_dead_components_are_named():
    file = StoredFile(
        "pool",
        "global",
        (
            StoredQuery(
                "q",
                (1, 2),
                (candidate((0,), 1, gt_prob=1e-6, relevance=0.5), candidate((1,), 0, gt_prob=0.0, relevance=0.5)),
            ),
        ),
    )
    assert inspect(file, RewardConfig())["dead_components"].keys() == {"gt_prob", "relevance"}


def test_minus_log_p_is_never_a_propensity():
    assert candidate((0,), 1, log_prob=2.3).propensity is None
    assert candidate((0,), 1, method="beam", log_prob=-2.3).propensity is None
    assert candidate((0,), 1, log_prob=-2.3).propensity == -2.3
    file = StoredFile("pool", "global", (StoredQuery("q", (1, 2), (candidate((0,), 1, log_prob=2.3),)),))
    assert any("above 0: -log p" in f for f in inspect(file, RewardConfig())["findings"])


def test_a_query_is_positive_by_correctness_not_by_reward():
    nearly = StoredQuery(
        "a", (1, 2), (Candidate((0,), "sample", {"correct": 0.0, "accuracy_score": 1.0, "gt_prob": 0.9}),)
    )
    weak = StoredQuery(
        "b", (1, 2), (Candidate((0,), "sample", {"correct": 1.0, "accuracy_score": 0.3, "gt_prob": 0.0}),)
    )
    assert (nearly.positive, weak.positive) == (False, True)  # their rewards are 1.0 and 1.3, or .9 and 1.0, by mode


def test_top_k_of_padded_groups_takes_real_ones():
    rewards, valid = torch.tensor([[0.0, 1.0, 9.0]]), torch.tensor([[True, True, False]])
    assert top_k(rewards, valid, 2).tolist() == [[True, True, False]]


# --- the task ------------------------------------------------------------------------------------------------


@pytest.fixture
def files(tmp_path):
    rng = np.random.default_rng(0)
    ids = [f"i{k}" for k in range(6)]
    queries = []
    for q in range(10):
        row = (
            candidate((0, 1), q % 2, "beam"),
            candidate((2, 3), 0, log_prob=-2.0),
            candidate((4, 5), 0, accuracy_score=0.4),
        )
        queries.append(StoredQuery(f"q{q}", tuple(ids), row))
    write_stored(tmp_path / "c.json", queries)
    names = [*ids, *(q.id for q in queries)]
    np.savez(tmp_path / "f.npz", ids=np.array(names), embeddings=rng.normal(size=(len(names), 6)))
    return {"path": str(tmp_path / "c.json"), "features": str(tmp_path / "f.npz")}


def task(files, **changes):
    return build(StoredCandidatesConfig(kind="stored_candidates", **(files | changes)), 0)


def test_stored_picks_cost_as_much_as_sampled_ones(files):
    free, costly = (task(files, reward={"per_shot": cost}) for cost in (0.0, 0.1))
    prompts = free.prompts(0, 2)
    plain, less = free.stored(prompts), costly.stored(prompts)
    for row, other, actions in zip(plain.rewards, less.rewards, plain.actions):
        assert [a - b for a, b in zip(row, other)] == pytest.approx([0.1 * len(action) for action in actions])


def test_the_file_feeds_training_and_answers_for_what_it_holds(files):
    t = task(files)
    assert (t.size, len(t.held_out())) == (8, 2)
    prompts = t.prompts(0, 4)
    stored = t.stored(prompts)
    assert stored.actions[0] == [(0, 1), (2, 3), (4, 5)]
    assert stored.log_probs is None
    scores = t.score(prompts, [[(0, 1), (3, 2), (0, 5)]] * 4)
    assert scores.rewards[:, 0].tolist() == [float(int(p["id"][1:]) % 2) for p in prompts]
    assert scores.valid.tolist() == [[True, True, False]] * 4  # (3, 2) is (2, 3) as a set; (0, 5) is unknown
    assert scores.faults.tolist() == [[False, False, True]] * 4  # unknown is not wrong
    assert "not among the stored candidates" in scores.reasons[0, 2]
    assert t.measure(prompts, [[(0, 1)], [(0, 5)], [(0, 1)], [(0, 1)]])["eval/in_support"] == 0.75


def test_scores_alone_choose_no_checkpoint_before_enough_of_them_are_known(files):
    few, enough = (task(files, min_judged=least) for least in (3, 2))
    picks = [[(0, 1)], [(0, 5)], [(0, 1)], [(0, 5)]]
    for t, decides in ((few, 0.0), (enough, 1.0)):
        t.parts = [name for name in t.parts if name != "correct"]  # a file of scores
        row = t.measure(t.prompts(0, 4), picks)
        assert (row["eval/judged"], row["eval/in_support"], row["eval/decides"]) == (2.0, 0.5, decides)


def test_positive_queries_and_the_quality_filter(files):
    assert {q["id"] for q in task(files, queries="positive").prompts(0, 4)} <= {"q1", "q3", "q5", "q7", "q9"}
    kept = task(files, min_score_when_wrong=0.3)
    actions = kept.stored([kept.prompt("q1"), kept.prompt("q0")]).actions
    assert actions == [[(0, 1), (4, 5)], [(4, 5)]]


def test_propensities_are_given_for_samples_alone(files):
    with pytest.raises(ConfigError, match="10 of 30 candidates have none"):
        task(files, propensities=True)
    t = task(files, propensities=True, methods=("sample",))
    assert t.stored([t.prompt("q0")]).log_probs == [[-2.0, -1.0]]


def test_missing_features_and_unfit_modes_are_named(files, tmp_path):
    np.savez(tmp_path / "g.npz", ids=np.array(["i0"]), embeddings=np.zeros((1, 6)))
    with pytest.raises(DataError, match="holds no embedding of 'q"):
        task(files, features=str(tmp_path / "g.npz")).prompts(0, 1)
    with pytest.raises(ConfigError, match=r"needs .'beam_score'.*\n.*modes that these data allow"):
        task(files, reward={"mode": "legacy"})


def test_a_quality_filter_that_takes_everything_is_blamed_and_not_what_comes_after():
    """With s = h, a floor on the score of wrong candidates removes all wrong ones."""
    candidates = tuple(candidate((i,), h, accuracy_score=h) for i, h in enumerate((1, 0, 1, 0)))
    file = StoredFile("pool", "global", (StoredQuery("q", tuple(range(4)), candidates),))
    findings = [f for f in inspect(file, RewardConfig(), min_score_when_wrong=0.05)["findings"] if "leaves" in f]
    assert findings == [
        "quality_filter leaves 0 of 1 groups with any spread (1.000 to 0.000). Only those carry gradient: use full "
        "groups."
    ]


# --- files of several writers --------------------------------------------------------------------------------


def test_legacy_weights_go_by_their_published_names():
    parts = {"correct": torch.tensor([1.0, 0.0]), "beam_score": torch.tensor([-1.0, -2.0])}
    assert reward(parts, RewardConfig(mode="legacy", alpha=0.5, beta=2.0)).tolist() == [1.5, -1.0]
    with pytest.raises(ValueError, match="alpha weigh the legacy modes, and mode = 'hard_only'"):
        RewardConfig(mode="hard_only", alpha=0.5)


def rows_of(tmp_path, *rows, queries=4):
    write_stored(tmp_path / "c.json", [StoredQuery(f"q{i}", ("a", "b", "c", "d"), rows) for i in range(queries)])
    names = ["a", "b", "c", "d", *(f"q{i}" for i in range(queries))]
    np.savez(tmp_path / "f.npz", ids=np.array(names), embeddings=np.eye(len(names)))
    return {"path": str(tmp_path / "c.json"), "features": str(tmp_path / "f.npz"), "held_out_share": 0.0}


def test_missing_beam_scores_count_as_published_and_are_said(tmp_path):
    files = rows_of(tmp_path, candidate((0,), 1, beam_score=-1.0), candidate((1,), 0, "random"))
    t = task(files, reward={"mode": "legacy", "alpha": 0.2, "beta": 1.0})
    assert t.stored([t.prompt("q0")]).rewards == [pytest.approx([0.8, 0.0])]
    report = inspect(read_stored(files["path"]), RewardConfig(mode="legacy"))
    assert any("4 candidates have no beam score" in f for f in report["findings"])


def test_fallback_rows_are_skipped_counted_and_kept_on_demand(tmp_path):
    official, other = candidate((0,), 1), replace(candidate((1,), 0), judged_by="fallback")
    files = rows_of(tmp_path, official, other)
    t = task(files)
    assert t.stored([t.prompt("q0")]).actions == [[(0,)]]
    assert t.notes == ['4 candidates left out: judged by a fallback (fallback = "keep" keeps them)']
    assert task(files, fallback="keep").stored([t.prompt("q0")]).actions == [[(0,), (1,)]]
    report = inspect(read_stored(files["path"]), RewardConfig())
    assert (report["usable"], report["judged_by"]) == (4, {"unknown": 4, "fallback": 4})
    with pytest.raises(DataError, match=r"no candidate is left.*4 judged by a fallback"):
        task(rows_of(tmp_path, other))


def test_rows_without_a_needed_part_are_left_out_where_others_have_it(tmp_path):
    mined = Candidate((1,), "mined", {"correct": 1.0, "accuracy_score": 1.0})
    files = rows_of(tmp_path, candidate((0,), 0), mined)
    t = task(files, reward={"mode": "hard01_plus_gtprob"})
    assert t.stored([t.prompt("q0")]).actions == [[(0,)]]
    assert t.notes == ["4 candidates left out: without a part that hard01_plus_gtprob needs"]
    assert len(task(files).stored([t.prompt("q0")]).actions[0]) == 2
    assert inspect(read_stored(files["path"]), RewardConfig())["methods"] == {"sample": 4, "mined": 4}


def test_methods_that_the_file_lacks_are_named_with_those_it_has(tmp_path):
    with pytest.raises(ConfigError, match=r"no candidate of .* is of .'beem'."):
        task(rows_of(tmp_path, candidate((0,), 1)), methods=("beem",))


def test_a_subset_is_nested_and_leaves_the_held_out_queries_alone(tmp_path):
    files = rows_of(tmp_path, candidate((0,), 1), queries=40) | {"held_out_share": 0.25}
    whole, ten, twenty = task(files), task(files, subset=10), task(files, subset=20)
    assert (ten.size, twenty.size) == (10, 20)
    assert set(ten.train) < set(twenty.train) < set(whole.train)
    assert ten.validation == whole.validation
    assert set(task(files, subset=10, subset_seed=1).train) != set(ten.train)
    with pytest.raises(ConfigError, match=r"subset = 31, but .* holds 30 training queries"):
        task(files, subset=31)


# --- two tables of features ----------------------------------------------------------------------------------


def test_two_tables_keep_ids_apart(tmp_path):
    """Query 1 and candidate 1 are different things."""
    write_stored(tmp_path / "c.json", [StoredQuery("1", (0, 1, 2), (candidate((1,), 1),))])
    np.savez(tmp_path / "q.npz", ids=np.array([1]), embeddings=np.ones((1, 3)))
    np.save(tmp_path / "c.npy", np.eye(3))
    one = {"path": str(tmp_path / "c.json"), "held_out_share": 0.0}
    two = one | {"query_features": str(tmp_path / "q.npz"), "candidate_features": str(tmp_path / "c.npy")}
    prompt = task(two).prompt("1")
    assert prompt["excluded"] == []
    assert (prompt["query"].tolist(), prompt["candidates"].tolist()) == ([1.0] * 3, np.eye(3).tolist())
    shared = one | {"features": str(tmp_path / "c.npy")}
    with pytest.raises(ConfigError, match=r"both a query and a candidate(.|\n)*two tables"):
        task(shared)
    assert task(shared | {"ids": "two"}).prompt("1")["excluded"] == []
    np.save(tmp_path / "c.npy", np.eye(4))
    with pytest.raises(DataError, match=r"vectors of 3 numbers, .* of 4"):
        task(two)
    with pytest.raises(ValueError, match="go together"):
        task(one | {"query_features": "q.npz"})


def test_one_query_without_an_embedding_is_told_as_that_though_a_candidate_bears_its_id(tmp_path):
    queries = [StoredQuery(f"q{i}", ("c0", "c1"), (candidate((1,), 1),)) for i in range(9)]
    write_stored(tmp_path / "c.json", queries)
    np.savez(tmp_path / "q.npz", ids=[f"q{i}" for i in range(8)], embeddings=np.eye(9)[:8])
    np.savez(tmp_path / "c.npz", ids=["c0", "c1", "q8"], embeddings=np.eye(9)[:3])
    given = {"path": str(tmp_path / "c.json"), "query_features": f"{tmp_path}/q.npz"}
    found = task(given | {"candidate_features": f"{tmp_path}/c.npz"})
    assert found.prompt("q1")["ids"] == ["c0", "c1"]
    with pytest.raises(DataError, match="no embedding of 'q8'") as caught:
        found.prompt("q8")
    assert "exchanged" not in caught.value.cure


def test_places_without_a_candidate_are_no_failed_samples(tmp_path):
    """Queries with one, two and three candidates make a rectangle; nothing of it is invalid."""
    from anygrpo.selection.build import build as selector
    from anygrpo.selection.settings import SelectorConfig
    from anygrpo.train.measure import rollout_metrics

    rows = [candidate((k,), k % 2) for k in range(3)]
    write_stored(tmp_path / "c.json", [StoredQuery(f"q{n}", ("a", "b", "c"), tuple(rows[:n])) for n in (1, 2, 3)])
    names = ["a", "b", "c", "q1", "q2", "q3"]
    np.savez(tmp_path / "f.npz", ids=np.array(names), embeddings=np.eye(6))
    t = task({"path": str(tmp_path / "c.json"), "features": str(tmp_path / "f.npz"), "held_out_share": 0.0})
    prompts = t.prompts(0, 3)
    policy = selector(SelectorConfig(kind="selector", features=6, width=8, shots=1), 0)
    row = rollout_metrics(policy.replay(prompts, t.stored(prompts), 0))
    assert row["offline/padding"] == pytest.approx(3 / 9)
    assert row["invalid/share"] == pytest.approx(0.0, abs=1e-6)

"""Stored candidates on disk: each layout is read as it was meant, and refused where that is unclear."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anygrpo.errors import DataError
from anygrpo.selection.layouts import read_stored, write_stored
from anygrpo.selection.quality import inspect
from anygrpo.selection.settings import RewardConfig
from anygrpo.selection.stored_query import Candidate, StoredQuery


def write(path, table):
    path.write_text(json.dumps(table))
    return path


def entry(candidates, pool=None):
    return {"query": {"question": "?"}, "pointer_candidates": candidates} | (
        {"candidate_pool_ids": pool} if pool is not None else {}
    )


def test_pointer_with_pointer_pos_is_global(tmp_path):
    file = read_stored(
        write(tmp_path / "a.json", {"q": entry([{"pointer": [30, 10], "pointer_pos": [2, 0]}], [10, 20, 30])})
    )
    assert (file.layout, file.index) == ("pool", "global")
    assert file.queries[0].candidates[0].selection == (2, 0)


def test_pointer_with_pointer_global_is_local(tmp_path):
    file = read_stored(
        write(tmp_path / "a.json", {"q": entry([{"pointer": [2, 0], "pointer_global": [30, 10]}], [10, 20, 30])})
    )
    assert (file.layout, file.index) == ("fixed", "local")
    assert file.queries[0].candidates[0].selection == (2, 0)


@pytest.mark.parametrize(
    ("pool", "pointer", "meaning", "selection"),
    [
        ([10, 20, 30], [30, 10], "global", (2, 0)),
        ([10, 20, 30], [2, 0], "local", (2, 0)),
        ([0, 1, 2], [2, 0], "global", (2, 0)),
        (["a", "b"], ["b"], "global", (1,)),
    ],
)
def test_a_bare_pointer_is_found_out(tmp_path, pool, pointer, meaning, selection):
    file = read_stored(write(tmp_path / "a.json", {"q": entry([{"pointer": pointer}], pool)}))
    assert (file.index, file.queries[0].candidates[0].selection) == (meaning, selection)


def test_an_ambiguous_file_is_refused_until_told(tmp_path):
    path = write(tmp_path / "a.json", {"q": entry([{"pointer": [2, 0]}], [2, 1, 0])})
    with pytest.raises(DataError, match="ambiguous: every pointer is both"):
        read_stored(path)
    assert read_stored(path, "global").queries[0].candidates[0].selection == (0, 2)
    assert read_stored(path, "local").queries[0].candidates[0].selection == (2, 0)


def test_one_query_settles_the_meaning_for_all(tmp_path):
    table = {"q": entry([{"pointer": [2, 0]}], [2, 1, 0]), "r": entry([{"pointer": [7]}], [5, 7])}
    assert read_stored(write(tmp_path / "a.json", table)).index == "global"


def test_without_a_pool_it_is_the_union_of_what_was_picked(tmp_path):
    file = read_stored(write(tmp_path / "a.json", {"q": entry([{"pointer": [9, 4]}, {"pointer": [4, 7]}])}))
    assert file.queries[0].pool == (9, 4, 7)
    assert file.queries[0].pool_given is False
    assert [c.selection for c in file.queries[0].candidates] == [(0, 1), (1, 2)]


def test_the_legacy_layout_ends_with_the_query(tmp_path):
    table = {"7": {"id_list": [[3, 5, 7], [5, 3, 7]], "score_list": [0.2, 0.9]}}
    file = read_stored(write(tmp_path / "a.json", table))
    assert file.layout == "legacy"
    assert [(c.selection, c.parts) for c in file.queries[0].candidates] == [
        ((0, 1), {"info_score": 0.2}),
        ((1, 0), {"info_score": 0.9}),
    ]
    table["7"]["id_list"][1] = [5, 3, 8]
    with pytest.raises(DataError, match="does not end with the query's own id"):
        read_stored(write(tmp_path / "b.json", table))


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"q": {"something": 1}}, "no known layout"),
        ({"q": entry([{"pointer_pos": [1]}])}, "candidate without pointer"),
        ({"q": entry([{"pointer": [10], "pointer_pos": [3]}], [10, 20])}, "position 3 is outside its pool of 2"),
        ({"q": entry([{"pointer": [10], "pointer_pos": [1]}], [10, 20])}, "positions .1. are .20., not .10."),
        ({"q": entry([{"pointer": [99], "pointer_global": [0], "pointer_pos": [1]}], [10, 20])}, "neither pointer_pos"),
        ({"q": entry([{"pointer": [99]}], [10, 20])}, "neither an id in its query's pool nor a position"),
        ({}, "holds no queries"),
        ([1], "holds no queries"),
        ({"_meta": {"notes": "none"}}, "no known layout"),
        ({"q": {"query": {}, "candidate_pool_ids": [1]}}, "no known layout"),
        ({"q": entry([{"pointer": [5, 5]}], [5, 7])}, "same item twice"),
        ({"q": entry([{"pointer": [1]}], 1)}, "no list of ids"),
        ({"q": entry([{"pointer": 1}], [1])}, "pointer = 1 is not a list"),
        ({"q": entry([{"pointer": [1], "vqa_correct": "yes"}], [1])}, "vqa_correct = 'yes' is text"),
        ({"q": entry([{"pointer": [1], "vqa_acc_score": float("nan")}], [1])}, "vqa_acc_score = nan is no finite"),
        ({"q": entry([{"pointer": [1], "vqa_correct": 0.3}], [1])}, "0 or 1 is wanted"),
        ({"q": entry([{"pointer": [1], "vqa_gt_prob": 1.5}], [1])}, "from 0 to 1 is wanted"),
        ({"q": entry([{"pointer": [1], "logprob_score": "low"}], [1])}, "logprob_score = 'low'"),
        ({"q": entry([{"pointer": [1], "beam_score": 10**400}], [1])}, "is no finite number"),
        ({"q": {"id_list": [[5, 5, "q"]], "score_list": [0.5]}}, "same item twice"),
        ({n: {"q": entry([{"pointer": [1]}], [1])} for n in ("train", "val")}, "several tables of queries: train, val"),
        ({"q": entry([None], [1])}, "a candidate is None"),
        ({"q": entry([{"pointer": [[1], [2]]}], [1, 2])}, "pointer holds .1., and ids or positions"),
        ({"q": entry([{"pointer": [1]}, {"pointer": [{"id": 1}]}], [1])}, "pointer holds {'id': 1}"),
        ({"q": {"pointer_candidates": {"a": 1}}}, "pointer_candidates is no list"),
        ({"q": {"id_list": [5], "score_list": [0.5]}}, "no list of lists"),
        ({"q": {"id_list": [[5, "q"]], "score_list": 0.5}}, "no list of lists"),
        ([entry([{"pointer": [1]}], [1])], "has no id"),
    ],
)
def test_what_cannot_be_meant_is_one_clear_error(tmp_path, table, message):
    with pytest.raises(DataError, match=message):
        read_stored(write(tmp_path / "a.json", table))


def test_json_that_is_too_deep_is_no_crash(tmp_path):
    (tmp_path / "a.json").write_text("[" * 100_000)
    with pytest.raises(DataError, match="is not JSON"):
        read_stored(tmp_path / "a.json")


def test_a_query_that_bears_another_id_than_its_key_is_told(tmp_path):
    table = {"3": entry([{"pointer": [1]}], [1]) | {"query": {"query_id": 77}}}
    file = read_stored(write(tmp_path / "a.json", table))
    assert file.queries[0].id == "3"
    assert file.notes == ("1 queries bear another query_id than their key, which counts: 3 has 77",)


def test_a_number_written_as_text_is_one_and_a_word_for_it_costs_no_file(tmp_path):
    rows = [
        {"pointer": [1], "temperature": "1.5", "beam_rank": "2", "logprob_score": "-0.5"},
        {"pointer": [1], "temperature": "high", "beam_rank": "first"},
        {"pointer": [1], "temperature": "nan", "beam_rank": 10**400},
    ]
    file = read_stored(write(tmp_path / "a.json", {"q": entry(rows, [1])}))
    found = [(c.temperature, c.rank, c.log_prob) for c in file.queries[0].candidates]
    assert found == [(1.5, 2, -0.5), (None, None, None), (None, None, None)]
    assert file.notes == (
        "temperature is no number in 2 candidates ('high'), and was left out there",
        "beam_rank is no number in 2 candidates ('first'), and was left out there",
    )


@given(
    st.lists(st.permutations(range(5)), min_size=1, max_size=4),
    st.sampled_from(["pool", "fixed"]),
    st.integers(1, 5),
)
def test_what_is_written_is_read_back(tmp_path_factory, orders, layout, shots):
    candidates = tuple(
        Candidate(tuple(o[:shots]), "sample", {"correct": 1.0, "gt_prob": 0.25}, -1.5, 1.3, None, "cat", False)
        for o in orders
    )
    query = StoredQuery("q1", (11, 3, 7, 20, 5), candidates, {"question": "what?"})
    path = tmp_path_factory.mktemp("stored") / "a.json"
    write_stored(path, [query], layout)
    assert read_stored(path).queries == (query,)


# --- files as their writers make them ------------------------------------------------------------------------


def picks(file):
    return [[c.selection for c in q.candidates] for q in file.queries]


def test_what_is_no_query_is_passed_over_and_said(tmp_path):
    table = {"_meta": {"created_at": "2025"}, "generator": "beam 5", "q": entry([{"pointer": [7]}], [5, 7])}
    file = read_stored(write(tmp_path / "a.json", table))
    assert picks(file) == [[(1,)]]
    assert file.notes == ("2 entries are no queries and were passed over: '_meta', 'generator'",)


@pytest.mark.parametrize("wrapped", [True, False])
def test_a_list_or_a_wrapped_table_is_read_too(tmp_path, wrapped):
    one = entry([{"pointer": [7]}], [5, 7])
    table = {"_meta": {}, "data": {"3": one}} if wrapped else [one | {"query_id": 3}]
    file = read_stored(write(tmp_path / "a.json", table))
    assert (file.queries[0].id, picks(file)) == ("3", [[(1,)]])


@pytest.mark.parametrize("name", ["query_id", "qid", "question_id", "id"])
def test_a_list_may_hold_other_things_and_other_names_of_an_id(tmp_path, name):
    one = entry([{"pointer": [7]}], [5, 7])
    rows = [{"_meta": {"made": "2025"}}, one | {name: 3.0}]
    for table in (rows, {"metadata": {}, "data": rows}):
        file = read_stored(write(tmp_path / "a.json", table))
        assert (file.queries[0].id, picks(file)) == ("3", [[(1,)]])
        assert file.notes == ("1 entries are no queries and were passed over: '_meta'",)
    (tmp_path / "a.jsonl").write_text("\ufeff" + "\n".join(map(json.dumps, rows)) + "\n", encoding="utf-8")
    assert read_stored(tmp_path / "a.jsonl") == file


def test_a_query_s_own_number_goes_before_the_row_s(tmp_path):
    one = entry([{"pointer": [7]}], [5, 7])
    rows = [one | {"id": n, "query": {"question": "?", "query_id": f"q{n}"}} for n in range(2)]
    rows += [one | {"id": 2, "query_id": "own", "query": {"query_id": "other"}}, one | {"id": 3}]
    assert [q.id for q in read_stored(write(tmp_path / "a.json", rows)).queries] == ["q0", "q1", "own", "3"]


def test_lines_of_json_end_with_a_newline_alone(tmp_path):
    said = "one\u2028two\u0085three"
    rows = [entry([{"pointer": [7]}], [5, 7]) | {"id": n, "query": {"question": said}} for n in range(2)]
    lines = [json.dumps(row, ensure_ascii=False) for row in rows]
    (tmp_path / "a.jsonl").write_text("\r\n".join(lines) + "\r\n", encoding="utf-8")
    assert [q.query["question"] for q in read_stored(tmp_path / "a.jsonl").queries] == [said, said]
    (tmp_path / "b.jsonl").write_text(lines[0], encoding="utf-8")
    assert [q.id for q in read_stored(tmp_path / "b.jsonl").queries] == ["0"]


@pytest.mark.parametrize("indent", [None, 1])
def test_an_object_of_queries_by_the_name_of_lines_is_read(tmp_path, indent):
    table = {"_meta": {}, "q": entry([{"pointer": [7]}], [5, 7])}
    (tmp_path / "a.jsonl").write_text(json.dumps(table, indent=indent))
    assert picks(read_stored(tmp_path / "a.jsonl")) == [[(1,)]]


@pytest.mark.parametrize(
    "row",
    [
        {"pointer": ["7"], "pointer_pos": [1]},
        {"pointer": ["7"]},
        {"pointer": [7.0], "pointer_pos": [1.0]},
        {"pointer": [[7]], "pointer_pos": [[1]]},
        {"pointer": [1], "pointer_global": ["7"]},
        {"pointer": ["7"], "pointer_global": [7], "pointer_pos": [0]},
    ],
    ids=str,
)
@pytest.mark.parametrize("pool", [[5, 7], ["5", "7"]], ids=str)
def test_an_id_is_the_same_as_a_number_and_as_text(tmp_path, row, pool):
    file = read_stored(write(tmp_path / "a.json", {"q": entry([row], pool)}))
    assert (picks(file), file.queries[0].pool) == ([[(1,)]], tuple(pool))


def test_without_a_pool_too_an_id_is_one_however_it_is_written(tmp_path):
    rows = [{"pointer": [9, "4"]}, {"pointer": ["9", 7.0]}]
    (query,) = read_stored(write(tmp_path / "a.json", {"q": entry(rows)})).queries
    assert (query.pool, [c.selection for c in query.candidates]) == ((9, "4", 7), [(0, 1), (0, 2)])


@pytest.mark.parametrize(("flag", "failed"), [("false", False), ("0", False), ("True", True), (None, False), (1, True)])
def test_a_flag_in_words_says_what_it_says(tmp_path, flag, failed):
    row = {"pointer": [7], "eval_failed": flag, "vqa_correct": 1}
    (query,) = read_stored(write(tmp_path / "a.json", {"q": entry([row], [5, 7])})).queries
    assert query.candidates[0].failed == failed


def test_a_query_given_twice_is_refused(tmp_path):
    (tmp_path / "a.json").write_text('{"q": {"pointer_candidates": []}, "q": {"pointer_candidates": []}}')
    with pytest.raises(DataError, match="holds 'q' twice"):
        read_stored(tmp_path / "a.json")


def test_the_pair_that_agrees_everywhere_is_read_and_the_stale_field_named(tmp_path):
    rows = [
        {"pointer": [2, 0], "pointer_global": [30, 10], "pointer_pos": [30, 10]},
        {"pointer": [1, 2], "pointer_global": [20, 30], "pointer_pos": [0, 2]},
    ]
    file = read_stored(write(tmp_path / "a.json", {"q": entry(rows, [10, 20, 30])}))
    assert (file.layout, file.index, picks(file)) == ("fixed", "local", [[(2, 0), (1, 2)]])
    assert file.notes[0].startswith("pointer_pos is stale: in 2 of 2 rows")


def test_a_stale_pointer_global_is_named_as_well(tmp_path):
    rows = [{"pointer": [30], "pointer_global": [10], "pointer_pos": [2]}]
    file = read_stored(write(tmp_path / "a.json", {"q": entry(rows, [10, 20, 30])}))
    assert (file.layout, picks(file)) == ("pool", [[(2,)]])
    assert file.notes[0].startswith("pointer_global is stale: in 1 of 1 rows")


def test_two_pairs_that_agree_on_different_items_are_refused(tmp_path):
    # (pointer ids, pointer_pos) says 20; (pointer_global ids, pointer as positions) says 30
    rows = [{"pointer": [2], "pointer_pos": [1], "pointer_global": [30]}]
    with pytest.raises(DataError, match="both ids with positions, of other items"):
        read_stored(write(tmp_path / "a.json", {"q": entry(rows, [10, 2, 30])}))


def test_ids_under_both_names_are_read_as_a_bare_pointer(tmp_path):
    """One writer put ids into pointer_pos as well."""
    file = read_stored(write(tmp_path / "a.json", {"q": entry([{"pointer": [30], "pointer_pos": [30]}], [10, 20, 30])}))
    assert (file.index, picks(file)) == ("global", [[(2,)]])


def test_rows_of_several_writers_are_each_read_by_their_own_fields(tmp_path):
    table = {
        "q": entry([{"pointer": [20], "pointer_pos": [1]}, {"pointer": [30]}], [10, 20, 30]),
        "r": entry([{"pointer": [0], "pointer_global": [40]}], [40, 50]),
        "7": {"id_list": [[3, 5, 7]], "score_list": [0.2]},
    }
    file = read_stored(write(tmp_path / "a.json", table))
    assert (file.layout, file.index) == ("mixed", "both")
    assert picks(file) == [[(1,), (2,)], [(0,)], [(0, 1)]]
    assert file.notes[-1].startswith("rows of several writers")
    assert "1 queries with id_list" in file.notes[-1]


def test_rows_that_could_be_either_are_settled_by_the_others(tmp_path):
    rows = [{"pointer": [1], "pointer_pos": [2]}, {"pointer": [0]}]  # the second fits as id and as position
    file = read_stored(write(tmp_path / "a.json", {"q": entry(rows, [2, 0, 1])}))
    assert picks(file) == [[(2,), (1,)]]


def test_failed_and_fallback_rows_are_known_for_what_they_are(tmp_path):
    rows = [
        {"pointer": [10], "vqa_eval_mode": "vqaEval", "vqa_correct": True},
        {"pointer": [20], "vqa_eval_mode": "fallback", "vqa_correct": 1},
        {"pointer": [30], "vqa_eval_mode": "error", "vqa_correct": "?"},
    ]
    official, fallback, failed = (
        read_stored(write(tmp_path / "a.json", {"q": entry(rows, [10, 20, 30])})).queries[0].candidates
    )
    assert (official.by_fallback, official.failed, official.parts) == (False, False, {"correct": 1.0})
    assert (fallback.by_fallback, fallback.failed) == (True, False)
    assert (failed.failed, failed.parts) == (True, {})


@given(
    st.lists(st.permutations(range(5)), min_size=1, max_size=4),
    st.sampled_from(["pointer_pos", "pointer_global"]),
    st.integers(0, 4),
)
def test_whichever_field_is_stale_the_picks_stay(tmp_path_factory, orders, stale, shift):
    pool = [11, 13, 17, 20, 25]  # no position is an id
    rows = []
    for order in orders:
        ids, at = [pool[i] for i in order[:2]], list(order[:2])
        old = (
            [(i + shift) % 5 for i in order[:2]]
            if stale == "pointer_pos"
            else [pool[(i + shift) % 5] for i in order[:2]]
        )
        good = {"pointer": at, "pointer_global": ids} if stale == "pointer_pos" else {"pointer": ids, "pointer_pos": at}
        rows.append(good | {stale: old})
    path = tmp_path_factory.mktemp("stale") / "a.json"
    assert picks(read_stored(write(path, {"q": entry(rows, pool)}))) == [[tuple(o[:2]) for o in orders]]


def test_a_pool_may_hold_an_item_twice(tmp_path):
    """Positions tell the two apart; ids alone mean the first."""
    rows = [{"pointer": [7, 7], "pointer_pos": [2, 0]}]
    assert picks(read_stored(write(tmp_path / "a.json", {"q": entry(rows, [7, 8, 7])}))) == [[(2, 0)]]
    assert picks(read_stored(write(tmp_path / "b.json", {"q": entry([{"pointer": [7]}], [7, 8, 7])}))) == [[(0,)]]


def test_one_selection_with_two_scores_is_said(tmp_path):
    one = {"pointer": [7], "vqa_correct": 1, "vqa_acc_score": 1.0, "beam_score": -1.0}
    rows = [one, one | {"beam_score": -2.0}, one | {"vqa_correct": 0}, {"pointer": [5], "vqa_correct": 1}]
    report = inspect(read_stored(write(tmp_path / "a.json", {"q": entry(rows, [5, 7])})), RewardConfig())
    assert report["duplicates"]["scored_otherwise"] == 1
    assert any("1 selections stand in the file twice, with different scores" in x for x in report["findings"])

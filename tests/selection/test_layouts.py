"""Stored candidates on disk: each layout is read as it was meant, and refused where that is unclear."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anygrpo.errors import DataError
from anygrpo.selection.layouts import read_stored, write_stored
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
        ((0, 1), {"accuracy_score": 0.2}),
        ((1, 0), {"accuracy_score": 0.9}),
    ]
    table["7"]["id_list"][1] = [5, 3, 8]
    with pytest.raises(DataError, match="does not end with the query's own id"):
        read_stored(write(tmp_path / "b.json", table))


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"q": entry([{"pointer": [1]}], [1]), "r": {"id_list": [], "score_list": []}}, "mixes layouts"),
        (
            {
                "q": entry([{"pointer": [1], "pointer_pos": [0]}], [1]),
                "r": entry([{"pointer": [0], "pointer_global": [1]}], [1]),
            },
            "mixes layouts",
        ),
        ({"q": {"something": 1}}, "no known layout"),
        ({"q": entry([{"pointer_pos": [1]}])}, "candidate without pointer"),
        ({"q": entry([{"pointer": [10], "pointer_pos": [3]}], [10, 20])}, "position 3 is outside its pool of 2"),
        ({"q": entry([{"pointer": [10], "pointer_pos": [1]}], [10, 20])}, "positions .1. are .20., not .10."),
        ({"q": entry([{"pointer": [99], "pointer_global": [0], "pointer_pos": [1]}], [10, 20])}, "neither pointer_pos"),
        ({"q": entry([{"pointer": [99]}], [10, 20])}, "neither an id in its query's pool nor a position"),
        ({}, "holds no queries"),
        ([1], "holds no queries"),
    ],
)
def test_what_cannot_be_meant_is_one_clear_error(tmp_path, table, message):
    with pytest.raises(DataError, match=message):
        read_stored(write(tmp_path / "a.json", table))


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

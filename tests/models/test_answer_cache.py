"""The file of a classifier's answers: its rows come back, odd ones are asked anew, a broken file is named."""

from __future__ import annotations

import sqlite3

import pytest

from anygrpo.errors import DataError
from anygrpo.models.classifier import AnswerCache


def test_what_is_no_list_of_numbers_is_passed_over(tmp_path):
    where = tmp_path / "c.sqlite"
    with sqlite3.connect(where) as file:
        file.execute("CREATE TABLE answers (key TEXT PRIMARY KEY, value)")
        odd = ["{", '{"a": 1}', '["x"]', "[" * 100_000, 5, None, b"\xff", "[true]"]
        file.executemany("INSERT INTO answers VALUES (?, ?)", [(str(i), value) for i, value in enumerate(odd)])
        file.execute("INSERT INTO answers VALUES ('good', '[0.5, -2]')")
    cache = AnswerCache(where)
    assert cache.get([*map(str, range(len(odd))), "good", "absent"]) == {"good": [0.5, -2]}


def test_a_file_that_broke_is_named(tmp_path):
    where = tmp_path / "c.sqlite"
    cache = AnswerCache(where)
    cache.put({str(i): [float(i)] * 500 for i in range(50)})
    cache.close()
    data = where.read_bytes()
    where.write_bytes(data[:4096] + b"\xff" * (len(data) - 4096))
    with pytest.raises(DataError, match=r"c\.sqlite"):
        AnswerCache(where).get(["1"])

"""Embedding tables: every format gives the same rows, every fault one sentence."""

from __future__ import annotations

import json
import logging

import numpy as np
import pytest
import torch

from anygrpo.errors import DataError
from anygrpo.selection.tables import read_table

ROWS = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], dtype=np.float32)
IDS = ["a", "b", "c"]


def npz(path):
    np.savez(path / "t.npz", ids=np.array(IDS), embeddings=ROWS)
    return path / "t.npz"


def npy(path):
    np.save(path / "t.npy", ROWS)
    (path / "t.ids.json").write_text(json.dumps(IDS))
    return path / "t.npy"


def npy_text(path):
    np.save(path / "t.npy", ROWS)
    (path / "t.ids.txt").write_text("a\nb\nc\n")
    return path / "t.npy"


def named(path):
    torch.save({name: torch.tensor(row)[None] for name, row in zip(IDS, ROWS)}, path / "t.pt")
    return path / "t.pt"


def tensors(path):
    torch.save({"ids": IDS, "embeddings": torch.tensor(ROWS)}, path / "t.pt")
    return path / "t.pt"


def one_a_name(path):
    np.savez(path / "t.npz", **dict(zip(IDS, ROWS.astype(np.float16))))
    return path / "t.npz"


def other_names(path):
    np.savez(path / "t.npz", qids=np.array(IDS, dtype="S1"), features=ROWS.astype(np.float64))
    return path / "t.npz"


def other_names_torch(path):
    torch.save({"names": IDS, "features": torch.tensor(ROWS).half()}, path / "t.pt")
    return path / "t.pt"


def parquet(path):
    arrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet as writer

    writer.write_table(arrow.table({"id": IDS, "embedding": ROWS.tolist()}), path / "t.parquet")
    return path / "t.parquet"


@pytest.mark.parametrize(
    "make", [npz, npy, npy_text, named, tensors, one_a_name, other_names, other_names_torch, parquet]
)
def test_every_format_gives_the_same_rows(tmp_path, make):
    table = read_table(make(tmp_path))
    assert table.width == 2
    assert table.of(["c", "a"], "query").tolist() == [[5.0, 6.0], [1.0, 2.0]]


@pytest.mark.parametrize("also", ["texts", "text", "index"])
def test_ids_go_before_texts_and_index(tmp_path, also):
    arrays = {also: ["x", "y", "z"], "ids": IDS, "embeddings": ROWS}
    np.savez(tmp_path / "t.npz", **{name: np.array(x) for name, x in arrays.items()})
    torch.save(arrays | {"embeddings": torch.tensor(ROWS)}, tmp_path / "t.pt")
    for name in ("t.npz", "t.pt"):
        assert list(read_table(tmp_path / name).index) == IDS


def test_parquet_is_as_strict_as_the_others(tmp_path):
    arrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet as writer

    for columns, message in (
        ({"id": IDS, "vector": ROWS.tolist(), "embedding": ROWS.tolist()}, "which are ids and which embeddings"),
        ({"id": IDS, "ids": IDS[::-1], "embedding": ROWS.tolist()}, "which are ids and which embeddings"),
        ({"a": IDS, "b": ROWS.tolist()}, "holds"),
        ({"embedding": ROWS.tolist()}, "holds the columns"),
    ):
        writer.write_table(arrow.table(columns), tmp_path / "t.parquet")
        with pytest.raises(DataError, match=message):
            read_table(tmp_path / "t.parquet")
    columns = {"text": IDS[::-1], "id": IDS, "embedding": ROWS.tolist(), "label": [0, 1, 0]}
    writer.write_table(arrow.table(columns), tmp_path / "t.parquet")
    assert list(read_table(tmp_path / "t.parquet").index) == IDS


def test_ids_are_row_numbers_where_none_are_given(tmp_path):
    np.save(tmp_path / "t.npy", ROWS)
    assert read_table(tmp_path / "t.npy").of([2], "query").tolist() == [[5.0, 6.0]]
    torch.save([torch.tensor(row) for row in ROWS], tmp_path / "t.pt")
    assert read_table(tmp_path / "t.pt").of(["0"], "query").tolist() == [[1.0, 2.0]]
    np.savez(tmp_path / "t.npz", embeddings=ROWS)
    assert read_table(tmp_path / "t.npz").of([1.0], "query").tolist() == [[3.0, 4.0]]
    np.savez(tmp_path / "u.npz", ROWS)
    assert read_table(tmp_path / "u.npz").of(["2"], "query").tolist() == [[5.0, 6.0]]


@pytest.mark.parametrize("ids", [[7, 8, 9], [7.0, 8.0, 9.0], ["7", "8", "9"], np.array([7, 8, 9], np.int32)])
def test_an_id_is_the_same_as_a_number_and_as_text(tmp_path, ids):
    np.savez(tmp_path / "t.npz", ids=np.array(ids), embeddings=ROWS)
    table = read_table(tmp_path / "t.npz")
    for asked in (8, "8", 8.0):
        assert table.of([asked], "query").tolist() == [[3.0, 4.0]]


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"ids": IDS, "embeddings": ROWS[0]}, r"shape .2,., and .n, d. is wanted"),
        ({"ids": IDS[:2], "embeddings": ROWS}, "2 ids, 3 embeddings"),
        ({"ids": ["a", "b", "a"], "embeddings": ROWS}, "holds id 'a' twice"),
        ({"ids": IDS, "embeddings": ROWS * np.array([[1], [np.nan], [1]])}, "embedding of 'b' holds NaN"),
        ({"ids": IDS, "embeddings": ROWS.T[:, :2]}, "3 ids, 2 embeddings"),
        ({"ids": IDS[:2], "embeddings": ROWS[:, :2]}, "turned over: save them as .2, 3."),
        ({"ids": IDS, "values": ROWS}, "which are ids and which embeddings"),
        ({"ids": IDS, "vectors": ROWS, "embeddings": ROWS}, "which are ids and which embeddings"),
        ({"ids": IDS, "id": IDS, "embeddings": ROWS}, "which are ids and which embeddings"),
        ({"query_ids": IDS, "candidate_ids": IDS, "embeddings": ROWS}, "which are ids and which embeddings"),
        ({"x": ROWS, "y": ROWS}, "which are ids and which embeddings"),
        ({"ids": IDS, "embeddings": np.array([["x", "y"]] * 3)}, "no vectors of one size"),
        ({"ids": IDS, "embeddings": ROWS + 1j}, "no vectors of one size"),
        ({"ids": IDS, "embeddings": np.ones((3, 2))}, "all 3 embeddings are the same"),
        ({"ids": [], "embeddings": ROWS[:0]}, r"no embeddings: \[0, 2\]"),
        ({"ids": IDS, "embeddings": ROWS[:, :0]}, r"no embeddings: \[3, 0\]"),
        ({"ids": [[1, 2], [3, 4], [5, 6]], "embeddings": ROWS}, "among its ids is none"),
        ({"ids": [1, np.nan, 2], "embeddings": ROWS}, "nan among its ids is none"),
    ],
)
def test_every_fault_of_a_table_is_one_sentence(tmp_path, arrays, message):
    np.savez(tmp_path / "t.npz", **{name: np.array(x) for name, x in arrays.items()})
    with pytest.raises(DataError, match=message):
        read_table(tmp_path / "t.npz")


def test_files_that_are_no_tables(tmp_path):
    (tmp_path / "t.csv").write_text("a")
    torch.save([torch.zeros(2), torch.zeros(3)], tmp_path / "t.pt")
    (tmp_path / "u.pt").write_bytes(b"no")
    for name, message in (
        ("t.csv", "embeddings in .csv"),
        ("t.pt", "shapes"),
        ("u.pt", "read safely"),
        ("v.npz", "no feat"),
    ):
        with pytest.raises(DataError, match=message):
            read_table(tmp_path / name)
    with pytest.raises(DataError, match=r"no embedding of 'z' \(query 'q'\)"):
        read_table(npz(tmp_path)).of(["z"], "query 'q'")


@pytest.mark.parametrize("name", ["t.npz", "t.npy", "t.pt"])
@pytest.mark.parametrize("content", [b"", b"PK\x03\x04xxxx", b"no"])
def test_a_file_of_other_bytes_is_one_sentence(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match="cannot be read"):
        read_table(tmp_path / name)


def test_suffixes_in_capitals_ids_in_a_column_and_sparse_rows_are_read(tmp_path):
    np.savez(tmp_path / "t.npz", ids=np.array([[7], [8], [9]]), embeddings=ROWS)
    (tmp_path / "t.npz").rename(tmp_path / "T.NPZ")
    assert read_table(tmp_path / "T.NPZ").of([8], "q").tolist() == [[3.0, 4.0]]
    torch.save(torch.tensor(ROWS).to_sparse(), tmp_path / "t.pt")
    assert read_table(tmp_path / "t.pt").rows.tolist() == ROWS.tolist()


@pytest.mark.parametrize(
    "said", [["a", "b", "c"], {"c": 2, "a": 0, "b": 1}, {"2": "c", "0": "a", "1": "b"}], ids=["list", "rows", "ids"]
)
def test_ids_beside_an_array_may_be_a_table_of_either_direction(tmp_path, said):
    np.save(tmp_path / "t.npy", ROWS)
    (tmp_path / "t.ids.json").write_text(json.dumps(said))
    assert read_table(tmp_path / "t.npy").of(["c", "a"], "q").tolist() == [[5.0, 6.0], [1.0, 2.0]]


@pytest.mark.parametrize("row", [str, int, float])
def test_rows_of_ids_are_numbers_however_they_are_written(tmp_path, row):
    np.save(tmp_path / "t.npy", np.arange(24, dtype=np.float32).reshape(12, 2))
    (tmp_path / "t.ids.json").write_text(json.dumps({f"a{i}": row(i) for i in range(12)}))
    table = read_table(tmp_path / "t.npy")
    assert list(table.index) == [f"a{i}" for i in range(12)]
    assert table.of(["a10"], "q").tolist() == [[20.0, 21.0]]


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_line_of_ids_ends_where_lines_end_and_nowhere_else(tmp_path, end):
    np.save(tmp_path / "t.npy", ROWS)
    (tmp_path / "t.ids.txt").write_bytes(end.join(["a", "b\u2028c", "d\x85e", ""]).encode())
    assert list(read_table(tmp_path / "t.npy").index) == ["a", "b\u2028c", "d\x85e"]


@pytest.mark.parametrize(
    ("suffix", "text", "message"),
    [
        ("json", '{"0": 1, "1": 2, "2": 0}', "Both are numbers"),
        ("json", '{"a": 0, "b": 0, "c": 1}', "neither a list of ids nor a row"),
        ("json", "nope", "cannot be read as ids"),
        ("txt", "a\nb\nc\nd\n", "4 ids, 3 embeddings"),
        ("txt", "a\nb\n", "2 ids, 3 embeddings"),
    ],
)
def test_ids_beside_an_array_that_do_not_fit_are_refused(tmp_path, suffix, text, message):
    np.save(tmp_path / "t.npy", ROWS)
    (tmp_path / f"t.ids.{suffix}").write_text(text)
    with pytest.raises(DataError, match=message):
        read_table(tmp_path / "t.npy")


def test_embeddings_of_zeros_are_told(tmp_path, caplog, monkeypatch):
    monkeypatch.setattr(logging.getLogger("anygrpo"), "propagate", True)
    np.savez(tmp_path / "t.npz", ids=IDS, embeddings=ROWS * np.array([[1], [0], [1]]))
    assert read_table(tmp_path / "t.npz").width == 2
    assert "'b'" in caplog.text

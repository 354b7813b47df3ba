"""Data in the forms people have it: the same rows whatever the form, and each fault with its place."""

import csv
import gzip
import json

import pytest

from anygrpo.errors import ConfigError, DataError
from anygrpo.language.task_settings import JsonlTaskConfig
from anygrpo.language.tasks.data import read_rows
from anygrpo.language.tasks.jsonl import Jsonl
from anygrpo.language.tasks.messages import clean_prompt

ROWS = [{"prompt": f"{i} + 1?", "answer": str(i + 1)} for i in range(6)]


def _zipped(file):
    plain = file.with_name("plain")
    _csv(plain, ";")
    with gzip.open(file, "wb") as out:
        out.write(plain.read_bytes())
    plain.unlink()


def _csv(file, delimiter=","):
    with file.open("w", newline="") as lines:
        writer = csv.DictWriter(lines, list(ROWS[0]), delimiter=delimiter)
        writer.writeheader()
        writer.writerows(ROWS)


WRITERS = {
    "a.jsonl": lambda f: f.write_text("".join(json.dumps(r) + "\n" for r in ROWS)),
    "list.json": lambda f: f.write_text(json.dumps(ROWS, indent=1)),
    "under.json": lambda f: f.write_text(json.dumps({"data": ROWS, "version": 2})),
    "columns.json": lambda f: f.write_text(json.dumps({k: [r[k] for r in ROWS] for k in ROWS[0]})),
    "lines.json": lambda f: f.write_text("".join(json.dumps(r) + "\n" for r in ROWS)),
    "b.csv": _csv,
    "b.tsv": lambda f: _csv(f, "\t"),
    "semicolons.csv": lambda f: _csv(f, ";"),
    "splits.json": lambda f: f.write_text(json.dumps({"train": ROWS, "test": ROWS[:2]})),
    "a.jsonl.gz": lambda f: f.write_bytes(gzip.compress("".join(json.dumps(r) + "\n" for r in ROWS).encode())),
    "b.csv.gz": _zipped,
}


@pytest.mark.parametrize("name", WRITERS)
def test_every_form_gives_the_same_rows(tmp_path, name):
    WRITERS[name](tmp_path / name)
    rows = read_rows(str(tmp_path / name), "prompt")
    assert [row for _, row in rows] == ROWS
    assert [n for n, _ in rows] == [1, 2, 3, 4, 5, 6]


def test_splits_inside_a_json_file_and_broken_gzip(tmp_path):
    (tmp_path / "a.json").write_text(json.dumps({"validation": ROWS, "test": ROWS[:2]}))
    assert len(read_rows(str(tmp_path / "a.json"), "prompt", "test")) == 2
    with pytest.raises(DataError, match=r"splits \['test', 'validation'\]"):
        read_rows(str(tmp_path / "a.json"), "prompt")
    (tmp_path / "cut.jsonl.gz").write_bytes(gzip.compress(b'{"prompt": "a"}\n' * 999)[:40])
    with pytest.raises(DataError, match="gzip"):
        read_rows(str(tmp_path / "cut.jsonl.gz"), "prompt")
    (tmp_path / "b.jsonl.gz").write_bytes(gzip.compress(b'{"prompt": "a"}\n{'))
    with pytest.raises(DataError, match="broken JSON") as caught:
        read_rows(str(tmp_path / "b.jsonl.gz"), "prompt")
    assert "b.jsonl.gz, line 2" in str(caught.value)


def test_a_folder_of_files_and_its_split(tmp_path):
    for split, part in (("train", ROWS[:4]), ("test", ROWS[4:])):
        (tmp_path / f"{split}-00000.json").write_text(json.dumps(part))
    assert [r for _, r in read_rows(str(tmp_path), "prompt", "test")] == ROWS[4:]
    assert [r for _, r in read_rows(str(tmp_path), "prompt", "train")] == ROWS[:4]
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="holds no data"):
        read_rows(str(tmp_path / "empty"), "prompt")


def test_parquet_with_messages_whose_missing_keys_are_null(tmp_path):
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    turns = [{"role": "user", "content": "hi", "name": None}, {"role": "assistant", "content": None, "name": None}]
    pq.write_table(pa.Table.from_pylist([{"prompt": turns, "answer": "1"}]), tmp_path / "a.parquet")
    assert read_rows(str(tmp_path / "a.parquet"), "prompt") == [
        (1, {"prompt": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": ""}], "answer": "1"})
    ]


def test_a_saved_data_set_and_its_splits(tmp_path):
    datasets = pytest.importorskip("datasets")
    table = lambda rows: datasets.table.InMemoryTable.from_pylist(rows)  # noqa: E731
    made = {n: datasets.Dataset(table(r), fingerprint=n) for n, r in (("train", ROWS[:4]), ("test", ROWS[4:]))}
    datasets.DatasetDict(made).save_to_disk(str(tmp_path / "saved"))
    assert [r for _, r in read_rows(str(tmp_path / "saved"), "prompt", "test")] == ROWS[4:]
    with pytest.raises(DataError, match="has splits"):
        read_rows(str(tmp_path / "saved"), "prompt", "valid")


def test_a_package_that_is_not_there_is_named(tmp_path, monkeypatch):
    import importlib

    def absent(name):
        raise ImportError(name)

    monkeypatch.setattr(importlib, "import_module", absent)
    (tmp_path / "a.parquet").write_bytes(b"PAR1")
    with pytest.raises(ConfigError, match=r"pyarrow.*\n.*anygrpo\[data\]"):
        read_rows(str(tmp_path / "a.parquet"), "prompt")


def test_places_are_rows_where_there_are_no_lines(tmp_path):
    (tmp_path / "a.json").write_text(json.dumps([*ROWS, {"promt": "x"}]))
    with pytest.raises(DataError, match=r"a\.json, row 7: no column 'prompt'; did you mean 'promt'"):
        read_rows(str(tmp_path / "a.json"), "prompt")
    (tmp_path / "a.csv").write_text("prompt,answer\nx,1,2\n")
    with pytest.raises(DataError, match="row 1 has more cells"):
        read_rows(str(tmp_path / "a.csv"), "prompt")
    (tmp_path / "b.json").write_text("[1, 2")
    with pytest.raises(DataError, match="broken JSON"):
        read_rows(str(tmp_path / "b.json"), "prompt")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("hi", "hi"),
        ('[{"role": "user", "content": "hi"}]', [{"role": "user", "content": "hi"}]),
        ([{"from": "human", "value": "hi"}], [{"role": "user", "content": "hi"}]),
        (
            [{"role": "user", "content": [{"type": "text", "text": "a"}, "b"]}],
            [{"role": "user", "content": "ab"}],
        ),
        (
            [
                {
                    "role": "assistant",
                    "content": None,
                    "tool_calls": [{"function": {"name": "f", "arguments": '{"x": 1}'}}],
                }
            ],
            [
                {
                    "role": "assistant",
                    "content": "",
                    "tool_calls": [{"function": {"name": "f", "arguments": {"x": 1}}}],
                }
            ],
        ),
    ],
)
def test_prompts_as_people_write_them(given, expected):
    assert clean_prompt(given, "here") == expected


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([{"role": "user", "content": [{"type": "image", "image": "x.png"}]}], "no picture at x.png"),
        ([{"role": "system", "content": "a"}, {"role": "system", "content": "b"}], "two system messages"),
        ([{"role": "user"}], "the prompt is"),
        ([{"role": "user", "content": ""}], "the prompt is"),
    ],
)
def test_prompts_that_cannot_be_read(given, message):
    with pytest.raises(DataError, match=message):
        clean_prompt(given, "here")


def test_one_system_message(tmp_path):
    rows = [
        {"prompt": [{"role": "system", "content": "mine"}, {"role": "user", "content": str(i)}], "answer": "1"}
        for i in range(20)
    ]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    config = JsonlTaskConfig(
        kind="data",
        path=str(tmp_path / "a.jsonl"),
        rewards=[{"kind": "number"}],
        system="the recipe's",
        examples=[{"question": "q", "answer": "a"}],
    )
    task = Jsonl(config, 0)
    try:
        turns = task.prompts(0, 1)[0]["prompt"]
        assert [m["role"] for m in turns] == ["system", "user", "assistant", "user"]
        assert turns[0]["content"] == "mine"
    finally:
        task.close()

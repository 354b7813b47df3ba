"""Files of a run folder that are malformed in other ways than by code in them: headers that lie, links, odd names."""

from __future__ import annotations

import json
import shutil
import struct
from pathlib import Path

import pytest
from runs import trained

from anygrpo.cli.main import main
from anygrpo.errors import DataError
from anygrpo.files import MOST, one_line, refuse_unending, yaml_word
from anygrpo.train import checkpoint

FINE = (0, 2, 3, 4, 5)


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    return trained(tmp_path_factory.mktemp("made"))


def tensors(header: object, length: int | None = None) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + b"\0" * 4096


def entry(shape: list[int], begin: int, end: int, dtype: str = "F32") -> dict:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


HEADERS = {
    "longer than all memory": tensors(b"{}", 2**63),
    "longer than the file": tensors(b"{}", 99_000_000),
    "offsets that overlap": tensors({"weight": entry([5, 5], 0, 100), "bias": entry([5], 0, 20)}),
    "more than memory": tensors({"weight": entry([2**40, 2**20], 0, 4), "bias": entry([5], 4, 24)}),
    "backwards": tensors({"weight": entry([-1], 4, 0)}),
    "an unknown type": tensors({"weight": entry([1], 0, 4, "EVIL")}),
    "too deep": tensors(b"[" * 100_000),
    "metadata of another type": tensors({"__metadata__": {"a": [1]}, "weight": entry([5, 5], 0, 100)}),
    "a list": tensors(b"[]"),
    "nothing": b"",
}


@pytest.mark.parametrize("kind", HEADERS)
def test_a_header_of_tensors_that_lies(made, tmp_path, kind, capsys):
    """The manifest agrees with what lies there."""
    run = tmp_path / "run"
    shutil.copytree(made, run)
    for folder in (run / "checkpoints").iterdir():
        for file in folder.glob("*.safetensors"):
            file.write_bytes(HEADERS[kind])
        (folder / "manifest.json").unlink()
        checkpoint._seal(folder)
    for words in (
        ["verify", str(run)],
        ["evaluate", str(run), str(run / "checkpoints" / "best")],
        ["export", str(run), "--to", str(tmp_path / "out")],
        ["compare", str(made), str(run), "--weights", "best"],
        ["train", "--resume", str(run), "--quiet"],
    ):
        assert main(words) in FINE, (words, capsys.readouterr().err)


@pytest.mark.parametrize(
    "name", ["metrics.jsonl", "log.txt", "doctor.json", ".lock", "resumes.jsonl", "samples/step_00000004.jsonl"]
)
def test_a_resumed_run_writes_through_no_link(made, tmp_path, name, capsys):
    run, mine = tmp_path / "run", tmp_path / "mine"
    shutil.copytree(made, run)
    mine.write_text((run / name).read_text() if (run / name).is_file() else "mine\n")
    before = mine.read_bytes()
    (run / name).unlink(missing_ok=True)
    (run / name).symlink_to(mine)
    assert main(["train", "--resume", str(run), "--training.steps", "6", "--quiet"]) == 3
    assert "is a link: a run would write over" in capsys.readouterr().err
    assert mine.read_bytes() == before


def test_a_report_takes_the_place_of_a_link(made, tmp_path, capsys):
    run, mine = tmp_path / "run", tmp_path / "mine"
    shutil.copytree(made, run)
    mine.write_text("mine\n")
    (run / "report.html").unlink()
    (run / "report.html").symlink_to(mine)
    assert main(["report", str(run)]) == 0
    assert mine.read_text() == "mine\n"
    assert not (run / "report.html").is_symlink()
    assert "<html" in (run / "report.html").read_text()


NAMES = [
    "a\nb",
    "\x1b]0;t\x07x",
    "\u202egnp.sh",
    "a`rm`$(x)",
    "-rf",
    "  ",
    "\udcff",
    "<svg onload=alert(1)>",
    "{0.__class__}",
]


@pytest.mark.parametrize("name", NAMES)
def test_a_folder_and_measures_of_any_name(tmp_path, name, capsys):
    run = tmp_path / name
    run.mkdir()
    odd = {"\u202ex\x1b]0;t\x07": 1.0, "<svg onload=alert(1)>": 2.0, "{0.__class__.__mro__}": 3.0, "</script>": 4.0}
    rows = [json.dumps({"step": i, "reward/mean": i * 0.1} | odd) for i in range(30)]
    (run / "metrics.jsonl").write_text("\n".join(rows) + "\n")
    (run / "config.toml").write_text("")
    page = tmp_path / "page.html"
    for words in (["doctor", str(run)], ["compare", str(run), str(run)], ["verify", str(run)],
                  ["report", str(run), "--output", str(page)], ["doctor", str(run), "--html", str(page)]):  # fmt: skip
        assert main(words) in FINE, (words, capsys.readouterr().err)
        said = "".join(capsys.readouterr())
        assert not any(sign in said for sign in "\x1b\u202e\x07"), words
        if page.exists():
            text = page.read_text(encoding="utf-8")
            assert "<svg onload" not in text
            assert "<class 'object'>" not in text
            page.unlink()


def test_yaml_that_unfolds_without_end():
    """By hand: [1, [1]] is 4 values; ten names of ten, nine times, are over 10^9."""
    layer: list = [1]
    for _ in range(9):
        layer = [layer] * 10
    loop: list = []
    loop.append(loop)
    deep: list = []
    for _ in range(100_000):
        deep = [deep]
    for tree in (layer, {"a": layer}, loop, deep, list(range(MOST))):
        with pytest.raises(DataError, match="more than"):
            refuse_unending(tree)
    refuse_unending([1, [1]] * 100)
    refuse_unending(list(range(MOST - 1)))


@pytest.mark.timeout(60)
@pytest.mark.parametrize(("first", "open_", "item", "close"), [("{x: 1}", "{", "k{j}: ", "}"), ("[x]", "[", "", "]")])
def test_a_yaml_bomb_is_told_as_one(tmp_path, capsys, first, open_, item, close):
    lines = [f"a0: &a0 {first}"]
    for i in range(1, 10):
        inner = ", ".join(f"{item.format(j=j)}*a{i - 1}" for j in range(10))
        lines.append(f"a{i}: &a{i} {open_}{inner}{close}")
    (tmp_path / "c.yaml").write_text("\n".join(lines) + "\n")
    (tmp_path / "log.jsonl").write_text('{"step": 1, "reward": 1.0}\n' * 20)
    log, config = str(tmp_path / "log.jsonl"), str(tmp_path / "c.yaml")
    for words in (["doctor", log, "--config", config], ["adopt", config]):
        assert main(words) == 3, words
        assert "more than 100000 settings in one file" in capsys.readouterr().err


def test_names_in_a_readme():
    evil = "m`\n---\n# <script>x</script>\n[a](javascript:b)"
    assert one_line(evil) == "m' --- # &lt;script>x&lt;/script> [a](javascript:b)"
    assert yaml_word("org/model-1.5B") == "org/model-1.5B"
    assert yaml_word("x\nlicense: mit") == '"x\\nlicense: mit"'
    assert yaml_word("-x") == '"-x"'

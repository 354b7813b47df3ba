"""A run folder from anybody: bait in every file, and every command that reads; none of it is run."""

from __future__ import annotations

import json
import os
import shutil
import zlib
from pathlib import Path

import pytest
from baits import bait, torch_bait
from runs import trained

from anygrpo.cli.main import main
from anygrpo.errors import DataError
from anygrpo.recipe.load import load_recipe
from anygrpo.train import checkpoint

FINE = (0, 2, 3, 4, 5)
"""Exit codes of success or of an error that says what to change; 1 is "internal error"."""


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    run = trained(tmp_path_factory.mktemp("made"))
    assert main(["train", "--resume", str(run), "--training.steps", "5", "--quiet"]) == 0
    tensors: dict = {}
    from anygrpo.core.packing import pack
    from anygrpo.core.tensor_files import write_tensors

    (run / "pictures").mkdir()
    (run / "pictures" / "before.json").write_text(json.dumps(pack([[1]], tensors, "before")))
    write_tensors(run / "pictures" / "before.safetensors", tensors)
    return run


def reading(run: Path, other: Path, out: Path) -> list[list[str]]:
    return [
        ["compare", str(run), str(other)],
        ["compare", str(other), str(run), "--weights", "best"],
        ["report", str(run), "--output", str(out / "r.html")],
        ["doctor", str(run)],
        ["verify", str(run)],
        ["check", str(run / "config.toml")],
        ["select", "evaluate", str(run)],
        ["evaluate", str(run), str(run / "checkpoints" / "best")],
        ["export", str(run), "--to", str(out / "export")],
        ["apply", str(run), "x", "--out", str(out / "applied"), "--quiet"],
        ["train", "--resume", str(run), "--quiet"],
    ]


def files_of(run: Path) -> list[str]:
    return sorted(str(f.relative_to(run)) for f in run.rglob("*") if f.is_file() and f.name != ".lock")


def test_there_is_much_to_bait(made):
    names = files_of(made)
    assert {
        "config.toml",
        "environment.json",
        "fingerprints.json",
        "resumes.jsonl",
        "metrics.jsonl",
        "doctor.json",
    } <= {*names}
    assert any(n.startswith("checkpoints/best/") for n in names)


@pytest.mark.parametrize("kind", [bait, torch_bait])
def test_bait_in_every_file_is_never_run(made, tmp_path, kind, capsys):
    """Every file at once but the recipe, then the recipe alone; manifests agree with what lies there."""
    mark = tmp_path / "ran"
    for baited in ([n for n in files_of(made) if n != "config.toml"], ["config.toml"]):
        run = tmp_path / f"run{len(baited)}"
        shutil.copytree(made, run)
        for name in baited:
            (run / name).write_bytes(kind(mark))
        for folder in (run / "checkpoints").iterdir():
            if len(baited) > 1:
                (folder / "manifest.json").unlink()
                checkpoint._seal(folder)
        for words in reading(run, made, tmp_path):
            code = main(words)
            assert code in FINE, (words, baited, capsys.readouterr().err)
            assert not mark.exists(), (words, baited)


def seal_as_of_old(folder: Path) -> None:
    """The manifest of the first format: name -> [size, crc32]."""
    files = [f for f in folder.rglob("*") if f.is_file() and f.name != "manifest.json"]
    table = {str(f.relative_to(folder)): [f.stat().st_size, zlib.crc32(f.read_bytes())] for f in files}
    (folder / "manifest.json").write_text(json.dumps(table))


@pytest.mark.parametrize("seal", [lambda folder: None, checkpoint._seal, seal_as_of_old])
@pytest.mark.parametrize("name", ["state.pt", "policy.bin", "before.pt", "parts/.metadata", "parts/__0_0.distcp"])
def test_files_that_older_versions_read_are_not_read(made, tmp_path, name, seal):
    """Beside the run's own or, where the manifest is made anew, in their place: the format of a first version."""
    run, mark = tmp_path / "run", tmp_path / "ran"
    shutil.copytree(made, run)
    for folder in [*(run / "checkpoints").iterdir(), run / "pictures"]:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(torch_bait(mark))
        if seal is seal_as_of_old:
            (folder / "state.json").unlink(missing_ok=True)
        if folder.name != "pictures":
            seal(folder)
    for words in reading(run, made, tmp_path):
        assert main(words) in FINE, words
        assert not mark.exists(), words


DEEP = "[" * 100_000
LONG = '{"step": ' + "9" * 10_000 + "}"


@pytest.mark.parametrize(
    "text", ["null", "[]", "[[1]]", '{"actions": [1]}', '{"said": [1], "step": {}}', "{", DEEP, '{"a":' * 100_000, LONG]
)
def test_files_of_odd_json_are_no_internal_error(made, tmp_path, text, capsys):
    run = tmp_path / "run"
    shutil.copytree(made, run)
    for name in files_of(made):
        if name.endswith((".json", ".jsonl")) and not name.startswith("checkpoints"):
            (run / name).write_text(text + "\n")
    for words in reading(run, made, tmp_path):
        assert main(words) in FINE, (words, capsys.readouterr().err)


@pytest.mark.parametrize(
    "deep", ["x = " + "[" * 50_000, ".".join(["a"] * 5_000) + " = 1", "[" + ".".join("b" * 900) + "]"]
)
def test_toml_nested_without_end_is_no_internal_error(made, tmp_path, deep, capsys):
    run = tmp_path / "run"
    shutil.copytree(made, run)
    for text in (deep, (run / "config.toml").read_text() + "\n" + deep):
        (run / "config.toml").write_text(text)
        for words in reading(run, made, tmp_path):
            assert main(words) in FINE, (words, capsys.readouterr().err)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("device", [False, True])
@pytest.mark.parametrize(
    "name", ["metrics.jsonl", "doctor.json", "fingerprints.json", "config.toml", "checkpoints/best/x"]
)
def test_a_pipe_or_a_device_is_refused_and_not_waited_for(made, tmp_path, name, device, capsys):
    run = tmp_path / "run"
    shutil.copytree(made, run)
    (run / name).unlink(missing_ok=True)
    if device:
        (run / name).symlink_to("/dev/zero")
    else:
        os.mkfifo(run / name)
    for words in reading(run, made, tmp_path):
        assert main(words) == 3, words
        assert "is a pipe, a socket or a device" in capsys.readouterr().err, words


def test_code_inside_the_folder_is_refused_wherever_the_recipe_is_read(made, tmp_path):
    run, mark = tmp_path / "run", tmp_path / "ran"
    shutil.copytree(made, run)
    (run / "evil.py").write_text(f"import os\nos.mkdir({str(mark)!r})\ndef policy(seed): ...\n")
    text = (run / "config.toml").read_text()
    old = next(line for line in text.splitlines() if line.startswith("function"))
    (run / "config.toml").write_text(text.replace(old, f'function = "{run}/samples/../evil.py:policy"'))
    with pytest.raises(DataError, match="inside the run folder"):
        load_recipe(run / "config.toml")
    for words in reading(run, made, tmp_path):
        assert main(words) in FINE, words
    assert not mark.exists()
    assert load_recipe(
        run / "config.toml", ["--policy.function", old.split('"')[1]]
    )  # named by the user: the user's own


@pytest.mark.parametrize("module", [os, json, pytest])
def test_code_of_pythons_own_is_refused_in_a_strangers_recipe(made, tmp_path, module, capsys):
    """It lies at known places on every machine, and takes what the recipe gives it."""
    run = tmp_path / "run"
    shutil.copytree(made, run)
    text = (run / "config.toml").read_text()
    old = next(line for line in text.splitlines() if line.startswith("function"))
    (run / "config.toml").write_text(text.replace(old, f'function = "{module.__file__}:system"'))
    for words in reading(run, made, tmp_path):
        assert main(words) in FINE, words
    with pytest.raises(DataError, match="of this Python's installation"):
        load_recipe(run / "config.toml")


def test_no_unpickling_without_restrictions_is_in_the_package():
    source = Path(__file__).parents[2] / "src" / "anygrpo"
    for file in source.rglob("*.py"):
        text = file.read_text()
        if file.name == "unpickled.py":  # its own unpickler looks up tensors and containers alone: tests/models
            assert text.count("weights_only=False, pickle_module=_PICKLE") == text.count("weights_only=False") == 1, (
                file
            )
            continue
        assert "weights_only=False" not in text, file
        assert "torch.distributed.checkpoint" not in text, file
        assert "pickle.load(" not in text, file
        assert text.count("torch.load(") == text.count("weights_only=True"), file

"""Folders of a run folder that are links: the user's to a larger disk, and a stranger's to what is not the run's."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from runs import run_of, trained

from anygrpo.cli.main import main
from anygrpo.errors import DataError
from anygrpo.train import checkpoint, links
from anygrpo.train.loop import train


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    return trained(tmp_path_factory.mktemp("made"))


def steps_in(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir() if p.name.startswith("step_"))


def bytes_of(folder: Path) -> dict[str, bytes]:
    return {str(f.relative_to(folder)): f.read_bytes() for f in folder.rglob("*") if f.is_file()}


def resume(run: Path, steps: int = 8) -> int:
    return main(["train", "--resume", str(run), "--training.steps", str(steps), "--quiet"])


@pytest.mark.parametrize("name", ["checkpoints", "samples"])
def test_a_run_begun_on_a_link_to_an_empty_folder_goes_on_there(tmp_path, name):
    run, disk = tmp_path / "run", tmp_path / "disk"
    disk.mkdir()
    (disk / "lost+found").mkdir()  # the root of a disk of its own
    run.mkdir()
    (run / name).symlink_to(disk)
    going = run_of(run, training={"steps": 4, "checkpoint_every": 2, "keep_checkpoints": 1, "samples_every": 2})
    train(going)
    going.close()
    assert (disk / links.MARK).read_text() == f"{os.path.realpath(run)}\n"
    assert resume(run, 6) == 0
    assert (run / name).is_symlink()
    assert steps_in(disk) == (["step_00000006"] if name == "checkpoints" else steps_in(disk))
    assert steps_in(disk)
    assert checkpoint.newest(run / "checkpoints").name == "step_00000006"


def test_the_runs_folder_itself_may_be_a_link(tmp_path):
    (tmp_path / "disk").mkdir()
    (tmp_path / "runs").symlink_to(tmp_path / "disk")
    going = run_of(tmp_path / "runs" / "a", training={"steps": 2, "checkpoint_every": 2})
    train(going)
    going.close()
    assert resume(tmp_path / "runs" / "a", 4) == 0
    assert steps_in(tmp_path / "disk" / "a" / "checkpoints")[-1] == "step_00000004"


def test_checkpoints_moved_to_a_larger_disk_are_taken_once_the_user_says_so(made, tmp_path, capsys):
    """The words of the cure, followed to the letter."""
    run, disk = tmp_path / "run", tmp_path / "a disk"
    shutil.copytree(made, run)
    (run / "checkpoints").rename(disk)
    (run / "checkpoints").symlink_to(disk)
    before = bytes_of(disk)
    assert resume(run) == 3
    said = capsys.readouterr().err
    assert bytes_of(disk) == before
    words = said.partition("where it is yours: ")[2].splitlines()[0]
    assert os.system(words) == 0
    assert resume(run) == 0
    assert steps_in(disk)[-1] == "step_00000008"


@pytest.mark.parametrize("name", ["checkpoints", "samples", "pictures", "tensorboard", "wandb/latest"])
def test_a_strangers_link_to_a_folder_of_mine_is_not_written_through(made, tmp_path, name, capsys):
    """The folder is another run's checkpoints, whose names pruning knows."""
    run, mine = tmp_path / "run", tmp_path / "mine"
    shutil.copytree(made, run)
    shutil.copytree(made / "checkpoints", mine)
    for step in (1, 3, 5):
        shutil.copytree(made / "checkpoints" / "best", mine / f"step_{step:08d}")
    before = bytes_of(mine)
    shutil.rmtree(run / name, ignore_errors=True)
    (run / name).parent.mkdir(exist_ok=True)
    (run / name).symlink_to(mine)
    for words in (["verify", str(run)], ["report", str(run)], ["doctor", str(run)], ["compare", str(run), str(made)],
                  ["evaluate", str(run)], ["export", str(run), "--to", str(tmp_path / "out")]):  # fmt: skip
        assert main(words) in (0, 2, 3, 4, 5), words
        assert bytes_of(mine) == before, words
    capsys.readouterr()
    assert resume(run) == 3
    assert "which holds other things: a run would write and remove there" in capsys.readouterr().err
    assert bytes_of(mine) == before


@pytest.mark.parametrize("name", ["best", ".best", ".best.old", "step_00000008", "step_00000004"])
def test_what_is_linked_within_checkpoints_is_replaced_and_not_followed(made, tmp_path, name):
    run, mine = tmp_path / "run", tmp_path / "mine"
    shutil.copytree(made, run)
    shutil.copytree(made / "checkpoints" / "best", mine)
    before = bytes_of(mine)
    if (run / "checkpoints" / name).exists():
        shutil.rmtree(run / "checkpoints" / name)
    (run / "checkpoints" / name).symlink_to(mine)
    assert resume(run, 40) == 0
    assert bytes_of(mine) == before
    assert checkpoint.newest(run / "checkpoints").name == "step_00000040"
    if name in ("best", ".best", ".best.old"):
        assert checkpoint.is_complete(run / "checkpoints" / "best")
        assert not (run / "checkpoints" / "best").is_symlink()
        assert not os.path.lexists(run / "checkpoints" / ".best")


def test_links_of_a_tracker_within_its_own_folder_are_left_alone(made, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(made, run)
    (run / "wandb" / "run-1" / "logs").mkdir(parents=True)
    (run / "wandb" / "run-1" / "logs" / "debug.log").write_text("x")
    (run / "wandb" / "latest-run").symlink_to("run-1")
    (run / "wandb" / "debug.log").symlink_to("run-1/logs/debug.log")
    assert resume(run) == 0


@pytest.mark.parametrize("target", ["nowhere", "..", "/", "loop"])
def test_links_that_lead_nowhere_above_or_to_themselves(made, tmp_path, target):
    run = tmp_path / "inner" / "run"
    shutil.copytree(made, run)
    shutil.rmtree(run / "samples")
    (run / "samples").symlink_to("samples" if target == "loop" else target)
    with pytest.raises(DataError):
        links.settle(run)
    assert not (tmp_path / "inner" / "nowhere").exists()
    assert not (tmp_path / "inner" / links.MARK).exists()

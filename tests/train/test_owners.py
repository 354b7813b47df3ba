"""Whose fault it is when training breaks: nobody's policy is blamed for a disk, a tracker or a device."""

from __future__ import annotations

import sysconfig
from pathlib import Path

import pytest
import torch
from runs import run_of

from anygrpo.errors import ConfigError, TrainingError
from anygrpo.train import owners
from anygrpo.train.folder import JsonlSink
from anygrpo.train.run import Run
from anygrpo.watch.session import go

SAYS = r"Bandit\.decode returned a NoneType.*; the run ended by TypeError: .*\.py:\d"


def spoil(run: Run) -> Run:
    """From now on the policy decodes to nothing."""
    run.policy.decode = lambda samples: None  # type: ignore[method-assign]
    return run


class Spoils:
    """A sink that spoils the policy while the next sink is about to fail."""

    def __init__(self, run: Run) -> None:
        self.run = run

    def write(self, row) -> None:
        spoil(self.run)

    def close(self) -> None:
        pass


class Packaged(Spoils):
    """A sink that raises as a method of an installed package does."""

    def __init__(self, raised: str) -> None:
        made: dict = {"__name__": "tracker.api"}
        file = f"{sysconfig.get_path('purelib')}/tracker/api.py"
        exec(compile(f"def write(row):\n    raise {raised}", file, "exec"), made)
        self.write = made["write"]


def test_what_the_policy_does_wrong_is_told_with_the_error_that_ended_the_run(tmp_path):
    with pytest.raises(ConfigError, match=SAYS):
        go(spoil(run_of(tmp_path / "run")), quiet=True)


def test_a_full_disk_is_told_as_such_whatever_the_policy_does(tmp_path):
    run = run_of(tmp_path / "run")
    run.sinks = [Spoils(run), JsonlSink(Path("/dev/full"))]
    with pytest.raises(TrainingError, match="cannot be written: No space left"):
        go(run, quiet=True)


@pytest.mark.parametrize("raised", [RuntimeError("offline"), ValueError("a bad row"), OSError("reset")], ids=repr)
def test_a_tracker_that_fails_is_told_as_such(tmp_path, raised):
    run = run_of(tmp_path / "run")
    run.sinks = [Spoils(run), Packaged(repr(raised))]
    with pytest.raises(type(raised), match=str(raised)):
        go(run, quiet=True)


@pytest.mark.parametrize(
    "error",
    [
        torch.cuda.OutOfMemoryError("CUDA out of memory"),
        RuntimeError("CUDA error: an illegal memory access was encountered"),
        RuntimeError("[enforce fail at alloc_cpu.cpp:1] DefaultCPUAllocator: can't allocate memory"),
        MemoryError(),
    ],
    ids=lambda error: type(error).__name__,
)
def test_memory_and_devices_are_told_as_such_even_inside_the_users_own(tmp_path, error):
    run = run_of(tmp_path / "run")

    def sample(*given):
        raise error

    run.policy.sample = sample  # type: ignore[method-assign]
    with pytest.raises((type(error), TrainingError)) as told:
        go(run, quiet=True)
    assert error in (told.value, told.value.__cause__)  # `folder.writing` has a sentence for memory


def test_no_rank_alone_tries_a_policy_that_is_sharded(tmp_path, monkeypatch):
    run = spoil(run_of(tmp_path / "run"))
    monkeypatch.setattr(owners, "is_sharded", lambda tensor: True)
    with pytest.raises(TypeError):
        go(run, quiet=True)

"""Settings for all tests: one thread, no network, signals as in a terminal."""

from __future__ import annotations

import getpass
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from contextlib import nullcontext

import pytest
from processor import GPU, processor_alone

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("OMP_NUM_THREADS", "1")
if not GPU:  # Triton reads it once, when it is first imported, by whichever test
    os.environ.setdefault("TRITON_INTERPRET", "1")

# Started by nohup or in the background, the tests would hand an ignored signal on to every process that they start.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.fixture(scope="session", autouse=True)
def temporary(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Whatever a test, or a process that it kills, leaves in the system's temporary place goes with the session."""
    before, folder = tempfile.gettempdir(), tmp_path_factory.mktemp("temporary")
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", f"{before}/torchinductor_{getpass.getuser()}")
    known, os.environ["TMPDIR"], tempfile.tempdir = os.environ.get("TMPDIR"), str(folder), str(folder)
    yield
    tempfile.tempdir = before
    if known is None:
        del os.environ["TMPDIR"]
    else:
        os.environ["TMPDIR"] = known
    shutil.rmtree(folder, ignore_errors=True)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """A test marked `cpu`, and the fixtures made for it, find no GPU."""
    with processor_alone() if item.get_closest_marker("cpu") else nullcontext():
        return (yield)

"""The processes in which scripts/mutation.py runs pytest: forked, each in a copy of the tree of its own."""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import shutil
import signal
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = Path("src/anygrpo")
CUT = 1000
"""In place of an exit code: time was up for all."""
EVERY = 20.0
"""Seconds after which a measured file of tests writes what it has, in case it is ended before its last test."""


class Quick:
    """pytest's plugin in each process: a failing example is enough, no time is spent on making it small."""

    def pytest_configure(self, config) -> None:
        import hypothesis

        phases = [hypothesis.Phase.explicit, hypothesis.Phase.generate]
        hypothesis.settings.register_profile("mutation", database=None, deadline=None, phases=phases)
        hypothesis.settings.load_profile("mutation")


class Lines(Quick):
    """Records the seconds of each test that passes and the lines of the targets that it runs."""

    def __init__(self, files: list[str], answer: Path) -> None:
        import coverage

        self.files, self.tests, self.bad = files, {}, set()
        self.answer, self.written = answer, time.monotonic()
        sources = [str(Path.cwd() / SOURCE / Path(f).parent) for f in files]
        self.coverage = coverage.Coverage(
            data_file=None, config_file=False, source=sorted(set(sources)), messages=False
        )
        self.coverage.start()

    def pytest_runtest_logstart(self, nodeid, location) -> None:
        self.coverage.switch_context(nodeid)
        self.began = time.monotonic()

    def pytest_runtest_logreport(self, report) -> None:
        if report.outcome != "passed":
            self.bad.add(report.nodeid)

    def pytest_runtest_logfinish(self, nodeid, location) -> None:
        self.tests[nodeid] = time.monotonic() - self.began
        self.coverage.switch_context("")
        if time.monotonic() > self.written + EVERY:
            self.write()

    def write(self) -> None:
        part = self.answer.with_suffix(".part")
        part.write_text(json.dumps(self.result()))
        part.replace(self.answer)
        self.written = time.monotonic()

    def result(self) -> dict:
        data = self.coverage.get_data()
        lines: dict = {test: defaultdict(list) for test in self.tests}
        for file in self.files:
            for line, contexts in data.contexts_by_lineno(str(Path.cwd() / SOURCE / file)).items():
                for test in set(contexts) & set(lines):
                    lines[test][file].append(line)
        return {
            test: {"seconds": seconds, "lines": lines[test]}
            for test, seconds in self.tests.items()
            if test not in self.bad
        }


def pytest_in(folder: Path, arguments: list[str], plugin: Callable[[], Quick]) -> None:
    """The body of a forked process: its own group, its own log, the copy's sources; ends with pytest's exit code."""
    os.setsid()
    log = os.open(folder / "log.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(log, 1), os.dup2(log, 2)
    os.chdir(folder)
    os.environ["PYTHONPATH"] = os.pathsep.join([str(folder / "src"), os.environ.get("PYTHONPATH", "")])
    sys.path.insert(0, str(folder / "src"))
    import pytest

    active = plugin()
    base = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--hypothesis-seed=0", f"--basetemp={folder}/temp"]
    code = int(pytest.main([*base, *arguments], plugins=[active]))
    if isinstance(active, Lines):
        active.coverage.stop()
        active.write()
    sys.stdout.flush()
    os._exit(code)


@dataclass
class Job:
    """A piece of work for one copy: what is done before the fork, what runs, and what is told of its end."""

    body: Callable[[Path], tuple]
    done: Callable[[Path, int | None], None]
    limit: float


def work(jobs: Iterator[Job], folders: list[Path], end: float, rest: float = 0.0) -> None:
    """Run jobs, one a copy at a time, until there is none or time is up; none begins in the last `rest` seconds. An
    exit code of None: ended for its time; `CUT`: for everybody's."""
    context = multiprocessing.get_context("fork")
    free, running = list(folders), {}
    while True:
        while free and time.monotonic() < end - rest and (job := next(jobs, None)) is not None:
            folder = free.pop()
            process = context.Process(target=pytest_in, args=(folder, *job.body(folder)))
            process.start()
            running[folder] = process, job, time.monotonic() + job.limit
        if not running:
            return
        time.sleep(0.02)
        for folder, (process, job, deadline) in list(running.items()):
            late = time.monotonic() > min(deadline, end)
            if process.is_alive() and not late:
                continue
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # what its tests started too
            code = process.exitcode if not process.is_alive() else None if time.monotonic() < end else CUT
            process.join()
            del running[folder]
            free.append(folder)
            job.done(folder, code)


def copies(count: int, where: Path) -> list[Path]:
    skip = shutil.ignore_patterns(".git", ".venv", "__pycache__", "runs", ".*cache", "shared")
    for i in range(count):
        shutil.copytree(ROOT, where / str(i), ignore=skip, symlinks=True)
    return [where / str(i) for i in range(count)]


def prepare() -> None:
    """What all processes share: quiet settings, and the big libraries imported before the first fork."""
    fixed = {
        "CUDA_VISIBLE_DEVICES": "",
        "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
    }
    os.environ.update(fixed, PYTHONDONTWRITEBYTECODE="1")
    sys.dont_write_bytecode = True  # a changed file of the same size and second would be read from its old bytecode
    sys.path[:] = [p for p in sys.path if Path(p).resolve() not in (ROOT / "src", ROOT / "scripts")]
    for name in ("torch", "scipy.stats", "transformers.modeling_utils", "peft", "diffusers", "hypothesis", "pytest"):
        with contextlib.suppress(ImportError):
            __import__(name)

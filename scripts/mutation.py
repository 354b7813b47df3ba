#!/usr/bin/env python3
"""Mutation testing of one folder of src/anygrpo with mutmut, in a temporary copy.

    python scripts/mutation.py algorithm --processes 8 --results mutants.json

Every mutant is one small change of a function (an operator, a constant, an argument). It is killed when a test of
tests/FOLDER fails. Prints the score, and the difference that each survivor is. The words of error messages are left
alone (the conditions that raise them are not). Needs `pip install anygrpo[dev]`.

With `--results FILE` the verdicts are written as they come, and a later call goes on where the file ends: it judges
what was not reached, what survived (tests may have been added since) and every module whose source has changed.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from mutmut.mutation.diff_apply import get_diff_for_mutant
from mutmut.stats import status_by_exit_code

ROOT = Path(__file__).resolve().parent.parent
CAUGHT = ("killed", "timeout", "segfault")
CONFIG = """
[tool.mutmut]
source_paths = ["src/"]
only_mutate = ["src/anygrpo/{folder}/*.py"]
do_not_mutate_patterns = ["raise .*Error"]
pytest_add_cli_args_test_selection = ["tests/{folder}"]
pytest_add_cli_args = ["-x", "-p", "no:cacheprovider", "-p", "no:xdist", "--hypothesis-seed=0"]
[tool.pytest.ini_options]
addopts = "-q --import-mode=importlib -m 'not slow'"
markers = ["slow: learning checks"]
"""
PROFILE = """
import hypothesis

# A failure is enough: no time is spent on making it small, and a slow machine is no failure.
phases = [hypothesis.Phase.explicit, hypothesis.Phase.generate]
hypothesis.settings.register_profile("mutation", database=None, deadline=None, phases=phases)
hypothesis.settings.load_profile("mutation")
"""

Modules = dict[str, dict]
"""By module ("anygrpo.algorithm.kl"): its source's hash and its mutants, {name: {"state": ..., "diff": ...}}."""


def prepare(folder: str, where: Path) -> None:
    """A copy with the folder, what it imports, its tests, and the settings of mutmut and Hypothesis."""
    for name in ("src", "tests"):
        (where / name).mkdir()
    shutil.copytree(ROOT / "src/anygrpo", where / "src/anygrpo", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "tests" / folder, where / "tests" / folder, ignore=shutil.ignore_patterns("__pycache__"))
    (where / "tests/conftest.py").write_text(PROFILE)
    (where / "pyproject.toml").write_text(CONFIG.format(folder=folder))


def digests(folder: str, root: Path) -> dict[str, str]:
    """The hash of each module's source, by module name."""
    files = sorted((root / "src/anygrpo" / folder).glob("*.py"))
    return {f"anygrpo.{folder}.{f.stem}": hashlib.sha256(f.read_bytes()).hexdigest()[:12] for f in files}


def load(path: Path | None, sources: dict[str, str]) -> Modules:
    """Earlier results, without the modules whose source has changed since."""
    if path is None or not path.exists():
        return {}
    earlier = json.loads(path.read_text())
    return {name: module for name, module in earlier.items() if module["source"] == sources.get(name)}


def save(path: Path | None, modules: Modules) -> None:
    if path is not None and any(module["mutants"] for module in modules.values()):
        path.write_text(json.dumps(modules, indent=1))


def pending(known: Modules, sources: dict[str, str]) -> list[str]:
    """What is to be judged: mutants of known modules that are not caught, all mutants of the others."""
    open_ones = [m for module in known.values() for m, v in module["mutants"].items() if v["state"] not in CAUGHT]
    return open_ones + [f"{module.removesuffix('.__init__')}.x*" for module in sources if module not in known]


def merged(known: Modules, states: dict[str, str], sources: dict[str, str]) -> Modules:
    """Earlier results with the verdicts of this run; what this run did not reach keeps its earlier one."""
    together: Modules = {name: {"source": digest, "mutants": {}} for name, digest in sources.items()}
    for name, state in states.items():
        module = name.rpartition(".")[0]
        module = module if module in sources else f"{module}.__init__"
        before = known.get(module, {"mutants": {}})["mutants"].get(name, {"state": "not checked"})
        together[module]["mutants"][name] = before if state == "not checked" else {"state": state}
    return together


def judged(where: Path) -> dict[str, str]:
    """The state of every mutant in the copy, by name."""
    states = {}
    for meta in sorted((where / "mutants").rglob("*.py.meta")):
        for name, code in json.loads(meta.read_text())["exit_code_by_key"].items():
            states[name] = status_by_exit_code[code]
    return states


def search_path() -> str:
    """PYTHONPATH without this project's own sources, which would hide the mutants."""
    entries = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    return os.pathsep.join(e for e in entries if e and Path(e).resolve() != ROOT / "src")


def mutmut(where: Path, patterns: list[str], processes: int, minutes: float, progress) -> str:
    """Run mutmut in the copy until it ends or time is up; `progress()` is called every 10 s. Returns its log."""
    environment = os.environ | {"PYTHONPATH": search_path(), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "mutmut", "run", "--max-children", str(processes), *patterns]
    end = time.monotonic() + 60 * minutes
    with (where / "log.txt").open("w") as log:
        process = subprocess.Popen(
            command, cwd=where, env=environment, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
        )
        while process.poll() is None and time.monotonic() < end:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=min(10, max(end - time.monotonic(), 0)))
            with contextlib.suppress(json.JSONDecodeError):  # mutmut was writing just now
                progress()
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)  # its workers too
            process.wait()
    return (where / "log.txt").read_text()


def explain(modules: Modules, where: Path) -> None:
    """Give every mutant that lives its difference."""
    with contextlib.chdir(where):
        for module, entry in modules.items():
            for name, mutant in entry["mutants"].items():
                if mutant["state"] not in (*CAUGHT, "not checked"):
                    mutant["diff"] = get_diff_for_mutant(name, path=f"src/{module.replace('.', '/')}.py")


def report(folder: str, modules: Modules) -> None:
    mutants = {name: mutant for entry in modules.values() for name, mutant in entry["mutants"].items()}
    for name, mutant in mutants.items():
        if "diff" in mutant:
            print(f"--- {mutant['state']}: {name}\n{mutant['diff']}")
    for module, entry in modules.items():
        print(module, dict(Counter(m["state"] for m in entry["mutants"].values())))
    states = Counter(mutant["state"] for mutant in mutants.values())
    caught, count = sum(states[s] for s in CAUGHT), len(mutants) - states["not checked"]
    print(dict(states))
    print(f"{folder}: {caught} of {count} judged mutants killed ({caught / max(count, 1):.1%}); {len(mutants)} in all")


def run(options: argparse.Namespace) -> Modules:
    sources = digests(options.folder, ROOT)
    known = load(options.results, sources)
    patterns = options.only or pending(known, sources)
    if not patterns:
        return known
    with tempfile.TemporaryDirectory() as name:
        where = Path(name)
        prepare(options.folder, where)

        def progress() -> None:
            save(options.results, merged(known, judged(where), sources))

        log = mutmut(where, patterns, options.processes, options.minutes, progress)
        if "Running mutation testing" not in log:
            sys.exit(f"mutmut judged nothing:\n{log[-3000:]}")
        modules = merged(known, judged(where), sources)
        explain(modules, where)
        save(options.results, modules)
        return modules


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", help="a folder of src/anygrpo that has tests/FOLDER")
    parser.add_argument("--minutes", type=float, default=60.0, help="time limit; mutants not reached are told")
    parser.add_argument("--only", nargs="*", default=[], help='mutants by name: "anygrpo.algorithm.kl.*"')
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--results", type=Path, help="JSON file of verdicts, written as they come, and gone on from")
    options = parser.parse_args()
    report(options.folder, run(options))


if __name__ == "__main__":
    main()

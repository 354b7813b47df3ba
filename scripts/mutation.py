#!/usr/bin/env python3
"""Mutation testing of one folder of src/anygrpo with mutmut, in a temporary copy.

    python scripts/mutation.py algorithm --minutes 20

Every mutant is one small change of the code (an operator, a constant, an argument). It is killed when a test of
tests/FOLDER fails. Prints the score, and the difference that each survivor is. The words of error messages are left
alone (the conditions that raise them are not). Needs `pip install anygrpo[dev]`.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
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


def prepare(folder: str, where: Path) -> None:
    """A copy with the folder, what it imports, its tests, and mutmut's settings."""
    for name in ("src", "tests"):
        (where / name).mkdir()
    shutil.copytree(ROOT / "src/anygrpo", where / "src/anygrpo", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "tests" / folder, where / "tests" / folder, ignore=shutil.ignore_patterns("__pycache__"))
    (where / "pyproject.toml").write_text(CONFIG.format(folder=folder))


def mutmut(where: Path, *arguments: str, minutes: float) -> str:
    """Run mutmut in the copy; a run cut off by the time limit keeps its results so far."""
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"} | {"OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "mutmut", *arguments]
    with (where / "log.txt").open("w+") as log:
        process = subprocess.Popen(command, cwd=where, env=environment, stdout=log, stderr=subprocess.STDOUT)
        try:
            process.wait(timeout=60 * minutes)
        except subprocess.TimeoutExpired:
            process.terminate()
            process.wait()
        log.seek(0)
        return log.read()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", help="a folder of src/anygrpo that has tests/FOLDER")
    parser.add_argument("--minutes", type=float, default=30.0, help="time limit; mutants not reached are told")
    parser.add_argument("--only", nargs="*", default=[], help='mutants by name: "anygrpo.algorithm.kl.*"')
    parser.add_argument("--processes", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        where = Path(name)
        prepare(options.folder, where)
        log = mutmut(where, "run", "--max-children", str(options.processes), *options.only, minutes=options.minutes)
        lines = mutmut(where, "results", "--all", "true", minutes=2)
        found = re.findall(r"(\S+): (survived|killed|timeout|no tests|not checked|suspicious|segfault)", lines)
        if not found:
            sys.exit(log[-3000:])
        for mutant, state in found:
            if state in ("survived", "no tests"):
                print(f"--- {state}: {mutant}\n{mutmut(where, 'show', mutant, minutes=1)}", flush=True)
    states = Counter(state for _, state in found)
    caught = states["killed"] + states["timeout"] + states["segfault"]
    judged = len(found) - states["not checked"]
    print(dict(states))
    print(f"{options.folder}: {caught} of {judged} mutants killed ({caught / max(judged, 1):.1%})")


if __name__ == "__main__":
    main()

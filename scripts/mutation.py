#!/usr/bin/env python3
"""Mutation testing: small changes of the source, each of which some test must notice.

    python scripts/mutation.py train --jobs 16 --seconds 480 --results mutants.json
    python scripts/mutation.py train --again mutants.json --tests tests/train/test_loop.py    # the survivors alone

A mutant is one change: another comparison, arithmetic or boolean operator, another number, True for False, a condition
turned round, `return None`, a keyword argument or a statement left away. What raises errors, strings, annotations and
f-strings stay. First every test is run once (`--measure` seconds at most), which tells the lines that it touches and
its time; a mutant is judged by the tests that touch its lines, those of its own room first, then by time, as many as
fit into `--each` seconds, and stands as killed when one fails or the time is three times over.

Mutants of all modules are judged in one order drawn by `--seed`: whatever was reached when `--seconds` are over is a
random sample of all that exist, and the interval printed (Wilson, 95%) is of the share of all. Survivors take longest:
no mutant begins in the last `REST` seconds, and what is unfinished then counts as alive. A sample whose survivors got
tests says nothing more of the rest: take another seed.

What no test can notice, or none should, is listed with its reason in scripts/explained_mutants.toml and counted apart;
an entry that no longer fits the source ends everything before it begins.

Each job is a process forked from this one (torch is imported once) that works in a copy of the tree of its own.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import json
import math
import random
import tempfile
import time
from collections import Counter, defaultdict
from dataclasses import asdict
from pathlib import Path

from mutant_runs import CUT, ROOT, SOURCE, Job, Lines, Quick, copies, prepare, work
from mutants import Explained, Mutant, difference, explained, mutants, stale

REST = 25.0
"""Seconds at the end in which no mutant begins."""
EXPLAINED = ROOT / "scripts/explained_mutants.toml"

TARGETS = {
    "train": ["train/*.py"],
    "algorithm": ["algorithm/*.py"],
    "policies": [f"{family}/policy.py" for family in ("language", "selection", "denoising", "gates")],
}
TESTS = {
    "algorithm": ["tests/algorithm"],
    "train": ["tests/train", "tests/core", "tests/test_golden.py", "tests/cli/test_main.py", "tests/watch"],
    "policies": [
        "tests/language/test_*.py",
        "tests/selection",
        "tests/denoising",
        "tests/gates",
        "tests/test_golden.py",
    ],
}
ELSEWHERE = {"parallel.py": "test_parallel*", "sharded.py": "test_parallel*", "distributed.py": "test_parallel*"}
"""Modules whose lines run in processes that the tests start, where coverage does not look, and their tests."""


def measured(tests: list[str], files: list[str], folders: list[Path], end: float) -> dict:
    """By test: its seconds, and the lines of each file that it runs. One process a test file, for half the time at
    most; of one that was ended what it had told by then counts."""
    together: dict = {}
    longest = max(end - time.monotonic(), 1.0) / 2
    arguments = sorted({p for t in tests for p in ROOT.glob(t) for p in (p.rglob("test_*.py") if p.is_dir() else [p])})

    def job(path: Path) -> Job:
        def done(folder: Path, code: int | None) -> None:
            answer = folder / "answer.json"
            part = {}
            if answer.exists():
                part = json.loads(answer.read_text())
                answer.unlink()
            together.update(part)
            if code in (None, CUT) or not part:
                why = "no time" if code in (None, CUT) else code
                print(f"  not measured whole: {name} ({why}, {len(part)} tests kept)", flush=True)

        name = str(path.relative_to(ROOT))
        alone = [name, f"--timeout={longest / 2:.0f}"]  # a test that hangs fails, and the rest of its file goes on
        return Job(lambda folder: (alone, lambda: Lines(files, folder / "answer.json")), done, limit=longest)

    work((job(p) for p in sorted(arguments, key=lambda p: -p.stat().st_size)), folders, end)
    return together


def judges(mutant: Mutant, tests: dict, each: float) -> list[str]:
    """The tests that touch a mutant's lines, then those that touch its module (what a line says that runs at import is
    read elsewhere): the module's own files of tests first, then its room's, then the quick ones."""
    lines = set(range(mutant.lines[0], mutant.lines[1] + 1))
    hit = [t for t, e in tests.items() if lines & set(e["lines"].get(mutant.file, []))]
    if pattern := ELSEWHERE.get(Path(mutant.file).name):
        hit += [t for t in tests if t not in hit and Path(t.partition("::")[0]).match(f"{pattern}.py")]
    room, name = f"tests/{mutant.file.partition('/')[0]}/", Path(mutant.file).stem

    def order(test: str) -> tuple[bool, bool, float]:
        own = test.startswith((f"{room}test_{name}.py", f"{room}test_{name}_"))
        return not own, not test.startswith(room), tests[test]["seconds"]

    others = sorted({t for t, e in tests.items() if mutant.file in e["lines"]} - set(hit), key=order)
    hit = sorted(hit, key=order) + others
    if not mutant.where:  # a line that runs at import is seen by whichever test came first, and read by any
        hit.sort(key=order)
    spent = itertools.accumulate(tests[t]["seconds"] for t in hit)
    return [t for i, (t, s) in enumerate(zip(hit, spent)) if s <= each or i < 3]


def drawn(files: list[str], seed: int) -> list[Mutant]:
    """All mutants of these modules, in an order drawn by the seed."""
    every = [m for file in files for m in mutants(file, (ROOT / SOURCE / file).read_bytes())]
    return random.Random(seed).sample(every, len(every))


def survivors(path: Path) -> list[Mutant]:
    """Of earlier results: the mutants that lived, found again by what they change though lines may have moved."""
    lived = [r for r in json.loads(path.read_text()) if r["verdict"] in ("survived", "unfinished")]
    old = {(r["file"], r["where"], r["kind"], r["text"], change(r["diff"])) for r in lived}
    found = []
    for file in sorted({r["file"] for r in lived}):
        source = (ROOT / SOURCE / file).read_bytes()
        for m in mutants(file, source):
            if (m.file, m.where, m.kind, m.text, change(difference(m, source))) in old:
                found.append(m)
    return found


def change(diff: str) -> tuple[str, ...]:
    """The lines of a diff that differ."""
    return tuple(line for line in diff.splitlines() if line[:1] in "+-")


def verdict(code: int | None) -> str:
    if code in (0, CUT):
        return "unfinished" if code else "survived"
    return "timeout" if code is None else "killed" if code in (1, 2) or code < 0 else "not judged"


def with_reason(verdict: str, mutant: Mutant, source: bytes, reasons: list[Explained]) -> str:
    """ "explained" for a survivor that was expected to live."""
    return "explained" if verdict == "survived" and any(e.fits(mutant, source) for e in reasons) else verdict


def judged(
    chosen: list[Mutant], tests: dict, options: argparse.Namespace, folders: list[Path], end: float
) -> list[dict]:
    results: list[dict] = []
    reasons = explained(EXPLAINED)

    def job(mutant: Mutant) -> Job:
        path, source = SOURCE / mutant.file, (ROOT / SOURCE / mutant.file).read_bytes()
        names = options.tests or judges(mutant, tests, options.each)
        began = time.monotonic()

        def body(folder: Path) -> tuple:
            (folder / path).write_bytes(mutant.apply(source))
            return ["-x", *(names or ["--co"])], Quick

        def done(folder: Path, code: int | None) -> None:
            (folder / path).write_bytes(source)
            told = {
                "verdict": with_reason(verdict(code) if names else "not judged", mutant, source, reasons),
                "seconds": time.monotonic() - began,
                "tests": len(names),
            }
            results.append(asdict(mutant) | told | {"diff": difference(mutant, source)})
            if told["verdict"] not in ("killed", "timeout", "explained"):
                print(
                    f"{told['verdict']} [{len(names)} tests] {mutant.where}: {mutant.kind}\n{results[-1]['diff']}",
                    flush=True,
                )

        return Job(body, done, limit=3 * sum(tests[t]["seconds"] for t in names if t in tests) + options.grace)

    work(map(job, chosen), folders, end, REST)
    return results


def wilson(caught: int, of: int) -> tuple[float, float]:
    """The 95% interval of a share (Wilson 1927) seen in `of` drawn at random."""
    z2, share = 1.96**2, caught / of
    middle, half = share + z2 / (2 * of), math.sqrt(z2 * (share * (1 - share) / of + z2 / (4 * of**2)))
    return (middle - half) / (1 + z2 / of), (middle + half) / (1 + z2 / of)


def shown(caught: int, of: int) -> str:
    if not of:
        return ""
    low, high = wilson(caught, of)
    return f"({caught / of:.1%}, 95% interval {low:.1%} to {high:.1%})"


def report(results: list[dict], exist: int) -> None:
    by_module: dict[str, Counter] = defaultdict(Counter)
    for r in results:
        by_module[r["file"]][r["verdict"]] += 1
    for file, count in sorted(by_module.items()):
        print(f"{file:32} {dict(count)}")
    count = Counter(r["verdict"] for r in results)
    caught, of = count["killed"] + count["timeout"], len(results) - count["not judged"]
    print(f"{caught} of {of} judged mutants killed {shown(caught, of)}; {exist} exist; {dict(count)}")
    other = of - count["explained"]
    print(f"without {count['explained']} explained survivors: {caught} of {other} {shown(caught, other)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("targets", nargs="+", help=f"{', '.join(TARGETS)}, or files below src/anygrpo")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=3600, help="time for all; what was not reached is not counted")
    parser.add_argument(
        "--measure", type=float, default=600, help="seconds of it at most for the first run of the tests"
    )
    parser.add_argument("--each", type=float, default=30, help="seconds of tests a mutant")
    parser.add_argument("--grace", type=float, default=30, help="seconds more before a mutant counts as endless")
    parser.add_argument("--mutants", type=int, default=10**6, help="at most so many")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--tests", nargs="*", default=[], help="judge by these alone, unmeasured")
    parser.add_argument(
        "--map", type=Path, help="what was measured: written, or read where it is there and the source is the same"
    )
    parser.add_argument("--again", type=Path, help="judge what survived in these results")
    parser.add_argument("--results", type=Path, help="JSON file of all verdicts")
    options = parser.parse_args()
    if old := stale(explained(EXPLAINED), ROOT / SOURCE):
        parser.error("explanations of lines that are no more: " + "; ".join(f"{e.file}: {e.line}" for e in old))
    end = time.monotonic() + options.seconds
    patterns = [p for t in options.targets for p in TARGETS.get(t, [t])]
    files = sorted(str(f.relative_to(ROOT / SOURCE)) for p in patterns for f in (ROOT / SOURCE).glob(p))
    every = survivors(options.again) if options.again else drawn(files, options.seed)
    prepare()
    with tempfile.TemporaryDirectory(prefix="mutation") as name:
        folders = copies(options.jobs, Path(name))
        tests = known(options, files, folders, min(end, time.monotonic() + options.measure))
        results = judged(every[: options.mutants], tests, options, folders, end)
    if options.results:
        options.results.write_text(json.dumps(results, indent=1))
    report(results, len(every))


def known(options: argparse.Namespace, files: list[str], folders: list[Path], end: float) -> dict:
    if options.tests:
        return {}
    state = {f: hashlib.sha256((ROOT / SOURCE / f).read_bytes()).hexdigest() for f in files}
    if options.map and options.map.exists():
        kept = json.loads(options.map.read_text())
        if kept["source"] == state:
            return kept["tests"]
        print(f"{options.map} is of other sources: measured anew", flush=True)
    began = time.monotonic()
    patterns = [p for t in options.targets for p in TESTS.get(t, TESTS["train"] + TESTS["policies"])]
    tests = measured(patterns, files, folders, end)
    print(f"{len(tests)} tests measured in {time.monotonic() - began:.0f} s", flush=True)
    if options.map:
        options.map.write_text(json.dumps({"source": state, "tests": tests}))
    return tests


if __name__ == "__main__":
    main()

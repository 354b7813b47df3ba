"""Recipes of recipes/ spoilt by values of the right type, and dry runs of them under bounds of memory and time.

As a program, in a process of its own whose address space is bounded: `python spoilt.py FOLDER COUNT SEED` prints
what came of them as JSON.
"""

from __future__ import annotations

import contextlib
import copy
import io
import json
import random
import resource
import signal
import subprocess
import sys
import tomllib
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import tomli_w

from anygrpo.cli.main import main
from anygrpo.core.resident import peak_bytes
from anygrpo.families import kinds, resolve
from anygrpo.recipe.recipe import Recipe
from anygrpo.recipe.reference import FIXED, tables

RECIPES = sorted((Path(__file__).parents[2] / "recipes").glob("*/*.toml"))
GROWTH = 3 * 2**30
"""Bytes of address space that dry runs may add to what the first one, of a recipe as it is, has taken."""
SECONDS = 60.0
"""Of the processor's time, for one dry run."""
SIZES = [1000, 2048, 4096, 65_536, 10**5, 10**6, 10**7]
"""What a person may mean, or mistype: alone most pass, and two of them together are large."""
WHOLE = [0, 1, -1, 2, 3, 7, 10**9, 2**31, 2**63 - 1, 2**63, -(2**63), 10**40]
REAL = [0.0, -0.0, 1.0, -1.0, 0.5, 1e-300, 5e-324, 1e300, 1.7976931348623157e308,
        float("nan"), float("inf"), -float("inf")]  # fmt: skip
WORDS = ["", " ", "auto", "none", "a" * 5000, "\x1b[31m", "../../x", "a\x00b", "/", "~", "x.py:", ":f", "py:f:g",
         "\u202e", "{x}", "%s"]  # fmt: skip
NAMES = ["grpo", "supervised", "rce", "zscore", "ppo", "gspo", "k1", "exact", "tokens", "linear", "cosine", "cpu",
         "cuda:99", "bfloat16"]  # fmt: skip


class TooLong(BaseException):
    """A dry run took more than `SECONDS`; no `except Exception` swallows it."""


def leaves(node: Any) -> list[tuple[Any, Any]]:
    """(holder, key) of each value that is no table."""
    pairs = list(node.items() if isinstance(node, dict) else enumerate(node))
    deeper = [place for _, value in pairs if isinstance(value, dict | list) for place in leaves(value)]
    return [(node, key) for key, value in pairs if not isinstance(value, dict)] + deeper


def like(value: Any, rng: random.Random) -> Any:
    """Another value of this type, and at times of a neighbour's."""
    if isinstance(value, bool):
        return rng.choice([True, False, 0, 1])
    if isinstance(value, int | float):
        return rng.choice([*WHOLE, *SIZES] if isinstance(value, int) == (rng.random() < 0.8) else REAL)
    if isinstance(value, str):
        return rng.choice(WORDS + NAMES)
    made = list(value) if isinstance(value, list) else []
    longer = made[:1] * rng.choice([1, 1000, 100_000])
    return rng.choice([[], made * 2, made[:1], made[::-1], [made], longer, made + [like(x, rng) for x in made[:1]]])


def given(table: dict[str, Any]) -> list[tuple[str, str]]:
    """(table, key) of every setting that this recipe could give."""
    sections = {name: tables()[name] for name in FIXED} | {"": Recipe}
    sections |= {
        name: resolve(kinds(name)[table[name]["kind"]].settings) for name in ("policy", "task") if name in table
    }
    return [(name, key) for name, section in sections.items() for key in section.model_fields]


def spoil(table: dict[str, Any], keys: list[tuple[str, str]], rng: random.Random) -> None:
    """One to three values of the recipe changed, or keys added that it does not give."""
    for _ in range(rng.randrange(1, 4)):
        if rng.random() < 0.6:
            holder, key = rng.choice(leaves(table))
        else:
            name, key = rng.choice(keys)
            holder = table.setdefault(name, {}) if name else table
        if isinstance(holder, dict) or (isinstance(holder, list) and isinstance(key, int)):
            new = [rng.choice(WHOLE + SIZES), rng.choice(REAL), rng.choice(WORDS + NAMES), True, [], [1, 2]]
            holder[key] = like(holder[key], rng) if isinstance(holder, list) or key in holder else rng.choice(new)


def dry_run(file: Path, more: list[str]) -> tuple[int, str]:
    """Exit code and what was said on stderr."""
    said = io.StringIO()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(said):
        code = main(["train", str(file), "--dry-run", *more])
    return code, said.getvalue()


def wrong(code: int, said: str) -> bool:
    """Another end than success in silence, or an error of recipe or data."""
    return code not in (0, 2, 3) or (code == 0) != ("anygrpo: " not in said)


def dry_runs(folder: Path, count: int, seed: int) -> dict[str, Any]:
    """How many ended with each exit code; the slowest and its seconds; what ended in a way that none should."""
    rng, ended, file = random.Random(seed), Counter[str](), folder / f"recipe_{seed}.toml"
    recipes = [tomllib.loads(path.read_text()) for path in RECIPES]
    keys = [given(table) for table in recipes]
    slowest, bad = (0.0, ""), list[str]()
    for _ in range(count):
        which = rng.randrange(len(recipes))
        table = copy.deepcopy(recipes[which])
        spoil(table, keys[which], rng)
        text, more = tomli_w.dumps(table), ["--all", "--trial", "0"] if rng.random() < 0.3 else []
        file.write_text(text)  # whoever kills this process finds the recipe
        before = _spent()
        signal.setitimer(signal.ITIMER_PROF, SECONDS)
        try:
            code, said = dry_run(file, more)
        except TooLong:
            code, said = -1, f"more than {SECONDS} s"
        signal.setitimer(signal.ITIMER_PROF, 0)
        slowest = max(slowest, (_spent() - before, f"{RECIPES[which].name} {more}\n{text[:3000]}"))
        ended[str(code)] += 1
        if wrong(code, said):
            bad.append(f"{RECIPES[which].name} {more} ended with {code}: {said[-1500:]}\n{text[:3000]}")
    return {"ended": ended, "slowest": slowest, "bad": bad, "peak": peak_bytes()}


def _spent() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def in_processes(folder: Path, count: int, seed: int, jobs: int, timeout: float) -> list[dict[str, Any]]:
    """`dry_runs` in so many processes under their bounds, each with its share and a seed of its own.

    A process that is killed, or that outlasts `timeout` seconds, is told with the recipe it was at.
    """

    def one(job: int) -> dict[str, Any]:
        share = str(count // jobs + (job < count % jobs))
        words = [sys.executable, __file__, str(folder), share, str(seed * 1000 + job)]
        try:
            done = subprocess.run(words, capture_output=True, text=True, timeout=timeout, check=False)
            return json.loads(done.stdout.splitlines()[-1])
        except (ValueError, IndexError, subprocess.TimeoutExpired) as error:
            last = (folder / f"recipe_{seed * 1000 + job}.toml").read_text()[:3000]
            said = done.stderr[-1500:] if not isinstance(error, subprocess.TimeoutExpired) else f"over {timeout} s"
            return {"ended": {}, "slowest": (0.0, ""), "bad": [f"process {job}: {said}\n{last}"], "peak": 0}

    with ThreadPoolExecutor(jobs) as pool:
        return list(pool.map(one, range(jobs)))


def bounded() -> None:
    """From here on this process may take `GROWTH` more, and a dry run that takes `SECONDS` raises."""

    def ring(number: int, frame: Any) -> None:
        raise TooLong

    signal.signal(signal.SIGPROF, ring)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    bytes_ = pages * resource.getpagesize() + GROWTH
    resource.setrlimit(resource.RLIMIT_AS, (bytes_, bytes_))


if __name__ == "__main__":
    place, number, first = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    for recipe in RECIPES:  # what its families import, and the models that it reads, are there from now on
        dry_run(recipe, [])
    bounded()
    print(json.dumps(dry_runs(place, number, first)))

"""Writes requirements.lock: the version of every package that `.[dev]` needs, as installed here and tested.

    python scripts/lock.py            # write
    python scripts/lock.py --check    # does the lock hold all that pyproject.toml asks for? (make check)
    python scripts/lock.py --licences # the table of docs/supply.md

`make` installs with `-c requirements.lock`: those versions, and what a platform does not need is left out.
"""

from __future__ import annotations

import argparse
import re
import sys
import tomllib
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]
LOCK = ROOT / "requirements.lock"


def name_of(text: str) -> str:
    return re.sub(r"[-_.]+", "-", text).lower()


def roots() -> list[Requirement]:
    """What pyproject.toml asks for with the extra dev, our own extras resolved."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    found, queue, seen = [], [*project["dependencies"], "anygrpo[dev]"], set()
    while queue:
        one = Requirement(queue.pop())
        if name_of(one.name) != "anygrpo":
            found.append(one)
        else:
            for extra in one.extras - seen:
                seen.add(extra)
                queue += project["optional-dependencies"][extra]
    return found


def closure() -> dict[str, metadata.Distribution]:
    """Every installed package that `roots` needs, by its normalised name."""
    found: dict[str, metadata.Distribution] = {}
    queue: list[tuple[Requirement, str]] = [(one, "") for one in roots()]
    done: set[tuple[str, frozenset[str]]] = set()
    while queue:
        one, extra = queue.pop()
        if one.marker is not None and not one.marker.evaluate({"extra": extra}):
            continue
        key = (name_of(one.name), frozenset(one.extras))
        if key in done:
            continue
        done.add(key)
        try:
            found[key[0]] = metadata.distribution(one.name)
        except metadata.PackageNotFoundError:
            continue
        for text in found[key[0]].requires or []:
            queue += [(Requirement(text), e) for e in ("", *one.extras)]
    return dict(sorted(found.items()))


def missing(lock: str) -> list[str]:
    """Requirements of pyproject.toml that the lock does not hold, or holds outside their bounds."""
    held = dict(line.split("==") for line in lock.splitlines() if "==" in line)
    return [
        str(one) for one in roots() if not one.specifier.contains(held.get(name_of(one.name), "0"), prereleases=True)
    ]


def licence(package: metadata.Distribution) -> str:
    about = package.metadata
    listed = [c.rsplit(" :: ", 1)[-1] for c in about.get_all("Classifier") or [] if c.startswith("License ::")]
    text = (
        about.get("License-Expression") or ", ".join(listed) or (about.get("License") or "not stated").splitlines()[0]
    )
    return text[:60]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--licences", action="store_true")
    options = parser.parse_args()
    if options.check:
        for one in (lacking := missing(LOCK.read_text())):
            print(f"requirements.lock does not hold {one}; run python scripts/lock.py", file=sys.stderr)
        return 1 if lacking else 0
    if options.licences:
        print("| package | version | licence |\n| --- | --- | --- |")
        for name, package in closure().items():
            print(f"| {name} | {package.version} | {licence(package)} |")
        return 0
    lines = [f"{name}=={package.version.split('+')[0]}" for name, package in closure().items()]
    LOCK.write_text("# Written by scripts/lock.py: what `pip install -c requirements.lock -e '.[dev]'` installs.\n"
                    + "\n".join(lines) + "\n")  # fmt: skip
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

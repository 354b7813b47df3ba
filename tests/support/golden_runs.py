"""Runs of the golden cases (tests/golden/cases.toml), shorter."""

import importlib.util
from pathlib import Path

import tomli_w

from anygrpo.cli.main import main

_ROOT = Path(__file__).parents[2]
_SPEC = importlib.util.spec_from_file_location("golden_cases", _ROOT / "scripts/golden.py")
golden = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(golden)


def trained(folder: Path, case: str, **changes) -> Path:
    """A run of a golden case, two steps."""
    recipe = golden.merged(golden.cases()[case], {"training": {"steps": 2}}) | changes
    text = tomli_w.dumps(recipe).replace("{files}", str(folder)).replace("{here}", str(golden.HERE))
    (folder / "recipe.toml").write_text(text)
    assert main(["train", str(folder / "recipe.toml"), "--folder", str(folder / "run"), "--quiet"]) == 0
    return folder / "run"

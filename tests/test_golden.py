"""Ten steps of each family and method give the numbers kept in tests/golden: see scripts/golden.py."""

import importlib.util
from pathlib import Path

import pytest

pytestmark = pytest.mark.cpu

SCRIPT = Path(__file__).parents[1] / "scripts/golden.py"
spec = importlib.util.spec_from_file_location("golden_runs", SCRIPT)
golden = importlib.util.module_from_spec(spec)
spec.loader.exec_module(golden)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return golden.make_files(tmp_path_factory.mktemp("golden"))


@pytest.mark.parametrize("name", golden.cases())
def test_a_run_is_as_it_was(name, files):
    found = golden.differences(golden.load(name), golden.run(name, files))
    assert not found, "\n".join(found)


def test_every_kept_run_is_a_case():
    assert {path.stem for path in golden.HERE.glob("*.json")} == golden.cases().keys()

"""`anygrpo train --dry-run` of recipes spoilt by values of the right type: success, or an error with its cure.

Random types are mostly refused at the door (test_inputs.py); these go on to the derived numbers. Each process has a
bound of memory and each dry run one of time (tests/support/spoilt.py). Another count than 10,000, and more than one
process: `DRY_RUNS=500 SEED=2 JOBS=8`.
"""

from __future__ import annotations

import os
from collections import Counter

import pytest
from spoilt import RECIPES, in_processes

from anygrpo.cli.main import main


def ends(made: list[dict]) -> Counter[str]:
    return sum((Counter(one["ended"]) for one in made), Counter())


@pytest.mark.timeout(600)
def test_some(tmp_path):
    made = in_processes(tmp_path, 150, seed=7, jobs=1, timeout=500)
    ended = ends(made)
    assert made[0]["bad"] == []
    assert min(ended["0"], ended["2"]) > 15, ended  # it would prove nothing if every input failed, or none did


@pytest.mark.parametrize("key", ["layers"])
def test_a_network_of_absurd_depth_is_refused_before_it_is_built(key, tmp_path, capsys):
    """A dry run of 10,000,000 layers took all of the machine's memory."""
    recipe = next(path for path in RECIPES if 'kind = "motion"' in path.read_text())
    code = main(["train", str(recipe), "--dry-run", f"--policy.{key}", "10000000"])
    assert code == 2
    assert "1024" in capsys.readouterr().err


def test_a_recipe_of_endless_lists_is_refused(tmp_path, capsys):
    """300,000 rewards took more than a minute of --dry-run --all."""
    text = next(path for path in RECIPES if path.name == "code.toml").read_text()
    (tmp_path / "r.toml").write_text(f"tags = [{'1, ' * 100_001}]\n{text}")
    assert main(["train", str(tmp_path / "r.toml"), "--dry-run"]) == 2
    assert "more than 100000 values" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_many_dry_runs(tmp_path):
    count, seed = int(os.environ.get("DRY_RUNS", "10000")), int(os.environ.get("SEED", "1"))
    made = in_processes(tmp_path, count, seed, jobs=int(os.environ.get("JOBS", "1")), timeout=7000)
    ended = ends(made)
    for one in made:
        print(f"peak {one['peak'] / 2**20:.0f} MiB, slowest {one['slowest'][0]:.1f} s of\n{one['slowest'][1][:600]}")
    print(dict(ended))
    assert [text for one in made for text in one["bad"]] == []
    assert sum(ended.values()) == count

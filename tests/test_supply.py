"""What is installed: bounds, the lock, extras named where one is missing, heavy packages imported only where used."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from anygrpo.cli.main import main
from anygrpo.errors import EXTRAS, not_installed

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
HEAVY = ("diffusers", "optuna", "skimage", "reasoning_gym", "sklearn")


def lock():
    spec = importlib.util.spec_from_file_location("lock", ROOT / "scripts" / "lock.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_lock_holds_all_that_is_asked_for():
    module = lock()
    text = (ROOT / "requirements.lock").read_text()
    assert module.missing(text) == []
    without = "\n".join(line for line in text.splitlines() if not line.startswith("optuna=="))
    assert module.missing(without) == ["optuna<6,>=4.9"]
    assert "optuna<6,>=4.9" in module.missing(text.replace("optuna==", "optuna==99 # "))


def test_every_extra_that_is_named_exists_and_holds_its_package():
    names = {"skimage": "scikit-image", "reasoning_gym": "reasoning-gym", "sklearn": "scikit-learn"}
    for module, extra in EXTRAS.items():
        listed = [re.split(r"[><=\[]", text)[0] for text in PROJECT["optional-dependencies"][extra]]
        assert names.get(module, module) in listed, module
    error = not_installed(ModuleNotFoundError("No module named 'optuna'", name="optuna.samplers"))
    assert "pip install 'anygrpo[sweep]'" in str(error)
    assert not_installed(ModuleNotFoundError("x", name="nothing")) is None


def test_what_one_family_needs_is_not_asked_of_all():
    base = " ".join(PROJECT["dependencies"])
    for package in ("diffusers", "optuna", "scikit-image", "reasoning-gym", "scikit-learn"):
        assert package not in base
    assert all("<" in text for text in PROJECT["dependencies"] if not text.startswith("rich"))


def test_a_command_without_its_extra_says_what_to_install(monkeypatch, capsys, tmp_path):
    from runs import toml_of

    recipe = toml_of(tmp_path / "run", tmp_path / "r.toml")
    (tmp_path / "space.toml").write_text('"optimizer.learning_rate" = [0.01, 0.02]\n')
    monkeypatch.setattr("anygrpo.cli.sweep.run", lambda args: __import__("no_such_optuna") if args else 0)
    monkeypatch.setitem(EXTRAS, "no_such_optuna", "sweep")
    assert main(["sweep", str(recipe), "--space", str(tmp_path / "space.toml")]) == 3
    assert "pip install 'anygrpo[sweep]'" in capsys.readouterr().err


def test_heavy_packages_are_imported_only_where_used():
    """Every module of ours is imported, but those that are about one of them."""
    program = """
import importlib, pkgutil, sys
import anygrpo
importlib.import_module("transformers.generation.candidate_generator")  # some versions look for scikit-learn here
known = set(sys.modules)
about = ("anygrpo.language.tasks.gym", "anygrpo.language.tasks.reasoning_gym",
         "anygrpo.integrations", "anygrpo.bench", "anygrpo.__main__", "anygrpo.scoring._",
         "anygrpo.language.kernels.triton", "anygrpo.metrics.__main__")
for found in pkgutil.walk_packages(anygrpo.__path__, "anygrpo."):
    if not found.name.startswith(about):
        importlib.import_module(found.name)
print(sorted((set(sys.modules) - known) & {"diffusers", "optuna", "skimage", "reasoning_gym", "sklearn"}))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=280, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("name", HEAVY)
def test_the_table_of_licences_names_them(name):
    names = {"skimage": "scikit-image", "reasoning_gym": "reasoning-gym", "sklearn": "scikit-learn"}
    assert f"| {names.get(name, name)} |" in (ROOT / "docs" / "supply.md").read_text()

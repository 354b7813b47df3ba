"""The registry: what families name exists, a package of somebody else's can bring one, and none of them is needed."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import tomli_w

from anygrpo.errors import ConfigError
from anygrpo.families import families, family_of, kind_of, resolve
from anygrpo.recipe.load import parse_recipe

ROOT = Path(__file__).parents[1]
spec = importlib.util.spec_from_file_location("golden_cases", ROOT / "scripts/golden.py")
golden = importlib.util.module_from_spec(spec)
spec.loader.exec_module(golden)

SHORT = {"training": {"steps": 2, "gradient_norms_every": 0}}
LOG = "".join(json.dumps({"step": i, "reward": 0.1 * i, "kl": 0.01, "loss": 0.5}) + "\n" for i in range(20))
BUILT_IN = ("denoising", "gates", "language", "selection")


@pytest.mark.parametrize("text", [text for family in families() for text in family.strings()])
def test_what_a_family_names_exists(text):
    assert resolve(text) is not None


def test_the_families_that_are_here():
    assert {family.name for family in families()} == {*BUILT_IN, "python"}
    assert family_of("restorer").name == "gates"
    assert family_of("nothing") is None


def run(code_or_module: list[str], home: Path, cwd: Path, **more: str) -> subprocess.CompletedProcess[str]:
    """Python with the package of `home` and no other."""
    environment = os.environ | {"PYTHONPATH": str(home), "OMP_NUM_THREADS": "1"} | more
    return subprocess.run(
        [sys.executable, *code_or_module], cwd=cwd, env=environment, capture_output=True, text=True, check=False
    )


@pytest.fixture(scope="module")
def work(tmp_path_factory):
    """A log, and the smallest recipes of two families: {gates, selection}.toml."""
    folder = tmp_path_factory.mktemp("work")
    (folder / "log.jsonl").write_text(LOG)
    golden.candidates(folder)
    for family, case in (("gates", "gates_of_a_user"), ("selection", "selection_stored_first")):
        recipe = golden.merged(golden.cases()[case], SHORT)
        if family == "selection":
            recipe["stages"] = [{"name": "grpo", "source": "stored", "steps": 2}]
        text = tomli_w.dumps(recipe).replace("{files}", str(folder)).replace("{here}", str(golden.HERE))
        (folder / f"{family}.toml").write_text(text)
    return folder


@pytest.mark.parametrize("absent", BUILT_IN)
def test_without_a_familys_folder_the_others_work(absent, work, tmp_path):
    shutil.copytree(ROOT / "src" / "anygrpo", tmp_path / "anygrpo", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.rmtree(tmp_path / "anygrpo" / absent)
    assert run(["-m", "anygrpo", "--help"], tmp_path, work).returncode == 0
    told = run(["-m", "anygrpo", "doctor", "log.jsonl", "--json"], tmp_path, work)
    assert told.returncode == 0, told.stderr
    other, lost = ("selection", "gates") if absent == "gates" else ("gates", absent)
    folder = str(tmp_path / "run")
    trained = run(["-m", "anygrpo", "train", f"{other}.toml", "--folder", folder, "--quiet"], tmp_path, work)
    assert trained.returncode == 0, trained.stderr
    assert len((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()) >= 2
    if lost in ("gates", "selection"):
        refused = run(["-m", "anygrpo", "train", f"{lost}.toml"], tmp_path, work)
        assert refused.returncode == 2
        assert "no family here has it" in refused.stderr


FAMILY = """
from anygrpo.families import Family, Kind
FAMILY = Family(
    "coins",
    policies={"coin": Kind("coins.parts:CoinSettings", "coins.parts:policy", "any")},
    tasks={"heads": Kind("coins.parts:HeadsSettings", "coins.parts:task", "any")},
    commands={"toss": ("coins.toss", "toss a coin")},
)
"""
PARTS = """
from typing import Literal
import torch
from torch import nn
import anygrpo
from anygrpo.recipe.section import Section

class CoinSettings(Section):
    kind: Literal["coin"]
    bias: float = 0.0

class HeadsSettings(Section):
    kind: Literal["heads"]

class Coin(anygrpo.Policy):
    def __init__(self, bias):
        self.net = nn.Module()
        self.net.logit = nn.Parameter(torch.tensor(bias))
    def trainable(self): return self.net
    def reference(self): raise NotImplementedError
    def _logs(self): return torch.nn.functional.logsigmoid(torch.stack([-self.net.logit, self.net.logit]))
    def sample(self, prompts, group_size, seed):
        draws = torch.rand(len(prompts), group_size, 1, generator=torch.Generator().manual_seed(seed))
        heads = (draws < self.net.logit.detach().sigmoid()).long()
        return anygrpo.Rollout.of({"heads": heads}, self._logs().detach()[heads], torch.ones_like(heads).bool())
    def greedy(self, prompts): return self.sample(prompts, 1, 0)
    def evaluate(self, samples, times, want=frozenset()):
        return anygrpo.Evaluation(self._logs()[samples["heads"]][:, times])
    def decode(self, samples): return samples["heads"][..., 0].tolist()

class Heads(anygrpo.Task):
    def prompts(self, step, count): return [None] * count
    def held_out(self): return []
    def score(self, prompts, outputs): return anygrpo.Scores(torch.tensor(outputs).float())

def policy(config, seed): return Coin(config.bias)
def task(config, seed): return Heads()
"""
TOSS = """
def add_parser(commands): commands.add_parser("toss")
def run(args): print("heads"); return 0
"""
PROJECT = """
[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"
[project]
name = "coins"
version = "1"
[project.entry-points."anygrpo.families"]
coins = "coins.family:FAMILY"
[tool.setuptools]
packages = ["coins"]
"""
RECIPE = """
[policy]
kind = "coin"
[task]
kind = "heads"
[algorithm]
prompts_per_step = 8
[optimizer]
learning_rate = 0.1
[training]
steps = 12
"""


def test_a_package_of_somebody_elses_brings_a_family(tmp_path):
    source, site = tmp_path / "source", tmp_path / "site"
    (source / "coins").mkdir(parents=True)
    for name, text in {"__init__": "", "family": FAMILY, "parts": PARTS, "toss": TOSS}.items():
        (source / "coins" / f"{name}.py").write_text(text)
    (source / "pyproject.toml").write_text(PROJECT)
    (tmp_path / "recipe.toml").write_text(RECIPE)
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-index", "--no-deps", "--no-build-isolation"]
    subprocess.run([*pip, "--target", str(site), str(source)], check=True, capture_output=True)
    home = f"{ROOT / 'src'}{os.pathsep}{site}"
    assert "toss a coin" in run(["-m", "anygrpo", "--help"], home, tmp_path).stdout
    assert run(["-m", "anygrpo", "toss"], home, tmp_path).stdout == "heads\n"
    trained = run(["-m", "anygrpo", "train", "recipe.toml", "--folder", "run", "--quiet"], home, tmp_path)
    assert trained.returncode == 0, trained.stderr
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    rewards = [row["reward/mean"] for row in rows]
    assert sum(rewards[-3:]) > sum(rewards[:3])
    wrong = run(["-m", "anygrpo", "train", "recipe.toml", "--policy.bais", "1"], home, tmp_path)
    assert wrong.returncode == 2
    assert "did you mean 'bias'" in wrong.stderr


def test_a_kind_that_no_family_has():
    with pytest.raises(ConfigError, match=r"policy\.kind = 'selektor' is not known(?s:.*)did you mean 'selector'"):
        kind_of("policy", "selektor")
    with pytest.raises(ConfigError, match=r"task\.kind is missing"):
        parse_recipe({"policy": {"kind": "selector"}, "task": {}})
    with pytest.raises(ConfigError, match="policy is missing"):
        parse_recipe({})


def test_a_task_takes_what_the_policy_puts_out():
    table = {"policy": {"kind": "causal_lm", "model": "x"}, "task": {"kind": "digits_vqa"}}
    with pytest.raises(ConfigError, match=r"'causal_lm' puts out text, and task\.kind = 'digits_vqa' takes picks"):
        parse_recipe(table)


WITHOUT_METADATA = """
import runpy, sys
from importlib import metadata
def version(name):
    raise metadata.PackageNotFoundError(name)
metadata.version = version
sys.argv = ["anygrpo", *sys.argv[1:]]
runpy.run_module("anygrpo", run_name="__main__")
"""


def test_a_checkout_that_is_not_installed_runs(tmp_path):
    told = run(["-c", WITHOUT_METADATA, "--version"], ROOT / "src", tmp_path)
    assert told.returncode == 0, told.stderr
    assert told.stdout.strip()
    (tmp_path / "log.jsonl").write_text(LOG)
    assert run(["-c", WITHOUT_METADATA, "doctor", "log.jsonl"], ROOT / "src", tmp_path).returncode == 0


TORCH_BLOCKED = """
import sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "transformers", "diffusers"):
            raise ImportError(f"{name} is blocked")
sys.meta_path.insert(0, Blocked())
from pathlib import Path
from anygrpo.cli.main import main
from anygrpo.families import families, resolve
from anygrpo.recipe.load import load_recipe
assert main(["doctor", "log.jsonl"]) == 0
for recipe in sorted(Path(sys.argv[1]).glob("*/*.toml")):
    if recipe.name != "space.toml":
        load_recipe(recipe)
for family in families():
    for kind in (*family.policies.values(), *family.tasks.values()):
        resolve(kind.settings)
    for text in family.metrics:
        resolve(text)
import anygrpo.metrics.catalogue
"""


def test_doctor_recipes_and_settings_need_no_torch(tmp_path):
    (tmp_path / "log.jsonl").write_text(LOG)
    done = run(["-c", TORCH_BLOCKED, str(ROOT / "recipes")], ROOT / "src", tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]

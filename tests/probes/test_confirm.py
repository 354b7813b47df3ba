"""Suspicions tried on real runs: where the fault was put in they are confirmed, on a healthy run refuted."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from anygrpo.cli.main import main
from anygrpo.doctor.experiments import EXPERIMENTS
from anygrpo.doctor.rules import RULES
from anygrpo.errors import ConfigError, DataError
from anygrpo.probes.confirm import confirm
from anygrpo.probes.confirm.confirm import RUNS
from anygrpo.recipe.load import parse_recipe
from anygrpo.recipe.recipe import Recipe
from anygrpo.train.build import new_run
from anygrpo.train.loop import train

Make = Callable[..., Recipe]
LETTERS = Path(__file__).parents[2] / "bench" / "faults" / "letters.py"
SHORT = {"prompts_per_step": 8, "group_size": 4}


def trained(recipe: Recipe, folder: Path, steps: int) -> Path:
    training = recipe.training.model_copy(update={"steps": steps, "threads": 1})
    run = new_run(recipe.model_copy(update={"folder": str(folder), "training": training}))
    run.evaluate_start()
    train(run)
    run.close()
    return folder


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    table: dict[str, Any] = {
        "policy": {"kind": "python", "function": f"{LETTERS}:build", "arguments": {"length": 8}},
        "task": {"kind": "python", "function": f"{LETTERS}:Letters", "arguments": {}},
        "algorithm": SHORT | {"beta": 0.01, "entropy_coef": 1e-3},
        "optimizer": {"learning_rate": 5e-3},
        "training": {"steps": 24},
    }
    recipe = parse_recipe(table)
    return trained(recipe, tmp_path_factory.mktemp("healthy") / "run", 24)


FAULTS: dict[str, tuple[dict[str, Any], int]] = {
    "sampler_mismatch": ({"policy": {"dropout": 0.5}}, 4),
    "wrong_reference": ({"policy": {"wrong_reference": 0.5}, "algorithm": {"beta": 0.1}}, 4),
    "zero_gradient": ({"policy": {"frozen": True}}, 4),
    "stale_rollouts": ({"policy": {"stale": 40}}, 4),
    "constant_reward": ({"task": {"reward": "constant"}}, 4),
    "dead_term": ({"task": {"reward": "format"}}, 4),
    "reward_hacking": ({"task": {"reward": "hack"}}, 16),
    "sign_inverted": ({"algorithm": {"lambda_pg": -1.0}}, 4),
    "starved_groups": ({"task": {"reward": "impossible"}}, 4),
    "mastered_groups": ({"task": {"reward": "easy"}}, 4),
    "advantage_compressed": ({"task": {"reward": "tiny"}, "algorithm": {"std_floor": 0.1}}, 4),
    "low_entropy_start": ({"policy": {"temperature": 0.01}}, 4),
    "truncation": ({"policy": {"length": 1}}, 4),
    "part_fell": ({"task": {"reward": "hack"}}, 24),
    "kl_dominates": ({"algorithm": {"beta": 10.0}}, 24),
    "loss_scale": ({"policy": {"no_end": True, "length": 32}, "algorithm": {"reduction": "constant", "horizon": 1}}, 4),
    "no_effect": ({"algorithm": {"clip_low": 0.1}}, 4),
    "entropy_explosion": ({"algorithm": {"entropy_coef": 3.0}}, 24),
    "lr_too_small": ({"optimizer": {"learning_rate": 5e-6}}, 24),
}
"""Rule -> (what is put in, steps to train)."""
QUICK = ("sampler_mismatch", "stale_rollouts", "constant_reward", "starved_groups", "truncation", "part_fell",
         "kl_dominates", "loss_scale", "no_effect")  # fmt: skip
"""One of each experiment."""


def cases(names: Any) -> list[Any]:
    return [pytest.param(n, marks=() if n in QUICK else pytest.mark.slow) for n in names]


@pytest.mark.parametrize("rule", cases(FAULTS))
def test_a_fault_that_was_put_in_is_confirmed(rule: str, letters_recipe: Make, tmp_path: Path) -> None:
    changes, steps = FAULTS[rule]
    changes = {**changes, "algorithm": SHORT | changes.get("algorithm", {})}
    (found,) = confirm(trained(letters_recipe(**changes), tmp_path / "run", steps), 30, [rule])
    assert found.trial.verdict == "confirmed", found.trial.say("en")
    assert found.trial.say("zh")


@pytest.mark.parametrize("rule", cases(FAULTS))
def test_a_healthy_run_refutes_it(rule: str, healthy: Path) -> None:
    before = {p: p.stat().st_mtime_ns for p in healthy.rglob("*")}
    (found,) = confirm(healthy, 30, [rule])
    assert (found.before, found.trial.verdict) == ("named", "refuted"), found.trial.say("en")
    assert {p: p.stat().st_mtime_ns for p in healthy.rglob("*")} == before  # nothing was written there


def test_every_experiment_can_be_run_and_every_suspicion_names_one() -> None:
    assert set(RUNS) == set(EXPERIMENTS)
    assert {r.experiment for r in RULES.values()} - {""} <= set(EXPERIMENTS)
    undecided = {r.id for r in RULES.values() if r.certainty != "certain" and not r.experiment}
    assert undecided <= {"loss_zero", "onset", "too_stale"}  # two notes; ages compared within one log


def test_a_budget_of_nothing_decides_nothing(healthy: Path) -> None:
    (found,) = confirm(healthy, 0.0, ["kl_dominates"])
    assert found.trial.verdict == "undecided"
    assert "--budget" in found.trial.say("en")


def test_the_command_says_before_and_after(
    letters_recipe: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = trained(letters_recipe({"dropout": 0.5}, algorithm=SHORT), tmp_path / "run", 10)
    assert main(["doctor", str(run), "--confirm", "--budget", "20", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["rule"], row["experiment"], row["before"], row["after"]) == (
        "sampler_mismatch", "zero_rate", "likely", "confirmed",
    )  # fmt: skip
    assert main(["doctor", str(run), "--confirm", "--budget", "20", "--lang", "zh"]) == 0
    assert "likely -> 成立" in capsys.readouterr().out


def test_what_cannot_be_confirmed_is_refused(healthy: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no rule is called 'kl_blow'"):
        confirm(healthy, 10, ["kl_blow"])
    with pytest.raises(ConfigError, match="no experiment decides crash"):
        confirm(healthy, 10, ["crash"])
    with pytest.raises(DataError, match="no run of anygrpo"):
        confirm(tmp_path, 10)
    assert confirm(healthy, 10) == []  # nothing is suspected

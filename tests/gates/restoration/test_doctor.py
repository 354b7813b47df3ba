"""The debugging guide of the original plan: the small restorer is trained with a fault, the doctor reads its log."""

from __future__ import annotations

from pathlib import Path

import pytest

from anygrpo.doctor import diagnose_log, read
from anygrpo.doctor.words.tell import tell
from tests.gates.restoration.toy import toy_run

GATES = {"--policy.sites": '["*"]', "--policy.train": '["*.fusion.*", "*.rate.*"]'}
"""All gates are drawn and their heads trained: untrained, the network's output depends on its fusions alone."""
FAULTS = {
    # policy loss: explodes, because nothing is clipped and each rollout is used four times at a growing rate
    "log_ratio_explosion": {
        "--algorithm.epochs": "2",
        "--algorithm.clip_high": "1e9",
        "--algorithm.clip_low": "1.0",
        "--optimizer.learning_rate": '{kind = "exponential", start = 1e-4, end = 0.3}',
        "--optimizer.grad_clip": "1e9",
    },
    # supervised loss: weighted, but every gate is drawn, so no gradient of it reaches what is trained
    "sup_loss_flat": {
        "--algorithm.lambda_supervised": "1.0",
        "--optimizer.learning_rate": "1e-4",
        "--algorithm.prompts_per_step": "12",  # the whole pool
        "--policy.concentration": "3000",
    },
    # abnormal advantages: of one sign in each group, from running statistics over pictures of unlike difficulty
    "difficulty_dominates": {
        "--algorithm.advantage": "running",
        "--algorithm.group_size": "2",
        "--algorithm.prompts_per_step": "8",
        "--policy.concentration": "3000",
        "--optimizer.learning_rate": "1e-4",  # gates so narrow drift far at the recipe's rate: another fault
    },
    # abnormal advantages: all 0, for the output of the untrained network does not depend on the gates that are sampled
    "constant_reward": {"--policy.sites": '["*/rate"]', "--policy.train": '["*.rate.*"]'},
    # abnormal advantages: a floor far above the rewards' spread
    "advantage_compressed": {"--algorithm.std_floor": "1.0"},
}


def diagnosis(folder: Path, steps: int = 40, **fault: str):
    path = toy_run("gates", folder, steps, slice(1, None), **(GATES | fault))  # the GRPO stage alone
    return diagnose_log(read(str(path)))


@pytest.mark.parametrize("rule", FAULTS)
def test_the_fault_is_named_first(rule: str, tmp_path: Path) -> None:
    found = diagnosis(tmp_path / "run", **FAULTS[rule])
    assert found.findings[0].rule == rule


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_gates_without_effect_get_a_cure_that_a_restorer_has(lang: str, tmp_path: Path) -> None:
    path = toy_run("gates", tmp_path / "run", 10, slice(1, None), **(GATES | FAULTS["constant_reward"]))
    told = diagnose_log(read(str(path)))
    assert told.first is not None
    cure = tell(told.first, told.run, lang).prescription
    assert "policy.sites" in cure
    assert "algorithm.entropy_coef" in cure
    assert "temperature" not in cure


def test_a_run_without_a_fault_is_not_objected_to(tmp_path: Path) -> None:
    assert diagnosis(tmp_path / "run").verdict == "no_objection"


def test_a_flat_policy_loss_on_policy_is_explained_and_no_fault(tmp_path: Path) -> None:
    """One update a rollout: the loss is 0 by construction, which the doctor says instead of calling it broken."""
    found = diagnosis(tmp_path / "run", **{"--algorithm.minibatches": "1"})
    assert found.verdict == "no_objection"
    assert "on_policy" in {f.rule for f in found.findings}

"""Correction weights and their metrics by hand."""

import math

import pytest
import torch

from anygrpo.algorithm import importance_correction, mismatch
from anygrpo.errors import ConfigError

TRAINER = torch.tensor([[math.log(3), math.log(0.5), 7.0], [math.log(1.5), math.log(1.5), math.log(1.5)]]) - 5
ENGINE = torch.full((2, 3), -5.0)
MASK = torch.tensor([[True, True, False], [True, True, True]])


@pytest.mark.parametrize(
    ("mode", "level", "expected"),
    [
        ("truncate", "decision", [[2, 0.5, 0], [1.5, 1.5, 1.5]]),
        ("mask", "decision", [[0, 0.5, 0], [1.5, 1.5, 1.5]]),
        ("truncate", "sequence", [[1.5, 1.5, 0], [2, 2, 2]]),  # products 1.5 and 3.375
        ("mask", "sequence", [[1.5, 1.5, 0], [0, 0, 0]]),
    ],
)
def test_by_hand(mode, level, expected):
    trainer = TRAINER.clone().requires_grad_()
    result = importance_correction(trainer, ENGINE, MASK, cap=2.0, mode=mode, level=level)
    torch.testing.assert_close(result.weights, torch.tensor(expected))
    assert not result.weights.requires_grad
    assert result.log_ratio[0, 2] == result.used[0, 2] == 0  # masked
    capped = {"decision": 1, "sequence": 3}[level]
    assert told(result)["mismatch/truncated"] == pytest.approx(capped / 5)


def told(result, mask=MASK):
    metrics = mismatch(result.log_ratio[mask], result.used[mask], result.above[mask])
    return {name: value.item() for name, value in metrics.items()}


def test_metrics_by_hand():
    metrics = told(importance_correction(TRAINER, ENGINE, MASK))
    ratios = [3, 0.5, 1.5, 1.5, 1.5]
    assert metrics["mismatch/ratio_mean"] == pytest.approx(1.6)
    assert metrics["mismatch/ratio_max"] == pytest.approx(3, rel=1e-6)
    assert metrics["mismatch/ess"] == pytest.approx(8**2 / (5 * sum(r * r for r in ratios)), rel=1e-6)
    assert metrics["mismatch/log_prob"] == pytest.approx(sum(abs(math.log(r)) for r in ratios) / 5, rel=1e-6)
    assert metrics["kl/rollout"] == pytest.approx(sum(r - 1 - math.log(r) for r in ratios) / 5, rel=1e-6)


def test_by_sequence_the_ratios_are_the_products_and_the_kl_is_that_of_decisions():
    metrics = told(importance_correction(TRAINER, ENGINE, MASK, level="sequence"))
    products = [1.5, 1.5, 3.375, 3.375, 3.375]
    assert metrics["mismatch/ratio_mean"] == pytest.approx(sum(products) / 5, rel=1e-6)
    assert metrics["mismatch/ess"] == pytest.approx(sum(products) ** 2 / (5 * sum(r * r for r in products)), rel=1e-6)
    assert metrics["kl/rollout"] == told(importance_correction(TRAINER, ENGINE, MASK))["kl/rollout"]


def test_the_kl_is_that_of_the_behaviour_to_the_old_policy():
    behaviour, old = torch.tensor([0.7, 0.2, 0.1]).log(), torch.tensor([0.5, 0.2, 0.3]).log()
    counts = torch.tensor([7, 2, 1])  # every action as often as the behaviour takes it
    drawn = torch.arange(3).repeat_interleave(counts)[None]
    result = importance_correction(old[drawn], behaviour[drawn], torch.ones_like(drawn, dtype=torch.bool))
    exact = (behaviour.exp() * (behaviour - old)).sum().item()
    assert told(result, torch.ones_like(drawn, dtype=torch.bool))["kl/rollout"] == pytest.approx(exact, rel=1e-5)


def test_the_default_is_a_cap_of_two_on_each_decision():
    torch.testing.assert_close(
        importance_correction(TRAINER, ENGINE, MASK).weights,
        importance_correction(TRAINER, ENGINE, MASK, cap=2.0, mode="truncate", level="decision").weights,
    )


def test_equal_engines_change_nothing():
    result = importance_correction(ENGINE, ENGINE, MASK)
    assert torch.equal(result.weights, MASK.float())
    assert told(result)["kl/rollout"] == 0
    assert told(result)["mismatch/truncated"] == 0


def test_a_ratio_at_the_cap_is_not_capped():
    for mode in ("truncate", "mask"):
        result = importance_correction(ENGINE, ENGINE, MASK, cap=1.0, mode=mode)
        assert torch.equal(result.weights, MASK.float())
        assert told(result)["mismatch/truncated"] == 0


def test_metrics_of_a_single_decision():
    metrics = told(importance_correction(TRAINER[:1, :1], ENGINE[:1, :1], MASK[:1, :1]), MASK[:1, :1])
    assert metrics["mismatch/truncated"] == 1
    assert metrics["kl/rollout"] == pytest.approx(2 - math.log(3), rel=1e-6)


def test_far_apart_engines_stay_finite_in_weight_and_are_told():
    result = importance_correction(ENGINE + 500, ENGINE, MASK, cap=3.0)
    torch.testing.assert_close(result.weights, 3.0 * MASK)
    assert told(result)["mismatch/truncated"] == 1.0
    assert told(result)["mismatch/ess"] == pytest.approx(1.0)


def test_nothing_selected():
    result = importance_correction(TRAINER, ENGINE, MASK & False)
    assert (result.weights == 0).all()
    assert told(result, MASK & False)["kl/rollout"] == 0
    assert told(result, MASK & False)["mismatch/ess"] == 1


@pytest.mark.parametrize("bad", [{"cap": 0.5}, {"mode": "clip"}, {"level": "token"}])
def test_errors(bad):
    with pytest.raises(ConfigError, match="cap >= 1"):
        importance_correction(TRAINER, ENGINE, MASK, **bad)

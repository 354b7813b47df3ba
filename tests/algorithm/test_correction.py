"""Correction weights and their metrics by hand."""

import math

import pytest
import torch

from anygrpo.algorithm import engine_correction
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
    result = engine_correction(trainer, ENGINE, MASK, cap=2.0, mode=mode, level=level)
    torch.testing.assert_close(result.weights, torch.tensor(expected))
    assert not result.weights.requires_grad
    capped = {"decision": 1, "sequence": 3}[level]
    assert result.metrics["correction/capped"].item() == pytest.approx(capped / 5)


def test_metrics_by_hand():
    metrics = engine_correction(TRAINER, ENGINE, MASK).metrics
    ratios = [3, 0.5, 1.5, 1.5, 1.5]
    assert metrics["correction/ratio/mean"].item() == pytest.approx(1.6)
    assert metrics["correction/ratio/max"].item() == pytest.approx(3, rel=1e-6)
    assert metrics["correction/ratio/ess"].item() == pytest.approx(8**2 / (5 * sum(r * r for r in ratios)), rel=1e-6)
    assert metrics["correction/kl"].item() == pytest.approx(sum(r - 1 - math.log(r) for r in ratios) / 5, rel=1e-6)


def test_the_default_is_a_cap_of_two_on_each_decision():
    torch.testing.assert_close(
        engine_correction(TRAINER, ENGINE, MASK).weights,
        engine_correction(TRAINER, ENGINE, MASK, cap=2.0, mode="truncate", level="decision").weights,
    )


def test_equal_engines_change_nothing():
    result = engine_correction(ENGINE, ENGINE, MASK)
    assert torch.equal(result.weights, MASK.float())
    assert result.metrics["correction/kl"].item() == 0
    assert result.metrics["correction/capped"].item() == 0


def test_a_ratio_at_the_cap_is_not_capped():
    for mode in ("truncate", "mask"):
        result = engine_correction(ENGINE, ENGINE, MASK, cap=1.0, mode=mode)
        assert torch.equal(result.weights, MASK.float())
        assert result.metrics["correction/capped"].item() == 0


def test_metrics_of_a_single_decision():
    metrics = engine_correction(TRAINER[:1, :1], ENGINE[:1, :1], MASK[:1, :1]).metrics
    assert metrics["correction/capped"].item() == 1
    assert metrics["correction/kl"].item() == pytest.approx(2 - math.log(3), rel=1e-6)


def test_far_apart_engines_stay_finite_in_weight_and_are_told():
    result = engine_correction(ENGINE + 500, ENGINE, MASK, cap=3.0)
    torch.testing.assert_close(result.weights, 3.0 * MASK)
    assert result.metrics["correction/capped"].item() == 1.0


def test_nothing_selected():
    result = engine_correction(TRAINER, ENGINE, MASK & False)
    assert (result.weights == 0).all()
    assert result.metrics["correction/kl"].item() == 0


@pytest.mark.parametrize("bad", [{"cap": 0.5}, {"mode": "clip"}, {"level": "token"}])
def test_errors(bad):
    with pytest.raises(ConfigError, match="cap >= 1"):
        engine_correction(TRAINER, ENGINE, MASK, **bad)

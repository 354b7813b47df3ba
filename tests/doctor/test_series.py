"""The statistics, against numbers worked out by hand."""

from __future__ import annotations

import math
import random

import pytest

from anygrpo.doctor.series import Series, correlation, median, ranks, residuals, slope, std, trend_p


def series(*values: float) -> Series:
    return Series("x", "x", tuple(range(1, len(values) + 1)), values)


def test_by_hand() -> None:
    assert std([1, 2, 3, 4]) == pytest.approx(math.sqrt(5 / 3))
    assert median([3, 1, 2]) == 2
    assert median([4, 1, 2, 3]) == 2.5
    assert slope([1, 3, 5, 7]) == pytest.approx(2)
    assert residuals([1, 3, 5, 7]) == pytest.approx([0, 0, 0, 0])
    assert ranks([10, 30, 20, 20]) == [0, 3, 1.5, 1.5]
    assert correlation([1, 2, 3], [2, 4, 6]) == pytest.approx(1)
    assert correlation([1, 2, 3], [5, 5, 5]) == 0


def test_trend_p_of_a_perfect_trend() -> None:
    """r = 1: z = sqrt(n - 1), so for n = 17 p = 2 P(Z > 4) = 6.33e-5."""
    assert trend_p(list(range(17))) == pytest.approx(6.334e-5, rel=1e-3)
    assert trend_p([1.0, 2.0, 3.0]) == 1.0


def test_mde_is_the_stated_formula_on_white_noise() -> None:
    rng = random.Random(1)
    s = series(*(rng.gauss(0, 1) for _ in range(400)))
    assert s.noise == pytest.approx(1.0, abs=0.1)
    assert s.mde == pytest.approx(2.8 * s.noise * math.sqrt(2 / 100))


def test_a_steady_climb_is_not_noise() -> None:
    s = series(*(float(i) for i in range(100)))
    assert s.noise == pytest.approx(0, abs=1e-9)
    assert s.gain == pytest.approx(75)


def test_a_difference_beyond_mde_is_rare_without_a_cause() -> None:
    """Two-sided 5% with power 80% puts MDE at 2.8 standard errors: pure noise passes it in about 0.5% of runs."""
    rng = random.Random(7)
    runs = [series(*(rng.gauss(0, 1) for _ in range(80))) for _ in range(300)]
    assert sum(abs(s.gain) > s.mde for s in runs) <= 9

"""Bare rates and logs side by side."""

from __future__ import annotations

import pytest

from anygrpo.doctor import diagnose
from anygrpo.doctor.arms import arms, arms_text, rates, rates_text
from anygrpo.doctor.synthetic import healthy, line
from anygrpo.errors import ConfigError


def test_a_half_point_on_800_questions_is_not_shown() -> None:
    """.578 against .573: se of the difference sqrt((.2439 + .2447) / 800) = .0247."""
    found = rates(0.578, 0.573, 800)
    assert found["standard_error"] == pytest.approx(0.02471, abs=1e-5)
    assert not found["shown"]
    assert found["questions_needed"] == pytest.approx(2 * 0.5755 * 0.4245 * (2.8 / 0.005) ** 2, rel=1e-3)
    assert "看不出" in rates_text(found, "zh")
    assert rates(0.6, 0.4, 800)["shown"]
    with pytest.raises(ConfigError):
        rates(57.8, 57.3, 800)


def test_runs_that_part_half_way_are_told_apart_there() -> None:
    one = diagnose(healthy(200, reward=line(0.4, 0.5)), format="jsonl").run
    two = diagnose(healthy(200, reward=lambda t: 0.4 + 0.1 * t + (0.2 if t > 0.5 else 0)), format="jsonl").run
    same = diagnose(healthy(200, noise=0.021, reward=line(0.4, 0.5)), format="jsonl").run
    measured = arms([one, two, same])["measures"]["reward/mean"]
    assert measured[1]["shown"]
    assert 95 <= measured[1]["parts_at"] <= 115
    assert not measured[2]["shown"]
    assert "reward/mean" in arms_text(arms([one, two, same]), "zh")

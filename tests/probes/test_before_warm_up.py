"""A recipe whose warm-up has not run yet is not refused for what an untrained network cannot do."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from anygrpo.core.probe_outcome import Outcome
from anygrpo.probes.check import _before_the_warm_up
from anygrpo.spoken import Text


def subject(begin: int, model: str | None = None) -> Any:
    policy = SimpleNamespace(model=model)
    return SimpleNamespace(
        planned=SimpleNamespace(begin=begin), run=SimpleNamespace(recipe=SimpleNamespace(policy=policy))
    )


def serious(probe: str) -> Outcome:
    return Outcome(probe, "serious", Text("all {n} dead", "{n} 个失效"), numbers={"n": 3}, certainty="certain")


@pytest.mark.parametrize("language", ["en", "zh"])
def test_what_a_warm_up_teaches_is_a_warning_before_it(language: str) -> None:
    found = _before_the_warm_up(serious("sites"), subject(200))
    assert (found.status, found.certainty) == ("warning", "ask")
    assert "200" in found.prescribe(language)
    assert "3" in found.say(language)


@pytest.mark.parametrize(
    ("probe", "begin", "model"), [("sites", 0, None), ("sites", 200, "run"), ("ratio_one", 200, None)]
)
def test_faults_stay_faults(probe: str, begin: int, model: str | None) -> None:
    assert _before_the_warm_up(serious(probe), subject(begin, model)).status == "serious"

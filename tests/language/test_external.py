"""The probe that an engine holds the weights it was sent."""

from __future__ import annotations

import pytest

from anygrpo.errors import TrainingError
from anygrpo.language.engine.external import External, SyncProbe

PROMPTS = [[1, 2], [3]]


class Engine:
    """Gives `values` for tokens 10, 11, ... of each prompt."""

    adapters = False

    def __init__(self, *values: float) -> None:
        self.values = values

    def refresh(self, weights) -> None: ...

    def refresh_adapters(self, save) -> None: ...

    def generate(self, *given): ...

    def likely(self, prompts, count):
        return [{10 + i: v for i, v in enumerate(self.values)} for _ in prompts]


def probe(ours: dict[int, float]) -> SyncProbe:
    return SyncProbe(lambda prompts, tokens: [[ours[t] for t in row] for row in tokens])


def test_another_model_at_the_first_sync_stops_the_run():
    assert isinstance(Engine(), External)
    with pytest.raises(TrainingError, match=r"differ from the training pass's by 0\.75 nats"):
        probe({10: -1.0, 11: -3.0}).check(Engine(-1.0, -1.5), PROMPTS)


def test_rounding_is_no_other_model():
    made = probe({10: -1.0, 11: -2.0})
    made.check(Engine(-1.05, -1.9), PROMPTS)
    assert not made.done


def test_an_engine_that_follows_is_left_alone_afterwards():
    ours, engine = {10: -1.0, 11: -2.0}, Engine(-1.01, -2.02)
    made = probe(ours)
    made.check(engine, PROMPTS)
    ours[10] = -1.02  # too little to tell
    made.check(engine, PROMPTS)
    assert not made.done
    ours[10], engine.values = -1.3, (-1.28, -2.01)
    made.check(engine, [])
    assert made.done
    ours[10] = -9.0
    made.check(engine, PROMPTS)


def test_an_engine_that_stays_where_it_was_stops_the_run():
    ours = {10: -1.0, 11: -2.0}
    made = probe(ours)
    made.check(Engine(-1.0, -2.0), PROMPTS)
    ours[10] = -1.4
    with pytest.raises(TrainingError, match=r"moved log-probs by 0\.200 nats, the engine's by 0\.010"):
        made.check(Engine(-1.02, -2.0), PROMPTS)


def test_tokens_that_fell_out_of_the_likeliest_are_not_compared():
    ours = {10: -1.0, 11: -2.0}
    made = probe(ours)
    made.check(Engine(-1.0, -2.0), PROMPTS)
    ours[10], ours[11] = -1.2, -9.0
    made.check(Engine(-1.2), PROMPTS)
    assert made.done

"""Several sources: shares by hand, each source's own prompts, rewards and measures."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anygrpo.core.build import build_task
from anygrpo.language.task_settings import MixtureTaskConfig
from anygrpo.language.tasks.mixture import CYCLE, order


@pytest.fixture
def task():
    sums = {"kind": "arithmetic", "digits": 1, "held_out": 6, "workers": 1}
    words = {**sums, "operation": "*", "rewards": [{"kind": "length", "target": 2}]}
    config = MixtureTaskConfig(
        kind="mixture",
        sources=[{"name": "sums", "share": 3, "task": sums}, {"name": "words", "share": 1, "task": words}],
    )
    made = build_task(config, 0)
    yield made
    made.close()


def test_the_order_by_hand():
    assert order([3, 1])[:8] == [0, 0, 1, 0, 0, 0, 1, 0]
    assert order([1])[:3] == [0, 0, 0]


@given(st.lists(st.floats(0.05, 1.0), min_size=1, max_size=5))
def test_every_stretch_is_near_its_shares(shares):
    made, taken = order(shares), [0] * len(shares)
    for place, source in enumerate(made, 1):
        taken[source] += 1
        assert all(abs(n - s / sum(shares) * place) <= len(shares) for n, s in zip(taken, shares))
    assert len(made) == CYCLE


def test_prompts_are_the_sources_own_in_their_order(task):
    flat = task.prompts(0, 2400)
    assert flat == [p for step in range(6) for p in task.prompts(step, 400)]
    for name, own in zip(task.names, task.tasks):
        mine = [p for p in flat if p["source"] == name]
        assert len(mine) == pytest.approx(2400 * (0.75 if name == "sums" else 0.25), abs=1)
        assert [p["prompt"] for p in mine] == [own.prompts(i, 1)[0]["prompt"] for i in range(len(mine))]


def test_each_source_has_its_rewards_and_its_measures(task):
    prompts = task.prompts(0, 8)
    outputs = [[p["answer"], "two words"] for p in prompts]
    scores = task.score(prompts, outputs)
    for p, prompt in enumerate(prompts):
        expected = [1.0, 0.0] if prompt["source"] == "sums" else [0.5, 1.0]
        assert scores.rewards[p].tolist() == expected
    assert set(scores.components) == {"sums.number", "words.length"}
    assert float(scores.components["sums.number"].mean()) == pytest.approx(0.5)
    measured = task.measure(task.held_out(), [[p["answer"]] for p in task.held_out()])
    assert measured["eval/sums/accuracy"] == 1.0
    assert measured["eval/words/reward"] == pytest.approx(0.5)
    assert "eval/words/accuracy" not in measured


@pytest.mark.parametrize(
    ("sources", "message"),
    [
        ([{"name": "a", "task": {"kind": "nothing"}}], "nothing"),
        ([{"name": "a", "task": {"kind": "arithmetic", "digts": 2}}], "digts"),
        ([{"name": "a", "task": {"kind": "arithmetic"}}] * 2, "two sources"),
    ],
)
def test_sources_that_cannot_be(sources, message):
    with pytest.raises(Exception, match=message):
        MixtureTaskConfig(kind="mixture", sources=sources)

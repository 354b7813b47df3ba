"""The probe tells a sound reward from a broken one."""

import random

from anygrpo.config.text_tasks import ArithmeticTask
from anygrpo.tasks.rewards import probe
from anygrpo.tasks.rewards.base import Inline
from anygrpo.tasks.text import build


def task():
    return build(ArithmeticTask(kind="arithmetic", digits=2), 0)


def judged_by(function):
    adding = task()
    adding.judge_by([Inline("mine", 1.0, True, function, columns={"answer": "answer"})], None)
    return probe(adding, count=4)


def test_a_sound_reward_has_no_problems():
    found = probe(task(), count=4)
    assert found.problems == []
    assert [found.mean(kind) for kind in ("gold", "wrong", "empty", "truncated")] == [1.0, 0.0, 0.0, 0.0]
    assert found.repeatable
    assert found.milliseconds > 0


def test_a_flipped_reward_is_seen():
    found = judged_by(lambda prompts, outputs, answer: [float(o != a) for o, a in zip(outputs, answer)])
    assert found.problems[0] == "wrong answers earn 1 on average, right ones 0"
    assert len(found.problems) == 3


def test_noise_is_seen():
    found = judged_by(lambda prompts, outputs, answer: [random.random() for _ in outputs])
    assert not found.repeatable
    assert any("scored twice" in problem for problem in found.problems)


def test_missing_verdicts_are_seen():
    found = judged_by(lambda prompts, outputs, answer: [float(o == a) if o else None for o, a in zip(outputs, answer)])
    assert found.problems == ["4 of 4 empty answers got no verdict (mine: returned None)"]
    assert found.mean("empty") is None


def test_without_gold_answers_only_empty_ones_are_tried():
    adding = task()
    adding.demonstration = "nothing"
    assert list(probe(adding).rewards) == ["empty"]

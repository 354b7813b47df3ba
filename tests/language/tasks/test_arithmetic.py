"""The built-in task: pure prompts, disjoint held-out pairs, scoring and accuracy."""

import pytest

from anygrpo.core.build import build_task as build
from anygrpo.core.task import Task
from anygrpo.errors import ConfigError
from anygrpo.language.task_settings import ArithmeticTaskConfig
from anygrpo.scoring.settings import LengthRewardConfig


def task(seed=0, **given):
    return build(ArithmeticTaskConfig(kind="arithmetic", **given), seed)


def numbers(prompt):
    a, sign, b = prompt["prompt"][-1]["content"].removeprefix("What is ").rstrip("?").split()
    return int(a), sign, int(b)


def test_prompts_are_a_pure_function_of_seed_step_and_count():
    first, second = task(), task()
    assert isinstance(first, Task)
    second.prompts(9, 4)
    assert first.prompts(3, 8) == second.prompts(3, 8)
    assert first.prompts(3, 8) != first.prompts(4, 8)
    assert first.prompts(3, 8) != task(seed=1).prompts(3, 8)
    assert first.prompts(0, 8) == first.prompts(0, 4) + first.prompts(1, 4)


@pytest.mark.parametrize(("operation", "apply"), [("+", int.__add__), ("-", int.__sub__), ("*", int.__mul__)])
def test_answers_and_digits(operation, apply):
    for prompt in task(operation=operation, digits=3).prompts(0, 50):
        a, sign, b = numbers(prompt)
        assert sign == operation
        assert 100 <= a <= 999
        assert 100 <= b <= 999
        assert prompt["answer"] == str(apply(a, b))


def test_held_out_pairs_are_in_training_in_neither_order():
    small = task(digits=1, held_out=20)
    held_out = {frozenset(numbers(p)[::2]) for p in small.held_out()}
    trained = {frozenset(numbers(p)[::2]) for p in small.prompts(0, 2000)}
    assert len(held_out) == 20
    assert not held_out & trained
    assert len(trained) == 55 - 20


def test_held_out_does_not_depend_on_the_seed():
    assert task(seed=5).held_out() == task(seed=6).held_out()
    assert len(task().held_out()) == 128


def test_too_many_held_out_pairs_are_refused():
    with pytest.raises(ConfigError, match="held_out = 28 of the 55 pairs"):
        task(digits=1, held_out=28)


def test_system_message_and_none():
    assert task().prompts(0, 1)[0]["prompt"][0] == {"role": "system", "content": "Reply with the number only."}
    assert task(system="").prompts(0, 1)[0]["prompt"].startswith("What is ")


def test_scores_accuracy_and_demonstrations():
    adding = task()
    prompts = adding.prompts(0, 2)
    gold = [p["answer"] for p in prompts]
    scores = adding.score(prompts, [[gold[0], "no"], [f"It is {gold[1]}.", ""]])
    assert scores.rewards.tolist() == [[1.0, 0.0], [1.0, 0.0]]
    assert adding.measure(prompts, [[gold[0]], ["0"]]) == {"eval/accuracy": 0.5}
    assert adding.stored(prompts).actions == [[gold[0]], [gold[1]]]
    assert adding.stored(prompts).rewards is None


def test_measure_does_not_score_twice(monkeypatch):
    adding = task()
    prompts = adding.prompts(0, 1)
    outputs = [[prompts[0]["answer"]]]
    adding.score(prompts, outputs)
    monkeypatch.setattr(adding.scorer, "score", None)
    assert adding.measure(prompts, outputs) == {"eval/accuracy": 1.0}


def test_an_answer_that_cannot_be_scored_counts_as_wrong():
    adding = task()
    prompts = [*adding.prompts(0, 1), {"prompt": "?", "answer": None}]
    assert adding.measure(prompts, [[prompts[0]["answer"]], ["1"]]) == {"eval/accuracy": 0.5}


def test_accuracy_needs_a_reward_that_judges():
    shaped = task(rewards=[LengthRewardConfig(kind="length", target=1)])
    prompts = shaped.prompts(0, 1)
    assert shaped.measure(prompts, [["1"]]) == {}
    with pytest.raises(ConfigError, match=r"accuracy = 'lenght' names no reward; did you mean 'length'\?"):
        task(rewards=[LengthRewardConfig(kind="length", target=1)], accuracy="lenght")


def test_worked_examples_are_earlier_turns():
    example = {"question": "What is 1 + 2?", "answer": "1 + 2 = 3"}
    turns = task(system="Sums.", examples=[example]).prompts(0, 1)[0]["prompt"]
    assert [turn["role"] for turn in turns] == ["system", "user", "assistant", "user"]
    assert (turns[1]["content"], turns[2]["content"]) == ("What is 1 + 2?", "1 + 2 = 3")
    assert turns[3]["content"].startswith("What is ")

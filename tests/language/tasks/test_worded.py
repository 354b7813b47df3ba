"""Products in words, and the two examples of docs/turns.md."""

import random
import re
import sys
from pathlib import Path

import pytest
from pydantic import ValidationError

from anygrpo.language.task_settings import ArithmeticTaskConfig
from anygrpo.language.tasks.answer import Answer
from anygrpo.language.tasks.arithmetic import Arithmetic
from anygrpo.language.tasks.worded import HELD_OUT, TRAINING

sys.path.insert(0, str(Path(__file__).parents[3] / "examples" / "turns"))
import calculator
import guess


def task(**settings):
    given = {"kind": "arithmetic", "operation": "*", "digits": 3, "worded": True, "held_out": 12, **settings}
    return Arithmetic(ArithmeticTaskConfig(**given), seed=0)


def test_phrasings_are_of_one_side_and_say_what_the_answer_is():
    made = task(system="")
    for side, phrasings in ((made.prompts(0, 24), TRAINING), (made.held_out(), HELD_OUT)):
        for number, prompt in enumerate(side):
            asked, answer = prompt["prompt"], int(prompt["answer"])
            words = re.split(r"\{[ab]\}", phrasings[number % len(phrasings)])
            assert re.split(r"\d+", asked) == words
            numbers = [int(word) for word in "".join(c if c.isdigit() else " " for c in asked).split()]
            assert numbers[0] * numbers[1] == answer
            assert prompt["demonstration"] == f"The answer is {answer}."
    assert not set(TRAINING) & set(HELD_OUT)
    made.close()


def test_a_demonstration_with_the_tool():
    made = task(tool="calculator", system="")
    prompts = made.prompts(0, 2)
    (answer,), _ = made.stored(prompts).actions
    assert isinstance(answer, Answer)
    call = answer.messages[0]["tool_calls"][0]["function"]
    assert call["name"] == "calculator"
    assert calculator.calculator(**call["arguments"]) == prompts[0]["answer"] == answer.messages[1]["content"]
    assert made.score(prompts[:1], [[answer]]).rewards.tolist() == [[1.0]]
    assert made.measure(prompts[:1], [[answer]]) == {
        "eval/turns": 2.0,
        "eval/environment_paid": 0.0,
        "eval/accuracy": 1.0,
    }
    made.close()


def test_settings_that_say_nothing_are_refused():
    with pytest.raises(ValidationError, match="products"):
        ArithmeticTaskConfig(kind="arithmetic", worded=True)
    with pytest.raises(ValidationError, match="worded = true"):
        ArithmeticTaskConfig(kind="arithmetic", tool="calculator")


def test_the_calculator_works_out_and_refuses():
    assert calculator.calculator("12 * 34 - (-2)") == "410"
    for bad in ("__import__('os')", "2 ** 9", "1.5 * 2", "x"):
        with pytest.raises(ValueError, match="no expression"):
            calculator.calculator(bad)


def test_the_game():
    game = guess.Guess()
    game.reset({"number": 7, "low": 1, "high": 16})
    said = [game.step([{"role": "assistant", "content": text}], []) for text in ("I say 5.", "9", "40", "x", "7")]
    assert [s[0] for s in said] == ["higher", "lower", "Guess from 1 to 16.", "Guess from 1 to 16.", None]
    assert [s[1] for s in said] == [0.0, 0.0, 0.0, 0.0, 0.6]
    assert [s[2] for s in said] == [False] * 4 + [True]
    assert guess.found([0, 0, 0], ["5\n\n7", "7\n\n5", ""], [7, 7, 7]) == [1.0, 0.0, 0.0]
    played = guess.weak_game(1, 16, 7, random.Random(0))
    assert played[-1]["role"] == "assistant"

"""Generated data sets: disjoint questions, their own scoring in workers, and errors with a cure."""

import json
import subprocess
import sys

import pytest

from anygrpo.core.build import build_task as build
from anygrpo.errors import ConfigError, DataError
from anygrpo.language.task_settings import ReasoningGymTaskConfig
from anygrpo.language.tasks.gym import extract_answer


def task(dataset="chain_sum", seed=0, **given):
    return build(ReasoningGymTaskConfig(kind="reasoning_gym", dataset=dataset, **given), seed)


SMALL = {"min_terms": 2, "max_terms": 2, "min_digits": 1, "max_digits": 1}


def test_training_never_shows_a_held_out_question():
    sums = task(parameters=SMALL, held_out=30)
    held_out = {p["prompt"] for p in sums.held_out()}
    trained = {p["prompt"] for p in sums.prompts(0, 1500)}
    assert len(held_out) == 30
    assert not held_out & trained


def test_prompts_are_pure_and_the_held_out_set_is_fixed():
    first, second = task(held_out=5), task(held_out=5)
    second.prompts(0, 3)
    assert first.prompts(7, 4) == second.prompts(7, 4)
    assert first.prompts(7, 4) != task(seed=1, held_out=5).prompts(7, 4)
    assert first.held_out() == task(seed=1, held_out=5).held_out()


def test_fewer_questions_than_wanted_are_told():
    with pytest.warns(UserWarning, match="different held-out questions exist, 128 wanted"):
        coins = task("coin_flip", parameters={"min_trials": 1, "max_trials": 1})
    with pytest.raises(DataError, match="are held-out ones; too few different questions exist"):
        coins.prompts(0, 400)


def test_scores_come_from_the_data_set():
    sums = task(held_out=4, extract="last_line", parameters={"max_terms": 3})
    try:
        prompts = sums.held_out()
        gold = [p["answer"] for p in prompts]
        scores = sums.score(prompts, [[f"thinking\n{g}", "no idea"] for g in gold])
        assert scores.valid.all()
        assert scores.rewards.tolist() == [[1.0, 0.0]] * 4
        assert sums.measure(prompts, [[g] for g in gold]) == {"eval/accuracy": 1.0}
        assert sums.stored(prompts).actions == [[g] for g in gold]
    finally:
        sums.close()


def test_further_rewards_are_added():
    sums = task(held_out=2, weight=2.0, rewards=[{"kind": "length", "target": 1, "weight": 0.5}])
    try:
        prompts = sums.held_out()
        scores = sums.score(prompts, [[p["answer"]] for p in prompts])
        assert set(scores.components) == {"chain_sum", "length"}
        assert scores.rewards.tolist() == [[2.5]] * 2
    finally:
        sums.close()


HOW = ("whole", "tag", "first_word", "last_line", "last_number")


def test_extract():
    text = "<answer>3</answer> or <answer> 4\n</answer>\nso 5 "
    assert [extract_answer(text, how) for how in HOW] == [
        text.strip(),
        "4",
        "answer",
        "so 5",
        "5",
    ]
    assert [extract_answer("", how) for how in HOW] == [""] * 5
    assert extract_answer(" **No**, because", "first_word") == "No"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"dataset": "chainsum"}, r"no data set 'chainsum'; did you mean 'chain_sum'\?"),
        ({"parameters": {"max_term": 3}}, r"no parameter 'max_term'; did you mean 'max_terms'\?"),
        ({"parameters": {"max_terms": 0}}, r"refuses its parameters .*max_terms must be"),
        ({"dataset": "aiw", "parameters": {"task_types": ["siblings"]}}, r"refuses its parameters .*number of weights"),
        ({"parameters": {"seed": 3}}, r"no parameter 'seed'"),
    ],
)
def test_errors(given, message):
    with pytest.raises(ConfigError, match=message):
        task(**given)


def test_texts_become_members_of_the_data_sets_enumerations():
    siblings = {"task_types": ["siblings"], "task_type_weights": [1.0]}
    assert all("brothers" in p["prompt"] for p in task(dataset="aiw", parameters=siblings).prompts(0, 4))


def test_workers_need_no_torch():
    code = (
        "import sys, json\nfrom anygrpo.core.user_code import resolve as load\n"
        "for name in ['language.tasks.gym:score', 'scoring.builtin:regex', 'scoring.mathematics:math_verify']:\n"
        "    load('anygrpo.' + name)\n"
        "print(json.dumps('torch' in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) is False

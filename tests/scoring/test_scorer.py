"""Several rewards together: weights, invalid samples and their reasons, and nothing that takes the trainer down."""

import time

import pytest
import torch

from anygrpo.scoring.builtin import number, repetition
from anygrpo.scoring.reward import Inline, Remote
from anygrpo.scoring.scorer import Scorer
from anygrpo.scoring.workers import Pool

FILE = """
import math, os, time
def some_none(prompts, outputs): return [None if o == "none" else 1.0 for o in outputs]
def odd(prompts, outputs): return [{"nan": math.nan, "inf": math.inf}.get(o, 0.5) for o in outputs]
def hangs_on_one(prompts, outputs):
    while "hang" in outputs: time.sleep(1)
    return [2.0] * len(outputs)
def dies_on_one(prompts, outputs):
    if "die" in outputs: os._exit(3)
    return [2.0] * len(outputs)
def always_hangs(prompts, outputs): time.sleep(60)
def short(prompts, outputs): return [1.0]
def scalar(prompts, outputs): return 1.0
def word(prompts, outputs): return "good"
def slow(prompts, outputs):
    time.sleep(0.5)
    return [1.0] * len(outputs)
def saw_all(prompts, outputs): return [float(len(outputs))] * len(outputs)
def saw_all_or_dies(prompts, outputs):
    if "die" in outputs: os._exit(3)
    return [float(len(outputs))] * len(outputs)
"""


@pytest.fixture(scope="module")
def remote(tmp_path_factory):
    path = tmp_path_factory.mktemp("rewards") / "user.py"
    path.write_text(FILE)
    with Pool(2) as pool:
        for warm in [pool.submit(f"{path}:saw_all", {"prompts": [], "outputs": []}, 0, 9.0) for _ in range(2)]:
            warm.result()
        yield lambda name, weight=1.0, timeout=5.0, **kw: Remote(
            name, weight, False, f"{path}:{name}", pool, timeout, **kw
        )


def prompts(*answers):
    return [{"prompt": "?", "answer": answer} for answer in answers]


def numbers(weight=1.0):
    return Inline("number", weight, True, number, columns={"answer": "answer"})


def test_weighted_sum_and_components():
    scorer = Scorer([numbers(2.0), Inline("repetition", 0.5, False, repetition, {"ngram": 1})])
    scores = scorer.score(prompts("1", "2"), [["1", "no no"], ["2 2", "3"]])
    assert scores.rewards.tolist() == [[2.0, -0.25], [1.75, 0.0]]
    assert scores.components["number"].tolist() == [[1.0, 0.0], [1.0, 0.0]]
    assert scores.components["repetition"].tolist() == [[0.0, -0.5], [-0.5, 0.0]]
    assert scores.valid.all()
    assert scores.rewards.dtype == torch.float32


def test_none_nan_and_inf_make_only_that_sample_invalid(remote):
    scorer = Scorer([remote("some_none"), remote("odd")])
    scores = scorer.score(prompts("", ""), [["none", "a"], ["nan", "inf"]])
    assert scores.valid.tolist() == [[False, True], [False, False]]
    assert scores.rewards.tolist() == [[0.0, 1.5], [0.0, 0.0]]
    assert scores.reasons == {
        (0, 0): "some_none: returned None",
        (1, 0): "odd: returned nan",
        (1, 1): "odd: returned inf",
    }


def test_a_hang_costs_only_its_own_sample(remote):
    scores = Scorer([remote("hangs_on_one", timeout=0.5)]).score(prompts("", ""), [["a", "hang"], ["b", "c"]])
    assert scores.valid.tolist() == [[True, False], [True, True]]
    assert scores.reasons == {(0, 1): "hangs_on_one: timed out after 0.5 s"}


def test_a_death_costs_only_its_own_sample(remote):
    scores = Scorer([remote("dies_on_one")]).score(prompts(""), [["die", "b", "c"]])
    assert scores.valid.tolist() == [[False, True, True]]
    assert scores.reasons[0, 0].startswith("dies_on_one: worker died (exit code 3)")


def test_retries_end(remote):
    began = time.monotonic()
    reward = remote("always_hangs", timeout=0.2)
    scores = Scorer([reward]).score(prompts(""), [[str(i) for i in range(40)]])
    assert not scores.valid.any()
    assert scores.reasons[0, 39].startswith("always_hangs: given up")
    assert time.monotonic() - began < 15


def test_a_function_that_compares_outputs_is_not_called_row_by_row(remote):
    scores = Scorer([remote("saw_all_or_dies", retry_alone=False)]).score(prompts(""), [["die", "b"]])
    assert not scores.valid.any()
    assert (
        Scorer([remote("saw_all")]).score(prompts("", ""), [["a", "b"], ["c", "d"]]).rewards.tolist() == [[4.0] * 2] * 2
    )


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("short", "returned 1 values for 2 outputs"),
        ("scalar", "returned '1.0' (float), wanted a list of 2 numbers"),
        ("word", "returned 'good' (str), wanted a list of 2 numbers"),
    ],
)
def test_wrong_shapes_invalidate_all_with_the_reason(remote, name, reason):
    scores = Scorer([remote(name)]).score(prompts(""), [["a", "b"]])
    assert not scores.valid.any()
    assert set(scores.reasons.values()) == {f"{name}: {reason}"}


def test_a_failing_reward_of_weight_zero_only_watches(remote):
    scores = Scorer([numbers(), remote("some_none", weight=0.0)]).score(prompts("1"), [["none", "1"]])
    assert scores.valid.all()
    assert scores.rewards.tolist() == [[0.0, 1.0]]


def test_rewards_run_side_by_side(remote):
    began = time.monotonic()
    first, second = remote("slow"), remote("slow")
    object.__setattr__(second, "name", "slow again")
    assert Scorer([first, second]).score(prompts(""), [["a"]]).rewards.tolist() == [[2.0]]
    assert time.monotonic() - began < 0.95


def test_scoring_in_the_background(remote):
    handle = Scorer([remote("slow")]).score_async(prompts(""), [["a"]])
    assert not handle.done()
    assert handle.result().rewards.tolist() == [[1.0]]


def test_an_inline_reward_that_raises_is_a_reason():
    def broken(prompts, outputs):
        raise ZeroDivisionError("no")

    scores = Scorer([Inline("broken", 1.0, False, broken)]).score(prompts(""), [["a"]])
    assert scores.reasons == {(0, 0): "broken: ZeroDivisionError: no"}


def test_no_outputs_ragged_outputs_and_outputs_that_are_no_text():
    scorer = Scorer([numbers()])
    assert scorer.score([], []).rewards.shape == (0, 0)
    scores = scorer.score(prompts("1", "2"), [["1"], ["2", None]])
    assert scores.valid.tolist() == [[True, False], [True, False]]
    assert scores.reasons[1, 1] == "the output is no text"


def test_empty_completions_are_wrong_not_invalid():
    scores = Scorer([numbers()]).score(prompts("1"), [["", "1"]])
    assert scores.valid.all()
    assert scores.rewards.tolist() == [[0.0, 1.0]]

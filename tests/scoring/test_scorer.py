"""Several rewards together: weights, invalid samples and their reasons, and nothing that takes the trainer down."""

import time
from types import SimpleNamespace

import pytest
import torch

from anygrpo.errors import ConfigError, TrainingError
from anygrpo.scoring.builtin import number, repetition
from anygrpo.scoring.outcome import Elsewhere
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


def test_nan_and_inf_make_only_that_sample_invalid_and_none_not_even_that(remote):
    scorer = Scorer([remote("some_none"), remote("odd")])
    scores = scorer.score(prompts("", ""), [["none", "a"], ["nan", "inf"]])
    assert scores.valid.tolist() == [[True, True], [False, False]]
    assert scores.rewards.tolist() == [[0.5, 1.5], [0.0, 0.0]]
    assert scores.reasons == {
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


def fixed(name, values, weight=1.0):
    return Inline(name, weight, False, lambda prompts, outputs: list(values))


def test_none_means_does_not_apply():
    scorer = Scorer([fixed("a", [1.0, None, None, None], 2.0), fixed("b", [None, 3.0, None, 0.5], 0.5)])
    scores = scorer.score(prompts(""), [["w", "x", "y", "z"]])
    assert scores.rewards.tolist() == [[2.0, 1.5, 0.0, 0.25]]
    assert scores.valid.tolist() == [[True, True, False, True]]
    assert scores.reasons == {(0, 2): "a: returned None; b: returned None"}
    assert scores.components["a"].isnan().tolist() == [[False, True, True, True]]
    assert scores.weights == {"a": 2.0, "b": 0.5}


def test_a_none_beside_a_fault_is_a_fault():
    scores = Scorer([fixed("a", [None]), fixed("b", [float("nan")])]).score(prompts(""), [["x"]])
    assert scores.reasons == {(0, 0): "b: returned nan"}


def test_a_watching_reward_alone_does_not_make_a_sample_valid():
    scores = Scorer([fixed("a", [None, 1.0]), fixed("seen", [5.0, None], 0.0)]).score(prompts(""), [["x", "y"]])
    assert scores.valid.tolist() == [[False, True]]
    assert Scorer([fixed("seen", [5.0], 0.0)]).score(prompts(""), [["x"]]).rewards.tolist() == [[0.0]]


@pytest.mark.parametrize("value", [1e39, -1e39, 10**400, 3.5e38])
def test_finite_rewards_that_float32_cannot_hold(value):
    scores = Scorer([fixed("a", [value, 1.0])]).score(prompts(""), [["x", "y"]])
    assert scores.valid.tolist() == [[False, True]]
    assert scores.reasons[0, 0].startswith("a: returned ")
    assert scores.rewards.isfinite().all()


def test_a_sum_that_float32_cannot_hold():
    largest = (2 - 2**-23) * 2.0**127
    scores = Scorer([fixed("a", [largest], 1.0), fixed("b", [largest], 1.0)]).score(prompts(""), [["x"]])
    assert scores.reasons == {(0, 0): "reward: the weighted sum 6.80565e+38 is more than float32 holds"}
    assert Scorer([fixed("a", [largest])]).score(prompts(""), [["x"]]).rewards.tolist() == [[largest]]


def test_a_reward_that_raises_on_everything_stops_a_run_that_has_just_begun(tmp_path):
    (tmp_path / "r.py").write_text(
        "def broken(prompts, outputs):\n    return [o.lenght for o in outputs]\n"
        "def sometimes(prompts, outputs):\n    return [1.0 / (o != 'x') for o in outputs]\n"
    )
    with Pool(1) as pool:
        of = lambda name, weight=1.0: Remote(name, weight, False, f"{tmp_path}/r.py:{name}", pool, 9.0)  # noqa: E731
        scorer = Scorer([of("broken")])
        assert not scorer.score(prompts(""), [["a", "b"]]).valid.any()
        with pytest.raises(TrainingError, match="raised on all of the first 2 outputs: AttributeError") as stopped:
            scorer.check()
        assert stopped.value.exit_code == 4
        assert 'r.py", line 2, in broken' in stopped.value.what
        assert "o.lenght" in stopped.value.what
        handle = Scorer([of("broken")]).score_async(prompts(""), [["a", "b"]], check=True)
        with pytest.raises(TrainingError):
            handle.result()
        watched = Scorer([of("broken", 0.0)])
        watched.score(prompts(""), [["a"]])
        watched.check()
        later = Scorer([of("sometimes")])
        later.score(prompts(""), [["x", "b"]])
        later.score(prompts(""), [["x", "x"]])
        later.check()


def test_a_reward_of_the_wrong_shape_stops_a_run_too(remote):
    scorer = Scorer([remote("scalar")])
    scorer.score(prompts(""), [["a", "b"]])
    with pytest.raises(ConfigError, match="wanted a list of 2 numbers"):
        scorer.check()


def test_a_reward_that_returns_no_number_at_all_is_its_authors_mistake(tmp_path):
    (tmp_path / "r.py").write_text("def words(prompts, outputs):\n    return ['good'] * len(outputs)\n")
    with Pool(1) as pool:
        scorer = Scorer([Remote("words", 1.0, False, f"{tmp_path}/r.py:words", pool, 9.0)])
        scorer.score(prompts(""), [["a", "b"]])
        with pytest.raises(ConfigError, match=r"'words': of all of the first 2 outputs returned 'good' \(str\)"):
            scorer.check()


def test_time_outs_stop_no_run(remote):
    scorer = Scorer([remote("always_hangs", timeout=0.2)])
    scorer.score(prompts(""), [["a"]])
    scorer.check()


def test_the_lowest_reward_by_hand():
    of = lambda weight, bounds: Inline("r", weight, False, number, bounds=bounds)  # noqa: E731
    assert Scorer([of(2.0, (0.0, 1.0)), of(0.5, (-1.0, 0.0)), of(-3.0, (0.0, 1.0))]).lowest == 0.0 - 0.5 - 3.0
    assert Scorer([of(1.0, (0.0, 1.0)), of(1.0, None)]).lowest is None
    assert Scorer([of(1.0, (0.0, 1.0)), of(0.0, None)]).lowest == 0.0


def test_whose_fault_it_was():
    outcomes = [Elsewhere("timed out"), "returned nan", 1.0, None]
    scorer = Scorer([SimpleNamespace(name="a", weight=1.0, judges=False, start=lambda rows: lambda: outcomes)])
    scores = scorer.score(prompts(""), [["w", "x", "y", "z"]])
    assert scores.faults.tolist() == [[True, False, False, False]]
    assert scores.valid.tolist() == [[False, False, True, False]]


def test_what_one_reward_blames_on_the_answer_stays_its_fault():
    """The machine failed for another reward of the same sample: no reason to leave it out of an evaluation."""
    said = lambda name, values, weight=1.0: SimpleNamespace(  # noqa: E731
        name=name, weight=weight, judges=False, start=lambda rows: lambda: values
    )
    lost, wrong = said("tool", [Elsewhere("timed out")] * 3), said("form", ["no number", 1.0, None])
    watched = said("watch", ["no number"] * 3, weight=0.0)
    scores = Scorer([lost, wrong, watched]).score(prompts(""), [["a", "b", "c"]])
    assert scores.valid.tolist() == [[False] * 3]
    assert scores.faults.tolist() == [[False, True, True]]

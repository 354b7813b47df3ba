"""Built-in rewards against values worked out by hand."""

import math
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anygrpo.language.tasks import gym
from anygrpo.scoring import builtin


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("42", "42"),
        ("The answer is 42.", "42"),
        ("12 + 30 = 42", "42"),
        ("7-5", "5"),
        ("it is -5", "-5"),
        ("(-3)", "-3"),
        ("x=-3", "-3"),
        ("1,234,567.50 dollars", "1234567.50"),
        ("1, 2, 3", "3"),
        ("12,34", "34"),
        ("6.02e23", "6.02e23"),
        ("answer: −8", "-8"),
        ("答案是108。", "108"),
        ("none", None),
        ("", None),
    ],
)
def test_last_number(text, number):
    assert builtin.last_number(text) == number


def test_number_compares_values_not_spelling():
    outputs = ["42", "so 42.0!", "41", "forty-two", "", "42 or 43"]
    assert builtin.number([""] * 6, outputs, ["42"] * 6) == [1.0, 1.0, 0.0, 0.0, 0.0, 0.0]
    assert builtin.number([""], ["7"], [7]) == [1.0]
    assert builtin.number([""], ["7"], [None]) == [None]
    assert builtin.number([""], ["7"], ["no number"]) == [None]


def test_number_tolerance_is_absolute():
    assert builtin.number([""] * 3, ["3.14", "3.13", "1e999"], ["3.1416"] * 3, tolerance=0.002) == [1.0, 0.0, 0.0]


def test_huge_numbers_are_not_all_infinity():
    assert builtin.number([""], ["9" * 400], ["8" * 400]) == [0.0]


@given(st.integers(-(10**12), 10**12), st.text(alphabet="abc .:\n", max_size=20))
def test_a_number_at_the_end_is_found(value, before):
    assert builtin.number([""], [before + " " + str(value)], [value]) == [1.0]


def test_exact():
    assert builtin.exact([""] * 4, [" yes\n", "Yes", "no", "yes."], ["yes"] * 4) == [1.0, 0.0, 0.0, 0.0]
    assert builtin.exact([""] * 2, ["YES", "si"], [["yes", "si"]] * 2, ignore_case=True) == [1.0, 1.0]
    assert builtin.exact([""], ["yes"], [None]) == [None]


def test_regex_search_and_full_match():
    pattern = r"<think>.*</think>\s*\d+"
    outputs = ["<think>a\nb</think> 5", "x <think></think>5 y", "5"]
    assert builtin.regex([""] * 3, outputs, pattern) == [1.0, 1.0, 0.0]
    assert builtin.regex([""] * 3, outputs, pattern, full=True) == [1.0, 0.0, 0.0]


def test_length_is_a_tent():
    words = ["one two three four", "one two", "", "one two three four five six seven eight nine"]
    assert builtin.length([""] * 4, words, target=4) == [1.0, 0.5, 0.0, 0.0]
    assert builtin.length([""], ["one two"], target=4, width=8) == [0.75]
    assert builtin.length([""], ["一二 three"], target=3) == [1.0]
    assert builtin.length([""], ["abcd"], target=8, unit="characters") == [0.5]


def test_connectives_count_distinct_words():
    outputs = [
        "Because it rains, we stay. However, we read.",
        "because because because",
        "becausexyz",
        "因为下雨，所以在家。",
    ]
    assert builtin.connectives([""] * 4, outputs, target=2) == [1.0, 0.5, 0.0, 1.0]
    assert builtin.connectives([""] * 2, ["therefore", "因此"], language="zh", target=1) == [0.0, 1.0]
    assert builtin.connectives([""], ["As a\nresult, yes"], language="en", target=1) == [1.0]


def test_repetition_share():
    # "a b a b a b": trigrams aba bab aba bab: 2 of 4 are new
    assert builtin.repetition([""] * 4, ["a b a b a b", "a b c d", "a b", ""], ngram=3) == [-0.5, 0.0, 0.0, 0.0]
    assert builtin.repetition([""], ["好好好好"], ngram=1) == [-0.75]


@given(st.lists(st.text(max_size=60), max_size=4), st.integers(1, 4))
def test_shaping_rewards_stay_in_range(outputs, n):
    prompts = [""] * len(outputs)
    assert all(-1.0 <= v <= 0.0 for v in builtin.repetition(prompts, outputs, n))
    assert all(0.0 <= v <= 1.0 for v in builtin.length(prompts, outputs, n))
    assert all(0.0 <= v <= 1.0 and math.isfinite(v) for v in builtin.connectives(prompts, outputs, "both", n))


HOSTILE = [
    "1" * 10**6,
    "1," * 300_000,
    "1e" * 300_000,
    "-" * 10**6,
    "1.1" * 200_000,
    "a'" * 300_000,
    "because " * 100_000,
]
HOSTILE += [" " * 10**6, "因" * 300_000, "1,111" * 100_000 + "x", "<answer>" * 100_000]


@pytest.mark.parametrize("text", HOSTILE, ids=lambda text: text[:6])
def test_no_reward_of_ours_takes_long_over_a_hostile_text(text):
    began = time.monotonic()
    builtin.number([""], [text], ["12"])
    builtin.exact([""], [text], ["12"], ignore_case=True)
    builtin.length([""], [text], target=5)
    builtin.connectives([""], [text])
    builtin.repetition([""], [text])
    gym.extract_answer(text, "tag")
    gym.extract_answer(text, "last_line")
    gym.extract_answer(text, "first_word")
    assert time.monotonic() - began < 8  # a quadratic one takes hours


def test_the_last_tag():
    assert gym.extract_answer("<answer>1</answer> no <answer> 2 </answer></answer>", "tag") == "2"
    assert gym.extract_answer("<answer>a<answer>b</answer>", "tag") == "a<answer>b"
    assert gym.extract_answer("<answer>1", "tag") == ""

"""What a reward function, a judge or an answer's sandbox may send: anything. Slow: 10,000 of each."""

import contextlib
import json
import math
import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anygrpo.scoring._plain import DECODERS
from anygrpo.scoring._tester import Class, Gone, Thing, Wire, function
from anygrpo.scoring._worker import FLOAT32_MAX, WrongShape, verdicts
from anygrpo.scoring.code import extract_code
from anygrpo.scoring.judge import reader
from anygrpo.scoring.reward import Inline
from anygrpo.scoring.scorer import Scorer
from anygrpo.scoring.specs import parse_tests

FEW, MANY = settings(max_examples=300, deadline=None), settings(max_examples=10_000, deadline=None)
NUMBERS = (
    st.floats() | st.integers() | st.booleans() | st.none() | st.decimals() | st.fractions() | st.complex_numbers()
)
THINGS = st.recursive(
    NUMBERS | st.text(max_size=8) | st.binary(max_size=8), lambda x: st.lists(x, max_size=3), max_leaves=6
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda x: (
        st.lists(x, max_size=3)
        | st.dictionaries(st.text(max_size=4), x, max_size=3)
        | st.dictionaries(st.sampled_from(sorted(DECODERS)), x, min_size=1, max_size=1)
    ),
    max_leaves=8,
)


def a_reward_returns(values):
    scores = Scorer([Inline("r", 1.0, False, lambda p, o: list(values))]).score(
        [{"prompt": "p"}], [["x"] * len(values)]
    )
    assert scores.rewards.isfinite().all()
    for g, value in enumerate(values):
        if bool(scores.valid[0, g]):
            assert abs(float(value)) <= FLOAT32_MAX
        else:
            assert scores.reasons[0, g].startswith("r: ")


def a_reward_returns_anything(result):
    try:
        made = verdicts(result, 2)
    except WrongShape:
        return
    assert len(made) == 2
    assert all(v is None or isinstance(v, str | dict) or math.isfinite(v) for v in made)
    json.dumps(made)


def a_judge_replies(text):
    with contextlib.suppress(ValueError):
        assert 0.0 <= reader(0.0, 10.0)(text) <= 1.0


def an_answer_replies(pieces, name):
    """Bytes on the pipe: a value, the answer's own error, or Gone; nothing else, and no object of its own."""
    asks, ask_end = os.pipe()
    replies, reply_end = os.pipe()
    os.write(ask_end, b'{"ready": true}\n' + b"".join(pieces))
    os.close(ask_end)
    try:
        wire = Wire(reply_end, asks, 1 << 20, os.open(os.devnull, os.O_WRONLY))
        seen: list[object] = []
        for _ in range(3):
            try:
                value = (Class if name[:1].isupper() else function)(wire, name)(1, [2])
                seen.append(name == "Stack" or not isinstance(value, Thing))
            except (Gone, Exception) as error:
                own = str(error) in ("own", "") or isinstance(error, Gone | RuntimeError | UnicodeError)
                seen.append(own or type(error).__name__)
        assert all(one is True for one in seen), seen
    finally:
        os.close(wire.verdicts)
        for descriptor in (asks, replies, reply_end):
            os.close(descriptor)


REPLIES = st.one_of(
    st.binary(max_size=40).map(lambda b: b + b"\n"),
    JSON.map(lambda x: json.dumps(x).encode() + b"\n"),
    JSON.map(lambda x: json.dumps({"value": x}).encode() + b"\n"),
    JSON.map(lambda x: json.dumps({"value": 1, "changed": x}).encode() + b"\n"),
    JSON.map(lambda x: json.dumps({"object": x}).encode() + b"\n"),
    JSON.map(lambda x: json.dumps({"error": x, "text": "own"}).encode() + b"\n"),
    st.sampled_from(
        ["SystemExit", "KeyboardInterrupt", "GeneratorExit", "Exception", "AssertionError", "StopIteration"]
    ).map(lambda n: json.dumps({"error": [n], "text": "own"}).encode() + b"\n"),
)


def a_spec_is(value, entry):
    with contextlib.suppress(ValueError):
        assert len(parse_tests(value, entry)) > 0


def an_output_is(text):
    assert isinstance(extract_code(text), str)


CASES = {
    "numbers": (a_reward_returns, (st.lists(NUMBERS | st.text(max_size=4), max_size=4),)),
    "anything": (a_reward_returns_anything, (THINGS,)),
    "judges": (a_judge_replies, (st.text() | JSON.map(json.dumps) | JSON.map(lambda x: json.dumps({"score": x})),)),
    "pipes": (an_answer_replies, (st.lists(REPLIES, max_size=3), st.sampled_from(["f", "Stack"]))),
    "tests": (a_spec_is, (JSON | st.text().map(lambda t: f"assert f({t}) == 1"), st.none() | st.text(max_size=4))),
    "outputs": (
        an_output_is,
        (st.text() | st.lists(st.sampled_from(["```", "```python\n", "\n", "x = 1", " "])).map("".join),),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_some(case):
    check, strategies = CASES[case]
    FEW(given(*strategies)(check))()


@pytest.mark.slow
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("case", CASES)
def test_many(case):
    check, strategies = CASES[case]
    MANY(given(*strategies)(check))()

"""What a user's environment and tools return, by hand: each fault names the method, what was found, what is wanted."""

from __future__ import annotations

import io
import json
import types

import numpy as np
import pytest
import torch
from PIL import Image

from anygrpo.language.tasks.pictures import opened
from anygrpo.language.tools import replies
from anygrpo.language.tools.replies import Unfit


class Env: ...


def speaks(messages, columns):
    return None


@pytest.mark.parametrize("value", [None, "", "x", {"role": "user", "content": "x"}, [], [{"role": "user"}]])
def test_words_pass_as_they_are(value):
    assert replies.said("Env.step", "step", value) == value


def test_numbers_of_arrays_in_a_message_are_numbers():
    given = {"role": "user", "content": "x", "score": np.float32(0.5), "board": torch.tensor([1, 2])}
    assert replies.said("Env.step", "step", given) == {"role": "user", "content": "x", "score": 0.5, "board": [1, 2]}


@pytest.mark.parametrize("kind", ["PIL", "bytes", "dict"])
def test_a_picture_of_a_reset_is_a_data_url(kind):
    picture, held = Image.new("RGB", (4, 3), "red"), io.BytesIO()
    picture.save(held, "PNG")
    given = {"PIL": picture, "bytes": held.getvalue(), "dict": {"bytes": held.getvalue(), "path": None}}[kind]
    message = {"role": "user", "content": [{"type": "image", "image": given}, {"type": "text", "text": "what?"}]}
    (made,) = replies.said("Env.reset", "reset", [message])
    shown = made["content"][0]["image"]
    assert opened(shown["bytes"] if kind == "dict" else shown).size == (4, 3)
    assert made["content"][1] == {"type": "text", "text": "what?"}
    assert message["content"][0]["image"] is given


@pytest.mark.parametrize(
    ("value", "found"),
    [
        (7, r"7 \(int\)"),
        (b"x", "a bytes of 1"),
        ({"a"}, "a set of 1"),
        ((x for x in "a"), "a generator"),
        (len, "a builtin_function_or_method"),
        (Env, "a class"),
        (["no"], r"a list with 'no' \(str\) in it"),
        ([[{"role": "user"}]], "a list with a list of 1 in it"),
        ("\ud800", "messages that are no JSON: 'utf-8' codec can't encode"),
        ({"role": "user", "content": object()}, "messages that are no JSON: a object"),
        ({("role",): 1}, "messages that are no JSON: keys must be str"),
    ],
)
def test_words_of_another_kind(value, found):
    with pytest.raises(Unfit, match=f"Env.step returned {found}"):
        replies.said("Env.step", "step", value)


@pytest.mark.parametrize(
    ("value", "number"),
    [(None, None), (1, 1.0), (True, 1.0), (np.float32(0.5), 0.5), (torch.ones(()), 1.0), (10**400, float("inf"))],
)
def test_a_reward_is_a_number(value, number):
    assert replies.number("Env.step", value) == number


@pytest.mark.parametrize("value", ["1.0", b"1", "good", [1.0], np.ones(2), 1j, object(), len])
def test_a_reward_of_another_kind(value):
    with pytest.raises(Unfit, match=r"Env.step returned a reward of "):
        replies.number("Env.step", value)


@pytest.mark.parametrize(
    ("value", "over"), [(None, False), (True, True), (0, False), (1.0, True), (np.bool_(True), True)]
)
def test_the_end(value, over):
    assert replies.ending("Env.step", value) is over


@pytest.mark.parametrize("value", ["no", "", 2, {"done": True}, np.ones(2), []])
def test_an_end_that_would_always_be_true_or_never(value):
    with pytest.raises(Unfit, match="for done"):
        replies.ending("Env.step", value)


def test_tuples_are_filled_or_refused():
    assert replies.parts("Env.step", "step", "x", (2, 3)) == ("x", None, None)
    assert replies.parts("Env.step", "step", ("x", 1.0), (2, 3)) == ("x", 1.0, None)
    assert replies.parts("Env.step", "step", ("x", 1.0, True), (2, 3)) == ("x", 1.0, True)
    for size in (0, 1, 4, 5):
        with pytest.raises(Unfit, match=f"Env.step returned a tuple of {size}"):
            replies.parts("Env.step", "step", (None,) * size, (2, 3))


def made_schema(tool):
    if not tool.__doc__:
        raise ValueError("no docstring")
    return {"type": "function", "function": {"name": tool.__name__}}


def look():
    "Looks."


def test_tools_of_a_reset():
    listed = replies.schemas("Env.reset", (look, {"name": "move", "parameters": {}}), made_schema)
    assert [one["function"]["name"] for one in listed] == ["look", "move"]
    assert replies.schemas("Env.reset", {"name": "move"}, made_schema)[0]["type"] == "function"
    assert [replies.schemas("Env.reset", nothing, made_schema) for nothing in (None, [], {})] == [[], [], []]


def test_a_schema_is_as_json_holds_it():
    """A choice of NumPy numbers ended the sample's process without a word."""
    side = {"type": "integer", "enum": list(np.arange(2))}
    (made,) = replies.schemas("Env.reset", [{"name": "go", "parameters": {"side": side}}], made_schema)
    assert made["function"]["parameters"]["side"]["enum"] == [0, 1]
    assert type(made["function"]["parameters"]["side"]["enum"][0]) is int


@pytest.mark.parametrize(
    ("tools", "found"),
    [
        (7, "7 (int) for the tools"),
        ({"seed": 1}, "{'seed': 1} (dict) for the tools"),
        (["search"], "a tool 'search' (str), neither a function"),
        ([{"parameters": {}}], "a tool {'parameters': {}} (dict)"),
        ([{"name": "x", "parameters": 7}], "the tool 'x' with parameters 7 (int)"),
        ([{"type": "function", "function": 7}], "a tool {'type': 'function', 'function': 7} (dict)"),
        ([{"name": "x"}, {"name": "x"}], "two tools called 'x'"),
        ([{"name": "x", "parameters": {"enum": {1}}}], "tools that are no JSON: a set"),
        ([speaks], "the tool speaks, of which no schema can be made: no docstring"),
    ],
)
def test_tools_of_another_kind(tools, found):
    with pytest.raises(Unfit) as stopped:
        replies.schemas("Env.reset", tools, made_schema)
    assert str(stopped.value).startswith(f"Env.reset returned {found}")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("x", "x"),
        (None, "null"),
        ({"a": "é"}, '{"a": "é"}'),
        ({1}, "{1}"),
        (1j, "1j"),
        ("a\ud800", "a?"),
        (float("nan"), "NaN"),
    ],
)
def test_what_a_model_reads_of_a_tool(value, text):
    assert replies.told("add", value) == text


@pytest.mark.parametrize("value", [(x for x in "a"), len, Env, types])
def test_what_no_model_can_read(value):
    with pytest.raises(Unfit, match="add returned a "):
        replies.told("add", value)


@pytest.mark.parametrize(
    ("made", "chinese"),
    [
        (lambda: replies.parts("Env.step", "step", (1, 2, 3, 4), (2, 3)), "Env.step 返回了 长度为 4 的 tuple"),
        (lambda: replies.number("Env.step", "high"), "Env.step 返回了 奖励 'high'（str）"),
        (lambda: replies.ending("Env.step", [1]), "Env.step 返回了 长度为 1 的 list 作为 done"),
        (
            lambda: replies.said("Env.step", "step", [len]),
            "Env.step 返回了 列表，其中有 一个 builtin_function_or_method",
        ),
        (lambda: replies.told("look", int), "look 返回了 一个类"),
    ],
)
def test_what_was_found_is_said_in_chinese(made, chinese):
    with pytest.raises(Unfit) as stopped:
        made()
    fault = json.loads(json.dumps(stopped.value.fault))  # as it comes from the sample's process
    assert replies.worded(fault).zh == chinese
    assert replies.worded(fault).en == str(stopped.value)

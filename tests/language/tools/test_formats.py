"""Calls as each house writes them; what cannot be read is told and never raised."""

import json

import pytest
from talking import tokenizer

from anygrpo.language.tools import formats
from anygrpo.language.tools.formats import READERS, Call, plainly

ADD = Call("add", {"a": 1, "b": "x"})
SUB = Call("sub", {})


@pytest.mark.parametrize(
    ("name", "text", "words", "calls"),
    [
        ("hermes", '<tool_call>\n{"name": "add", "arguments": {"a": 1, "b": "x"}}\n</tool_call>', "", [ADD]),
        ("hermes", 'so <tool_call>{"name": "add", "arguments": {"a": 1, "b": "x"}}</tool_call>\n'
         '<tool_call>{"name": "sub"}</tool_call>', "so", [ADD, SUB]),
        ("hermes", '<tool_call>{"name": "add", "arguments": "{\\"a\\": 1, \\"b\\": \\"x\\"}"}', "", [ADD]),
        ("hermes", "the answer is 3", "the answer is 3", []),
        ("llama3", '{"name": "add", "parameters": {"a": 1, "b": "x"}}', "", [ADD]),
        ("llama3", '<|python_tag|>{"name": "add", "parameters": {"a": 1, "b": "x"}}; {"name": "sub", "parameters": {}}',
         "", [ADD, SUB]),
        ("llama3", 'call {"name": "add"} now', 'call {"name": "add"} now', []),
        ("mistral", '[TOOL_CALLS][{"name": "add", "arguments": {"a": 1, "b": "x"}}, {"name": "sub", "arguments": {}}]',
         "", [ADD, SUB]),
        ("mistral", 'well[TOOL_CALLS]add[ARGS]{"a": 1, "b": "x"}[TOOL_CALLS]sub[ARGS]{}', "well", [ADD, SUB]),
        ("gpt_oss", '<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>commentary to=functions.add '
         '<|constrain|>json<|message|>{"a": 1, "b": "x"}<|call|>', "<|channel|>analysis<|message|>hm<|end|>", [ADD]),
        ("gpt_oss", ' to=functions.sub<|channel|>commentary json<|message|>{}', "", [SUB]),
    ],
)  # fmt: skip
def test_calls_by_hand(name, text, words, calls):
    assert READERS[name](text) == (words, calls)


@pytest.mark.parametrize(
    ("name", "text", "fault"),
    [
        ("hermes", '<tool_call>{"name": "add", "arguments": {</tool_call>', "not JSON"),
        ("hermes", "<tool_call>[1]</tool_call>", "a call is"),
        ("hermes", '<tool_call>{"name": "add", "arguments": 3}</tool_call>', "not an object"),
        ("hermes", "<tool_call>" + "[" * 5000 + "</tool_call>", "not JSON"),
        ("llama3", '<|python_tag|>{"name"', "not JSON"),
        ("mistral", "[TOOL_CALLS]nothing", "not JSON"),
        ("mistral", "[TOOL_CALLS]add[ARGS]3", "not a JSON object"),
        ("gpt_oss", "to=functions.add<|message|>oh", "not JSON"),
    ],
)
def test_what_cannot_be_read_says_why(name, text, fault):
    (call,) = READERS[name](text)[1]
    assert fault in call.fault
    assert call.arguments == {}


CALL = "{% for c in m.tool_calls %}{{ FORM }}{% endfor %}"
WRITTEN = {
    "hermes": "<tool_call>\n{{ {'name': c.function.name, 'arguments': c.function.arguments} | tojson }}\n</tool_call>",
    "llama3": "{{ {'name': c.function.name, 'parameters': c.function.arguments} | tojson }}",
    "mistral": "[TOOL_CALLS]{{ c.function.name }}[ARGS]{{ c.function.arguments | tojson }}",
    "gpt_oss": "<|channel|>commentary to=functions.{{ c.function.name }}<|message|>{{ c.function.arguments|tojson }}",
}


def template(form):
    body = "{{ m.content }}{% if m.tool_calls %}{% for c in m.tool_calls %}" + form + "{% endfor %}{% endif %}"
    return (
        "{% for m in messages %}<|{{ m.role }}|>" + body + "<|end|>{% endfor %}"
        "{% if add_generation_prompt %}<|assistant|>{% endif %}"
    )


@pytest.mark.parametrize("name", list(WRITTEN))
def test_a_template_shows_its_format_and_its_calls_are_read_back(name):
    made = tokenizer(template(WRITTEN[name]))
    render = lambda messages: made.apply_chat_template(messages, tokenize=False)  # noqa: E731
    assert formats.shown(render)
    assert formats.found(render) == name
    said = {"role": "assistant", "content": "", "tool_calls": [ADD.message(), SUB.message()]}
    if name in ("llama3", "gpt_oss"):
        said["tool_calls"] = said["tool_calls"][:1]
    text = render([{"role": "user", "content": "?"}, said]).split("<|assistant|>")[1].removesuffix("<|end|>")
    assert READERS[name](text) == ("", [ADD, SUB][: len(said["tool_calls"])])


def test_a_template_that_knows_no_tools():
    made = tokenizer()
    render = lambda messages: made.apply_chat_template(messages, tokenize=False)  # noqa: E731
    assert not formats.shown(render)
    assert formats.found(render) is None
    refuses = tokenizer("{% for m in messages %}{{ raise_exception('no') }}{% endfor %}")
    assert formats.found(lambda messages: refuses.apply_chat_template(messages, tokenize=False)) is None


def test_in_words_alone():
    tool = {"type": "function", "function": {"name": "add", "parameters": {}}}
    said = [
        {"role": "user", "content": "?"},
        {"role": "assistant", "content": "so", "tool_calls": [ADD.message()]},
        {"role": "tool", "name": "add", "content": "3"},
        {"role": "tool", "name": "add", "content": "4"},
    ]
    system, asked, called, told = plainly(said, [tool])
    assert system["role"] == "system"
    assert json.dumps(tool["function"]) in system["content"]
    assert asked == said[0]
    assert READERS["hermes"](called["content"]) == ("so", [ADD])
    assert "tool_calls" not in called
    assert told == {
        "role": "user",
        "content": "<tool_response>\n3\n</tool_response>\n<tool_response>\n4\n</tool_response>",
    }
    own = plainly([{"role": "system", "content": "be kind"}, *said], [tool])
    assert own[0]["content"].startswith("be kind\n\n")
    assert len(own) == 4
